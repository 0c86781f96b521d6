//! Encoding of the blocks of a pcapng file (draft-ietf-opsawg-pcapng), in little-endian byte order.

use weir_units::Timestamp;
use weir_wire::LinkType;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

const OPTION_END: u16 = 0;
const COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;
const IF_FILTER: u16 = 11;
const EPB_DROPCOUNT: u16 = 4;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;
const ISB_FILTERACCEPT: u16 = 6;
const ISB_OSDROP: u16 = 7;
const ISB_USRDELIV: u16 = 8;

/// The most bytes of a text in an option. The length field would allow 65,535.
const TEXT_BYTES_MAX: usize = 4096;

/// Texts about the interfaces of a capture, for its readers. Empty texts are not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceTexts {
    /// The program that writes the capture, with its version.
    pub application: String,
    /// The interface's name.
    pub name: String,
    /// A description of the interface and of the view of its packets.
    pub description: String,
    /// The filter that has selected the packets.
    pub filter: String,
}

/// Counters of an interface, in packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceStatistics {
    /// The time of the counters.
    pub at: Timestamp,
    /// Packets that arrived, with lost ones.
    pub received: u64,
    /// Packets lost because they were not valid.
    pub invalid: u64,
    /// Packets lost for lack of memory.
    pub ring_full: u64,
    /// Packets that the filter selected.
    pub selected: u64,
    /// Packets in the capture.
    pub delivered: u64,
    /// A text about the counters.
    pub comment: String,
}

/// A packet to be written.
#[derive(Clone, Copy, Debug)]
pub struct PacketRecord<'a> {
    /// The time stamp.
    pub ts: Timestamp,
    /// Length on the link in bytes.
    pub wire_len: u32,
    /// The link type.
    pub link_type: LinkType,
    /// Number of the interface in the input.
    pub interface: u16,
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Packets lost between the previous packet and this one; pcap has no place for them.
    pub lost: u64,
    /// A comment, or an empty text; pcap has no place for it.
    pub comment: &'a str,
}

/// Appends a block with a body of four-byte words.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let len = u32::try_from(out.len() - start + 4).unwrap_or(u32::MAX).to_le_bytes();
    if let Some(field) = out.get_mut(start + 4..start + 8) {
        field.copy_from_slice(&len);
    }
    out.extend_from_slice(&len);
}

/// Appends zeros up to a multiple of four bytes.
fn pad(out: &mut Vec<u8>, bytes: usize) {
    out.extend_from_slice(&[0; 3][..bytes.next_multiple_of(4) - bytes]);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, value.len());
}

/// Appends a text, unless it is empty. Long texts are cut.
fn text_option(out: &mut Vec<u8>, code: u16, text: &str) {
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    let text = text.get(..end).unwrap_or_default();
    if !text.is_empty() {
        option(out, code, text.as_bytes());
    }
}

/// The order of a 64-bit time stamp: upper half first.
fn time(out: &mut Vec<u8>, ts: Timestamp) {
    let [l0, l1, l2, l3, h0, h1, h2, h3] = ts.0.to_le_bytes();
    out.extend_from_slice(&[h0, h1, h2, h3, l0, l1, l2, l3]);
}

/// Appends a section header: byte order, version 1.0, unknown length.
pub(crate) fn section_header(out: &mut Vec<u8>, texts: &InterfaceTexts) {
    block(out, SECTION_HEADER, |out| {
        out.extend_from_slice(&0x1a2b_3c4du32.to_le_bytes());
        out.extend_from_slice(&[1, 0, 0, 0]);
        out.extend_from_slice(&[0xff; 8]);
        if !texts.application.is_empty() {
            text_option(out, SHB_USERAPPL, &texts.application);
            option(out, OPTION_END, &[]);
        }
    });
}

/// Appends the description of an interface, with time stamps in ns and no limit on lengths.
pub(crate) fn interface_description(out: &mut Vec<u8>, link_type: LinkType, texts: &InterfaceTexts) {
    block(out, INTERFACE_DESCRIPTION, |out| {
        out.extend_from_slice(&u32::from(link_type.number()).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        text_option(out, IF_NAME, &texts.name);
        text_option(out, IF_DESCRIPTION, &texts.description);
        option(out, IF_TSRESOL, &[9]);
        if !texts.filter.is_empty() {
            // The first byte says that the filter is a text for libpcap.
            let filter = texts.filter.get(..texts.filter.floor_char_boundary(TEXT_BYTES_MAX));
            option(out, IF_FILTER, &[&[0], filter.unwrap_or_default().as_bytes()].concat());
        }
        option(out, OPTION_END, &[]);
    });
}

/// Appends a packet of the interface with the number `index` in the section.
pub(crate) fn packet(out: &mut Vec<u8>, index: u32, record: &PacketRecord<'_>, cap_len: u32) {
    block(out, ENHANCED_PACKET, |out| {
        out.extend_from_slice(&index.to_le_bytes());
        time(out, record.ts);
        out.extend_from_slice(&cap_len.to_le_bytes());
        out.extend_from_slice(&record.wire_len.to_le_bytes());
        out.extend_from_slice(record.bytes);
        pad(out, record.bytes.len());
        if record.lost > 0 || !record.comment.is_empty() {
            text_option(out, COMMENT, record.comment);
            option(out, EPB_DROPCOUNT, &record.lost.to_le_bytes());
            option(out, OPTION_END, &[]);
        }
    });
}

/// Appends the counters of the interface with the number `index` in the section.
pub(crate) fn interface_statistics(out: &mut Vec<u8>, index: u32, statistics: &InterfaceStatistics) {
    block(out, INTERFACE_STATISTICS, |out| {
        out.extend_from_slice(&index.to_le_bytes());
        time(out, statistics.at);
        text_option(out, COMMENT, &statistics.comment);
        for (code, packets) in [
            (ISB_IFRECV, statistics.received),
            (ISB_IFDROP, statistics.invalid),
            (ISB_FILTERACCEPT, statistics.selected),
            (ISB_OSDROP, statistics.ring_full),
            (ISB_USRDELIV, statistics.delivered),
        ] {
            option(out, code, &packets.to_le_bytes());
        }
        option(out, OPTION_END, &[]);
    });
}
