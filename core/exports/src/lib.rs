//! Rows of record streams in the formats of other tools: Zeek's logs, Suricata's `eve.json`, and IPFIX (RFC 7011).
//!
//! The writers know no module. They find addresses, times and amounts by the semantics of a stream's fields
//! ([`weir_admission::Semantic`]), which state the names in these formats. [`RowKind`] says by the same semantics what the
//! rows of a stream are: connections, DNS queries, TLS handshakes and so on.
//!
//! Texts of rows come from packets and modules, which can be hostile. In Zeek's logs and `eve.json`, a row is always one
//! line without control characters. In IPFIX, a text has a length.

#![forbid(unsafe_code)]

mod dns;
mod eve;
mod fields;
mod flow_key;
pub mod ipfix;
mod kind;
mod zeek;

pub use eve::EveRows;
pub use kind::RowKind;
pub use zeek::ZeekLog;

/// Protocols above IP, as IANA numbers them.
mod protocol {
    pub(crate) const ICMP: u64 = 1;
    pub(crate) const TCP: u64 = 6;
    pub(crate) const UDP: u64 = 17;
    pub(crate) const ICMP6: u64 = 58;
    pub(crate) const SCTP: u64 = 132;
}
