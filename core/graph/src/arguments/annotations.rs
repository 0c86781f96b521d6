//! Annotations of packets: names of fields in the bytes that travel with a packet.

use super::names::in_scopes;
use super::number::parse_unsigned;
use super::{ArgumentContext, ArgumentFault, ArgumentValue};

/// The bytes of a packet's annotations, as in Click.
pub const ANNOTATION_BYTES: usize = 48;

/// Offset and size of the annotations with a name, as in Click. Some overlap.
const ANNOTATIONS: &[(&str, usize, usize)] = &[
    ("AGGREGATE", 20, 4),
    ("DST_IP", 0, 4),
    ("DST_IP6", 0, 16),
    ("EXTRA_LENGTH", 28, 4),
    ("EXTRA_PACKETS", 24, 4),
    ("FIRST_TIMESTAMP", 32, 8),
    ("FIX_IP_SRC", 19, 1),
    ("FWD_RATE", 20, 4),
    ("GRID_ROUTE_CB", 27, 1),
    ("ICMP_PARAMPROB", 17, 1),
    ("IPREASSEMBLER", 28, 4),
    ("IPSEC_SA_DATA_REFERENCE", 40, 8),
    ("IPSEC_SPI", 32, 4),
    ("MISC_IP", 20, 4),
    ("PACKET_NUMBER", 32, 4),
    ("PAINT", 16, 1),
    ("PERFCTR", 40, 8),
    ("REV_RATE", 24, 4),
    ("SEND_ERR", 26, 1),
    ("SEQUENCE_NUMBER", 36, 4),
    ("VLAN", 20, 2),
    ("VLAN_TCI", 20, 2),
    ("WIFI_EXTRA", 16, 24),
];

/// An annotation of this many bytes, as its offset: a name such as `PAINT`, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AnnotationField<const SIZE: usize>(pub usize);

impl<const SIZE: usize> ArgumentValue for AnnotationField<SIZE> {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        let (offset, size) = match parse_unsigned(text) {
            Some(offset) => (usize::try_from(offset).unwrap_or(usize::MAX), SIZE),
            None => in_scopes(text, context.element, |name| context.names.annotation(name))
                .or_else(|| {
                    let known = ANNOTATIONS.iter().find(|(name, ..)| *name == text);
                    known.map(|(_, offset, size)| (*offset, *size))
                })
                .ok_or(ArgumentFault::Type("annotation"))?,
        };
        let ends = offset.checked_add(SIZE).is_some_and(|end| end <= ANNOTATION_BYTES);
        if size != SIZE || !ends { Err(ArgumentFault::AnnotationSize(SIZE)) } else { Ok(Self(offset)) }
    }

    fn placeholder() -> Self {
        Self(0)
    }
}
