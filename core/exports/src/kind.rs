//! The kind of a stream's rows, by the semantics of its fields.

use weir_admission::DeclaredStream;

/// The kind of a stream's rows, which decides on their log in Zeek and their event type in `eve.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// Connections or flows, with packets and bytes of both directions.
    Connection,
    /// DNS queries and answers.
    Dns,
    /// TLS handshakes.
    Tls,
    /// QUIC connections: TLS handshakes whose connections have identifiers of their own.
    Quic,
    /// HTTP requests.
    Http,
    /// Findings of a module.
    Finding,
    /// Rows that the other tools do not know.
    Other,
}

impl RowKind {
    /// Returns the kind of a stream's rows.
    pub fn of(stream: &DeclaredStream) -> Self {
        if stream.has_findings() {
            return Self::Finding;
        }
        let has = |name: &str| {
            stream.fields.iter().any(|field| field.semantic.is_some_and(|semantic| semantic.name == name))
        };
        // Rows without one of these are sums over several events.
        let is_event = has("source.ip") && has("destination.ip") && (has("time") || has("event.start"));
        if !is_event {
            return Self::Other;
        }
        if has("dns.question.name") {
            Self::Dns
        } else if has("http.request.method") {
            Self::Http
        } else if has("tls.server_name") {
            if has("connection.id") { Self::Quic } else { Self::Tls }
        } else if has("network.iana_number") && has("source.packets") && has("destination.packets") {
            Self::Connection
        } else {
            Self::Other
        }
    }

    /// Returns the name of the log that Zeek has for such rows; `None` if it has none.
    pub fn zeek_log(self) -> Option<&'static str> {
        match self {
            Self::Connection => Some("conn"),
            Self::Dns => Some("dns"),
            Self::Tls => Some("ssl"),
            Self::Quic => Some("quic"),
            Self::Http => Some("http"),
            Self::Finding => Some("notice"),
            Self::Other => None,
        }
    }

    /// Returns the `event_type` of `eve.json`, which is also the object with the details; `None` if Suricata has no such
    /// events.
    pub fn eve_type(self) -> Option<&'static str> {
        match self {
            Self::Connection => Some("flow"),
            Self::Dns => Some("dns"),
            Self::Tls => Some("tls"),
            Self::Quic => Some("quic"),
            Self::Http => Some("http"),
            Self::Finding => Some("alert"),
            Self::Other => None,
        }
    }
}
