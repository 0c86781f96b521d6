//! Tests that are a word: `broadcast`, `multicast`, `llc rr`, `inbound`.

use crate::condition::{ConditionId, Conditions};
use crate::error::FilterFault;
use crate::layers::{IP, IP6, LENGTH_MAX, Layers, LinkHeader};
use crate::network::AddressSide;
use crate::ranges::Ranges;
use crate::word::Proto;
use weir_demux::LoadWidth;

/// Packets that the capturing machine sent, in a cooked capture.
const OUTGOING: u32 = 4;

/// Kinds of 802.2 frames: the name, the mask and the value of the control field.
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
    pub(crate) fn broadcast(
        &self,
        code: &mut Conditions,
        protocol: Option<Proto>,
    ) -> Result<ConditionId, FilterFault> {
        match protocol {
            None | Some(Proto::Link) if self.link == LinkHeader::Ethernet => {
                self.mac(code, AddressSide::Dst, [0xff; 6])
            }
            None | Some(Proto::Link) => Err(self.no("`broadcast`")),
            Some(Proto::Ip) => {
                // The mask of the network is not known, so these are the broadcast addresses of all networks.
                let is_ip = self.carries(code, IP)?;
                let address = code.load(self.network().plus(16), LoadWidth::Word)?;
                let all = code.test(address, Ranges::of(&[0, u32::MAX]))?;
                code.and(is_ip, all)
            }
            Some(_) => Err(FilterFault::Qualifier("only `ether` and `ip` go with `broadcast`")),
        }
    }

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
            None | Some(Proto::Link) => return Err(self.no("`multicast`")),
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

    /// `less`, `greater` and the like: the length on the link is one of these.
    pub(crate) fn length(&self, code: &mut Conditions, numbers: Ranges) -> Result<ConditionId, FilterFault> {
        let length = code.values.length()?;
        code.test(length, numbers)
    }

    /// A frame with an 802.2 header, perhaps of one kind.
    pub(crate) fn llc(&self, code: &mut Conditions, kind: Option<&str>) -> Result<ConditionId, FilterFault> {
        if self.link != LinkHeader::Ethernet {
            return Err(self.no("`llc`"));
        }
        let field = code.load(self.protocol.unwrap_or_default(), LoadWidth::Half)?;
        let has_length = code.test(field, Ranges::between(0, LENGTH_MAX))?;
        let saps = code.load(self.payload, LoadWidth::Half)?;
        let is_not_bare = code.test(saps, Ranges::one(0xffff).not())?;
        let is_llc = code.and(has_length, is_not_bare)?;
        let Some(kind) = kind else { return Ok(is_llc) };
        let Some(&(_, mask, value)) = LLC_KINDS.iter().find(|(name, _, _)| name.eq_ignore_ascii_case(kind))
        else {
            return Err(FilterFault::Name { name: crate::token::shown(kind), kind: "kind of 802.2 frame" });
        };
        let is_kind = code.load_masked(self.payload.plus(2), LoadWidth::Byte, mask, value)?;
        code.and(is_llc, is_kind)
    }

    /// Packets that the capturing machine sent, or all others.
    pub(crate) fn outbound(&self, code: &mut Conditions, is_out: bool) -> Result<ConditionId, FilterFault> {
        let is_outgoing = match self.link {
            LinkHeader::Cooked => code.load_equals(self.header, LoadWidth::Half, OUTGOING)?,
            LinkHeader::Cooked2 => code.load_equals(self.header.plus(10), LoadWidth::Byte, OUTGOING)?,
            _ => return Err(self.no(if is_out { "`outbound`" } else { "`inbound`" })),
        };
        if is_out { Ok(is_outgoing) } else { code.not(is_outgoing) }
    }

    /// The number of the interface.
    pub(crate) fn interface(&self, code: &mut Conditions, number: u32) -> Result<ConditionId, FilterFault> {
        match self.link {
            LinkHeader::Cooked2 => code.load_equals(self.header.plus(4), LoadWidth::Word, number),
            _ => Err(self.no("`ifindex`")),
        }
    }
}
