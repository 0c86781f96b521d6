//! Packets of other formats that an association encrypts and authenticates.

use super::endpoint::DatagramEndpoint;
use super::error::PacketError;
use super::format::Spi;
use super::keys::PacketSeal;
use crate::key::PublicKey;
use core::net::SocketAddr;
use weir_units::Nanos;

/// A packet that was authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedPacket {
    /// The peer that sent the packet.
    pub peer: PublicKey,
    /// The number of decrypted bytes.
    pub bytes: usize,
}

impl DatagramEndpoint {
    /// Takes the keys and the counter of the next packet to a peer. [`DatagramEndpoint::address`] is its destination.
    ///
    /// # Errors
    /// Fails if there is no association with the peer, or its key is used up.
    pub fn seal_packet(&mut self, now: Nanos, peer: &PublicKey) -> Result<PacketSeal<'_>, PacketError> {
        let spi = self.peers.get(peer).ok_or(PacketError::NoAssociation)?;
        let link = self.links.get_mut(spi).ok_or(PacketError::NoAssociation)?;
        if link.is_old(now, &self.limits) {
            return Err(PacketError::UsedUp);
        }
        link.sent_at = link.sent_at.max(now);
        link.channel.keys.seal(link.channel.peer)
    }

    /// Authenticates and decrypts a packet with this index and counter into `out`, which must be as long as `sealed`.
    ///
    /// # Errors
    /// Fails if the packet is of no association, was received before, or was changed. Nothing changes then.
    #[expect(clippy::too_many_arguments, reason = "all of them are parts of one packet")]
    pub fn open_packet(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        spi: Spi,
        counter: u64,
        authenticated: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<OpenedPacket, PacketError> {
        let opened = self.open_with_link(now, from, spi, counter, [authenticated, sealed], out);
        self.count_packet(opened.map(drop));
        if opened.is_ok() {
            self.confirm(spi, now);
        }
        opened
    }

    fn open_with_link(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        spi: Spi,
        counter: u64,
        [authenticated, sealed]: [&[u8]; 2],
        out: &mut [u8],
    ) -> Result<OpenedPacket, PacketError> {
        let link = self.links.get_mut(&spi).ok_or(PacketError::Unknown(spi))?;
        if link.is_old(now, &self.limits) {
            return Err(PacketError::UsedUp);
        }
        let (bytes, is_newest) = link.channel.keys.open(counter, authenticated, sealed, out)?;
        link.note_received(from, is_newest, now);
        Ok(OpenedPacket { peer: link.peer, bytes })
    }
}
