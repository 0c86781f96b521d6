//! Primitives of one word: `broadcast`, `multicast`, `llc rr`, `inbound`.

use crate::condition::{ConditionId, Conditions};
use crate::error::FilterFault;
use crate::layers::{IP, IP6, LENGTH_MAX, Layers, LinkHeader};
use crate::network::AddressSide;
use crate::ranges::Ranges;
use crate::word::Proto;
use weir_demux::LoadWidth;

/// The packet type in cooked captures of packets that the capturing machine sent.
const OUTGOING: u32 = 4;

/// Kinds of 802.2 frames: the name, and the mask and value of the control field.
const LLC_KINDS: &[(&str, u32, u32)] = &[
    ("i", 0x01, 0x00),
    ("s", 0x03, 0x01),
    ("u", 0x03, 0x03),
    ("rr", 0x0f, 0x01),
    ("rnr", 0x0f, 0x05),
    ("rej", 0x0f, 0x09),
    ("ui", 0xef, 0x03),
    ("ua", 0xef, 0x63),
    ("disc", 0xef, 0x43),
    ("sabme", 0xef, 0x6f),
    ("test", 0xef, 0xe3),
    ("xid", 0xef, 0xaf),
    ("frmr", 0xef, 0x87),
];

impl Layers {
    /// Tests for a packet to a broadcast address.
    pub(crate) fn broadcast(
        &self,
        code: &mut Conditions,
        protocol: Option<Proto>,
    ) -> Result<ConditionId, FilterFault> {
        match protocol {
            None | Some(Proto::Link) if self.link == LinkHeader::Ethernet => {
                self.mac(code, AddressSide::Dst, [0xff; 6])
            }
            None | Some(Proto::Link) => Err(self.unsupported("`broadcast`")),
            Some(Proto::Ip) => {
                // The network mask is unknown. So only the two addresses are recognised that are broadcast addresses in
                // every network.
                let is_ip = self.carries(code, IP)?;
                let address = code.load(self.network().plus(16), LoadWidth::Word)?;
                let is_broadcast = code.test(address, Ranges::from_numbers(&[0, u32::MAX]))?;
                code.and(is_ip, is_broadcast)
            }
            Some(_) => Err(FilterFault::Qualifier("only `ether` and `ip` go with `broadcast`")),
        }
    }

    /// Tests for a packet to a multicast address.
    pub(crate) fn multicast(
        &self,
        code: &mut Conditions,
        protocol: Option<Proto>,
    ) -> Result<ConditionId, FilterFault> {
        let (carried, place, numbers) = match protocol {
            None | Some(Proto::Link) if self.link == LinkHeader::Ethernet => {
                let has_header = self.has_header(code)?;
                let is_group = code.load_masked(self.header, LoadWidth::Byte, 1, 1)?;
                return code.and(has_header, is_group);
            }
            None | Some(Proto::Link) => return Err(self.unsupported("`multicast`")),
            Some(Proto::Ip) => {
                (self.carries(code, IP)?, self.network().plus(16), Ranges::between(224, u32::MAX))
            }
            Some(Proto::Ip6) => (self.carries(code, IP6)?, self.network().plus(24), Ranges::one(255)),
            Some(_) => {
                return Err(FilterFault::Qualifier("only `ether`, `ip` and `ip6` go with `multicast`"));
            }
        };
        let first = code.load(place, LoadWidth::Byte)?;
        let is_group = code.test(first, numbers)?;
        code.and(carried, is_group)
    }

    /// Tests that the packet's length on the link is one of these numbers.
    pub(crate) fn length(&self, code: &mut Conditions, numbers: Ranges) -> Result<ConditionId, FilterFault> {
        let length = code.values.length()?;
        code.test(length, numbers)
    }

    /// Tests for a frame with an 802.2 header, optionally of one kind.
    pub(crate) fn llc(&self, code: &mut Conditions, kind: Option<&str>) -> Result<ConditionId, FilterFault> {
        if self.link != LinkHeader::Ethernet {
            return Err(self.unsupported("`llc`"));
        }
        let field = code.load(self.protocol.unwrap_or_default(), LoadWidth::Half)?;
        let has_length = code.test(field, Ranges::between(0, LENGTH_MAX))?;
        let saps = code.load(self.payload, LoadWidth::Half)?;
        let is_not_raw_ipx = code.test(saps, Ranges::one(0xffff).not())?;
        let is_llc = code.and(has_length, is_not_raw_ipx)?;
        let Some(kind) = kind else { return Ok(is_llc) };
        let Some(&(_, mask, value)) = LLC_KINDS.iter().find(|(name, _, _)| name.eq_ignore_ascii_case(kind))
        else {
            return Err(FilterFault::Name {
                name: crate::token::escaped_excerpt(kind),
                kind: "kind of 802.2 frame",
            });
        };
        let is_kind = code.load_masked(self.payload.plus(2), LoadWidth::Byte, mask, value)?;
        code.and(is_llc, is_kind)
    }

    /// Tests for packets that the capturing machine sent (`is_out`), or for all other packets.
    pub(crate) fn outbound(&self, code: &mut Conditions, is_out: bool) -> Result<ConditionId, FilterFault> {
        let is_outgoing = match self.link {
            LinkHeader::Cooked => code.load_equals(self.header, LoadWidth::Half, OUTGOING)?,
            LinkHeader::Cooked2 => code.load_equals(self.header.plus(10), LoadWidth::Byte, OUTGOING)?,
            _ => return Err(self.unsupported(if is_out { "`outbound`" } else { "`inbound`" })),
        };
        if is_out { Ok(is_outgoing) } else { code.not(is_outgoing) }
    }

    /// Tests the index of the interface.
    pub(crate) fn interface(&self, code: &mut Conditions, number: u32) -> Result<ConditionId, FilterFault> {
        match self.link {
            LinkHeader::Cooked2 => code.load_equals(self.header.plus(4), LoadWidth::Word, number),
            _ => Err(self.unsupported("`ifindex`")),
        }
    }
}
