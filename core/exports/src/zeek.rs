//! Zeek's logs: lines of tab-separated values after a header with names and types.

mod columns;
mod text;

use crate::fields::{address, nanos, read, text as read_text, unsigned};
use crate::flow_key::{FlowKey, FlowKeyFields};
use crate::{dns, protocol};
use columns::{Column, ColumnForm, Content};
use std::io::Write as _;
use text::{push_element, push_set, push_text};
use weir_abi::row::FieldType;
use weir_admission::{DeclaredStream, FieldValue, StreamField};
use weir_session::Record;
use weir_units::{AddressText, Timestamp, time_text};

/// The text of a value that does not exist.
const UNSET: &[u8] = b"-";

/// Writes the rows of one stream as a log of Zeek, in the format of its ASCII writer.
///
/// Rows that Zeek has a log for ([`crate::RowKind::zeek_log`]) have the columns of that log in Zeek's order. Columns for which the
/// stream has no field are unset (`-`). Fields for which Zeek has no column follow under their own names. The columns of
/// other streams have the names of Zeek that their semantics state, or else their own.
#[derive(Debug)]
pub struct ZeekLog {
    path: String,
    columns: Vec<Column>,
    key: Option<FlowKeyFields>,
}

impl ZeekLog {
    /// Creates the writer for a stream of the module with this label. `path` is the name of the log, without `.log`.
    pub fn new(path: &str, label: &str, stream: &DeclaredStream) -> Self {
        Self { path: path.to_owned(), columns: columns::of(label, stream), key: FlowKeyFields::of(stream) }
    }

    /// Appends the header of a log that is opened at this time.
    pub fn push_header(&self, out: &mut Vec<u8>, opened: Timestamp) {
        out.extend_from_slice(
            b"#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\t",
        );
        out.extend_from_slice(self.path.as_bytes());
        out.push(b'\n');
        push_time_line(out, "#open", opened);
        out.extend_from_slice(b"#fields");
        for column in &self.columns {
            out.push(b'\t');
            out.extend_from_slice(column.name.as_bytes());
        }
        out.extend_from_slice(b"\n#types");
        for column in &self.columns {
            out.push(b'\t');
            out.extend_from_slice(column.ty.as_bytes());
        }
        out.push(b'\n');
    }

    /// Appends a row with its line feed.
    pub fn push(&self, out: &mut Vec<u8>, record: &Record<'_>) {
        let key = self.key.as_ref().and_then(|key| key.read(record));
        for (index, column) in self.columns.iter().enumerate() {
            if index > 0 {
                out.push(b'\t');
            }
            let begin = out.len();
            push_content(out, &column.content, key.as_ref(), record);
            if out.len() == begin {
                out.extend_from_slice(UNSET);
            }
        }
        out.push(b'\n');
    }

    /// Appends the last line of a log that is closed at this time.
    pub fn push_footer(&self, out: &mut Vec<u8>, closed: Timestamp) {
        push_time_line(out, "#close", closed);
    }
}

/// Appends a line with a time: `#open`, tab, `2026-11-28-03-06-46`.
fn push_time_line(out: &mut Vec<u8>, name: &str, at: Timestamp) {
    out.extend_from_slice(name.as_bytes());
    out.push(b'\t');
    let digits = time_text(at).into_iter().take(19);
    out.extend(digits.map(|byte| if byte.is_ascii_digit() { byte } else { b'-' }));
    out.push(b'\n');
}

/// Appends the value of a column; nothing if it is unset.
fn push_content(out: &mut Vec<u8>, content: &Content, key: Option<&FlowKey>, record: &Record<'_>) {
    match content {
        Content::Unset => {}
        Content::Uid => out.extend_from_slice(key.map(FlowKey::uid).unwrap_or_default().as_bytes()),
        Content::Text(text) => push_text(out, text.as_bytes()),
        Content::Field(field, value) => push_value(out, field, *value, record),
        Content::State { state, packets: [source, destination] } => {
            let recorded = state.as_ref().and_then(|state| read_text(state, record));
            let has_packets = |field: &StreamField| unsigned(field, record).unwrap_or(0) > 0;
            match (recorded, key) {
                (Some(state), _) => push_text(out, state.as_bytes()),
                (None, Some(key)) => {
                    out.extend_from_slice(state_without_tcp(
                        key,
                        has_packets(source),
                        has_packets(destination),
                    ));
                }
                (None, None) => {}
            }
        }
    }
}

/// Returns the state of a connection for which the stream has none, as `conn_state` of Zeek's
/// `base/protocols/conn/main.zeek` does. A TCP connection without a state stays unset.
fn state_without_tcp(key: &FlowKey, has_requests: bool, has_answers: bool) -> &'static [u8] {
    match (key.protocol, has_requests, has_answers) {
        (protocol::TCP, _, _) => b"",
        (protocol::UDP, true, true) => b"SF",
        (protocol::UDP, true, false) => b"S0",
        (protocol::UDP, false, true) => b"SHR",
        _ => b"OTH",
    }
}

/// Appends the value of a field; nothing if it is null, or does not exist in Zeek's type.
fn push_value(out: &mut Vec<u8>, field: &StreamField, value: ColumnForm, record: &Record<'_>) {
    // Writing to memory cannot fail.
    let _ = match value {
        ColumnForm::Plain => {
            push_plain(out, field, record);
            Ok(())
        }
        ColumnForm::Interval => match nanos(field, record) {
            Some(ns) => push_micros(out, ns < 0, ns.unsigned_abs()),
            None => Ok(()),
        },
        // Zeek's ports are never unset: connections of protocols without ports have 0.
        ColumnForm::Port => write!(out, "{}", unsigned(field, record).unwrap_or(0)),
        ColumnForm::Protocol => {
            let name: &[u8] = match unsigned(field, record) {
                Some(protocol::TCP) => b"tcp",
                Some(protocol::UDP) => b"udp",
                Some(protocol::ICMP | protocol::ICMP6) => b"icmp",
                Some(_) => b"unknown_transport",
                None => b"",
            };
            out.write_all(name)
        }
        ColumnForm::TlsVersion => {
            if let Some(version) = read_text(field, record) {
                push_text(out, tls_version(&version).as_bytes());
            }
            Ok(())
        }
        ColumnForm::DnsType => match read_text(field, record).and_then(|name| dns::type_number(&name)) {
            Some(number) => write!(out, "{number}"),
            None => Ok(()),
        },
        ColumnForm::DnsCode => match read_text(field, record).and_then(|name| dns::code_number(&name)) {
            Some(number) => write!(out, "{number}"),
            None => Ok(()),
        },
        ColumnForm::Answers => {
            if let Some(answers) = read_text(field, record) {
                push_set(out, dns::answers(&answers).map(|(_, data)| data.as_bytes()));
            }
            Ok(())
        }
        ColumnForm::OneElement => {
            if let Some(FieldValue::Bytes(bytes)) = read(field, record) {
                push_element(out, bytes);
            }
            Ok(())
        }
        ColumnForm::FirstOfList => {
            if let Some(list) = read_text(field, record) {
                push_text(out, list.split(',').next().unwrap_or_default().as_bytes());
            }
            Ok(())
        }
    };
}

/// Appends a value in the form of its own type.
fn push_plain(out: &mut Vec<u8>, field: &StreamField, record: &Record<'_>) {
    let Some(value) = read(field, record) else { return };
    // Writing to memory cannot fail.
    let _ = match value {
        FieldValue::Unsigned(ns) if field.ty == FieldType::Timestamp => push_micros(out, false, ns),
        FieldValue::Unsigned(number) => write!(out, "{number}"),
        FieldValue::Signed(number) => write!(out, "{number}"),
        FieldValue::Float(number) if number.is_finite() => write!(out, "{number}"),
        FieldValue::Float(_) | FieldValue::Null => Ok(()),
        FieldValue::Bool(is_true) => out.write_all(if is_true { b"T" } else { b"F" }),
        FieldValue::Ip(_) => match address(field, record) {
            Some(address) => out.write_all(AddressText::new(address).as_str().as_bytes()),
            None => Ok(()),
        },
        FieldValue::Bytes(bytes) if field.ty == FieldType::String => {
            push_text(out, bytes);
            Ok(())
        }
        FieldValue::Bytes(bytes) => {
            push_text(out, field.text(bytes).as_bytes());
            Ok(())
        }
    };
}

/// Appends seconds with six decimals, as Zeek does. Nanoseconds are cut off.
fn push_micros(out: &mut Vec<u8>, is_negative: bool, ns: u64) -> std::io::Result<()> {
    let sign = if is_negative { "-" } else { "" };
    write!(out, "{sign}{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1_000)
}

/// Returns Zeek's name of a version of TLS: `TLSv12` for `TLS 1.2`.
fn tls_version(version: &str) -> String {
    match version {
        "SSL 2.0" => "SSLv2".to_owned(),
        "SSL 3.0" => "SSLv3".to_owned(),
        "TLS 1.0" => "TLSv10".to_owned(),
        "TLS 1.1" => "TLSv11".to_owned(),
        "TLS 1.2" => "TLSv12".to_owned(),
        "TLS 1.3" => "TLSv13".to_owned(),
        other => other.to_owned(),
    }
}

/// Returns the type of Zeek for a field in a column of its own.
fn type_of(field: &StreamField) -> &'static str {
    match field.ty {
        FieldType::U8 | FieldType::U16 | FieldType::U32 | FieldType::U64 => "count",
        FieldType::I32 | FieldType::I64 | FieldType::Duration => "int",
        FieldType::F32 | FieldType::F64 => "double",
        FieldType::Bool => "bool",
        FieldType::Ip => "addr",
        FieldType::Timestamp => "time",
        FieldType::String | FieldType::Bytes => "string",
    }
}
