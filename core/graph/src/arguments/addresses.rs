//! Arguments that are addresses and prefixes.

use super::names::in_scopes;
use super::{ArgumentContext, ArgumentFault, ArgumentValue};
use core::net::{Ipv4Addr, Ipv6Addr};
use std::fmt;

/// An IPv4 address with a mask, whose bits need not be contiguous. The address can have bits outside the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv4Prefix {
    /// The address.
    pub address: Ipv4Addr,
    /// The mask.
    pub mask: Ipv4Addr,
}

impl Ipv4Prefix {
    /// Returns true if an address is in the prefix.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (address.to_bits() ^ self.address.to_bits()) & self.mask.to_bits() == 0
    }
}

/// An IPv6 address with a prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv6Prefix {
    /// The address.
    pub address: Ipv6Addr,
    /// The length of the prefix in bits, at most 128.
    pub len: u8,
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EthernetAddress(pub [u8; 6]);

impl fmt::Display for EthernetAddress {
    /// Writes the address as Click does: `00-0A-95-9D-68-16`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02X}-{b:02X}-{c:02X}-{d:02X}-{e:02X}-{g:02X}")
    }
}

/// Returns the address of one to four decimal numbers between dots, and how many there are. Missing ones are 0.
fn dotted(text: &str) -> Option<(Ipv4Addr, u32)> {
    let mut octets = [0; 4];
    let mut count = 0;
    for part in text.split('.') {
        // Not octal, with a zero in front as well.
        let is_decimal = (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        *octets.get_mut(count).filter(|_| is_decimal)? = part.parse().ok()?;
        count += 1;
    }
    Some((octets.into(), u32::try_from(count).ok()?))
}

fn mask_of(len: u32) -> u32 {
    u32::MAX.checked_shl(32 - len).unwrap_or(0)
}

impl ArgumentValue for Ipv4Addr {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        match dotted(text) {
            Some((address, 4)) => Ok(address),
            _ => in_scopes(text, context.element, |name| context.names.ipv4(name))
                .ok_or(ArgumentFault::Type("IP address")),
        }
    }

    fn placeholder() -> Self {
        Self::UNSPECIFIED
    }
}

/// A prefix such as `10.0.0.0/8`, `10/8` or `10.0.0.0/255.0.0.0`; an address alone is a prefix of 32 bits.
impl ArgumentValue for Ipv4Prefix {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        let with_slash = || {
            let (address, mask) = text.rsplit_once('/')?;
            let (address, octets) = match dotted(address) {
                Some(dotted) => dotted,
                None => (Ipv4Addr::parse_argument(address, context).ok()?, 4),
            };
            let mask = match decimal(mask, 32) {
                Some(len) => mask_of(len),
                None => Ipv4Addr::parse_argument(mask, context).ok()?.to_bits(),
            };
            // A mask with more bits than were written of the address is a mistake.
            let is_covered = mask & !mask_of(8 * octets) == 0;
            is_covered.then_some(Self { address, mask: mask.into() })
        };
        with_slash()
            .or_else(|| {
                let address = Ipv4Addr::parse_argument(text, context).ok()?;
                Some(Self { address, mask: Ipv4Addr::BROADCAST })
            })
            .or_else(|| in_scopes(text, context.element, |name| context.names.ipv4_prefix(name)))
            .ok_or(ArgumentFault::Type("IP address or prefix"))
    }

    fn placeholder() -> Self {
        Self { address: Ipv4Addr::UNSPECIFIED, mask: Ipv4Addr::UNSPECIFIED }
    }
}

/// Returns a decimal number up to `max`.
fn decimal(text: &str, max: u32) -> Option<u32> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|len| is_decimal && *len <= max)
}

impl ArgumentValue for Ipv6Addr {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        text.parse()
            .ok()
            .or_else(|| in_scopes(text, context.element, |name| context.names.ipv6(name)))
            .ok_or(ArgumentFault::Type("IPv6 address"))
    }

    fn placeholder() -> Self {
        Self::UNSPECIFIED
    }
}

/// A prefix such as `2001:db8::/32`; an address alone is a prefix of 128 bits.
impl ArgumentValue for Ipv6Prefix {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        let with_slash = || {
            let (address, len) = text.rsplit_once('/')?;
            let address = Ipv6Addr::parse_argument(address, context).ok()?;
            let len = match decimal(len, 128) {
                Some(len) => len,
                None => {
                    let mask = Ipv6Addr::parse_argument(len, context).ok()?.to_bits();
                    let len = mask.leading_ones();
                    (mask.count_ones() == len).then_some(len)?
                }
            };
            Some(Self { address, len: u8::try_from(len).ok()? })
        };
        with_slash()
            .or_else(|| {
                let address = Ipv6Addr::parse_argument(text, context).ok()?;
                Some(Self { address, len: 128 })
            })
            .or_else(|| in_scopes(text, context.element, |name| context.names.ipv6_prefix(name)))
            .ok_or(ArgumentFault::Type("IPv6 address or prefix"))
    }

    fn placeholder() -> Self {
        Self { address: Ipv6Addr::UNSPECIFIED, len: 0 }
    }
}

/// An address of six hexadecimal numbers between colons, or between dashes.
impl ArgumentValue for EthernetAddress {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        let separator = if text.contains(':') { ':' } else { '-' };
        let mut octets = [0; 6];
        let mut count = 0;
        for part in text.split(separator) {
            let is_octet = (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            match (u8::from_str_radix(part, 16), octets.get_mut(count)) {
                (Ok(octet), Some(place)) if is_octet => *place = octet,
                _ => {
                    count = usize::MAX;
                    break;
                }
            }
            count += 1;
        }
        if count == octets.len() {
            return Ok(Self(octets));
        }
        in_scopes(text, context.element, |name| context.names.ethernet(name))
            .ok_or(ArgumentFault::Type("Ethernet address"))
    }

    fn placeholder() -> Self {
        Self([0; 6])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_cover_all_lengths() {
        assert_eq!([mask_of(0), mask_of(8), mask_of(32)], [0, 0xff00_0000, u32::MAX]);
    }
}
