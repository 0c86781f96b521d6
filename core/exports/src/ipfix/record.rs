//! Templates, and the records that they describe.

use super::TEMPLATES_FROM;
use super::elements::{
    BIFLOW_DIRECTION, BY_ORIGINATOR, DataType, END_MILLISECONDS, InformationElement, OCTETS, PACKETS,
    REVERSE, START_MILLISECONDS, find,
};
use crate::RowKind;
use crate::fields::{address, first, nanos, semantic, text, unsigned};
use core::net::Ipv6Addr;
use weir_abi::row::FieldType;
use weir_admission::{DeclaredStream, StreamField};
use weir_session::Record;
use weir_units::Nanos;

/// The bit of an element's number that an enterprise number follows.
const ENTERPRISE: u16 = 0x8000;
/// The length of an element whose length is in each record.
const VARIABLE: u16 = u16::MAX;
/// The most bytes before a text: its length.
const TEXT_PREFIX_MAX: usize = 3;
/// The seconds from 1900, where the time of NTP begins, to 1970.
const NTP_TO_UNIX: u64 = 2_208_988_800;

/// The layout of a stream's records.
#[derive(Debug)]
pub(super) struct Template {
    number: u16,
    parts: Vec<Part>,
    /// The addresses of the stream.
    addresses: Vec<StreamField>,
    /// True if all addresses must be of IPv4.
    is_ipv4: bool,
}

/// An element of a template with its source.
#[derive(Debug)]
struct Part {
    element: InformationElement,
    enterprise: Option<u32>,
    source: Source,
}

/// The source of an element's value.
#[derive(Debug)]
enum Source {
    Field(StreamField),
    /// The end of a connection: the begin plus the duration.
    Sum(StreamField, StreamField),
    /// The same number in all records.
    Constant(u64),
}

/// Makes the templates of a stream. They take their numbers from `next` on. None for a stream without keys.
pub(super) fn templates_of(stream: &DeclaredStream, next: &mut u16) -> Vec<Template> {
    let addresses: Vec<StreamField> =
        stream.fields.iter().filter(|field| is_exported_address(field)).cloned().collect();
    let versions: &[bool] = if addresses.is_empty() { &[false] } else { &[true, false] };
    let mut templates = Vec::new();
    for is_ipv4 in versions {
        let parts = parts_of(stream, *is_ipv4);
        // A row without any of these says nothing about packets.
        let has_key = parts.iter().any(|part| {
            matches!(part.element.ty, DataType::Ipv4 | DataType::Ipv6)
                || part.element.name.ends_with("Port")
                || matches!(part.element.name, "flowId" | "digestHashValue")
        });
        if has_key && *next >= TEMPLATES_FROM {
            let addresses = addresses.clone();
            templates.push(Template { number: *next, parts, addresses, is_ipv4: *is_ipv4 });
            *next = next.wrapping_add(1);
        }
    }
    templates
}

fn is_exported_address(field: &StreamField) -> bool {
    field.ty == FieldType::Ip && field.semantic.is_some_and(|semantic| !semantic.ipfix.is_empty())
}

fn parts_of(stream: &DeclaredStream, is_ipv4: bool) -> Vec<Part> {
    let is_connection = RowKind::of(stream) == RowKind::Connection;
    let field = |name: &str| first(stream, name).and_then(|index| stream.fields.get(index)).cloned();
    let mut parts = Vec::new();
    if is_connection {
        let part = |element, source| Part { element, enterprise: None, source };
        let (start, end, time) = (field("event.start"), field("event.end"), field("time"));
        let end = match (end, start.clone(), field("event.duration")) {
            (Some(end), _, _) => Some(Source::Field(end)),
            (None, Some(start), Some(duration)) => Some(Source::Sum(start, duration)),
            (None, _, _) => time.clone().map(Source::Field),
        };
        parts.extend(start.or(time).map(|start| part(START_MILLISECONDS, Source::Field(start))));
        parts.extend(end.map(|end| part(END_MILLISECONDS, end)));
        parts.push(part(BIFLOW_DIRECTION, Source::Constant(BY_ORIGINATOR)));
    }
    for (index, field) in stream.fields.iter().enumerate() {
        let name = semantic(field);
        if first(stream, name) != Some(index) {
            continue;
        }
        let biflow = match name {
            "source.packets" => Some((PACKETS, None)),
            "source.bytes" => Some((OCTETS, None)),
            "destination.packets" => Some((PACKETS, Some(REVERSE))),
            "destination.bytes" => Some((OCTETS, Some(REVERSE))),
            _ => None,
        };
        let (element, enterprise) = match biflow.filter(|_| is_connection) {
            Some(element) => element,
            None => match element_of(field, is_ipv4) {
                Some(element) => (element, None),
                None => continue,
            },
        };
        parts.push(Part { element, enterprise, source: Source::Field(field.clone()) });
    }
    parts
}

/// Returns the element of a field by its semantic; `None` if there is none of the field's type.
fn element_of(field: &StreamField, is_ipv4: bool) -> Option<InformationElement> {
    let names = field.semantic?.ipfix;
    let name = match names.split_once(", ") {
        Some((ipv4, _)) if is_ipv4 => ipv4,
        Some((_, ipv6)) => ipv6,
        None => names,
    };
    let is_number = matches!(field.ty, FieldType::U8 | FieldType::U16 | FieldType::U32 | FieldType::U64);
    find(name).filter(|element| match element.ty {
        DataType::Unsigned(_) => is_number,
        DataType::Ipv4 | DataType::Ipv6 => field.ty == FieldType::Ip,
        DataType::Milliseconds | DataType::Nanoseconds => field.ty == FieldType::Timestamp,
        DataType::DurationMicros => true,
        DataType::Text => field.ty == FieldType::String,
    })
}

impl Template {
    /// Returns the number of the template.
    pub(super) fn number(&self) -> u16 {
        self.number
    }

    /// Returns true if the template can have this record, by the versions of its addresses.
    pub(super) fn fits(&self, record: &Record<'_>) -> bool {
        let is_ipv4 = |field: &StreamField| {
            address(field, record).is_none_or(|address| address.to_ipv4_mapped().is_some())
        };
        !self.is_ipv4 || self.addresses.iter().all(is_ipv4)
    }

    /// Returns the template record that declares the layout.
    pub(super) fn declaration(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.number.to_be_bytes());
        bytes.extend_from_slice(&u16::try_from(self.parts.len()).unwrap_or(u16::MAX).to_be_bytes());
        for part in &self.parts {
            let flag = if part.enterprise.is_some() { ENTERPRISE } else { 0 };
            bytes.extend_from_slice(&(part.element.number | flag).to_be_bytes());
            bytes.extend_from_slice(&size(part.element.ty).to_be_bytes());
            if let Some(enterprise) = part.enterprise {
                bytes.extend_from_slice(&enterprise.to_be_bytes());
            }
        }
        bytes
    }

    /// Returns a data record of at most `room` bytes, and the number of texts that were cut for it. A null number is 0,
    /// and a null text empty: IPFIX has no null.
    pub(super) fn encode(&self, record: &Record<'_>, room: usize) -> (Vec<u8>, u64) {
        let is_text = |part: &&Part| part.element.ty == DataType::Text;
        let fixed: usize = self
            .parts
            .iter()
            .map(|part| usize::from(size(part.element.ty)))
            .filter(|size| *size != usize::from(VARIABLE))
            .sum();
        let mut texts = self.parts.iter().filter(is_text).count();
        let (mut bytes, mut cut) = (Vec::with_capacity(fixed), 0);
        let mut room_for_texts = room.saturating_sub(fixed);
        for part in &self.parts {
            if part.element.ty != DataType::Text {
                part.push_fixed(&mut bytes, record);
                continue;
            }
            let value = match &part.source {
                Source::Field(field) => text(field, record).unwrap_or_default(),
                Source::Sum(..) | Source::Constant(_) => String::new(),
            };
            // Each text may use what the texts before it have left.
            let share = (room_for_texts / texts.max(1)).saturating_sub(TEXT_PREFIX_MAX);
            let end = value.floor_char_boundary(share.min(usize::from(u16::MAX)));
            let kept = value.get(..end).unwrap_or_default();
            cut += u64::from(kept.len() < value.len());
            let before = bytes.len();
            push_text(&mut bytes, kept);
            room_for_texts = room_for_texts.saturating_sub(bytes.len() - before);
            texts -= 1;
        }
        (bytes, cut)
    }
}

impl Part {
    /// Appends the value of an element of fixed length.
    fn push_fixed(&self, bytes: &mut Vec<u8>, record: &Record<'_>) {
        let number = match &self.source {
            Source::Field(field) => unsigned(field, record).unwrap_or(0),
            Source::Sum(start, duration) => {
                let start = unsigned(start, record).unwrap_or(0);
                start.saturating_add_signed(nanos(duration, record).unwrap_or(0))
            }
            Source::Constant(number) => *number,
        };
        let field = match &self.source {
            Source::Field(field) | Source::Sum(_, field) => Some(field),
            Source::Constant(_) => None,
        };
        let ip = || field.and_then(|field| address(field, record)).unwrap_or(Ipv6Addr::UNSPECIFIED);
        match self.element.ty {
            DataType::Unsigned(size) => {
                let all = number.min(u64::MAX >> (64 - 8 * u32::from(size))).to_be_bytes();
                bytes.extend_from_slice(all.get(8 - usize::from(size)..).unwrap_or_default());
            }
            DataType::Ipv4 => {
                bytes.extend_from_slice(&ip().to_ipv4_mapped().map_or([0; 4], |ip| ip.octets()))
            }
            DataType::Ipv6 => bytes.extend_from_slice(&ip().octets()),
            DataType::Milliseconds => bytes.extend_from_slice(&(number / Nanos::MILLISECOND.0).to_be_bytes()),
            DataType::Nanoseconds => bytes.extend_from_slice(&ntp(number)),
            DataType::DurationMicros => {
                let micros = field.and_then(|field| nanos(field, record)).unwrap_or(0).max(0) / 1_000;
                bytes.extend_from_slice(&u32::try_from(micros).unwrap_or(u32::MAX).to_be_bytes());
            }
            DataType::Text => {}
        }
    }
}

/// Returns the size in a template; [`VARIABLE`] for texts.
fn size(ty: DataType) -> u16 {
    match ty {
        DataType::Unsigned(size) => size,
        DataType::Ipv4 | DataType::DurationMicros => 4,
        DataType::Ipv6 => 16,
        DataType::Milliseconds | DataType::Nanoseconds => 8,
        DataType::Text => VARIABLE,
    }
}

/// Appends a text with its length (RFC 7011, 7).
fn push_text(bytes: &mut Vec<u8>, text: &str) {
    match u8::try_from(text.len()) {
        Ok(len) if len < u8::MAX => bytes.push(len),
        _ => {
            bytes.push(u8::MAX);
            bytes.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
        }
    }
    bytes.extend_from_slice(text.as_bytes());
}

/// Returns the time stamp of NTP (RFC 7011, 6.1.9) for nanoseconds since 1970: seconds since 1900, modulo 2^32, and a fraction.
fn ntp(ns: u64) -> [u8; 8] {
    let seconds = (ns / Nanos::SECOND.0 + NTP_TO_UNIX) & u64::from(u32::MAX);
    // Rounded up, so that a reader that rounds down gets the same nanosecond.
    let fraction = ((ns % Nanos::SECOND.0) << 32).div_ceil(Nanos::SECOND.0);
    (seconds << 32 | fraction).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_ntp_have_the_nanosecond_that_they_were_made_from() {
        for ns in [0, 1, 999_999_999, 1_700_000_000_123_456_789, 4_000_000_000_000_000_001] {
            let stamp = u64::from_be_bytes(ntp(ns));
            let fraction = (u128::from(stamp & u64::from(u32::MAX)) * u128::from(Nanos::SECOND.0)) >> 32;
            assert_eq!(fraction, u128::from(ns % Nanos::SECOND.0));
            assert_eq!(stamp >> 32, (ns / Nanos::SECOND.0 + NTP_TO_UNIX) % (1 << 32));
        }
    }
}
