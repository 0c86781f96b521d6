//! IPFIX messages (RFC 7011): templates, data records, and the order in which a collector needs them.
//!
//! A stream has one template for rows whose addresses are all IPv4, and one for other rows. Its elements are those of IANA's registry
//! that the semantics of the fields state; fields without one are left out, since weir has no number of its own for
//! enterprise elements. Both directions of a connection are one record (RFC 5103), which most collectors read: the originator's packets and
//! bytes are `packetDeltaCount` and `octetDeltaCount`, those of the responder their reverse elements. A connection also has
//! its begin and end in milliseconds, because many collectors read no nanoseconds.

mod elements;
mod record;

use record::{Template, templates_of};
use weir_admission::DeclaredStream;
use weir_session::Record;
use weir_units::{Nanos, Timestamp};

/// The size in bytes up to which messages in a file or a TCP connection grow.
pub const MESSAGE_BYTES_MAX: usize = 65_535;
/// The size in bytes of messages over UDP. With the headers of IPv6 and UDP they fit into the payload of an Ethernet frame.
pub const DATAGRAM_BYTES_MAX: usize = 1_400;
/// The least size that a message can be limited to: all templates have to fit, each in a message.
const MESSAGE_BYTES_MIN: usize = 1_200;

/// The bytes of a message's header, and of a set's.
const HEADER_BYTES: usize = 16;
const SET_HEADER_BYTES: usize = 4;
/// The set of templates.
const TEMPLATE_SET: u16 = 2;
/// The first number of a template.
const TEMPLATES_FROM: u16 = 256;
const VERSION: u16 = 10;

/// Makes the messages of one transport session or file: one observation domain.
#[derive(Debug)]
pub struct IpfixMessages {
    domain: u32,
    bytes_max: usize,
    /// The templates of each stream; none for a stream without elements.
    streams: Vec<Vec<Template>>,
    /// Data records in all earlier messages, modulo 2^32.
    sequence: u32,
    /// The sets of the present message, behind the place of its header.
    message: Vec<u8>,
    /// The place of the present set's header, and its template.
    set: Option<(usize, u16)>,
    /// Data records in the present message.
    records: u32,
    /// Texts that were cut, because a message has no room for them.
    cut: u64,
}

impl IpfixMessages {
    /// Begins a session for these streams. Messages have at most `bytes_max` bytes.
    pub fn new<'a>(
        streams: impl IntoIterator<Item = &'a DeclaredStream>,
        domain: u32,
        bytes_max: usize,
    ) -> Self {
        let mut next = TEMPLATES_FROM;
        let templates = streams.into_iter().map(|stream| templates_of(stream, &mut next)).collect();
        Self {
            domain,
            bytes_max: bytes_max.clamp(MESSAGE_BYTES_MIN, MESSAGE_BYTES_MAX),
            streams: templates,
            sequence: 0,
            message: vec![0; HEADER_BYTES],
            set: None,
            records: 0,
            cut: 0,
        }
    }

    /// Returns true if a stream has elements of IANA's registry that identify its rows: addresses, ports or the like.
    pub fn can_export(stream: &DeclaredStream) -> bool {
        !templates_of(stream, &mut TEMPLATES_FROM.clone()).is_empty()
    }

    /// Returns the texts that were cut so far, because a message has no room for them.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// Returns messages with all templates. A file and a TCP connection begin with them. Over UDP they are sent from time to
    /// time. Records that wait for their message are unaffected.
    pub fn templates(&self, now: Timestamp) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        let mut sets: Vec<u8> = Vec::new();
        for template in self.streams.iter().flatten() {
            let bytes = template.declaration();
            if !sets.is_empty() && HEADER_BYTES + SET_HEADER_BYTES + sets.len() + bytes.len() > self.bytes_max
            {
                messages.push(self.template_message(&sets, now));
                sets.clear();
            }
            sets.extend_from_slice(&bytes);
        }
        if !sets.is_empty() {
            messages.push(self.template_message(&sets, now));
        }
        messages
    }

    fn template_message(&self, templates: &[u8], now: Timestamp) -> Vec<u8> {
        let mut message = vec![0; HEADER_BYTES];
        message.extend_from_slice(&TEMPLATE_SET.to_be_bytes());
        message.extend_from_slice(&length(SET_HEADER_BYTES + templates.len()));
        message.extend_from_slice(templates);
        self.put_header(&mut message, now);
        message
    }

    /// Adds a record of a stream, by its index. Returns the message before it, if the record did not fit into that. The
    /// record of a stream without templates is left out.
    pub fn push(&mut self, stream: usize, record: &Record<'_>, now: Timestamp) -> Option<Vec<u8>> {
        let templates = self.streams.get(stream)?;
        let template = templates.iter().find(|template| template.fits(record))?;
        let room = self.bytes_max - HEADER_BYTES - SET_HEADER_BYTES;
        let (bytes, cut) = template.encode(record, room);
        let number = template.number();
        self.cut = self.cut.saturating_add(cut);
        let set_header = if self.set.is_some_and(|(_, open)| open == number) { 0 } else { SET_HEADER_BYTES };
        let is_full = self.message.len() + set_header + bytes.len() > self.bytes_max;
        let before = if is_full { self.flush(now) } else { None };
        if self.set.is_none_or(|(_, open)| open != number) {
            self.end_set();
            self.set = Some((self.message.len(), number));
            self.message.extend_from_slice(&number.to_be_bytes());
            self.message.extend_from_slice(&[0; 2]);
        }
        self.message.extend_from_slice(&bytes);
        self.records += 1;
        before
    }

    /// Returns the message with the records that wait for it; `None` if no record does.
    pub fn flush(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        if self.records == 0 {
            return None;
        }
        self.end_set();
        let mut message = std::mem::replace(&mut self.message, vec![0; HEADER_BYTES]);
        self.put_header(&mut message, now);
        self.sequence = self.sequence.wrapping_add(std::mem::take(&mut self.records));
        Some(message)
    }

    /// Writes the length of the present set.
    fn end_set(&mut self) {
        let Some((begin, _)) = self.set.take() else { return };
        let bytes = length(self.message.len() - begin);
        if let Some(place) = self.message.get_mut(begin + 2..begin + 4) {
            place.copy_from_slice(&bytes);
        }
    }

    /// Writes the header of a message.
    fn put_header(&self, message: &mut [u8], now: Timestamp) {
        let seconds = u32::try_from(now.0 / Nanos::SECOND.0).unwrap_or(u32::MAX);
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&VERSION.to_be_bytes());
        header.extend_from_slice(&length(message.len()));
        header.extend_from_slice(&seconds.to_be_bytes());
        header.extend_from_slice(&self.sequence.to_be_bytes());
        header.extend_from_slice(&self.domain.to_be_bytes());
        if let Some(place) = message.get_mut(..HEADER_BYTES) {
            place.copy_from_slice(&header);
        }
    }
}

/// Returns a length as the two bytes of a header. Messages are limited to lengths that fit.
fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}
