//! IP addresses as text.

use core::net::Ipv6Addr;
use std::fmt::{self, Write as _};

/// The most bytes of an address as text: IPv6 with an IPv4 address at its end.
const TEXT_BYTES_MAX: usize = 45;

/// An address as text, without an allocation: most records have two addresses.
#[derive(Clone, Copy, Debug)]
pub struct AddressText {
    bytes: [u8; TEXT_BYTES_MAX],
    len: usize,
}

impl AddressText {
    /// Formats an address; an IPv4-mapped one as IPv4: `10.0.0.1` or `2001:db8::1`.
    pub fn new(address: Ipv6Addr) -> Self {
        let mut text = Self { bytes: [0; TEXT_BYTES_MAX], len: 0 };
        let Some(v4) = address.to_ipv4_mapped() else {
            // The array has room for every address.
            let _ = write!(text, "{address}");
            return text;
        };
        // The standard formatter takes five times as long.
        for (index, octet) in v4.octets().into_iter().enumerate() {
            if index > 0 {
                text.push(b'.');
            }
            for (least, digit) in [(100, octet / 100), (10, octet / 10 % 10), (0, octet % 10)] {
                if octet >= least {
                    text.push(b'0' + digit);
                }
            }
        }
        text
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        self.bytes.get(..self.len).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }
}

impl fmt::Write for AddressText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| self.push(byte));
        Ok(())
    }
}

impl fmt::Display for AddressText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_standard_library() {
        for v4 in (0..=255).map(|n| core::net::Ipv4Addr::new(n, 255 - n, n / 2, n % 11)) {
            assert_eq!(AddressText::new(v4.to_ipv6_mapped()).as_str(), v4.to_string());
        }
        let longest = "1111:2222:3333:4444:5555:6666:7777:8888";
        for text in ["::", "::1", "2001:db8::1", longest, "64:ff9b::c000:20a"] {
            assert_eq!(AddressText::new(text.parse().unwrap()).as_str(), text);
        }
    }
}
