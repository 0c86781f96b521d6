//! DHCP messages.

use super::tlv::next;
use super::{Cursor, ParseError, Tlv};

/// Types of options (RFC 2132).
pub mod dhcp_option {
    /// Padding, a byte without a length.
    pub const PAD: u32 = 0;
    /// The name of the client.
    pub const HOST_NAME: u32 = 12;
    /// The IPv4 address that the client asks for.
    pub const REQUESTED_IP: u32 = 50;
    /// The type of the message: one of [`dhcp_message`](super::dhcp_message), in a byte.
    pub const MESSAGE_TYPE: u32 = 53;
    /// The IPv4 address of the server.
    pub const SERVER: u32 = 54;
    /// The end, a byte without a length.
    pub const END: u32 = 255;
}

/// Types of messages.
pub mod dhcp_message {
    /// A client looks for servers.
    pub const DISCOVER: u8 = 1;
    /// A server offers an address.
    pub const OFFER: u8 = 2;
    /// A client asks for the offered address, or for more time.
    pub const REQUEST: u8 = 3;
    /// A client has found the address in use.
    pub const DECLINE: u8 = 4;
    /// A server assigns the address.
    pub const ACK: u8 = 5;
    /// A server refuses the address.
    pub const NAK: u8 = 6;
    /// A client gives the address back.
    pub const RELEASE: u8 = 7;
    /// A client asks for parameters without an address.
    pub const INFORM: u8 = 8;
}

/// The number between header and options.
const COOKIE: u32 = 0x6382_5363;

/// The values of a header's first byte.
const FROM_CLIENT: u8 = 1;
const FROM_SERVER: u8 = 2;

/// The bytes of a header that the names of server and file have.
const NAMES_BYTES: usize = 64 + 128;

/// The header of a message (RFC 2131). Addresses are 0.0.0.0 where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DhcpHeader<'a> {
    /// True for a message of a server, and false for one of a client.
    pub is_from_server: bool,
    /// The number that connects a request and its answers.
    pub id: u32,
    /// The client's IPv4 address, as the client states it.
    pub client: [u8; 4],
    /// The address that a server assigns.
    pub assigned: [u8; 4],
    /// The address of the next server to use.
    pub server: [u8; 4],
    /// The address of a relay.
    pub relay: [u8; 4],
    /// The client's address on its link, at most 16 bytes; on Ethernet for `Mac::of`.
    pub hardware: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Reads a message's header, and moves to the options.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`]; [`ParseError::Illegal`] for a header that is not one of DHCP.
    #[inline]
    pub fn dhcp_header(&mut self) -> Result<DhcpHeader<'a>, ParseError> {
        let [op, _, hardware_len, _] = self.array()?;
        let id = self.be32()?;
        self.bytes(4)?;
        let [client, assigned, server, relay] = [self.array()?, self.array()?, self.array()?, self.array()?];
        let hardware = self.bytes(16)?;
        self.bytes(NAMES_BYTES)?;
        let hardware = hardware.get(..usize::from(hardware_len)).ok_or(ParseError::Illegal)?;
        if self.be32()? != COOKIE || !matches!(op, FROM_CLIENT | FROM_SERVER) {
            return Err(ParseError::Illegal);
        }
        Ok(DhcpHeader { is_from_server: op == FROM_SERVER, id, client, assigned, server, relay, hardware })
    }

    /// Reads an option: the types `PAD` and `END` are a byte alone; the length of others counts the value. Returns `None`
    /// at the end.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`].
    #[inline(always)]
    pub fn dhcp_option(&mut self) -> Result<Option<Tlv<'a>>, ParseError> {
        if self.is_empty() {
            return Ok(None);
        }
        let ty = u32::from(self.u8()?);
        if ty == dhcp_option::END {
            return Ok(None);
        }
        let len = if ty == dhcp_option::PAD { 0 } else { usize::from(self.u8()?) };
        Ok(Some(Tlv { ty, value: self.part(len)? }))
    }

    /// Returns an iterator over the options of a message, at most `MAX`, with the padding and the end. It ends behind the
    /// first error: [`ParseError::Cut`], or [`ParseError::TooMany`] if there are more. A long value can be spread over
    /// several options of one type (RFC 3396).
    #[inline]
    pub const fn dhcp_options<const MAX: u32>(self) -> DhcpOptions<'a, MAX> {
        DhcpOptions { cursor: self, begun: 0 }
    }
}

/// The iterator of [`Cursor::dhcp_options`].
#[derive(Clone, Debug)]
pub struct DhcpOptions<'a, const MAX: u32> {
    cursor: Cursor<'a>,
    begun: u32,
}

impl<'a, const MAX: u32> Iterator for DhcpOptions<'a, MAX> {
    type Item = Result<Tlv<'a>, ParseError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        next(&mut self.cursor, &mut self.begun, MAX, Cursor::dhcp_option)
    }
}
