//! The columns of Zeek's logs, and the fields of a stream that they are filled from.

use super::type_of;
use crate::RowKind;
use crate::fields::{first, last, semantic};
use std::collections::BTreeSet;
use weir_admission::{DeclaredStream, StreamField};

/// A column of a log.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) ty: &'static str,
    pub(super) content: Content,
}

/// The content of a column.
#[derive(Debug)]
pub(super) enum Content {
    /// No value in any row.
    Unset,
    /// The identifier of the connection.
    Uid,
    /// The same text in all rows.
    Text(String),
    /// A field.
    Field(Box<StreamField>, ColumnForm),
    /// The state of a connection, without which it follows from the packets of both directions.
    State { state: Option<Box<StreamField>>, packets: [Box<StreamField>; 2] },
}

/// The way from a field's value to that of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnForm {
    /// The field's own type.
    Plain,
    /// Seconds of a duration.
    Interval,
    /// A port.
    Port,
    /// The name of a protocol above IP.
    Protocol,
    /// Zeek's name of a version of TLS.
    TlsVersion,
    /// The number of a type of DNS records.
    DnsType,
    /// The number of a response code of DNS.
    DnsCode,
    /// The data of the records of a DNS answer.
    Answers,
    /// A vector of this text alone.
    OneElement,
    /// The first of several texts with commas between them.
    FirstOfList,
}

/// The source of a column of Zeek.
enum From {
    Unset,
    Uid,
    /// The first field with one of these semantics.
    First(&'static [&'static str], ColumnForm),
    /// The last field with this semantic, where the first has the offers and the last has the choice.
    Last(&'static str, ColumnForm),
    /// As `First`; without such a field the log has no such column.
    Extra(&'static [&'static str], ColumnForm),
    State,
    /// The name of the notice: `Weir::MODULE`.
    Note,
}

use ColumnForm::{
    Answers, DnsCode, DnsType, FirstOfList, Interval, OneElement, Plain, Port, Protocol, TlsVersion,
};
use From::{Extra, First, Last, Note, State, Uid, Unset};

type Standard = (&'static str, &'static str, From);

/// The begin of every log about connections.
const BEGIN: &[Standard] = &[
    ("ts", "time", First(&["event.start", "time"], Plain)),
    ("uid", "string", Uid),
    ("id.orig_h", "addr", First(&["source.ip"], Plain)),
    ("id.orig_p", "port", First(&["source.port"], Port)),
    ("id.resp_h", "addr", First(&["destination.ip"], Plain)),
    ("id.resp_p", "port", First(&["destination.port"], Port)),
];

/// Columns at the end of the logs that Zeek has by default, with the names of Zeek's policy scripts.
const END: &[Standard] = &[
    ("vlan", "int", Extra(&["network.vlan.id"], Plain)),
    ("community_id", "string", Extra(&["network.community_id"], Plain)),
];

const CONN: &[Standard] = &[
    ("proto", "enum", First(&["network.iana_number"], Protocol)),
    ("service", "string", First(&["network.application"], Plain)),
    ("duration", "interval", First(&["event.duration"], Interval)),
    ("orig_bytes", "count", Unset),
    ("resp_bytes", "count", Unset),
    ("conn_state", "string", State),
    ("local_orig", "bool", Unset),
    ("local_resp", "bool", Unset),
    ("missed_bytes", "count", Unset),
    ("history", "string", First(&["connection.history"], Plain)),
    ("orig_pkts", "count", First(&["source.packets"], Plain)),
    ("orig_ip_bytes", "count", First(&["source.bytes"], Plain)),
    ("resp_pkts", "count", First(&["destination.packets"], Plain)),
    ("resp_ip_bytes", "count", First(&["destination.bytes"], Plain)),
    ("tunnel_parents", "set[string]", Unset),
    ("ip_proto", "count", First(&["network.iana_number"], Plain)),
];

const DNS: &[Standard] = &[
    ("proto", "enum", First(&["network.transport"], Plain)),
    ("trans_id", "count", First(&["dns.id"], Plain)),
    ("rtt", "interval", First(&["latency"], Interval)),
    ("query", "string", First(&["dns.question.name"], Plain)),
    ("qclass", "count", Unset),
    ("qclass_name", "string", Unset),
    ("qtype", "count", First(&["dns.question.type"], DnsType)),
    ("qtype_name", "string", First(&["dns.question.type"], Plain)),
    ("rcode", "count", First(&["dns.response_code"], DnsCode)),
    ("rcode_name", "string", First(&["dns.response_code"], Plain)),
    ("AA", "bool", Unset),
    ("TC", "bool", Unset),
    ("RD", "bool", Unset),
    ("RA", "bool", Unset),
    ("Z", "count", Unset),
    ("answers", "vector[string]", First(&["dns.answers"], Answers)),
    ("TTLs", "vector[interval]", Unset),
    ("rejected", "bool", Unset),
];

const SSL: &[Standard] = &[
    ("version", "string", First(&["tls.version"], TlsVersion)),
    ("cipher", "string", First(&["tls.cipher"], Plain)),
    ("curve", "string", Unset),
    ("server_name", "string", First(&["tls.server_name"], Plain)),
    ("resumed", "bool", First(&["tls.resumed"], Plain)),
    ("last_alert", "string", First(&["tls.alert"], Plain)),
    ("next_protocol", "string", Last("tls.alpn", Plain)),
    ("established", "bool", Unset),
    ("subject", "string", First(&["tls.subject"], Plain)),
    ("issuer", "string", First(&["tls.issuer"], Plain)),
    ("ja4", "string", Extra(&["tls.ja4"], Plain)),
];

const QUIC: &[Standard] = &[
    ("server_name", "string", First(&["tls.server_name"], Plain)),
    ("client_protocol", "string", First(&["tls.alpn"], FirstOfList)),
    ("ja4", "string", Extra(&["tls.ja4"], Plain)),
];

const HTTP: &[Standard] = &[
    ("trans_depth", "count", Unset),
    ("method", "string", First(&["http.request.method"], Plain)),
    ("host", "string", First(&["url.domain"], Plain)),
    ("uri", "string", First(&["url.path"], Plain)),
    ("referrer", "string", Unset),
    ("version", "string", First(&["http.version"], Plain)),
    ("user_agent", "string", First(&["user_agent.original"], Plain)),
    ("origin", "string", Unset),
    ("request_body_len", "count", First(&["http.request.body.bytes"], Plain)),
    ("response_body_len", "count", First(&["http.response.body.bytes"], Plain)),
    ("status_code", "count", First(&["http.response.status_code"], Plain)),
    ("status_msg", "string", Unset),
    ("tags", "set[enum]", Unset),
    ("resp_mime_types", "vector[string]", First(&["http.response.mime_type"], OneElement)),
];

const NOTICE: &[Standard] = &[
    ("proto", "enum", Unset),
    ("note", "enum", Note),
    ("msg", "string", First(&["message"], Plain)),
    ("sub", "string", Unset),
    ("src", "addr", Unset),
    ("dst", "addr", Unset),
    ("p", "port", Unset),
    ("n", "count", Unset),
    ("peer_descr", "string", Unset),
    ("actions", "set[enum]", Unset),
];

/// Returns the columns of a log for the rows of a stream.
pub(super) fn of(label: &str, stream: &DeclaredStream) -> Vec<Column> {
    let mut used = BTreeSet::new();
    let mut columns = Vec::new();
    let standard = match RowKind::of(stream) {
        RowKind::Connection => [BEGIN, CONN, END],
        RowKind::Dns => [BEGIN, DNS, END],
        RowKind::Tls => [BEGIN, SSL, END],
        RowKind::Quic => [BEGIN, QUIC, END],
        RowKind::Http => [BEGIN, HTTP, END],
        RowKind::Finding => [BEGIN, NOTICE, &[]],
        RowKind::Other => return own_columns(label, stream),
    };
    for (name, ty, from) in standard.into_iter().flatten() {
        if let Some(content) = content(label, stream, from, &mut used) {
            columns.push(Column { name: (*name).to_owned(), ty, content });
        }
    }
    for (index, field) in stream.fields.iter().enumerate() {
        if !used.contains(&index) {
            let name = free_name(&columns, field.name.as_str());
            columns.push(plain(name, field));
        }
    }
    columns
}

/// Returns the columns of a stream for which Zeek has no log.
fn own_columns(label: &str, stream: &DeclaredStream) -> Vec<Column> {
    let mut used = BTreeSet::new();
    let mut columns = Vec::new();
    let has_key = first(stream, "source.ip").is_some() && first(stream, "destination.ip").is_some();
    for (name, ty, from) in BEGIN {
        let is_known = !matches!(from, Uid) || has_key;
        let content =
            content(label, stream, from, &mut used).filter(|content| !matches!(content, Content::Unset));
        if let Some(content) = content.filter(|_| is_known) {
            columns.push(Column { name: (*name).to_owned(), ty, content });
        }
    }
    for (index, field) in stream.fields.iter().enumerate().filter(|(index, _)| !used.contains(index)) {
        let known = field.semantic.map(|semantic| semantic.zeek).filter(|name| !name.is_empty());
        // A second time or address has its own name.
        let is_first = first(stream, semantic(field)) == Some(index);
        let name = known.filter(|name| is_first && !columns.iter().any(|column| column.name == *name));
        match name {
            Some("proto") => {
                let content = Content::Field(Box::new(field.clone()), Protocol);
                columns.push(Column { name: "proto".to_owned(), ty: "enum", content });
                let name = free_name(&columns, "ip_proto");
                columns.push(plain(name, field));
            }
            Some("duration") => {
                let content = Content::Field(Box::new(field.clone()), Interval);
                columns.push(Column { name: "duration".to_owned(), ty: "interval", content });
            }
            name => {
                let name = free_name(&columns, name.unwrap_or(field.name.as_str()));
                columns.push(plain(name, field));
            }
        }
    }
    columns
}

fn plain(name: String, field: &StreamField) -> Column {
    Column { name, ty: type_of(field), content: Content::Field(Box::new(field.clone()), Plain) }
}

/// Returns a name that no column has yet.
fn free_name(columns: &[Column], name: &str) -> String {
    let mut name = name.to_owned();
    while columns.iter().any(|column| column.name == name) {
        name.insert_str(0, "weir_");
    }
    name
}

/// Returns the content of a standard column, and notes the fields that it has in full; `None` if the log has no such column.
fn content(label: &str, stream: &DeclaredStream, from: &From, used: &mut BTreeSet<usize>) -> Option<Content> {
    let boxed = |index: usize| stream.fields.get(index).cloned().map(Box::new);
    let mut field = |index: Option<usize>, value: ColumnForm| {
        let index = index?;
        // The rest of the list would be lost.
        if value != FirstOfList {
            used.insert(index);
        }
        Some(Content::Field(boxed(index)?, value))
    };
    let find = |names: &[&str]| names.iter().find_map(|name| first(stream, name));
    match from {
        Unset => Some(Content::Unset),
        Uid => Some(Content::Uid),
        First(names, value) => Some(field(find(names), *value).unwrap_or(Content::Unset)),
        Last(name, value) => Some(field(last(stream, name), *value).unwrap_or(Content::Unset)),
        Extra(names, value) => field(find(names), *value),
        Note => Some(Content::Text(format!("Weir::{label}"))),
        State => {
            let state = first(stream, "connection.state");
            used.extend(state);
            let packets = [first(stream, "source.packets")?, first(stream, "destination.packets")?];
            let [source, destination] = packets.map(boxed);
            Some(Content::State { state: state.and_then(boxed), packets: [source?, destination?] })
        }
    }
}
