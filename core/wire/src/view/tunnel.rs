//! Views of packets in tunnels, whose headers [`crate::tunnel`] parses.
//!
//! The rules of the view also apply to the packet inside. A tunnel over UDP without a consistent packet inside is not
//! copied any further.

use super::packet_rewriter::{CoveredChecksum, PacketRewriter, Rest, UpperPart};
use crate::tunnel::{Tunnel, TunnelHeader, UdpTunnel, over_ip, over_udp, teredo_authentication};
use crate::upper::UpperHeader;
use weir_abi::flag;

impl PacketRewriter<'_> {
    /// Copies a tunnel header that an IP header names, and the packet inside. Returns false if the tunnel header is not
    /// understood.
    pub(super) fn tunnel_over_ip(&mut self, above: &UpperPart, depth: u8) -> bool {
        let UpperPart { upper: UpperHeader { protocol, at, end }, covered, flags, .. } = *above;
        let Ok(Some(TunnelHeader { tunnel, inner, kind })) = over_ip(self.captured(), protocol, at, end)
        else {
            return false;
        };
        let has_checksum =
            tunnel == Tunnel::Gre && self.read(at).is_some_and(|[first]: &[u8; 1]| first & 0x80 != 0);
        if tunnel == Tunnel::Gre {
            self.copy_up_to(inner);
        }
        if has_checksum && self.hides_fields {
            self.zero(at + 6, 2);
        }
        match kind {
            Some(kind) => self.inside(inner, end, kind, depth),
            None => self.finish(&Rest::Unknown { at: inner, end }),
        }
        if has_checksum {
            let is_partial = flags & flag::FRAGMENT != 0;
            self.finish_checksum(&CoveredChecksum {
                field: at + 4,
                from: at,
                end: covered,
                pseudo: None,
                is_partial,
            });
        }
        true
    }

    /// Copies the data of a UDP header on a tunnel's port, from `at` to `end`.
    #[inline(never)]
    pub(super) fn tunnel_over_udp(&mut self, tunnel: UdpTunnel, at: usize, end: usize, depth: u8) {
        let UdpTunnel::Known(tunnel) = tunnel else { return self.finish(&Rest::Unknown { at, end }) };
        let Ok(Some((inner, kind))) = over_udp(self.captured(), tunnel, at, end) else {
            return self.finish(&Rest::Unknown { at, end });
        };
        self.copy_up_to(inner);
        match tunnel {
            // Options and extension headers can have private meanings.
            Tunnel::Geneve => self.zero(at + 8, inner.saturating_sub(at + 8)),
            Tunnel::GtpU if self.hides_fields => self.zero(at + 8, inner.saturating_sub(at + 8)),
            Tunnel::GtpU => self.gtp_extensions(at + 12, inner),
            Tunnel::Teredo => self.teredo_indications(at, inner),
            Tunnel::Vxlan | Tunnel::IpInIp | Tunnel::MplsInIp | Tunnel::Gre => {}
        }
        self.inside(inner, end, kind, depth);
    }

    /// Zeros the contents of GTP-U extension headers up to `end`. Their lengths and kinds stay.
    fn gtp_extensions(&mut self, mut at: usize, end: usize) {
        while let Some(&[words]) = self.read::<1>(at).filter(|_| at < end) {
            let len = usize::from(words) * 4;
            // The parser has followed all extension headers, so none has length 0.
            if len == 0 {
                return self.zero(at, end - at);
            }
            self.zero(at + 1, len - 2);
            at += len;
        }
    }

    /// Zeros Teredo's indications in front of the packet at `inner`. An authentication header contains an
    /// identifier and a value that covers the packet; only the header's lengths stay. An origin indication contains an
    /// address and a port.
    fn teredo_indications(&mut self, at: usize, inner: usize) {
        let authentication = teredo_authentication(self.captured(), at).unwrap_or(0);
        self.zero(at + 4, authentication.saturating_sub(4));
        if self.hides_fields {
            let origin = at + authentication;
            self.zero(origin + 2, inner.saturating_sub(origin + 2));
        }
    }
}
