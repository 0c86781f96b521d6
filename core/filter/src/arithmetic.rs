//! Arithmetic on the bytes of a packet: `tcp[13] & 2`, `ip[2:2] - 20`, `len`.

use crate::condition::{ConditionId, Conditions};
use crate::error::FilterFault;
use crate::layers::{IP, IP6, Layers};
use crate::value::FilterValueId;
use crate::word::Proto;
use weir_demux::{Alu, LoadWidth};

/// A number, and the condition under which it is defined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    pub(crate) value: FilterValueId,
    /// The condition that the packet has the header that the number is read from.
    pub(crate) required: Option<ConditionId>,
}

impl Number {
    pub(crate) fn constant(code: &mut Conditions, number: u32) -> Result<Self, FilterFault> {
        Ok(Self { value: code.values.constant(number)?, required: None })
    }
}

/// `a operator b`. As in libpcap, the packet must have the header of the left operand; the header of the right one
/// is not required.
pub(crate) fn compute(
    code: &mut Conditions,
    operator: Alu,
    a: Number,
    b: Number,
) -> Result<Number, FilterFault> {
    Ok(Number { value: code.values.compute(operator, a.value, b.value)?, required: a.required })
}

/// The conjunction of two optional conditions, evaluated in order.
pub(crate) fn and_optional(
    code: &mut Conditions,
    a: Option<ConditionId>,
    b: Option<ConditionId>,
) -> Result<Option<ConditionId>, FilterFault> {
    Ok(match (a, b) {
        (Some(a), Some(b)) => Some(code.and(a, b)?),
        (a, b) => a.or(b),
    })
}

impl Layers {
    /// `protocol[index:size]`: `size` bytes of the packet, from `index` on in the header of `protocol`.
    pub(crate) fn bytes(
        &self,
        code: &mut Conditions,
        protocol: Proto,
        index: Number,
        size: u32,
    ) -> Result<Number, FilterFault> {
        let width = match size {
            1 => LoadWidth::Byte,
            2 => LoadWidth::Half,
            4 => LoadWidth::Word,
            other => return Err(FilterFault::Width(other)),
        };
        let (header, required) = match protocol {
            Proto::Link => (self.header, index.required),
            Proto::Ip
            | Proto::Arp
            | Proto::Rarp
            | Proto::Atalk
            | Proto::Decnet
            | Proto::Sca
            | Proto::Lat
            | Proto::Moprc
            | Proto::Mopdl
            | Proto::Ip6 => {
                let carried = self.named_protocol(code, protocol)?;
                (self.network(), and_optional(code, index.required, Some(carried))?)
            }
            Proto::Sctp
            | Proto::Tcp
            | Proto::Udp
            | Proto::Icmp
            | Proto::Igmp
            | Proto::Igrp
            | Proto::Pim
            | Proto::Vrrp
            | Proto::Carp => {
                let is_ip = self.carries(code, IP)?;
                let is_protocol = self.named_protocol(code, protocol)?;
                let is_first = self.is_first_fragment(code)?;
                let required = and_optional(code, Some(is_ip), index.required)?;
                let rest = code.and(is_protocol, is_first)?;
                (self.above_ip4(code)?, and_optional(code, required, Some(rest))?)
            }
            Proto::Icmp6 => {
                let is_ip6 = self.carries(code, IP6)?;
                let is_protocol = code.load_equals(self.network().plus(6), LoadWidth::Byte, 58)?;
                let rest = code.and(is_ip6, is_protocol)?;
                (self.network().plus(40), and_optional(code, index.required, Some(rest))?)
            }
            Proto::Radio => return Err(self.unsupported("`radio[...]`")),
            _ => return Err(FilterFault::Qualifier("the bytes of this protocol cannot be indexed")),
        };
        let value = match (code.values.constant_of(index.value), header.base) {
            (Some(index), base) => code.values.load(base, header.constant.wrapping_add(index), width)?,
            (None, None) => code.values.load(Some(index.value), header.constant, width)?,
            (None, Some(base)) => {
                let base = code.values.compute(Alu::Add, index.value, base)?;
                code.values.load(Some(base), header.constant, width)?
            }
        };
        Ok(Number { value, required })
    }
}
