//! Arithmetic on the bytes of a packet: `tcp[13] & 2`, `ip[2:2] - 20`, `len`.

use crate::condition::{ConditionId, Conditions};
use crate::error::FilterFault;
use crate::layers::{IP, IP6, Layers};
use crate::value::ValueId;
use crate::word::Proto;
use weir_demux::{Alu, LoadWidth};

/// A number, and the condition under which it has a meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    pub(crate) value: ValueId,
    /// The packet has the header that the number is from.
    pub(crate) given: Option<ConditionId>,
}

impl Number {
    pub(crate) fn constant(code: &mut Conditions, number: u32) -> Result<Self, FilterFault> {
        Ok(Self { value: code.values.constant(number)?, given: None })
    }
}

/// `a operator b`. As in libpcap, only the header of the left operand is asked for.
pub(crate) fn compute(
    code: &mut Conditions,
    operator: Alu,
    a: Number,
    b: Number,
) -> Result<Number, FilterFault> {
    Ok(Number { value: code.values.compute(operator, a.value, b.value)?, given: a.given })
}

/// Both conditions, the first one first, where they are there.
pub(crate) fn both(
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
    /// `protocol[index:size]`.
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
        let (place, given) = match protocol {
            Proto::Link => (self.header, index.given),
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
                let carried = self.named(code, protocol)?;
                (self.network(), both(code, index.given, Some(carried))?)
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
                let is_it = self.named(code, protocol)?;
                let is_first = self.is_first_fragment(code)?;
                let given = both(code, Some(is_ip), index.given)?;
                let rest = code.and(is_it, is_first)?;
                (self.above_ip4(code)?, both(code, given, Some(rest))?)
            }
            Proto::Icmp6 => {
                let is_ip6 = self.carries(code, IP6)?;
                let is_it = code.load_equals(self.network().plus(6), LoadWidth::Byte, 58)?;
                let rest = code.and(is_ip6, is_it)?;
                (self.network().plus(40), both(code, index.given, Some(rest))?)
            }
            Proto::Radio => return Err(self.no("`radio[...]`")),
            _ => return Err(FilterFault::Qualifier("the bytes of this protocol cannot be indexed")),
        };
        let value = match (code.values.constant_of(index.value), place.base) {
            (Some(index), base) => code.values.load(base, place.constant.wrapping_add(index), width)?,
            (None, None) => code.values.load(Some(index.value), place.constant, width)?,
            (None, Some(base)) => {
                let base = code.values.compute(Alu::Add, index.value, base)?;
                code.values.load(Some(base), place.constant, width)?
            }
        };
        Ok(Number { value, given })
    }
}
