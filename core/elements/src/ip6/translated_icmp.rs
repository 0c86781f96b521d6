//! ICMP messages in the terms of ICMPv6, and the other way round (RFC 2765, sections 3.3 and 4.2).

use crate::ipv4::{half, word};

/// The bytes of the header of each message.
const HEADER_BYTES: usize = 8;

/// The difference of the lengths of the IP headers.
const HEADER_DIFFERENCE: u32 = 20;
/// The least MTU of a link with IPv6.
const IPV6_MTU_MIN: u32 = 1280;

/// The pointers to fields with the same meaning in the headers of IPv4 and IPv6.
const POINTERS: [(u8, u32); 6] = [(0, 0), (2, 4), (8, 7), (9, 6), (12, 8), (16, 24)];

/// The header of a message without its checksum.
struct NewIcmp {
    icmp_type: u8,
    code: u8,
    /// The second four bytes.
    rest: [u8; 4],
}

impl NewIcmp {
    /// Returns the message with this header and the data of another one. Its checksum is 0.
    fn with_data_of(&self, message: &[u8]) -> Vec<u8> {
        let mut new = message.to_vec();
        let [a, b, c, d] = self.rest;
        new[..HEADER_BYTES].copy_from_slice(&[self.icmp_type, self.code, 0, 0, a, b, c, d]);
        new
    }
}

/// Returns the message of ICMP with the meaning of one of ICMPv6, without its checksum; `None` if there is none.
pub fn to_icmp(message: &[u8]) -> Option<Vec<u8>> {
    let header: &[u8; HEADER_BYTES] = message.first_chunk()?;
    let [icmp_type, code, _, _, rest @ ..] = *header;
    let new = |icmp_type, code, rest| NewIcmp { icmp_type, code, rest };
    let new = match (icmp_type, code) {
        (128, _) => new(8, 0, rest),
        (129, _) => new(0, 0, rest),
        (1, code) => {
            // No route, prohibited, beyond scope, address, port.
            let code = [0, 10, 5, 1, 3].get(usize::from(code)).copied().unwrap_or(0);
            new(3, code, [0; 4])
        }
        (2, _) => {
            let mtu = word(header, 4).saturating_sub(HEADER_DIFFERENCE);
            let [high, low] = u16::try_from(mtu).unwrap_or(u16::MAX).to_be_bytes();
            new(3, 4, [0, 0, high, low])
        }
        (3, code) => new(11, code, [0; 4]),
        (4, 1) => new(3, 2, [0; 4]),
        (4, 0) => {
            let found = POINTERS.iter().find(|(_, ipv6)| *ipv6 == word(header, 4));
            new(12, 0, [found.map_or(u8::MAX, |(ipv4, _)| *ipv4), 0, 0, 0])
        }
        (4, 2) => new(12, 0, [u8::MAX, 0, 0, 0]),
        _ => return None,
    };
    Some(new.with_data_of(message))
}

/// Returns the message of ICMPv6 with the meaning of one of ICMP, without its checksum; `None` if there is none.
pub fn to_icmpv6(message: &[u8]) -> Option<Vec<u8>> {
    let header: &[u8; HEADER_BYTES] = message.first_chunk()?;
    let [icmp_type, code, _, _, rest @ ..] = *header;
    let new = |icmp_type, code, rest| NewIcmp { icmp_type, code, rest };
    let new = match (icmp_type, code) {
        (8, _) => new(128, 0, rest),
        (0, _) => new(129, 0, rest),
        // The pointer is to the number of the next header.
        (3, 2) => new(4, 1, 6_u32.to_be_bytes()),
        (3, 4) => {
            let mtu = u32::from(half(header, 6)) + HEADER_DIFFERENCE;
            new(2, 0, mtu.max(IPV6_MTU_MIN).to_be_bytes())
        }
        (3, 3) => new(1, 4, [0; 4]),
        (3, 5) => new(1, 2, [0; 4]),
        (3, 9 | 10) => new(1, 1, [0; 4]),
        (3, _) => new(1, 0, [0; 4]),
        (11, code) => new(3, code, [0; 4]),
        (12, _) => {
            let found = POINTERS.iter().find(|(ipv4, _)| *ipv4 == header[4]);
            new(4, 0, found.map_or(u32::MAX, |(_, ipv6)| *ipv6).to_be_bytes())
        }
        _ => return None,
    };
    Some(new.with_data_of(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_same_meaning_lead_to_each_other() {
        // Echo and its reply, unreachable port, fragmentation needed, time exceeded, unknown protocol, pointer to the source.
        let all: [[u8; 8]; 7] = [
            [8, 0, 0, 0, 1, 2, 3, 4],
            [0, 0, 0, 0, 1, 2, 3, 4],
            [3, 3, 0, 0, 0, 0, 0, 0],
            [3, 4, 0, 0, 0, 0, 5, 100],
            [11, 1, 0, 0, 0, 0, 0, 0],
            [3, 2, 0, 0, 0, 0, 0, 0],
            [12, 0, 0, 0, 12, 0, 0, 0],
        ];
        for message in all {
            assert_eq!(to_icmp(&to_icmpv6(&message).unwrap()).unwrap(), message);
            assert_eq!(to_icmpv6(&message[..7]), None);
        }
        assert_eq!(to_icmpv6(&[3, 4, 0, 0, 0, 0, 2, 0]).unwrap(), [2, 0, 0, 0, 0, 0, 5, 0]);
        assert_eq!((to_icmpv6(&[13; 8]), to_icmp(&[135; 8])), (None, None));
    }
}
