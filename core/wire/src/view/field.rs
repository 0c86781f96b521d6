//! Header fields that a view can zero, and sets of them.

use std::ops::BitOr;

/// A header field that a view can zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ZeroedField {
    /// The identification of IPv4 and of the fragment header of IPv6. It distinguishes machines behind one address.
    IpId,
    /// The time to live of IPv4, the hop limit of IPv6, and the TTL of MPLS labels. They reveal operating systems and
    /// distances.
    Ttl,
    /// The upper six bits of the type of service of IPv4 and of the traffic class of IPv6, and the traffic class of
    /// MPLS labels. ECN stays.
    Dscp,
    /// The flow label of IPv6.
    FlowLabel,
    /// The options of IPv4; the options of IPv6 in hop-by-hop and destination headers.
    IpOptions,
    /// The tag control information of every VLAN tag.
    Vlan,
    /// Label, traffic class and TTL of every MPLS label.
    Mpls,
    /// The session of PPPoE.
    Pppoe,
    /// Sequence number of TCP.
    TcpSequence,
    /// Acknowledgement number of TCP.
    TcpAcknowledgement,
    /// Window of TCP.
    TcpWindow,
    /// Both values of the TCP timestamps option (RFC 7323). They reveal clocks, and so machines.
    TcpTimestamps,
    /// All options of TCP.
    TcpOptions,
    /// Identifier and sequence number of ICMP and ICMPv6 echoes.
    IcmpEcho,
}

impl ZeroedField {
    /// All fields.
    pub const ALL: &'static [Self] = &[
        Self::IpId,
        Self::Ttl,
        Self::Dscp,
        Self::FlowLabel,
        Self::IpOptions,
        Self::Vlan,
        Self::Mpls,
        Self::Pppoe,
        Self::TcpSequence,
        Self::TcpAcknowledgement,
        Self::TcpWindow,
        Self::TcpTimestamps,
        Self::TcpOptions,
        Self::IcmpEcho,
    ];

    /// The field's name in the text of a view.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IpId => "ip-id",
            Self::Ttl => "ttl",
            Self::Dscp => "dscp",
            Self::FlowLabel => "flow-label",
            Self::IpOptions => "ip-options",
            Self::Vlan => "vlan",
            Self::Mpls => "mpls",
            Self::Pppoe => "pppoe",
            Self::TcpSequence => "tcp-seq",
            Self::TcpAcknowledgement => "tcp-ack",
            Self::TcpWindow => "tcp-window",
            Self::TcpTimestamps => "tcp-timestamps",
            Self::TcpOptions => "tcp-options",
            Self::IcmpEcho => "icmp-echo",
        }
    }

    /// The field's name in descriptions of views in words, in the plural.
    pub const fn words(self) -> &'static str {
        match self {
            Self::IpId => "IP identifications",
            Self::Ttl => "times to live",
            Self::Dscp => "DSCP",
            Self::FlowLabel => "flow labels",
            Self::IpOptions => "IP options",
            Self::Vlan => "VLAN tags",
            Self::Mpls => "MPLS labels",
            Self::Pppoe => "PPPoE sessions",
            Self::TcpSequence => "TCP sequence numbers",
            Self::TcpAcknowledgement => "TCP acknowledgement numbers",
            Self::TcpWindow => "TCP windows",
            Self::TcpTimestamps => "TCP timestamps",
            Self::TcpOptions => "TCP options",
            Self::IcmpEcho => "ICMP echo identifiers and sequence numbers",
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// A set of header fields, which a view zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ZeroedFields(u32);

impl ZeroedFields {
    /// No field.
    pub const NONE: Self = Self(0);

    /// The first `count` fields in the order of [`ZeroedField::ALL`].
    pub(super) const fn first(count: usize) -> Self {
        Self((1 << count) - 1)
    }

    /// Returns true if the set contains this field.
    #[inline(always)]
    pub const fn has(self, field: ZeroedField) -> bool {
        self.0 & field.bit() != 0
    }

    /// Returns true if the set contains at least one of these fields.
    #[inline(always)]
    pub const fn has_any(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns true if the set is empty.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The fields of the set, in the order of [`ZeroedField::ALL`].
    pub fn iter(self) -> impl Iterator<Item = ZeroedField> {
        ZeroedField::ALL.iter().copied().filter(move |field| self.has(*field))
    }
}

impl From<ZeroedField> for ZeroedFields {
    fn from(field: ZeroedField) -> Self {
        Self(field.bit())
    }
}

impl BitOr for ZeroedFields {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl FromIterator<ZeroedField> for ZeroedFields {
    fn from_iter<T: IntoIterator<Item = ZeroedField>>(fields: T) -> Self {
        fields.into_iter().fold(Self::NONE, |all, field| all | field.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_a_bit_and_a_name_of_its_own() {
        for (place, &field) in ZeroedField::ALL.iter().enumerate() {
            let alone = ZeroedFields::from(field);
            assert_eq!(alone.iter().collect::<Vec<_>>(), [field]);
            for &other in &ZeroedField::ALL[..place] {
                assert!(!alone.has(other) && other.name() != field.name(), "{field:?} and {other:?}");
            }
        }
        let all: ZeroedFields = ZeroedField::ALL.iter().copied().collect();
        assert!(all.iter().eq(ZeroedField::ALL.iter().copied()));
    }
}
