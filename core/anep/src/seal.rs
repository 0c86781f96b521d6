//! Packets that an association authenticates or encrypts.
//!
//! The last option of a sealed packet is the authentication header (SQoSH, figure 3) or its encrypting variant: index,
//! counter and authenticator. A packet that is too long for the path is sealed in fragments, each of which is a
//! sealed packet with a fragment option.

use crate::fragments::{FragmentPlace, chunk_bytes};
use crate::option::OPTION_HEAD_BYTES;
use crate::{AnepError, AnepHeader, AnepOption, AnepPacket, AnepSealError, HEADER_BYTES, OptionKind};
use weir_trust::datagrams::{DatagramEndpoint, PACKET_TAG_BYTES, PATH_BYTES_MIN, PacketError};
use weir_trust::key::PublicKey;
use weir_units::Nanos;

/// The length of index and counter.
const NUMBERS_BYTES: usize = 12;
/// The length of the option's value.
pub(crate) const VALUE_BYTES: usize = NUMBERS_BYTES + PACKET_TAG_BYTES;
/// The bytes that sealing adds to a packet.
pub const SEAL_BYTES: usize = OPTION_HEAD_BYTES + VALUE_BYTES;

/// The protection of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Header, options and payload are authenticated.
    Authenticated,
    /// Header and options are authenticated, and the payload is encrypted.
    Encrypted,
}

impl Protection {
    pub(crate) fn option(self) -> OptionKind {
        match self {
            Self::Authenticated => OptionKind::Authentication,
            Self::Encrypted => OptionKind::Encryption,
        }
    }
}

/// The number of the next packet that is sent in fragments. Numbers distinguish packets of one sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentNumber(u32);

impl FragmentNumber {
    fn take(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(1);
        self.0
    }
}

/// Seals a packet for a peer. Returns the datagrams to send, none of which is longer than the path carries.
///
/// # Errors
/// Fails if the bytes are no packet, the packet has an option that sealing adds, or there are no keys.
pub fn seal(
    endpoint: &mut DatagramEndpoint,
    now: Nanos,
    peer: &PublicKey,
    protection: Protection,
    packet: &[u8],
    next: &mut FragmentNumber,
) -> Result<Vec<Vec<u8>>, AnepSealError> {
    let read = AnepPacket::read(packet)?;
    for kind in
        [OptionKind::Checksum, OptionKind::Authentication, OptionKind::Encryption, OptionKind::Fragment]
    {
        if read.value(kind).is_some() {
            return Err(AnepSealError::Reserved(kind.number()));
        }
    }
    let path_bytes = endpoint.path_bytes(peer).ok_or(PacketError::NoAssociation)?.max(PATH_BYTES_MIN);
    if packet.len() + SEAL_BYTES <= path_bytes.min(usize::from(u16::MAX)) {
        let options: Vec<AnepOption<'_>> = read.options().collect();
        let datagram = seal_one(endpoint, now, peer, protection, read.header(), &options, read.payload())?;
        return Ok(vec![datagram]);
    }
    let (number, chunk) = (next.take(), chunk_bytes(path_bytes));
    let total = u16::try_from(packet.len()).map_err(|_| AnepError::TooLong(packet.len()))?;
    let places = (0..total).step_by(chunk).map(|offset| FragmentPlace { number, total, offset });
    packet
        .chunks(chunk)
        .zip(places)
        .map(|(part, place)| {
            let value = place.to_bytes();
            let options = [AnepOption::known(OptionKind::Fragment, &value)];
            seal_one(endpoint, now, peer, protection, read.header(), &options, part)
        })
        .collect()
}

fn seal_one(
    endpoint: &mut DatagramEndpoint,
    now: Nanos,
    peer: &PublicKey,
    protection: Protection,
    header: AnepHeader,
    options: &[AnepOption<'_>],
    payload: &[u8],
) -> Result<Vec<u8>, AnepSealError> {
    let seal = endpoint.seal_packet(now, peer)?;
    let mut value = [0; VALUE_BYTES];
    let numbers = [&seal.spi().to_bytes()[..], &seal.counter().to_be_bytes()].concat();
    value.iter_mut().zip(&numbers).for_each(|(to, from)| *to = *from);
    let option = AnepOption::known(protection.option(), &value);
    let options: Vec<AnepOption<'_>> = options.iter().copied().chain([option]).collect();
    // The authenticator is zeros while the packet is authenticated.
    let mut packet = header.write(&options, payload)?;
    let header_bytes = packet.len() - payload.len();
    let (authenticated, plain) = match protection {
        Protection::Authenticated => (packet.as_slice(), &[][..]),
        Protection::Encrypted => (packet.get(..header_bytes).unwrap_or_default(), payload),
    };
    let mut sealed = vec![0; plain.len() + PACKET_TAG_BYTES];
    if !seal.seal(authenticated, plain, &mut sealed) {
        return Err(AnepError::TooLong(payload.len()).into());
    }
    let (encrypted, tag) = sealed.split_at(plain.len());
    let tag_from = header_bytes - PACKET_TAG_BYTES;
    let places = [(tag_from, tag), (header_bytes, encrypted)];
    for (from, bytes) in places {
        if let Some(field) = packet.get_mut(from..from + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    }
    Ok(packet)
}

const _: () = assert!(VALUE_BYTES == 28 && SEAL_BYTES == 32 && HEADER_BYTES + SEAL_BYTES < PATH_BYTES_MIN);
