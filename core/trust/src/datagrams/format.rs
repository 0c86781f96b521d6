//! The layout of the datagrams that establish and keep associations.
//!
//! Each datagram begins with `weir`, its kind in one byte, and three zero bytes. Its first byte is no version of ANEP,
//! so packets and these datagrams share a port. The layout of a hello and of its answers is the same for all versions of
//! the handshake.

use crate::association::{FIRST_BYTES, HEAD_BYTES, SECOND_BYTES, THIRD_BYTES_MIN, VERSION};
use std::fmt;
use std::num::NonZeroU32;

const MAGIC: [u8; 4] = *b"weir";
/// The length of a cookie.
pub(super) const COOKIE_BYTES: usize = 16;
/// The length of the part of a hello that its answers repeat: the first half of the ephemeral key.
pub(super) const ECHO_BYTES: usize = 16;
/// The length of what precedes the encrypted bytes of a sealed datagram. It is authenticated.
pub const SEALED_HEAD_BYTES: usize = 20;

const HELLO: u8 = 1;
const COOKIE: u8 = 2;
const VERSIONS: u8 = 3;
const REPLY: u8 = 4;
const THIRD: u8 = 5;
const SEALED: u8 = 6;

/// A security parameter index. A receiver chooses the index of each of its associations; it is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spi(NonZeroU32);

impl Spi {
    /// Returns the index with this number; `None` for zero.
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    /// Returns the index as a number.
    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// Returns the bytes of the index on the wire.
    pub fn to_bytes(self) -> [u8; 4] {
        self.number().to_be_bytes()
    }
}

impl fmt::Display for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.number())
    }
}

/// A datagram that establishes or keeps an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AssociationDatagram<'a> {
    /// The first message of a handshake. The cookie is zeros in the first hello of an initiator.
    Hello { initiator: Spi, cookie: [u8; COOKIE_BYTES], first: &'a [u8] },
    /// A cookie, in answer to a hello without a valid one.
    Cookie { initiator: Spi, cookie: [u8; COOKIE_BYTES], echo: [u8; ECHO_BYTES] },
    /// The versions of the responder, in answer to a hello that offers none of them.
    Versions { initiator: Spi, lowest: u8, highest: u8, echo: [u8; ECHO_BYTES] },
    /// The second message of a handshake.
    Reply { initiator: Spi, responder: Spi, second: &'a [u8] },
    /// The third message of a handshake.
    Third { responder: Spi, third: &'a [u8] },
    /// An encrypted message about the association.
    Sealed { spi: Spi, counter: u64, head: &'a [u8; SEALED_HEAD_BYTES], sealed: &'a [u8] },
}

impl<'a> AssociationDatagram<'a> {
    /// Reads a datagram. `None` for other bytes.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let ([m, a, g, i, kind, 0, 0, 0], body) = bytes.split_first_chunk()? else { return None };
        if [*m, *a, *g, *i] != MAGIC {
            return None;
        }
        let (spi, body) = body.split_first_chunk()?;
        let spi = Spi::new(u32::from_be_bytes(*spi))?;
        match *kind {
            HELLO => {
                let (cookie, first) = body.split_first_chunk()?;
                // All versions have hellos of at least this length, so that no answer is longer.
                let is_long = first.len() >= FIRST_BYTES;
                is_long.then_some(Self::Hello { initiator: spi, cookie: *cookie, first })
            }
            COOKIE => {
                let (cookie, echo) = body.split_first_chunk()?;
                Some(Self::Cookie { initiator: spi, cookie: *cookie, echo: echo.try_into().ok()? })
            }
            VERSIONS => {
                let ([lowest, highest], echo) = body.split_first_chunk()?;
                let echo = echo.try_into().ok()?;
                Some(Self::Versions { initiator: spi, lowest: *lowest, highest: *highest, echo })
            }
            REPLY => {
                let (responder, second) = body.split_first_chunk()?;
                let responder = Spi::new(u32::from_be_bytes(*responder))?;
                let is_long = second.len() == SECOND_BYTES;
                is_long.then_some(Self::Reply { initiator: spi, responder, second })
            }
            THIRD => (body.len() == THIRD_BYTES_MIN).then_some(Self::Third { responder: spi, third: body }),
            SEALED => {
                let (counter, sealed) = body.split_first_chunk()?;
                let head = bytes.first_chunk()?;
                Some(Self::Sealed { spi, counter: u64::from_be_bytes(*counter), head, sealed })
            }
            _ => None,
        }
    }

    /// Returns the bytes of the datagram.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Hello { initiator, cookie, first } => {
                [&head(HELLO, initiator)[..], &cookie, first].concat()
            }
            Self::Cookie { initiator, cookie, echo } => {
                [&head(COOKIE, initiator)[..], &cookie, &echo].concat()
            }
            Self::Versions { initiator, lowest, highest, echo } => {
                [&head(VERSIONS, initiator)[..], &[lowest, highest], &echo].concat()
            }
            Self::Reply { initiator, responder, second } => {
                [&head(REPLY, initiator)[..], &responder.to_bytes(), second].concat()
            }
            Self::Third { responder, third } => [&head(THIRD, responder)[..], third].concat(),
            Self::Sealed { head, sealed, .. } => [&head[..], sealed].concat(),
        }
    }

    /// Returns the answer to a hello of which this side has no version.
    pub(super) fn own_versions(initiator: Spi, echo: [u8; ECHO_BYTES]) -> Self {
        Self::Versions { initiator, lowest: VERSION, highest: VERSION, echo }
    }
}

fn head(kind: u8, spi: Spi) -> [u8; 12] {
    let [m, a, g, i] = MAGIC;
    let [s, t, u, v] = spi.to_bytes();
    [m, a, g, i, kind, 0, 0, 0, s, t, u, v]
}

/// Returns what precedes the encrypted bytes of a sealed datagram.
pub(super) fn sealed_head(spi: Spi, counter: u64) -> [u8; SEALED_HEAD_BYTES] {
    let mut bytes = [0; SEALED_HEAD_BYTES];
    let (front, number) = bytes.split_at_mut(12);
    front.copy_from_slice(&head(SEALED, spi));
    number.copy_from_slice(&counter.to_be_bytes());
    bytes
}

/// Returns the part of a first message that its answers repeat.
pub(super) fn echo(first: &[u8]) -> [u8; ECHO_BYTES] {
    first.get(HEAD_BYTES..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_datagram_reads_back_and_no_answer_to_a_hello_is_longer() {
        let [one, two] = [7, 0xffff_ff08].map(|number| Spi::new(number).unwrap());
        let (first, second, third) = ([5; FIRST_BYTES], [6; SECOND_BYTES], [7; THIRD_BYTES_MIN]);
        let sealed_head = sealed_head(two, u64::MAX - 1);
        let hello = AssociationDatagram::Hello { initiator: one, cookie: [3; 16], first: &first };
        let answers = [
            AssociationDatagram::Cookie { initiator: one, cookie: [4; 16], echo: echo(&first) },
            AssociationDatagram::own_versions(one, echo(&first)),
            AssociationDatagram::Reply { initiator: one, responder: two, second: &second },
        ];
        for answer in answers {
            assert!(answer.to_bytes().len() <= hello.to_bytes().len());
            assert_eq!(AssociationDatagram::read(&answer.to_bytes()), Some(answer));
        }
        let sealed = AssociationDatagram::Sealed {
            spi: two,
            counter: u64::MAX - 1,
            head: &sealed_head,
            sealed: &[9; 40],
        };
        for datagram in [hello, AssociationDatagram::Third { responder: two, third: &third }, sealed] {
            assert_eq!(AssociationDatagram::read(&datagram.to_bytes()), Some(datagram));
        }
        // Zero is no index, and the reserved bytes are zeros.
        let mut bytes = hello.to_bytes();
        bytes[8..12].fill(0);
        assert_eq!(AssociationDatagram::read(&bytes), None);
        let mut bytes = hello.to_bytes();
        bytes[6] = 1;
        assert_eq!(AssociationDatagram::read(&bytes), None);
    }
}
