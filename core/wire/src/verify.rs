//! Verification of checksums: IPv4 (RFC 791), TCP (RFC 9293, 3.1), UDP (RFC 768; RFC 8200, 8.1) and ICMP (RFC 792,
//! RFC 4443, 2.3).

use crate::checksum::{add_bytes, fold_sum};
use crate::classify::{HeaderVisitor, walk};
use crate::fragment::addresses;
use crate::ip::protocol;
use crate::meta::Meta;
use weir_abi::{Descriptor, flag};

/// The kind of a checksum that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadChecksum {
    /// The checksum of the IPv4 header.
    #[error("the IPv4 header's checksum is wrong")]
    Ipv4,
    /// The TCP checksum.
    #[error("the TCP checksum is wrong")]
    Tcp,
    /// The UDP checksum, which also counts as wrong if it is missing over IPv6.
    #[error("the UDP checksum is wrong")]
    Udp,
    /// The checksum of ICMP or ICMPv6.
    #[error("the ICMP checksum is wrong")]
    Icmp,
}

/// A visitor that keeps the offset of the checksum above IP and its covered range.
#[derive(Default)]
struct ChecksumVisitor {
    /// The offset of the checksum above IP, and the beginning and the end of the range that it covers.
    upper: Option<(usize, usize, usize)>,
    /// True if the final destination address is not in the IP header.
    routed: bool,
}

impl HeaderVisitor for ChecksumVisitor {
    fn fixed(&mut self, _: usize, _: usize) {}
    fn fixed_bits(&mut self, _: usize, _: u8) {}
    fn unknown_from(&mut self, _: usize) {}

    fn checksum(&mut self, field: usize, from: usize, end: usize) {
        // Bytes behind the end of the IP packet are padding, and not a checksum.
        if field + 2 <= end {
            self.upper = Some((field, from, end));
        }
    }

    fn has_other_destination(&mut self) {
        self.routed = true;
    }
}

/// Verifies the checksums of a packet. `packet` is all captured bytes of the packet that `descriptor` describes.
///
/// Checksums that cannot be verified do not count as wrong:
///
/// - a checksum over bytes that are not captured
/// - a checksum above IP in a fragment
/// - a UDP checksum of 0 over IPv4, which means that the sender computed none
/// - a checksum over another destination address than that of the IP header (source routes, routing headers with
///   segments left)
/// - a checksum of a header inside a tunnel
///
/// # Errors
///
/// The first wrong checksum: that of the outermost IP header, or else that of the header above it.
pub fn verify(packet: &[u8], descriptor: &Descriptor) -> Result<(), BadChecksum> {
    let Some(meta) = Meta::from_descriptor(descriptor) else { return Ok(()) };
    let (mut reparsed, mut visitor) = (Descriptor::default(), ChecksumVisitor::default());
    // `walk` fails only if it needs more captured bytes than it gets, and it gets all of them.
    if walk(packet, &meta, &mut reparsed, &mut visitor).is_err() {
        return Ok(());
    }
    let ip = packet.get(usize::from(reparsed.l3_offset)..).unwrap_or_default();
    let is_v4 = reparsed.flags & flag::IPV4 != 0;
    if is_v4 {
        let header_len = usize::from(ip.first().map_or(0, |first| first & 15)) * 4;
        if let Some(header) = ip.get(..header_len) {
            if fold_sum(add_bytes(0, header)) != 0xffff {
                return Err(BadChecksum::Ipv4);
            }
            visitor.routed |= header.get(20..).is_some_and(has_source_route);
        }
    }
    let Some((field, from, end)) = visitor.upper else { return Ok(()) };
    let (Some(covered), Some((src, dst))) = (packet.get(from..end), addresses(packet, &reparsed)) else {
        return Ok(());
    };
    let bad = match reparsed.ip_proto {
        protocol::TCP => BadChecksum::Tcp,
        protocol::UDP => BadChecksum::Udp,
        protocol::ICMP if is_v4 => BadChecksum::Icmp,
        protocol::ICMPV6 if !is_v4 => BadChecksum::Icmp,
        _ => return Ok(()),
    };
    if reparsed.flags & flag::FRAGMENT != 0 {
        return Ok(());
    }
    let mut sum = 0;
    if reparsed.ip_proto != protocol::ICMP {
        if visitor.routed {
            return Ok(());
        }
        if reparsed.ip_proto == protocol::UDP && packet.get(field..field + 2) == Some(&[0, 0]) {
            return if is_v4 { Ok(()) } else { Err(BadChecksum::Udp) };
        }
        sum = add_bytes(sum, &src.to_be_bytes());
        sum = add_bytes(sum, &dst.to_be_bytes());
        sum += u64::from(reparsed.ip_proto) + (covered.len() as u64);
    }
    if fold_sum(add_bytes(sum, covered)) == 0xffff { Ok(()) } else { Err(bad) }
}

/// Returns true if IPv4 options contain a source route (RFC 791, 3.1). Checksums above IP then do not cover the
/// header's destination.
pub(crate) fn has_source_route(mut options: &[u8]) -> bool {
    while let Some((&kind, rest)) = options.split_first() {
        options = match kind {
            0 => return false,
            1 => rest,
            131 | 137 => return true,
            _ => match rest.first().and_then(|&len| options.get(usize::from(len).max(2)..)) {
                Some(next) => next,
                None => return false,
            },
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_routes_are_found_among_other_options_and_unterminated_options_cause_no_panic() {
        for (options, has) in [
            (&[1, 1, 131, 7, 4, 0, 0, 0, 0][..], true),
            (&[7, 7, 4, 0, 0, 0, 0, 137, 3, 4], true),
            (&[7, 7, 4, 131, 131, 131, 131, 0, 137], false),
            (&[7, 0, 131], true),
            (&[7], false),
            (&[7, 200, 131], false),
            (&[], false),
        ] {
            assert_eq!(has_source_route(options), has, "{options:?}");
        }
    }
}
