//! The receiver of sealed packets.

use crate::fragments::{FragmentLimits, FragmentPlace, FragmentStore};
use crate::seal::VALUE_BYTES;
use crate::{AnepError, AnepOpenError, AnepOption, AnepPacket, OptionKind, Protection};
use core::net::SocketAddr;
use weir_trust::datagrams::{DatagramEndpoint, PACKET_TAG_BYTES, PacketError, Spi};
use weir_trust::key::PublicKey;
use weir_units::Nanos;

/// A packet that a peer has sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPacket {
    /// The peer.
    pub peer: PublicKey,
    /// The protection of the packet, or of its last fragment.
    pub protection: Protection,
    /// The packet as the peer had it before sealing.
    pub packet: Vec<u8>,
}

/// Authenticates and decrypts packets, and reassembles those in fragments. No byte of a fragment is stored before the
/// fragment is authenticated.
#[derive(Debug)]
pub struct AnepReceiver {
    fragments: FragmentStore,
}

impl AnepReceiver {
    /// Makes a receiver without fragments.
    pub fn new(limits: FragmentLimits) -> Self {
        Self { fragments: FragmentStore::new(limits) }
    }

    /// Handles a datagram. Returns the packet if the datagram completes one; `None` for a fragment of a packet whose other
    /// fragments have not arrived.
    ///
    /// # Errors
    /// Fails for other bytes than a sealed packet of a peer with an association.
    pub fn handle(
        &mut self,
        endpoint: &mut DatagramEndpoint,
        now: Nanos,
        from: SocketAddr,
        datagram: &[u8],
    ) -> Result<Option<PeerPacket>, AnepOpenError> {
        let packet = AnepPacket::read(datagram)?;
        let protection = protection(&packet)?;
        let option = packet.options().last().ok_or(AnepOpenError::Unsealed)?;
        let value: &[u8; VALUE_BYTES] = option.value.try_into().map_err(|_| AnepOpenError::Unsealed)?;
        let (spi, rest) = value.split_first_chunk().ok_or(AnepOpenError::Unsealed)?;
        let (counter, tag) = rest.split_first_chunk().ok_or(AnepOpenError::Unsealed)?;
        let spi = Spi::new(u32::from_be_bytes(*spi)).ok_or(PacketError::Damaged)?;
        let counter = u64::from_be_bytes(*counter);
        let header_bytes = datagram.len() - packet.payload().len();
        let (head, payload) = datagram.split_at(header_bytes);
        let (numbered, _) = head.split_at(header_bytes - PACKET_TAG_BYTES);
        let (authenticated, sealed) = match protection {
            Protection::Authenticated => ([numbered, &[0; PACKET_TAG_BYTES], payload].concat(), tag.to_vec()),
            Protection::Encrypted => ([numbered, &[0; PACKET_TAG_BYTES]].concat(), [payload, tag].concat()),
        };
        let mut plain = vec![0; sealed.len()];
        let opened = endpoint.open_packet(now, from, spi, counter, &authenticated, &sealed, &mut plain)?;
        plain.truncate(opened.bytes);
        let payload = match protection {
            Protection::Authenticated => payload,
            Protection::Encrypted => &plain,
        };
        let peer = opened.peer;
        if let Some(value) = packet.value(OptionKind::Fragment) {
            let place = FragmentPlace::read(value).ok_or(AnepError::Value(OptionKind::Fragment.number()))?;
            let whole = self.fragments.insert(now, peer, place, payload)?;
            // The packet was one before it was sealed.
            return match whole {
                Some(packet) => {
                    AnepPacket::read(&packet)?;
                    Ok(Some(PeerPacket { peer, protection, packet }))
                }
                None => Ok(None),
            };
        }
        let before: Vec<AnepOption<'_>> = packet.options().filter(|other| *other != option).collect();
        let packet = packet.header().write(&before, payload)?;
        Ok(Some(PeerPacket { peer, protection, packet }))
    }

    /// Discards the fragments of packets that are not complete in time. Returns the time of the next call.
    pub fn handle_timeout(&mut self, now: Nanos) -> Option<Nanos> {
        self.fragments.expire(now)
    }

    /// Discards all fragments of a peer whose association is over.
    pub fn forget(&mut self, peer: &PublicKey) {
        self.fragments.forget(peer);
    }

    /// Returns the number of bytes of incomplete packets, and the number of packets that were discarded incomplete.
    pub fn stored(&self) -> (usize, u64) {
        (self.fragments.bytes(), self.fragments.discarded())
    }
}

/// Returns the protection of a sealed packet, whose last option is the only one for it.
fn protection(packet: &AnepPacket<'_>) -> Result<Protection, AnepOpenError> {
    let has = |kind| packet.value(kind).is_some();
    let protection = match (has(OptionKind::Authentication), has(OptionKind::Encryption)) {
        (true, false) => Protection::Authenticated,
        (false, true) => Protection::Encrypted,
        _ => return Err(AnepOpenError::Unsealed),
    };
    let is_last = packet.options().last().and_then(|option| option.kind()) == Some(protection.option());
    if is_last && !has(OptionKind::Checksum) { Ok(protection) } else { Err(AnepOpenError::Unsealed) }
}
