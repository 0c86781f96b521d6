//! Suricata's `eve.json`: a JSON object a line.

use crate::fields::{first, last, nanos, read, semantic, text, unsigned};
use crate::flow_key::FlowKeyFields;
use crate::{RowKind, dns, protocol};
use std::io::Write as _;
use weir_abi::finding::Severity;
use weir_abi::row::FieldType;
use weir_admission::{DeclaredStream, FieldValue, StreamField};
use weir_rows::push_json_text;
use weir_session::Record;
use weir_units::{AddressText, Timestamp, time_text};

/// The version of the objects `dns` that have question and answer side by side.
const DNS_VERSION: u8 = 2;

/// Writes the rows of one stream as events of Suricata's `eve.json`, valid under Suricata's published schema.
///
/// The event type is that of [`RowKind::eve_type`]; other streams have the type `MODULE_STREAM`. Members have the names that the
/// semantics state. The schema allows no further members, so other fields are in `metadata`, as Suricata writes the
/// variables of its rules: numbers and truth values in `flowints`, texts in `flowvars`.
#[derive(Debug)]
pub struct EveRows {
    kind: RowKind,
    event_type: String,
    /// The name of the module, for findings.
    label: String,
    /// The first of these fields that is not null has the time.
    times: Vec<StreamField>,
    key: Option<FlowKeyFields>,
    /// Members of the event itself, in the order of the fields.
    top: Vec<Member>,
    /// Members of the object with the details, which has this name.
    detail: (&'static str, Vec<Member>),
    /// Fields without a member.
    rest: Vec<StreamField>,
}

/// A member that a field fills.
#[derive(Debug)]
struct Member {
    name: &'static str,
    field: StreamField,
    value: MemberForm,
}

/// The way from a field's value to that of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberForm {
    /// The field's own type.
    Plain,
    /// An array of this value alone.
    OneElement,
    /// An array of the texts of a list with commas between them.
    List,
    /// The name of a protocol above IP.
    Protocol,
    /// Whole seconds.
    Seconds,
    /// A time without fractions and zone.
    Date,
    /// `HTTP/1.1` for `1.1`.
    HttpVersion,
    /// The records of a DNS answer.
    Answers,
    /// The text of a number in Suricata's `alert.severity`, where 1 is the most severe.
    Severity,
}

impl EveRows {
    /// Creates the writer for a stream of the module with this label.
    pub fn new(label: &str, stream: &DeclaredStream) -> Self {
        let kind = RowKind::of(stream);
        let event_type =
            kind.eve_type().map_or_else(|| format!("{label}_{}", stream.name.as_str()), str::to_owned);
        let object = kind.eve_type().unwrap_or("flow");
        let (mut top, mut detail, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        let time_names: &[&str] = match kind {
            RowKind::Connection => &["event.end", "time", "event.start"],
            _ => &["time", "event.start"],
        };
        let at = |name: &&str| first(stream, name).and_then(|index| stream.fields.get(index)).cloned();
        let times: Vec<StreamField> = time_names.iter().filter_map(at).collect();
        for (index, field) in stream.fields.iter().enumerate() {
            if times.first().is_some_and(|time| time.name == field.name) {
                continue;
            }
            match place(kind, stream, index) {
                Some(("", name, value)) => top.push(Member { name, field: field.clone(), value }),
                Some((_, name, value)) => detail.push(Member { name, field: field.clone(), value }),
                None => rest.push(field.clone()),
            }
        }
        let key = FlowKeyFields::of(stream);
        Self { kind, event_type, label: label.to_owned(), times, key, top, detail: (object, detail), rest }
    }

    /// Appends an event with its line feed. A row without a time has the time 0.
    pub fn push(&self, out: &mut Vec<u8>, record: &Record<'_>) {
        let time = self.times.iter().find_map(|field| unsigned(field, record)).unwrap_or(0);
        out.extend_from_slice(b"{\"timestamp\":");
        push_time(out, Timestamp(time));
        let key = self.key.as_ref().and_then(|key| key.read(record));
        if let Some(key) = &key {
            // Writing to memory cannot fail.
            let _ = write!(out, ",\"flow_id\":{}", key.flow_id());
        }
        out.extend_from_slice(b",\"event_type\":");
        push_json_text(out, &self.event_type);
        let is_icmp = key.is_some_and(|key| matches!(key.protocol, protocol::ICMP | protocol::ICMP6));
        let mut rest: Vec<&StreamField> = self.rest.iter().collect();
        for member in &self.top {
            match (member.name, is_icmp) {
                // Suricata states the port of a protocol that has ports.
                ("src_port", true) => push_member(out, "icmp_type", &member.field, member.value, record),
                ("dest_port", true) => rest.push(&member.field),
                (name, _) => push_member(out, name, &member.field, member.value, record),
            }
        }
        if let (Some(key), false) = (key.filter(|key| key.protocol != 0), self.has_protocol()) {
            out.extend_from_slice(b",\"proto\":");
            push_json_text(out, &protocol_name(key.protocol));
        }
        self.push_detail(out, record);
        push_metadata(out, &rest, record);
        out.extend_from_slice(b"}\n");
    }

    fn has_protocol(&self) -> bool {
        self.top.iter().any(|member| member.name == "proto")
    }

    /// Appends the object with the details, unless it is empty.
    fn push_detail(&self, out: &mut Vec<u8>, record: &Record<'_>) {
        let begin = out.len();
        let (object, members) = &self.detail;
        out.push(b',');
        push_json_text(out, object);
        out.push(b':');
        let first_member = out.len();
        for member in members {
            push_member(out, member.name, &member.field, member.value, record);
        }
        // Members that follow from others. Writing to memory cannot fail.
        let _ = match self.kind {
            RowKind::Dns => {
                let has_answer = members
                    .iter()
                    .any(|member| member.name == "rcode" && read(&member.field, record).is_some());
                let ty = if has_answer { "answer" } else { "query" };
                write!(out, ",\"version\":{DNS_VERSION},\"type\":\"{ty}\"")
            }
            RowKind::Finding => {
                out.extend_from_slice(b",\"action\":\"allowed\",\"category\":");
                push_json_text(out, &self.label);
                Ok(())
            }
            _ => Ok(()),
        };
        if out.len() == first_member {
            out.truncate(begin);
        } else if let Some(comma) = out.get_mut(first_member) {
            // Each member begins with a comma.
            *comma = b'{';
            out.push(b'}');
        }
    }
}

/// Returns the object, the member's name and the form of a field's value; the object is empty for a member of the event
/// itself. `None` if the schema has no member for the field.
fn place(
    kind: RowKind,
    stream: &DeclaredStream,
    index: usize,
) -> Option<(&'static str, &'static str, MemberForm)> {
    let field = stream.fields.get(index)?;
    let name = semantic(field);
    let is_first = first(stream, name) == Some(index);
    let special = match (kind, name) {
        (RowKind::Finding, "message") => Some(("alert", "signature", MemberForm::Plain)),
        (RowKind::Finding, "event.severity") => Some(("alert", "severity", MemberForm::Severity)),
        (RowKind::Quic, "tls.server_name") => Some(("quic", "sni", MemberForm::Plain)),
        (RowKind::Quic, "tls.ja4") => Some(("quic", "ja4", MemberForm::Plain)),
        // A stream with two such fields has the offers of the client first.
        (RowKind::Tls, "tls.alpn") if !is_first && last(stream, name) == Some(index) => {
            Some(("tls", "server_alpns", MemberForm::List))
        }
        (RowKind::Tls, "tls.alpn") => Some(("tls", "client_alpns", MemberForm::List)),
        _ => None,
    };
    let is_special = special.is_some();
    let (object, member, value) = special.or_else(|| {
        let path = field.semantic?.eve;
        let (object, member) = path.split_once('.').unwrap_or(("", path));
        let value = match path {
            "" | "timestamp" => return None,
            "proto" => MemberForm::Protocol,
            "vlan" => MemberForm::OneElement,
            "flow.start" | "flow.end" => MemberForm::Plain,
            "flow.age" => MemberForm::Seconds,
            "tls.notbefore" | "tls.notafter" => MemberForm::Date,
            "http.protocol" => MemberForm::HttpVersion,
            "dns.answers" => MemberForm::Answers,
            _ => MemberForm::Plain,
        };
        Some((object, member, value))
    })?;
    let is_allowed = object.is_empty() || object == kind.eve_type().unwrap_or("flow");
    (is_allowed && (is_first || is_special)).then_some((object, member, value))
}

/// Appends a comma and a member; nothing if the value is null or does not exist in the member's type.
fn push_member(out: &mut Vec<u8>, name: &str, field: &StreamField, value: MemberForm, record: &Record<'_>) {
    let begin = out.len();
    out.push(b',');
    push_json_text(out, name);
    out.push(b':');
    let value_begin = out.len();
    push_value(out, field, value, record);
    if out.len() == value_begin {
        out.truncate(begin);
    }
}

/// Appends a value; nothing if it is null or does not exist.
fn push_value(out: &mut Vec<u8>, field: &StreamField, value: MemberForm, record: &Record<'_>) {
    // Writing to memory cannot fail.
    let _ = match value {
        MemberForm::Plain => {
            push_plain(out, field, record);
            Ok(())
        }
        MemberForm::OneElement if read(field, record).is_some() => {
            out.push(b'[');
            push_plain(out, field, record);
            out.push(b']');
            Ok(())
        }
        MemberForm::OneElement => Ok(()),
        MemberForm::List => {
            if let Some(list) = text(field, record) {
                push_array(out, list.split(',').filter(|element| !element.is_empty()), |out, element| {
                    push_json_text(out, element);
                });
            }
            Ok(())
        }
        MemberForm::Protocol => {
            if let Some(number) = unsigned(field, record) {
                push_json_text(out, &protocol_name(number));
            }
            Ok(())
        }
        MemberForm::Seconds => match nanos(field, record) {
            Some(ns) => write!(out, "{}", ns / 1_000_000_000),
            None => Ok(()),
        },
        MemberForm::Date => match unsigned(field, record) {
            Some(ns) => {
                let date = time_text(Timestamp(ns)).into_iter().take(19).map(char::from).collect::<String>();
                write!(out, "\"{date}\"")
            }
            None => Ok(()),
        },
        MemberForm::HttpVersion => {
            if let Some(version) = text(field, record) {
                push_json_text(out, &format!("HTTP/{version}"));
            }
            Ok(())
        }
        MemberForm::Answers => {
            // The schema allows no empty array.
            if let Some(answers) = text(field, record).filter(|text| dns::answers(text).next().is_some()) {
                push_array(out, dns::answers(&answers), |out, (ty, data)| {
                    out.push(b'{');
                    if let Some(ty) = ty {
                        out.extend_from_slice(b"\"rrtype\":");
                        push_json_text(out, ty);
                        out.push(b',');
                    }
                    out.extend_from_slice(b"\"rdata\":");
                    push_json_text(out, data);
                    out.push(b'}');
                });
            }
            Ok(())
        }
        MemberForm::Severity => match unsigned(field, record) {
            Some(number) => write!(out, "{}", alert_severity(number)),
            None => Ok(()),
        },
    };
}

/// Returns the severity of Suricata's alerts, where 1 is the most severe and 3 the least one, for that of a finding.
fn alert_severity(number: u64) -> u8 {
    match Severity::from_number(number) {
        Severity::Critical | Severity::High => 1,
        Severity::Medium => 2,
        Severity::Low | Severity::Informational => 3,
    }
}

/// Appends an array.
fn push_array<T>(out: &mut Vec<u8>, elements: impl Iterator<Item = T>, push: impl Fn(&mut Vec<u8>, T)) {
    out.push(b'[');
    for (index, element) in elements.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push(out, element);
    }
    out.push(b']');
}

/// Appends a value in the form of its own type; nothing if it is null or a float that JSON has no number for.
fn push_plain(out: &mut Vec<u8>, field: &StreamField, record: &Record<'_>) {
    let Some(value) = read(field, record) else { return };
    // Writing to memory cannot fail.
    let _ = match value {
        FieldValue::Unsigned(ns) if field.ty == FieldType::Timestamp => {
            push_time(out, Timestamp(ns));
            Ok(())
        }
        FieldValue::Unsigned(number) => write!(out, "{number}"),
        FieldValue::Signed(number) => write!(out, "{number}"),
        FieldValue::Float(number) if number.is_finite() => write!(out, "{number:?}"),
        FieldValue::Float(_) | FieldValue::Null => Ok(()),
        FieldValue::Bool(is_true) => write!(out, "{is_true}"),
        FieldValue::Ip(address) => write!(out, "\"{}\"", AddressText::new(address).as_str()),
        FieldValue::Bytes(bytes) => {
            push_json_text(out, &field.text(bytes));
            Ok(())
        }
    };
}

/// Appends a time with microseconds, as Suricata does: `"2026-11-21T02:59:15.463134+0000"`.
fn push_time(out: &mut Vec<u8>, at: Timestamp) {
    out.push(b'"');
    out.extend(time_text(at).into_iter().take(26));
    out.extend_from_slice(b"+0000\"");
}

/// Returns Suricata's name of a protocol above IP.
fn protocol_name(number: u64) -> String {
    match number {
        protocol::ICMP => "ICMP".to_owned(),
        protocol::TCP => "TCP".to_owned(),
        protocol::UDP => "UDP".to_owned(),
        protocol::ICMP6 => "IPv6-ICMP".to_owned(),
        protocol::SCTP => "SCTP".to_owned(),
        other => format!("{other:03}"),
    }
}

/// Appends the object with the fields that the schema has no member for.
fn push_metadata(out: &mut Vec<u8>, rest: &[&StreamField], record: &Record<'_>) {
    let is_text = |field: &StreamField| {
        matches!(field.ty, FieldType::String | FieldType::Bytes | FieldType::Ip | FieldType::Timestamp)
    };
    let (mut numbers, mut texts) = (Vec::new(), Vec::new());
    for field in rest {
        if !is_text(field) {
            push_member(&mut numbers, field.name.as_str(), field, MemberForm::Plain, record);
            continue;
        }
        let mut member = Vec::new();
        push_member(&mut member, field.name.as_str(), field, MemberForm::Plain, record);
        if let Some(first) = member.first_mut() {
            *first = b'{';
            texts.push(b',');
            texts.extend_from_slice(&member);
            texts.push(b'}');
        }
    }
    if numbers.is_empty() && texts.is_empty() {
        return;
    }
    out.extend_from_slice(b",\"metadata\":{");
    if let Some(numbers) = numbers.get(1..) {
        out.extend_from_slice(b"\"flowints\":{");
        out.extend_from_slice(numbers);
        out.extend_from_slice(if texts.is_empty() { b"}" } else { b"}," });
    }
    if let Some(texts) = texts.get(1..) {
        out.extend_from_slice(b"\"flowvars\":[");
        out.extend_from_slice(texts);
        out.push(b']');
    }
    out.push(b'}');
}
