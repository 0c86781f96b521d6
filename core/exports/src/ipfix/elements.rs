//! Information elements of IANA's registry (RFC 7012).

/// The private enterprise number of the reverse elements of RFC 5103.
pub(crate) const REVERSE: u32 = 29_305;

/// An abstract data type of RFC 7012, with its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataType {
    /// An unsigned integer of this many bytes.
    Unsigned(u16),
    Ipv4,
    Ipv6,
    /// dateTimeMilliseconds.
    Milliseconds,
    /// dateTimeNanoseconds: a time stamp of NTP.
    Nanoseconds,
    /// A duration in microseconds, of four bytes.
    DurationMicros,
    /// A text of variable length.
    Text,
}

/// An information element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InformationElement {
    pub(crate) name: &'static str,
    pub(crate) number: u16,
    pub(crate) ty: DataType,
}

use DataType::{DurationMicros, Ipv4, Ipv6, Milliseconds, Nanoseconds, Text, Unsigned};

const fn element(name: &'static str, number: u16, ty: DataType) -> InformationElement {
    InformationElement { name, number, ty }
}

/// Bytes, and packets, since the last record of the flow.
pub(crate) const OCTETS: InformationElement = element("octetDeltaCount", 1, Unsigned(8));
pub(crate) const PACKETS: InformationElement = element("packetDeltaCount", 2, Unsigned(8));
/// Begin and end of a flow in milliseconds.
pub(crate) const START_MILLISECONDS: InformationElement = element("flowStartMilliseconds", 152, Milliseconds);
pub(crate) const END_MILLISECONDS: InformationElement = element("flowEndMilliseconds", 153, Milliseconds);

/// The way in which the direction of a connection was found (RFC 5103), and its value for "by the originator".
pub(crate) const BIFLOW_DIRECTION: InformationElement = element("biflowDirection", 239, Unsigned(1));
pub(crate) const BY_ORIGINATOR: u64 = 1;

/// The elements that semantics name.
const ELEMENTS: &[InformationElement] = &[
    OCTETS,
    PACKETS,
    element("protocolIdentifier", 4, Unsigned(1)),
    element("sourceTransportPort", 7, Unsigned(2)),
    element("sourceIPv4Address", 8, Ipv4),
    element("destinationTransportPort", 11, Unsigned(2)),
    element("destinationIPv4Address", 12, Ipv4),
    element("sourceIPv6Address", 27, Ipv6),
    element("destinationIPv6Address", 28, Ipv6),
    element("vlanId", 58, Unsigned(2)),
    element("applicationName", 96, Text),
    element("flowId", 148, Unsigned(8)),
    element("flowStartNanoseconds", 156, Nanoseconds),
    element("flowEndNanoseconds", 157, Nanoseconds),
    element("flowDurationMicroseconds", 162, DurationMicros),
    element("initiatorOctets", 231, Unsigned(8)),
    element("responderOctets", 232, Unsigned(8)),
    element("initiatorPackets", 298, Unsigned(8)),
    element("responderPackets", 299, Unsigned(8)),
    element("observationTimeNanoseconds", 325, Nanoseconds),
    element("digestHashValue", 326, Unsigned(8)),
    element("httpStatusCode", 457, Unsigned(2)),
    element("httpRequestMethod", 459, Text),
    element("httpRequestHost", 460, Text),
    element("httpRequestTarget", 461, Text),
    element("httpMessageVersion", 462, Text),
    element("httpUserAgent", 468, Text),
    element("httpContentType", 469, Text),
];

/// Finds an element by its name.
pub(crate) fn find(name: &str) -> Option<InformationElement> {
    ELEMENTS.iter().find(|element| element.name == name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_admission::SEMANTICS;

    #[test]
    fn every_element_that_a_semantic_names_is_known() {
        for semantic in SEMANTICS.iter().filter(|semantic| !semantic.ipfix.is_empty()) {
            for name in semantic.ipfix.split(", ") {
                assert!(find(name).is_some(), "{name}");
            }
        }
    }
}
