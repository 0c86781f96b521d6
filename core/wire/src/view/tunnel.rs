//! Views of tunnels, which [`crate::tunnel`] opens.
//!
//! A packet that another one carries is shown by the same rules. A tunnel over UDP without a consistent packet inside is not shown any further.

use super::scene::{Above, ChecksumState, PacketRewriter, Rest};
use crate::tunnel::{Tunnel, TunnelHeader, UdpTunnel, over_ip, over_udp, teredo_authentication};
use crate::upper::Upper;
use weir_abi::flag;

impl PacketRewriter<'_> {
    /// Shows the packet in a tunnel that an IP header names. Returns false where none is understood.
    pub(super) fn tunnel_over_ip(&mut self, above: &Above, depth: u8) -> bool {
        let Above { upper: Upper { protocol, at, end }, covered, flags, .. } = *above;
        let Ok(Some(TunnelHeader { tunnel, inner, kind })) = over_ip(self.captured(), protocol, at, end)
        else {
            return false;
        };
        let has_sum =
            tunnel == Tunnel::Gre && self.read(at).is_some_and(|[first]: &[u8; 1]| first & 0x80 != 0);
        if tunnel == Tunnel::Gre {
            self.show(inner);
        }
        if has_sum && self.hides_fields {
            self.zero(at + 6, 2);
        }
        match kind {
            Some(kind) => self.inside(inner, end, kind, depth),
            None => self.finish(&Rest::Unknown { at: inner, end }),
        }
        if has_sum {
            let in_part = flags & flag::FRAGMENT != 0;
            self.seal(&ChecksumState { field: at + 4, from: at, end: covered, pseudo: None, in_part });
        }
        true
    }

    /// Shows what a UDP header carries on a tunnel's port, from `at` to `end`.
    #[inline(never)]
    pub(super) fn tunnel_over_udp(&mut self, tunnel: UdpTunnel, at: usize, end: usize, depth: u8) {
        let UdpTunnel::Known(tunnel) = tunnel else { return self.finish(&Rest::Unknown { at, end }) };
        let Ok(Some((inner, kind))) = over_udp(self.captured(), tunnel, at, end) else {
            return self.finish(&Rest::Unknown { at, end });
        };
        self.show(inner);
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

    /// Zeros the contents of extension headers of GTP-U up to `end`. Their lengths and kinds stay.
    fn gtp_extensions(&mut self, mut at: usize, end: usize) {
        while let Some(&[words]) = self.read::<1>(at).filter(|_| at < end) {
            let len = usize::from(words) * 4;
            // All of them have been looked at, so there is none without a length.
            if len == 0 {
                return self.zero(at, end - at);
            }
            self.zero(at + 1, len - 2);
            at += len;
        }
    }

    /// Zeros what Teredo has in front of the packet at `inner`. An authentication has an identifier and a value that covers the packet; only its
    /// lengths stay. An origin indication has an address and a port.
    fn teredo_indications(&mut self, at: usize, inner: usize) {
        let authentication = teredo_authentication(self.captured(), at).unwrap_or(0);
        self.zero(at + 4, authentication.saturating_sub(4));
        if self.hides_fields {
            let origin = at + authentication;
            self.zero(origin + 2, inner.saturating_sub(origin + 2));
        }
    }
}
