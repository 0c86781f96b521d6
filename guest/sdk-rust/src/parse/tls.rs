//! TLS records, and the first messages of a handshake.

use super::{Cursor, ParseError, Tlvs};

/// Types of records.
pub mod record_type {
    /// The ciphers change.
    pub const CHANGE_CIPHER_SPEC: u8 = 20;
    /// An alert.
    pub const ALERT: u8 = 21;
    /// Handshake messages.
    pub const HANDSHAKE: u8 = 22;
    /// Encrypted data.
    pub const APPLICATION_DATA: u8 = 23;
}

/// Types of handshake messages.
pub mod handshake_type {
    /// The first message of a client.
    pub const CLIENT_HELLO: u8 = 1;
    /// The first message of a server.
    pub const SERVER_HELLO: u8 = 2;
    /// Certificates.
    pub const CERTIFICATE: u8 = 11;
}

/// Types of extensions.
pub mod extension_type {
    /// The name of the server that the client asks for (RFC 6066); see [`server_name`](super::server_name).
    pub const SERVER_NAME: u32 = 0;
    /// Protocols above TLS (RFC 7301).
    pub const ALPN: u32 = 16;
    /// Versions of TLS.
    pub const SUPPORTED_VERSIONS: u32 = 43;
}

/// The most bytes of a record's body (RFC 5246, 6.2.3).
const RECORD_BYTES: usize = (1 << 14) + 2048;

/// The most extensions of a message.
const EXTENSIONS: u32 = 64;

/// A record, or a handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsPart<'a> {
    /// The type: one of [`record_type`] or [`handshake_type`].
    pub ty: u8,
    /// The version of a record; 0 for a message.
    pub version: u16,
    /// Bytes of the body that are behind the end of the cursor, as in the next packet; 0 if the body is whole.
    pub missing: usize,
    /// The bytes that are there.
    pub body: Cursor<'a>,
}

/// The body of a ClientHello or ServerHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsHello<'a> {
    /// The version. TLS 1.3 has 0x0303 here, and its version in an extension.
    pub version: u16,
    /// Random bytes.
    pub random: [u8; 32],
    /// The session's identifier.
    pub session_id: &'a [u8],
    /// The cipher suites, 2 bytes each; one of a ServerHello.
    pub suites: Cursor<'a>,
    extensions: Cursor<'a>,
}

impl<'a> TlsHello<'a> {
    /// Returns an iterator over the extensions, at most 64: those that are there if the message is cut. It ends behind
    /// the first error.
    #[inline]
    pub const fn extensions(&self) -> Tlvs<'a, EXTENSIONS, 2, 2> {
        self.extensions.tlvs()
    }
}

impl<'a> Cursor<'a> {
    /// Reads a record's header, and the body as far as it is there. Returns `None` at the end.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`] for a header that is cut; [`ParseError::Illegal`] for bytes that are no TLS: another type, a
    /// version other than 3.x, or a longer body than a record has.
    #[inline]
    pub fn tls_record(&mut self) -> Result<Option<TlsPart<'a>>, ParseError> {
        if self.is_empty() {
            return Ok(None);
        }
        let (ty, version, len) = (self.u8()?, self.be16()?, usize::from(self.be16()?));
        let is_type = (record_type::CHANGE_CIPHER_SPEC..=record_type::APPLICATION_DATA).contains(&ty);
        if !is_type || version >> 8 != 3 || len > RECORD_BYTES {
            return Err(ParseError::Illegal);
        }
        Ok(Some(self.tls_body(ty, version, len)))
    }

    /// Reads a handshake message's header, and the body as far as it is there. Returns `None` at the end. A message can
    /// go on in the next record: then `missing` is not 0.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`] for a header that is cut.
    #[inline]
    pub fn tls_message(&mut self) -> Result<Option<TlsPart<'a>>, ParseError> {
        if self.is_empty() {
            return Ok(None);
        }
        let (ty, len) = (self.u8()?, self.be24()? as usize);
        Ok(Some(self.tls_body(ty, 0, len)))
    }

    #[inline(always)]
    fn tls_body(&mut self, ty: u8, version: u16, len: usize) -> TlsPart<'a> {
        let body = self.most(len);
        TlsPart { ty, version, missing: len - body.rest().len(), body }
    }

    /// Reads the body of a ClientHello.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`] if it is cut before the extensions; [`ParseError::Illegal`].
    #[inline]
    pub fn tls_client_hello(&mut self) -> Result<TlsHello<'a>, ParseError> {
        self.tls_hello(true)
    }

    /// Reads the body of a ServerHello.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`] if it is cut before the extensions; [`ParseError::Illegal`].
    #[inline]
    pub fn tls_server_hello(&mut self) -> Result<TlsHello<'a>, ParseError> {
        self.tls_hello(false)
    }

    #[inline(always)]
    fn tls_hello(&mut self, is_client: bool) -> Result<TlsHello<'a>, ParseError> {
        let version = self.be16()?;
        let random = self.array()?;
        let id_len = self.u8()?;
        let session_id = self.bytes(id_len.into())?;
        let suites_len = if is_client { self.be16()? } else { 2 };
        let suites = self.part(suites_len.into())?;
        let compression_len = if is_client { self.u8()? } else { 1 };
        self.bytes(compression_len.into())?;
        if id_len > 32 || suites_len % 2 != 0 {
            return Err(ParseError::Illegal);
        }
        let extensions = if self.is_empty() {
            Cursor::new(&[])
        } else {
            let len = self.be16()?;
            self.most(len.into())
        };
        Ok(TlsHello { version, random, session_id, suites, extensions })
    }
}

/// Reads the first host name of a ClientHello's server_name extension.
///
/// # Errors
///
/// [`ParseError::Cut`]; [`ParseError::Illegal`] for a list that begins with another kind of name.
#[inline]
pub fn server_name(mut extension: Cursor<'_>) -> Result<&[u8], ParseError> {
    let list_len = extension.be16()?;
    let mut list = extension.part(list_len.into())?;
    if list.u8()? != 0 {
        return Err(ParseError::Illegal);
    }
    let len = list.be16()?;
    list.bytes(len.into())
}
