//! Helpers that parse messages: a cursor over bytes, lists of types, lengths and values, variable-length integers, ASN.1,
//! DNS, DHCP and TLS.
//!
//! No function panics, or reads past the end of the bytes, whatever they contain. Each function has a constant bound of
//! its time, or one that follows from a constant of the caller. So weir finds a bound of each call, and a module that
//! uses nothing else is proved.
//!
//! ```
//! use weir_guest::parse::{Cursor, ParseError};
//!
//! fn version_and_body(payload: &[u8]) -> Result<(u8, &[u8]), ParseError> {
//!     let mut cursor = Cursor::new(payload);
//!     let version = cursor.u8()?;
//!     let len = cursor.be16()?;
//!     Ok((version, cursor.bytes(len.into())?))
//! }
//! assert_eq!(version_and_body(&[4, 0, 2, 7, 8, 9]), Ok((4, &[7, 8][..])));
//! assert_eq!(version_and_body(&[4, 0, 2, 7]), Err(ParseError::Cut));
//! ```

mod cursor;
mod der;
mod dhcp;
mod dns;
mod tls;
mod tlv;
mod varint;

pub use cursor::{Cursor, ParseError};
pub use der::{DerClass, DerElement};
pub use dhcp::{DhcpHeader, DhcpOptions, dhcp_message, dhcp_option};
pub use dns::{DnsHeader, DnsName, DnsRecord, NameCase};
pub use tls::{TlsHello, TlsPart, extension_type, handshake_type, record_type, server_name};
pub use tlv::{Options, Tlv, Tlvs};
pub use varint::zigzag;
