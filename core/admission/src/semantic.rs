//! Semantics of record fields: the table by which tools that know nothing of a module find its addresses, ports, counts
//! and durations, and by which rows get the field names of other tools.

use weir_abi::row::FieldType;

/// The meaning of a field, beyond its type and unit.
#[derive(Debug, PartialEq)]
pub struct Semantic {
    /// The name in a manifest. Where the Elastic Common Schema (ECS) has such a field, the name is that of ECS.
    pub name: &'static str,
    /// The way in which a tool can aggregate values.
    pub kind: SemanticKind,
    /// The types that a field of this semantic can have.
    pub types: &'static [FieldType],
    /// The field of ECS 8; empty if there is none.
    pub ecs: &'static str,
    /// The field in Zeek's logs; empty if there is none.
    pub zeek: &'static str,
    /// The member in Suricata's `eve.json`; empty if there is none.
    pub eve: &'static str,
    /// The IPFIX information elements of IANA's registry (RFC 7012), for IPv4 and IPv6 where they differ; empty if there
    /// is none.
    pub ipfix: &'static str,
    /// The meaning, in one line.
    pub summary: &'static str,
}

/// The way in which a tool can aggregate the values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SemanticKind {
    /// A point in time.
    Time,
    /// An address, a port, a protocol or another label: values are grouped.
    Key,
    /// An amount that belongs to its row alone: values add up.
    Sum,
    /// A measurement, such as a duration: values have a distribution, and no sum.
    Measurement,
    /// Text for people.
    Text,
}

impl SemanticKind {
    /// Returns the word that the reference and `weir inspect` print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Key => "key",
            Self::Sum => "sum",
            Self::Measurement => "measurement",
            Self::Text => "text",
        }
    }
}

impl Semantic {
    /// Finds a semantic by its name.
    pub fn find(name: &str) -> Option<&'static Self> {
        SEMANTICS.iter().find(|semantic| semantic.name == name)
    }

    /// Returns the names of this field in other tools, each with the tool. Tools without such a field are left out.
    pub fn foreign_names(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        [("ecs", self.ecs), ("zeek", self.zeek), ("eve", self.eve), ("ipfix", self.ipfix)]
            .into_iter()
            .filter(|(_, name)| !name.is_empty())
    }
}

const TIMES: &[FieldType] = &[FieldType::Timestamp];
const ADDRESSES: &[FieldType] = &[FieldType::Ip];
const PORTS: &[FieldType] = &[FieldType::U16];
const SMALL: &[FieldType] = &[FieldType::U8, FieldType::U16];
const COUNTS: &[FieldType] = &[FieldType::U8, FieldType::U16, FieldType::U32, FieldType::U64];
const AMOUNTS: &[FieldType] = &[
    FieldType::U8,
    FieldType::U16,
    FieldType::U32,
    FieldType::U64,
    FieldType::I32,
    FieldType::I64,
    FieldType::F32,
    FieldType::F64,
];
const DURATIONS: &[FieldType] = &[FieldType::Duration, FieldType::U64, FieldType::F64];
const LABELS: &[FieldType] = &[FieldType::String, FieldType::U32, FieldType::U64, FieldType::Bytes];
const TEXTS: &[FieldType] = &[FieldType::String];
const PACKETS: &[FieldType] = &[FieldType::Bytes];
const FLAGS: &[FieldType] = &[FieldType::Bool];

/// One line of the table.
macro_rules! semantics {
    ($($name:literal $kind:ident $types:ident, $ecs:literal, $zeek:literal, $eve:literal, $ipfix:literal, $summary:literal;)*) => {
        /// All semantics. Each line has the name, the kind, the types, the names in ECS, Zeek, eve.json and IPFIX, and the
        /// meaning.
        pub const SEMANTICS: &[Semantic] = &[$(Semantic {
            name: $name,
            kind: SemanticKind::$kind,
            types: $types,
            ecs: $ecs,
            zeek: $zeek,
            eve: $eve,
            ipfix: $ipfix,
            summary: $summary,
        }),*];
    };
}

semantics! {
    "time" Time TIMES, "@timestamp", "ts", "timestamp", "observationTimeNanoseconds", "time of the event";
    "event.start" Time TIMES, "event.start", "ts", "flow.start", "flowStartNanoseconds", "time of the first packet";
    "event.end" Time TIMES, "event.end", "", "flow.end", "flowEndNanoseconds", "time of the last packet";
    "event.duration" Measurement DURATIONS, "event.duration", "duration", "flow.age", "flowDurationMicroseconds", "duration from first to last packet";
    "event.severity" Key SMALL, "event.severity", "", "", "", "severity_id of OCSF, 1 to 5";
    "message" Text TEXTS, "message", "msg", "", "", "sentence for people";
    "rule.name" Key TEXTS, "rule.name", "", "alert.signature", "", "name or text of a signature";
    "rule.id" Key LABELS, "rule.id", "", "alert.signature_id", "", "number or identifier of a signature";
    "source.ip" Key ADDRESSES, "source.ip", "id.orig_h", "src_ip", "sourceIPv4Address, sourceIPv6Address", "source address; of a connection, that of its originator";
    "source.port" Key PORTS, "source.port", "id.orig_p", "src_port", "sourceTransportPort", "port of the source";
    "destination.ip" Key ADDRESSES, "destination.ip", "id.resp_h", "dest_ip", "destinationIPv4Address, destinationIPv6Address", "destination address; of a connection, that of its responder";
    "destination.port" Key PORTS, "destination.port", "id.resp_p", "dest_port", "destinationTransportPort", "port of the destination";
    "network.port" Key PORTS, "", "", "", "", "port of either side";
    "network.iana_number" Key SMALL, "network.iana_number", "proto", "proto", "protocolIdentifier", "protocol above IP, as IANA numbers it";
    "network.vlan.id" Key PORTS, "network.vlan.id", "vlan", "vlan", "vlanId", "identifier of the outermost VLAN tag (IEEE 802.1Q)";
    "network.community_id" Key TEXTS, "network.community_id", "community_id", "community_id", "", "Community ID, version 1: the same for both directions of a flow, in all tools";
    "network.application" Key TEXTS, "network.protocol", "service", "app_proto", "applicationName", "protocol of the application";
    "flow.id" Key LABELS, "", "", "", "flowId", "label of a flow";
    "packet.id" Key LABELS, "", "", "", "digestHashValue", "label of a packet";
    "source.packets" Sum COUNTS, "source.packets", "orig_pkts", "flow.pkts_toserver", "initiatorPackets", "packets from the source";
    "source.bytes" Sum COUNTS, "source.bytes", "orig_ip_bytes", "flow.bytes_toserver", "initiatorOctets", "bytes from the source";
    "destination.packets" Sum COUNTS, "destination.packets", "resp_pkts", "flow.pkts_toclient", "responderPackets", "packets from the destination";
    "destination.bytes" Sum COUNTS, "destination.bytes", "resp_ip_bytes", "flow.bytes_toclient", "responderOctets", "bytes from the destination";
    "network.packets" Sum COUNTS, "network.packets", "", "", "packetDeltaCount", "packets in both directions";
    "network.bytes" Sum COUNTS, "network.bytes", "", "", "octetDeltaCount", "bytes in both directions";
    "count" Sum COUNTS, "", "", "", "", "number of other things";
    "total" Measurement COUNTS, "", "", "", "", "number that does not add up with that of other rows, such as one since the start or of different values";
    "count.error" Measurement COUNTS, "", "", "", "", "upper bound of the error of a count";
    "rank" Key COUNTS, "", "", "", "", "position in an order, from 1";
    "offset" Measurement COUNTS, "", "", "", "", "position in a packet or payload, in bytes";
    "network.rtt" Measurement DURATIONS, "", "", "", "", "round-trip time";
    "latency" Measurement DURATIONS, "", "", "", "", "time from a request to its answer";
    "statistic" Measurement AMOUNTS, "", "", "", "", "value of an estimate or test";
    "statistic.lower" Measurement AMOUNTS, "", "", "", "", "lower end of a confidence interval";
    "statistic.upper" Measurement AMOUNTS, "", "", "", "", "upper end of a confidence interval";
    "alarm" Key FLAGS, "", "", "", "", "true while a condition holds";
    "flag" Key FLAGS, "", "", "", "", "a fact that holds or not";
    "label" Key TEXTS, "", "", "", "", "kind or class of the row";
    "interval" Measurement DURATIONS, "", "", "", "", "length of a period that repeats";
    "network.tunnel" Key TEXTS, "", "", "", "", "kind of the tunnel around the packets; empty without one";
    "network.transport" Key TEXTS, "network.transport", "", "", "", "protocol that carries the messages: udp or tcp";
    "network.prefix_length" Key SMALL, "", "", "", "", "length in bits of the prefix whose first address the row has";
    "network.link_type" Key SMALL, "", "", "", "", "type of the link, as tcpdump.org numbers it (LINKTYPE)";
    "packet.bytes" Text PACKETS, "", "", "", "", "bytes of a packet from the link header on";
    "connection.state" Key TEXTS, "", "conn_state", "", "", "state of a TCP connection at its end, as in Zeek";
    "connection.history" Key TEXTS, "", "history", "", "", "order of the kinds of packets of a connection, as in Zeek";
    "connection.id" Key LABELS, "", "", "", "", "identifier of a connection that its protocol carries";
    "dns.id" Key PORTS, "", "trans_id", "dns.id", "", "identifier of a DNS message";
    "dns.question.name" Key TEXTS, "dns.question.name", "query", "dns.rrname", "", "name that a DNS query asks for";
    "dns.question.type" Key TEXTS, "dns.question.type", "qtype_name", "dns.rrtype", "", "type of the records that a DNS query asks for";
    "dns.response_code" Key TEXTS, "dns.response_code", "rcode_name", "dns.rcode", "", "response code of a DNS answer";
    "dns.answers" Text TEXTS, "dns.answers.data", "answers", "dns.answers", "", "data of the records of a DNS answer";
    "tls.version" Key TEXTS, "tls.version", "version", "tls.version", "", "negotiated version of TLS";
    "tls.cipher" Key TEXTS, "tls.cipher", "cipher", "", "", "cipher suite that the server chose";
    "tls.server_name" Key TEXTS, "tls.client.server_name", "server_name", "tls.sni", "", "name of the server that the client asks for (SNI)";
    "tls.alpn" Key TEXTS, "tls.next_protocol", "next_protocol", "tls.client_alpns", "", "protocols above TLS that the client offers, or the one that the server chose (ALPN)";
    "tls.ja4" Key TEXTS, "", "ja4", "tls.ja4", "", "JA4 fingerprint of the client";
    "tls.subject" Key TEXTS, "tls.server.subject", "subject", "tls.subject", "", "subject of the server's certificate";
    "tls.issuer" Key TEXTS, "tls.server.issuer", "issuer", "tls.issuerdn", "", "issuer of the server's certificate";
    "tls.not_before" Time TIMES, "tls.server.not_before", "", "tls.notbefore", "", "time from which on the certificate is valid";
    "tls.not_after" Time TIMES, "tls.server.not_after", "", "tls.notafter", "", "time until which the certificate is valid";
    "tls.resumed" Key FLAGS, "tls.resumed", "resumed", "tls.session_resumed", "", "true if the session resumes an earlier one";
    "tls.alert" Key TEXTS, "", "last_alert", "", "", "last alert of the handshake";
    "http.version" Key TEXTS, "http.version", "version", "http.protocol", "httpMessageVersion", "version of HTTP";
    "http.request.method" Key TEXTS, "http.request.method", "method", "http.http_method", "httpRequestMethod", "method of a request";
    "url.domain" Key TEXTS, "url.domain", "host", "http.hostname", "httpRequestHost", "host that a request names";
    "url.path" Key TEXTS, "url.path", "uri", "http.url", "httpRequestTarget", "path and query of a request";
    "http.request.body.bytes" Sum COUNTS, "http.request.body.bytes", "request_body_len", "", "", "bytes of a request's body";
    "http.response.status_code" Key PORTS, "http.response.status_code", "status_code", "http.status", "httpStatusCode", "status code of a response";
    "http.response.body.bytes" Sum COUNTS, "http.response.body.bytes", "response_body_len", "http.length", "", "bytes of a response's body";
    "http.response.mime_type" Key TEXTS, "http.response.mime_type", "resp_mime_types", "http.http_content_type", "httpContentType", "type of a response's body, as the server states it";
    "user_agent.original" Key TEXTS, "user_agent.original", "user_agent", "http.http_user_agent", "httpUserAgent", "program that sent a request, as it states itself";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_also_those_of_ipfix_and_ecs() {
        for column in [|s: &Semantic| s.name, |s: &Semantic| s.ecs, |s: &Semantic| s.ipfix] {
            let names: Vec<&str> = SEMANTICS.iter().map(column).filter(|name| !name.is_empty()).collect();
            assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len(), "{names:?}");
        }
    }

    #[test]
    fn every_semantic_is_found_by_its_name() {
        for semantic in SEMANTICS {
            assert_eq!(Semantic::find(semantic.name), Some(semantic));
            assert!(!semantic.types.is_empty() && !semantic.summary.is_empty(), "{}", semantic.name);
        }
        assert_eq!(Semantic::find("source.address"), None);
    }
}
