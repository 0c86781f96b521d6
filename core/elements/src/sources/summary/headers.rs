//! The headers of a packet for its summary.

use weir_graph::engine::{EXTRA_LENGTH, GraphPacket};

use crate::ipv4::{HEADER_BYTES, header_length};
pub use crate::ipv4::{ICMP, TCP, UDP};

/// A packet with those of its headers that are there.
pub struct SummaryHeaders<'p> {
    pub packet: &'p GraphPacket,
    /// The IPv4 header, with its options.
    pub ip: Option<&'p [u8]>,
    /// The captured bytes behind the IPv4 header, up to its length field.
    pub body: &'p [u8],
    /// The bytes that were not captured.
    pub extra: u32,
    /// The reason for which headers are not there.
    pub wrong: Option<String>,
}

/// Returns the two bytes at an offset as a number.
pub fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Returns the four bytes at an offset as a number.
pub fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl<'p> SummaryHeaders<'p> {
    /// Finds the headers. Without `has_extra`, the annotation EXTRA_LENGTH counts as 0.
    pub fn find(packet: &'p GraphPacket, has_extra: bool) -> Self {
        let extra = packet.annotation(EXTRA_LENGTH).try_into().map_or(0, u32::from_ne_bytes);
        let extra = if has_extra { extra } else { 0 };
        let mut found = Self { packet, ip: None, body: &[], extra, wrong: None };
        let Some(bytes) = packet.network_bytes() else {
            found.wrong = Some("no network header".to_owned());
            return found;
        };
        let length = bytes.first().map_or(0, |first| header_length(*first));
        let wrong = if bytes.is_empty() {
            "an empty IP header".to_owned()
        } else if bytes[0] >> 4 != 4 {
            format!("IP version {}", bytes[0] >> 4)
        } else if length < HEADER_BYTES {
            format!("IP header length {length}")
        } else if bytes.len() < length {
            "truncated IP header".to_owned()
        } else {
            let end = usize::from(number(bytes, 2).unwrap_or(0)).clamp(length, bytes.len());
            (found.ip, found.body) = (Some(&bytes[..length]), &bytes[length..end]);
            return found;
        };
        found.wrong = Some(wrong);
        found
    }

    pub fn protocol(&self) -> Option<u8> {
        self.ip.map(|ip| ip[9])
    }

    /// The length field of the IP header.
    pub fn length(&self) -> Option<u32> {
        self.ip.and_then(|ip| number(ip, 2)).map(u32::from)
    }

    /// The field with the fragment's flags and offset.
    pub fn fragment(&self) -> Option<u16> {
        self.ip.and_then(|ip| number(ip, 6))
    }

    pub fn is_first_fragment(&self) -> bool {
        self.fragment().is_some_and(|fragment| fragment & 0x1fff == 0)
    }

    /// The bytes from the transport header on, if the packet has one of this protocol.
    pub fn transport(&self, protocol: u8) -> Option<&'p [u8]> {
        (self.protocol() == Some(protocol) && self.is_first_fragment()).then_some(self.body)
    }

    /// The bytes from the header of TCP or UDP on.
    pub fn ports(&self) -> Option<&'p [u8]> {
        self.transport(TCP).or_else(|| self.transport(UDP))
    }

    /// The length of the TCP header, if it is all there.
    pub fn tcp_header(&self) -> Option<&'p [u8]> {
        let tcp = self.transport(TCP)?;
        let length = usize::from(*tcp.get(12)? >> 4) * 4;
        if length < 20 { None } else { tcp.get(..length) }
    }

    /// The offset of the payload behind the IP header.
    fn payload_offset(&self) -> usize {
        match self.protocol() {
            Some(TCP) if self.is_first_fragment() => {
                self.body.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4)
            }
            Some(UDP) if self.is_first_fragment() => 8,
            _ => 0,
        }
    }

    /// The captured bytes of the payload.
    pub fn payload(&self) -> Option<&'p [u8]> {
        self.ip.map(|_| self.body.get(self.payload_offset()..).unwrap_or_default())
    }

    /// The length of the payload, with what was not captured.
    pub fn payload_length(&self) -> Option<u32> {
        let headers = self.ip?.len() + self.payload_offset();
        Some(self.length()?.saturating_sub(u32::try_from(headers).unwrap_or(u32::MAX)))
    }

    /// Returns true if the packet has fewer bytes than its IP header states.
    pub fn is_truncated(&self) -> bool {
        let Some(ip) = self.ip else { return false };
        let there = self.packet.network_bytes().map_or(0, <[u8]>::len).max(ip.len()) as u64;
        there + u64::from(self.extra) < u64::from(self.length().unwrap_or(0))
    }
}
