//! Gzip streams (RFC 1952) of one or more members.

use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, Read};

/// A reader that decompresses one member after the other. Zeros after a member are padding, as on tapes and block
/// devices. The stream ends if nothing follows the zeros.
pub(crate) struct Members<R> {
    /// The present member; `None` after the last one.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Members<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { member: Some(GzDecoder::new(input)) }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        loop {
            let Some(member) = &mut self.member else { return Ok(0) };
            let read = member.read(to)?;
            if read > 0 {
                return Ok(read);
            }
            // Checked before the member is dropped, so that the check can be repeated if reading fails.
            if !has_more(member.get_mut())? {
                self.member = None;
            } else if let Some(member) = self.member.take() {
                self.member = Some(GzDecoder::new(member.into_inner()));
            }
        }
    }
}

/// Skips zeros. Returns true if anything follows them.
fn has_more(input: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let rest = input.fill_buf()?;
        let (len, zeros) = (rest.len(), rest.iter().take_while(|byte| **byte == 0).count());
        input.consume(zeros);
        if zeros < len || len == 0 {
            return Ok(len > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::{BufReader, Write};

    fn member(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn decompressed(parts: &[&[u8]]) -> (Vec<u8>, Option<io::ErrorKind>) {
        let input = parts.concat();
        // A buffer smaller than the padding.
        let mut members = Members::new(BufReader::with_capacity(16, input.as_slice()));
        let mut out = Vec::new();
        let error = members.read_to_end(&mut out).err().map(|error| error.kind());
        (out, error)
    }

    #[test]
    fn members_follow_each_other_and_zeros_are_padding() {
        let (one, two) = (member(b"one"), member(b"two"));
        assert_eq!(decompressed(&[&one]), (b"one".to_vec(), None));
        assert_eq!(decompressed(&[&one, &two, &member(b"")]), (b"onetwo".to_vec(), None));
        for zeros in [1, 15, 16, 17, 1000] {
            let padding = vec![0; zeros];
            assert_eq!(decompressed(&[&one, &padding]), (b"one".to_vec(), None), "{zeros}");
            assert_eq!(
                decompressed(&[&one, &padding, &two, &padding]),
                (b"onetwo".to_vec(), None),
                "{zeros}"
            );
        }
    }

    #[test]
    fn other_data_after_a_member_are_an_error() {
        let one = member(b"one");
        for rest in [&b"\0\0rest"[..], b"rest of something", &member(b"two")[..9], b"\x1f"] {
            let (out, error) = decompressed(&[&one, rest]);
            assert_eq!(out, b"one");
            assert!(error.is_some(), "{rest:?}");
        }
    }
}
