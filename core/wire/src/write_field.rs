//! Writable fields of packets, by name, and sets of them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::ops::{BitAnd, BitOr, Not};
use std::str::FromStr;

/// Declares the fields with their names in configurations and credentials.
macro_rules! fields {
    ($($(#[doc = $doc:literal])+ $field:ident = $name:literal;)+) => {
        /// A field that a patch can write. Every byte that [`patch`](crate::patch) can write belongs to such a field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum WriteField {
            $($(#[doc = $doc])+ $field,)+
        }

        impl WriteField {
            /// All fields.
            pub const ALL: &'static [Self] = &[$(Self::$field,)+];

            /// The field's name in configurations and credentials.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$field => $name,)+
                }
            }
        }
    };
}

fields! {
    /// Hardware addresses of Ethernet and cooked captures.
    Macs = "macs";
    /// Tag control information of VLAN tags.
    Vlan = "vlan";
    /// Label, traffic class and TTL of MPLS labels.
    Mpls = "mpls";
    /// The session identifier of PPPoE.
    Pppoe = "pppoe";
    /// Everything above the link layer if that is neither IPv4 nor IPv6, for instance ARP.
    OtherProtocols = "other-protocols";
    /// The addresses of IPv4 and IPv6 headers.
    Addresses = "addresses";
    /// The upper six bits of the type of service of IPv4 and of the traffic class of IPv6.
    Dscp = "dscp";
    /// ECN (RFC 3168): the lower two bits of the type of service of IPv4 and of the traffic class of IPv6.
    Ecn = "ecn";
    /// The identification of IPv4.
    IpId = "ip-id";
    /// The time to live of IPv4 and the hop limit of IPv6.
    Ttl = "ttl";
    /// The flow label of IPv6.
    FlowLabel = "flow-label";
    /// The ports of TCP and UDP.
    Ports = "ports";
    /// Sequence number of TCP.
    TcpSequence = "tcp-seq";
    /// Acknowledgement number of TCP.
    TcpAcknowledgement = "tcp-ack";
    /// The flags of TCP, with the reserved bits before them.
    TcpFlags = "tcp-flags";
    /// Window of TCP.
    TcpWindow = "tcp-window";
    /// Urgent pointer of TCP.
    TcpUrgent = "tcp-urgent";
    /// All options of TCP.
    TcpOptions = "tcp-options";
    /// Identifier and sequence number of echoes and timestamps of ICMP and ICMPv6.
    IcmpEcho = "icmp-echo";
    /// All of ICMP and ICMPv6 except the data of echoes: type, code, and the bodies of errors and neighbour
    /// discovery.
    Icmp = "icmp";
    /// The data of TCP, UDP and echoes, and bytes behind the end of an IP packet.
    Payload = "payload";
}

impl WriteField {
    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// A set of fields that may be written. Its text is `all`, `none`, or names separated by commas, such as `ttl,dscp`. In
/// configurations and messages, it is a list of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WriteFields(u32);

/// A text that is not the name of a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no field that can be written; there are {}", .0.escape_debug(), names())]
pub struct WriteFieldError(String);

fn names() -> String {
    WriteField::ALL.iter().map(|field| field.name()).collect::<Vec<_>>().join(", ")
}

impl WriteFields {
    /// All fields that can be written.
    pub const ALL: Self = Self((1 << WriteField::ALL.len()) - 1);
    /// No field.
    pub const NONE: Self = Self(0);

    /// Returns true if the set contains this field.
    pub const fn has(self, field: WriteField) -> bool {
        self.0 & field.bit() != 0
    }

    /// Returns true if the set contains all fields of `others`.
    pub const fn has_all(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// The set of these fields.
    pub(crate) const fn of(fields: &[WriteField]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < fields.len() {
            bits |= fields[at].bit();
            at += 1;
        }
        Self(bits)
    }

    /// The fields of the set, in the order of [`WriteField::ALL`].
    pub fn iter(self) -> impl Iterator<Item = WriteField> {
        WriteField::ALL.iter().copied().filter(move |field| self.has(*field))
    }

    /// The set as a number, for storage.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The set that a number from [`bits`](Self::bits) represents. Bits without a field are ignored.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Finds a field by its name.
    ///
    /// # Errors
    ///
    /// [`WriteFieldError`] if there is none.
    pub fn find_field(name: &str) -> Result<WriteField, WriteFieldError> {
        let known = WriteField::ALL.iter().copied().find(|field| field.name() == name);
        known.ok_or_else(|| WriteFieldError(name.chars().take(80).collect()))
    }
}

impl From<WriteField> for WriteFields {
    fn from(field: WriteField) -> Self {
        Self(field.bit())
    }
}

impl BitOr for WriteFields {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for WriteFields {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for WriteFields {
    type Output = Self;

    /// Returns the fields that are not in the set.
    fn not(self) -> Self {
        Self::from_bits(!self.0)
    }
}

impl FromIterator<WriteField> for WriteFields {
    fn from_iter<T: IntoIterator<Item = WriteField>>(fields: T) -> Self {
        fields.into_iter().fold(Self::NONE, |all, field| all | field.into())
    }
}

impl fmt::Display for WriteFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ALL => f.write_str("all"),
            Self::NONE => f.write_str("none"),
            some => f.write_str(&some.iter().map(WriteField::name).collect::<Vec<_>>().join(",")),
        }
    }
}

impl FromStr for WriteFields {
    type Err = WriteFieldError;

    fn from_str(text: &str) -> Result<Self, WriteFieldError> {
        match text.trim() {
            "all" => Ok(Self::ALL),
            "none" => Ok(Self::NONE),
            names => names.split(',').map(|name| Self::find_field(name.trim())).collect(),
        }
    }
}

impl Serialize for WriteFields {
    /// Serialises a list of names.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(WriteField::name))
    }
}

impl<'de> Deserialize<'de> for WriteFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        names.iter().map(|name| Self::find_field(name).map_err(serde::de::Error::custom)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::ZeroedField;

    #[test]
    fn each_field_has_a_unique_name_which_views_use_for_the_same_field() {
        for (place, &field) in WriteField::ALL.iter().enumerate() {
            assert_eq!(WriteFields::from(field).iter().collect::<Vec<_>>(), [field]);
            assert_eq!(field.name().parse(), Ok(WriteFields::from(field)));
            assert!(WriteField::ALL[..place].iter().all(|other| other.name() != field.name()));
        }
        // Fields that a view can hide and that cannot be written alone: IP options, and timestamps, which are written
        // with all TCP options.
        let unwritten: Vec<&str> = ZeroedField::ALL.iter().map(|field| field.name()).collect();
        let unwritten: Vec<&str> =
            unwritten.into_iter().filter(|name| WriteFields::find_field(name).is_err()).collect();
        assert_eq!(unwritten, ["ip-options", "tcp-timestamps"]);
    }

    #[test]
    fn sets_are_parsed_from_their_own_text() {
        let some: WriteFields = " dscp , ttl".parse().unwrap();
        assert_eq!((some.to_string().as_str(), some.iter().count()), ("dscp,ttl", 2));
        for set in [some, WriteFields::ALL, WriteFields::NONE] {
            assert_eq!(set.to_string().parse(), Ok(set));
            let list = serde_json::to_string(&set).unwrap();
            assert_eq!(serde_json::from_str::<WriteFields>(&list).unwrap(), set);
            assert_eq!(WriteFields::from_bits(set.bits() | 1 << 31), set);
        }
        let others = !some;
        assert_eq!(
            (others.iter().count(), some & others, some | others),
            (19, WriteFields::NONE, WriteFields::ALL)
        );
        assert_eq!(
            (some & WriteField::Ttl.into(), !WriteFields::ALL),
            (WriteField::Ttl.into(), WriteFields::NONE)
        );
        assert_eq!(serde_json::to_string(&some).unwrap(), r#"["dscp","ttl"]"#);
        assert_eq!(serde_json::from_str::<WriteFields>("[]").unwrap(), WriteFields::NONE);
        for wrong in ["", "ttl,", "TTL", "all,ttl", "ip-options", "\u{1b}[2J"] {
            let error = wrong.parse::<WriteFields>().unwrap_err().to_string();
            assert!(error.contains("is no field that can be written; there are macs, vlan"), "{error}");
            assert!(!error.contains('\u{1b}'), "no terminal obeys it");
        }
    }
}
