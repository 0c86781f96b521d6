//! Base 32 as in RFC 4648, in lower case and without padding: 5 bits a character. No character is special to a shell or
//! a file system, or ends a double-click selection. No two characters differ only in case.

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Returns bytes as text.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut buffer, mut buffered_bits) = (0_u32, 0_u32);
    for byte in bytes {
        buffer = buffer << 8 | u32::from(*byte);
        buffered_bits += 8;
        while buffered_bits >= 5 {
            buffered_bits -= 5;
            text.push(digit(buffer >> buffered_bits));
        }
        buffer &= (1 << buffered_bits) - 1;
    }
    if buffered_bits > 0 {
        text.push(digit(buffer << (5 - buffered_bits)));
    }
    text
}

fn digit(value: u32) -> char {
    char::from(ALPHABET[(value & 31) as usize])
}

/// Returns the bytes of a text. `None` for characters outside the alphabet, for impossible lengths, and if unused bits
/// of the last character are set: every byte sequence has exactly one text.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let (mut buffer, mut buffered_bits) = (0_u32, 0_u32);
    for character in text.bytes() {
        let value = ALPHABET.iter().position(|known| *known == character)?;
        buffer = buffer << 5 | u32::try_from(value).ok()?;
        buffered_bits += 5;
        if buffered_bits >= 8 {
            buffered_bits -= 8;
            bytes.push(u8::try_from(buffer >> buffered_bits).ok()?);
            buffer &= (1 << buffered_bits) - 1;
        }
    }
    (buffer == 0 && buffered_bits < 5).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "my"),
            ("fo", "mzxq"),
            ("foo", "mzxw6"),
            ("foob", "mzxw6yq"),
            ("fooba", "mzxw6ytb"),
            ("foobar", "mzxw6ytboi"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
    }

    #[test]
    fn every_sequence_of_bytes_has_one_text() {
        for text in ["m", "mz1w6", "MZXW6", "mzxw6y=", "mz", "mzx", "mzxw6yr", "mzé"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
