//! Annotations: 48 bytes of each packet, at the offsets of Click.
//!
//! Elements pass facts about a packet to later elements in them. Areas overlap, as in Click: the paint, for example, is
//! also a part of an IPv6 destination.

/// The bytes of annotations of a packet.
pub const ANNOTATION_BYTES: usize = 48;

/// An annotation: a name for a range of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The name, as in arguments of type ANNO.
    pub name: &'static str,
    /// The offset of the first byte.
    pub offset: u8,
    /// The number of bytes.
    pub size: u8,
}

macro_rules! annotations {
    ($($constant:ident: $offset:literal, $size:literal, $text:literal;)*) => {
        $(#[doc = $text]
        pub const $constant: Annotation = Annotation { name: stringify!($constant), offset: $offset, size: $size };)*

        /// All annotations with a name.
        pub const ANNOTATIONS: &[Annotation] = &[$($constant),*];
    };
}

annotations! {
    DST_IP: 0, 4, "The destination or next hop of an IPv4 packet, in network byte order.";
    DST_IP6: 0, 16, "The destination or next hop of an IPv6 packet.";
    PAINT: 16, 1, "The colour that `Paint` sets.";
    ICMP_PARAMPROB: 17, 1, "The position of a wrong byte, for an ICMP error.";
    FIX_IP_SRC: 19, 1, "1 if `FixIPSrc` has to set the source address.";
    WIFI_EXTRA: 16, 24, "State of wireless elements.";
    VLAN: 20, 2, "Another name of `VLAN_TCI`.";
    VLAN_TCI: 20, 2, "The tag control information of a VLAN tag.";
    AGGREGATE: 20, 4, "The number of an aggregate, such as a flow.";
    FWD_RATE: 20, 4, "A rate in the forward direction.";
    MISC_IP: 20, 4, "An IPv4 address.";
    EXTRA_PACKETS: 24, 4, "The number of further packets that this packet stands for.";
    REV_RATE: 24, 4, "A rate in the reverse direction.";
    SEND_ERR: 26, 1, "1 if sending failed.";
    GRID_ROUTE_CB: 27, 1, "State of grid routing.";
    IPREASSEMBLER: 28, 4, "State of fragments.";
    EXTRA_LENGTH: 28, 4, "The bytes of the packet that were not captured.";
    FIRST_TIMESTAMP: 32, 8, "The time of the first of several packets.";
    PACKET_NUMBER: 32, 4, "The number of the packet in its source.";
    IPSEC_SPI: 32, 4, "A security parameter index.";
    SEQUENCE_NUMBER: 36, 4, "A sequence number.";
    IPSEC_SA_DATA_REFERENCE: 40, 8, "A security association.";
    PERFCTR: 40, 8, "A performance counter.";
}
