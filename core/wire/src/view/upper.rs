//! Views of the headers above IP: TCP and UDP here; control messages and tunnels have files of their own.

use super::packet_rewriter::{CoveredChecksum, PacketRewriter, Rest, UpperPart};
use super::{Exposure, ZeroedField};
use crate::ip::protocol;
use crate::tunnel::{end_of_datagram, tunnel_of_ports};
use crate::upper::UpperHeader;
use weir_abi::flag;

const IGMP: u8 = 2;

/// The offset of TCP's options.
const TCP_OPTIONS: usize = 20;
/// The length of the part of a TCP header that every ICMP error message quotes (RFC 792): ports and sequence number.
const TCP_QUOTED: usize = 8;

/// Options of TCP.
mod option_tcp {
    pub(super) const END: u8 = 0;
    pub(super) const NO_OPERATION: u8 = 1;
    pub(super) const SEGMENT_SIZE: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
    pub(super) const MULTIPATH: u8 = 30;
    pub(super) const FAST_OPEN: u8 = 34;
}

/// The offset and length of the checksum of a transport protocol whose header is not parsed, or not captured
/// completely. The length is 0 for a protocol without a checksum. `None` for protocols that are unknown here, or have
/// checksums in several places, such as OSPF, PIM and DCCP.
fn checksum_of(protocol: u8) -> Option<(usize, usize)> {
    const ESP: u8 = 50;
    const SCTP: u8 = 132;
    const UDP_LITE: u8 = 136;
    match protocol {
        protocol::UDP | UDP_LITE => Some((6, 2)),
        protocol::ICMP | protocol::ICMPV6 => Some((2, 2)),
        SCTP => Some((8, 4)),
        // ESP has no checksum, so nothing is zeroed. It ends with an integrity check value, which reveals no hidden
        // byte, because it can be computed only with ESP's keys.
        ESP => Some((0, 0)),
        _ => None,
    }
}

impl PacketRewriter<'_> {
    /// Copies the part of an IP packet above its header.
    #[inline(always)]
    pub(super) fn above_ip(&mut self, above: UpperPart, depth: u8) {
        // `at` is the start of the header above IP. `covered` is the end of the IP packet according to its IP header;
        // checksums extend up to there. `end` is `covered`, or the end of the carrying packet if that is earlier.
        let UpperPart { upper: UpperHeader { protocol, at, end }, covered, ip, payload, flags } = above;
        if flags & flag::LATER_FRAGMENT != 0 {
            // Without the first fragment, the meaning of these bytes is unknown.
            return;
        }
        // True for a first fragment, whose checksum also covers bytes of later fragments.
        let is_partial = flags & flag::FRAGMENT != 0;
        match (protocol, payload) {
            (protocol::TCP, Some(payload)) => {
                self.tcp(at, payload);
                // Copies as much payload as the view shows.
                self.finish(&Rest::Payload { at: payload, end });
                let pseudo = Some((ip, protocol));
                self.finish_checksum(&CoveredChecksum {
                    field: at + 16,
                    from: at,
                    end: covered,
                    pseudo,
                    is_partial,
                });
            }
            (protocol::TCP, None) => self.incomplete_tcp(at, end),
            (protocol::UDP, Some(_)) => self.udp(&above, is_partial, depth),
            _ => self.other_above_ip(&above, depth),
        }
    }

    /// Copies the part of an IP packet above its header, if that is neither TCP nor complete UDP.
    #[inline(never)]
    fn other_above_ip(&mut self, above: &UpperPart, depth: u8) {
        let UpperPart { upper: UpperHeader { protocol, at, end }, covered, ip, payload, flags } = *above;
        let is_partial = flags & flag::FRAGMENT != 0;
        // `finish` then copies no bytes that the parser does not understand: a checksum among them may cover later
        // fragments.
        self.is_partial |= is_partial;
        match (protocol, ip.is_v6, payload) {
            (protocol::ICMP, false, Some(_)) => {
                self.icmp(at, end, depth);
                self.finish_checksum(&CoveredChecksum {
                    field: at + 2,
                    from: at,
                    end: covered,
                    pseudo: None,
                    is_partial,
                });
            }
            (protocol::ICMPV6, true, Some(_)) => {
                self.icmpv6(at, end, depth);
                let pseudo = Some((ip, protocol));
                self.finish_checksum(&CoveredChecksum {
                    field: at + 2,
                    from: at,
                    end: covered,
                    pseudo,
                    is_partial,
                });
            }
            (IGMP, false, _) => {
                self.igmp(at, end);
                self.finish_checksum(&CoveredChecksum {
                    field: at + 2,
                    from: at,
                    end: covered,
                    pseudo: None,
                    is_partial,
                });
            }
            _ if self.tunnel_over_ip(above, depth) => {}
            _ => match checksum_of(protocol) {
                Some((field, len)) => {
                    self.finish(&Rest::Transport { at, end });
                    // The checksum would reveal hidden bytes.
                    self.zero(at + field, len);
                }
                None => self.finish(&Rest::Unknown { at, end }),
            },
        }
    }

    #[inline(always)]
    fn tcp(&mut self, at: usize, payload: usize) {
        self.copy_up_to(payload);
        self.ports(at);
        if !self.view.zeroed.is_empty() {
            for (field, number) in [(ZeroedField::TcpSequence, 4), (ZeroedField::TcpAcknowledgement, 8)] {
                if self.hides(field) {
                    self.zero(at + number, 4);
                }
            }
            if self.hides(ZeroedField::TcpWindow) {
                self.zero(at + 14, 2);
            }
        }
        if payload > at + TCP_OPTIONS {
            self.options_tcp(at + TCP_OPTIONS, payload);
        }
    }

    /// Copies an incomplete TCP header, such as one that an ICMP error message quotes. The ports and the sequence
    /// number, which every quote contains, are each zeroed only if the view hides them; the rest is copied as
    /// [`Rest::Transport`].
    #[cold]
    fn incomplete_tcp(&mut self, at: usize, end: usize) {
        let captured_end = self.captured_end(end);
        let has_options =
            self.read::<13>(at).is_some_and(|header| usize::from(header[12] >> 4) * 4 > TCP_OPTIONS);
        // The header is incomplete. If its 20 fixed bytes are captured and it states no options, the reason can only be
        // that it states a length below 20, which is illegal.
        let is_malformed = captured_end >= at + TCP_OPTIONS && !has_options;
        if captured_end < at + TCP_QUOTED || is_malformed {
            self.finish(&Rest::Transport { at, end });
            return self.zero(at + 16, 2);
        }
        self.copy_up_to(at + TCP_QUOTED);
        self.ports(at);
        if self.hides(ZeroedField::TcpSequence) {
            self.zero(at + 4, 4);
        }
        // Truncated options are not copied.
        self.finish(&Rest::Transport { at: at + TCP_QUOTED, end: end.min(at + TCP_OPTIONS) });
        self.zero(at + 16, 2);
    }

    #[inline(always)]
    fn ports(&mut self, at: usize) {
        if self.view.ports == Exposure::Zeroed {
            self.zero(at, 4);
        }
    }

    #[inline(always)]
    fn options_tcp(&mut self, from: usize, end: usize) {
        let mut at = from;
        if self.hides(ZeroedField::TcpOptions) {
            return self.zero(from, end - from);
        }
        while at < end {
            let Some(&[kind]) = self.read::<1>(at) else { return };
            if kind == option_tcp::NO_OPERATION {
                at += 1;
                continue;
            }
            let len = self.read::<2>(at).map_or(0, |&[_, len]| usize::from(len));
            if kind == option_tcp::END || len < 2 || len > end - at {
                return self.zero(at, end - at);
            }
            if !self.keeps_option(kind, len, at) {
                self.fill(at, len, option_tcp::NO_OPERATION);
            } else if kind == option_tcp::TIMESTAMPS && self.hides(ZeroedField::TcpTimestamps) {
                self.zero(at + 2, 8);
            } else if kind == option_tcp::MULTIPATH
                && let Some(sum) = self.checksum_of_multipath(len, at)
            {
                self.zero(at + sum, 2);
            }
            at += len;
        }
    }

    /// Returns true if an option is copied. Unknown options can contain anything, so they are not copied.
    #[inline(always)]
    fn keeps_option(&self, kind: u8, len: usize, at: usize) -> bool {
        let hides_numbers =
            self.hides(ZeroedField::TcpSequence) || self.hides(ZeroedField::TcpAcknowledgement);
        match (kind, len) {
            (option_tcp::TIMESTAMPS, 10)
            | (option_tcp::SEGMENT_SIZE, 4)
            | (option_tcp::WINDOW_SCALE, 3)
            | (option_tcp::SACK_PERMITTED, 2)
            | (option_tcp::FAST_OPEN, 2..=18) => true,
            (option_tcp::SACK, 10 | 18 | 26 | 34) => !hides_numbers,
            // Sequence numbers of multipath TCP count the same payload bytes as those of TCP, so a view that hides the
            // latter also hides the option.
            (option_tcp::MULTIPATH, 3..) => !hides_numbers && self.keeps_multipath(len, at),
            _ => false,
        }
    }

    #[inline(always)]
    fn udp(&mut self, above: &UpperPart, is_partial: bool, depth: u8) {
        let UpperPart { upper: UpperHeader { at, end, .. }, covered, ip, .. } = *above;
        self.copy_up_to(at + 8);
        self.ports(at);
        let Some(header) = self.read::<8>(at) else { return };
        let &[a, b, c, d, ..] = header;
        let covered = end_of_datagram(header, at, covered);
        let end = end.min(covered);
        match tunnel_of_ports(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])) {
            None => self.finish(&Rest::Payload { at: at + 8, end }),
            Some(tunnel) => {
                // If the datagram is a first fragment, the tunnelled packet continues in later fragments. `is_partial`
                // makes `finish` copy no bytes that the parser does not understand.
                self.is_partial |= is_partial;
                self.tunnel_over_udp(tunnel, at + 8, end, depth);
            }
        }
        self.finish_checksum(&CoveredChecksum {
            field: at + 6,
            from: at,
            end: covered,
            pseudo: Some((ip, protocol::UDP)),
            is_partial,
        });
    }
}
