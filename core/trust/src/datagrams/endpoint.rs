//! The endpoint, and what its caller asks of it.

use super::attempt::Attempt;
use super::control::{CloseCode, ControlMessage};
use super::cookie::CookieSecret;
use super::error::{ConnectRefusal, UnknownPeer};
use super::event::{DatagramCounters, DatagramEvent};
use super::format::Spi;
use super::incoming::{IncomingHandshake, IncomingStage, IntroducedPeer};
use super::limits::{DatagramLimits, after};
use super::link::{Acceptance, Link};
use super::path_mtu::PathMtu;
use crate::association::{CREDENTIALS_BYTES_MAX, HandshakeError, HandshakeRole};
use crate::gate::{HalfOpenTicket, HandshakeGate};
use crate::key::PublicKey;
use core::net::SocketAddr;
use rand_core::{CryptoRng, RngCore};
use std::collections::{BTreeMap, VecDeque};
use weir_units::Nanos;
use zeroize::Zeroizing;

/// The number of replaced associations of a peer that still decrypt packets.
const REPLACED_MAX: usize = 3;

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The destination.
    pub to: SocketAddr,
    /// The payload of UDP.
    pub bytes: Vec<u8>,
}

/// One side of associations with many peers over one socket. After each call, the caller sends what
/// [`DatagramEndpoint::poll_transmit`] returns, handles the events of [`DatagramEndpoint::poll_event`], and calls
/// [`DatagramEndpoint::handle_timeout`] at the time of [`DatagramEndpoint::next_timeout`].
pub struct DatagramEndpoint {
    pub(super) own: PublicKey,
    pub(super) limits: DatagramLimits,
    pub(super) cookies: CookieSecret,
    pub(super) gate: HandshakeGate,
    pub(super) attempts: BTreeMap<Spi, Attempt>,
    pub(super) incoming: BTreeMap<HalfOpenTicket, IncomingHandshake>,
    /// The tickets of half-open handshakes that have an own index.
    pub(super) tickets: BTreeMap<Spi, HalfOpenTicket>,
    pub(super) links: BTreeMap<Spi, Link>,
    /// The association of each peer that is used.
    pub(super) peers: BTreeMap<PublicKey, Spi>,
    pub(super) counters: DatagramCounters,
    pub(super) transmits: VecDeque<Transmit>,
    pub(super) events: VecDeque<DatagramEvent>,
}

impl DatagramEndpoint {
    /// Makes an endpoint of the identity with the public key `own`.
    ///
    /// # Errors
    /// Fails without randomness.
    pub fn new(
        own: PublicKey,
        limits: DatagramLimits,
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<Self, HandshakeError> {
        let mut secret = Zeroizing::new([0; 32]);
        let filled = random.try_fill_bytes(secret.as_mut());
        filled.map_err(|_| HandshakeError::Library("there is no randomness"))?;
        Ok(Self {
            own,
            limits,
            cookies: CookieSecret::new(secret, limits.cookie_period),
            gate: HandshakeGate::new(limits.gate),
            attempts: BTreeMap::new(),
            incoming: BTreeMap::new(),
            tickets: BTreeMap::new(),
            links: BTreeMap::new(),
            peers: BTreeMap::new(),
            counters: DatagramCounters::default(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        })
    }

    /// Begins an attempt to open an association with the expected peer, or with any for `None`. Returns the own index of
    /// the association.
    ///
    /// # Errors
    /// Fails if there are too many attempts, or the credentials are too long.
    pub fn connect(
        &mut self,
        now: Nanos,
        address: SocketAddr,
        expected: Option<PublicKey>,
        credentials: &[u8],
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<Spi, ConnectRefusal> {
        if self.attempts.len() >= self.limits.attempts {
            return Err(ConnectRefusal::Attempts(self.limits.attempts));
        }
        if credentials.len() > CREDENTIALS_BYTES_MAX {
            return Err(HandshakeError::Credentials(credentials.len()).into());
        }
        let spi = self.new_spi(random)?;
        let credentials = credentials.to_vec();
        let mut attempt = Attempt::begin(spi, address, expected, credentials, now, &self.limits, random)?;
        self.counters.curve_steps += 1;
        self.transmits.extend(attempt.send(now, &self.limits));
        self.attempts.insert(spi, attempt);
        Ok(spi)
    }

    /// Accepts a peer that asks, and sends it these credentials.
    ///
    /// # Errors
    /// Fails if no peer with this index asks any more.
    pub fn accept(&mut self, now: Nanos, spi: Spi, credentials: &[u8]) -> Result<(), UnknownPeer> {
        let asking = self.tickets.get(&spi).and_then(|ticket| self.incoming.get(ticket));
        let has_place =
            asking.and_then(IncomingHandshake::identity).is_some_and(|peer| self.has_place(&peer));
        if credentials.len() > CREDENTIALS_BYTES_MAX || !has_place {
            self.refuse(now, spi)?;
            return Err(UnknownPeer);
        }
        let incoming = self.take_asking(now, spi)?;
        let IncomingStage::Introduced(introduced) = incoming.stage else { return Err(UnknownPeer) };
        let IntroducedPeer { peer, mut channel, mut exchange, .. } = *introduced;
        self.gate.prove(channel.address.ip(), now);
        // A peer that begins anew does not complete its handshake before.
        self.links.retain(|_, other| other.peer != peer || other.acceptance.is_none());
        exchange.set_own(credentials.to_vec());
        self.transmits.extend(exchange.missing().iter().filter_map(|control| channel.seal(control)));
        let peer_credentials = exchange.complete().unwrap_or_default().to_vec();
        let (at, until) = (after(now, self.limits.retry(0)), after(now, self.limits.deadline));
        let link = Link {
            acceptance: Some(Acceptance { exchange, tries: 0, at, until }),
            ..self.new_link(now, channel, peer, HandshakeRole::Responder)
        };
        let link = Link { credentials: credentials.to_vec(), peer_credentials, ..link };
        self.links.insert(spi, link);
        Ok(())
    }

    /// Refuses a peer that asks. The peer learns that it was refused.
    ///
    /// # Errors
    /// Fails if no peer with this index asks any more.
    pub fn refuse(&mut self, now: Nanos, spi: Spi) -> Result<(), UnknownPeer> {
        let incoming = self.take_asking(now, spi)?;
        if let IncomingStage::Introduced(mut introduced) = incoming.stage {
            self.transmits.extend(introduced.channel.seal(&ControlMessage::Closed(CloseCode::Refused)));
        }
        Ok(())
    }

    /// Closes the association with a peer. There is no event.
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn close(&mut self, peer: &PublicKey) -> Result<(), UnknownPeer> {
        let spi = self.peers.remove(peer).ok_or(UnknownPeer)?;
        let mut link = self.links.remove(&spi).ok_or(UnknownPeer)?;
        self.transmits.extend(link.channel.seal(&ControlMessage::Closed(CloseCode::Done)));
        self.links.retain(|_, other| other.peer != *peer);
        self.attempts.retain(|_, attempt| !attempt.renews || attempt.peer() != Some(*peer));
        Ok(())
    }

    /// Returns the next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<DatagramEvent> {
        self.events.pop_front()
    }

    /// Returns the counters.
    pub fn counters(&self) -> DatagramCounters {
        self.counters
    }

    /// Returns the numbers of half-open handshakes of peers, of own attempts, and of associations with those that are
    /// being replaced.
    pub fn sizes(&self) -> [usize; 3] {
        [self.incoming.len(), self.attempts.len(), self.links.len()]
    }

    /// Returns the peers with an association.
    pub fn peers(&self) -> impl Iterator<Item = PublicKey> + '_ {
        self.peers.keys().copied()
    }

    /// Returns the address of a peer with an association.
    pub fn address(&self, peer: &PublicKey) -> Option<SocketAddr> {
        self.link_of(peer).map(|link| link.channel.address)
    }

    /// Returns the length of the longest datagram that the path to a peer carries, as far as is known.
    pub fn path_bytes(&self, peer: &PublicKey) -> Option<usize> {
        self.link_of(peer).map(|link| link.mtu.bytes())
    }

    /// Returns true if an association with this peer may be added. One that replaces another is always added: few of a
    /// peer exist at a time ([`REPLACED_MAX`]).
    pub(super) fn has_place(&self, peer: &PublicKey) -> bool {
        self.peers.contains_key(peer) || self.links.len() < self.limits.associations
    }

    pub(super) fn link_of(&self, peer: &PublicKey) -> Option<&Link> {
        self.peers.get(peer).and_then(|spi| self.links.get(spi))
    }

    /// Returns a random index that is not in use.
    pub(super) fn new_spi(&self, random: &mut (impl RngCore + CryptoRng)) -> Result<Spi, HandshakeError> {
        // A repetition is as likely as the part of all indices that is in use, at most one in a million.
        for _ in 0..64 {
            let mut bytes = [0; 4];
            let filled = random.try_fill_bytes(&mut bytes);
            filled.map_err(|_| HandshakeError::Library("there is no randomness"))?;
            if let Some(spi) = Spi::new(u32::from_be_bytes(bytes))
                && !self.links.contains_key(&spi)
                && !self.attempts.contains_key(&spi)
                && !self.tickets.contains_key(&spi)
            {
                return Ok(spi);
            }
        }
        Err(HandshakeError::Library("the randomness repeats itself"))
    }

    /// Makes a complete association. A path that is known from the association before keeps its length.
    pub(super) fn new_link(
        &self,
        now: Nanos,
        channel: super::link::SealedChannel,
        peer: PublicKey,
        role: HandshakeRole,
    ) -> Link {
        let before = self.link_of(&peer).filter(|link| link.channel.address == channel.address);
        let mtu = before.map_or_else(|| PathMtu::new(now), |link| link.mtu);
        Link {
            channel,
            peer,
            role,
            credentials: Vec::new(),
            peer_credentials: Vec::new(),
            since: now,
            sent_at: now,
            received_at: now,
            acceptance: None,
            confirmation: None,
            replaced_until: None,
            mtu,
            moving: None,
            renew_from: Nanos(0),
            test_from: Nanos(0),
        }
    }

    /// Puts an association into use, in place of the peer's one before.
    pub(super) fn put_up(&mut self, spi: Spi, now: Nanos) {
        let Some(link) = self.links.get_mut(&spi) else { return };
        link.acceptance = None;
        let (peer, role) = (link.peer, link.role);
        let credentials = std::mem::take(&mut link.peer_credentials);
        let before = self.peers.insert(peer, spi).filter(|before| *before != spi);
        if let Some(replaced) = before.and_then(|before| self.links.get_mut(&before)) {
            replaced.replaced_until = Some(after(now, self.limits.grace));
            replaced.credentials = Vec::new();
        }
        self.limit_replaced(&peer);
        match role {
            // The peer's own attempt was complete first, or the peer makes new keys.
            HandshakeRole::Responder => {
                self.attempts.retain(|_, attempt| attempt.peer() != Some(peer));
            }
            // Of two sides that open at the same time, the one with the larger key decides which association is used. The
            // peer may send under the other one until it learns that.
            HandshakeRole::Initiator if self.own > peer => {
                let until = after(now, self.limits.grace);
                for other in self.links.values_mut().filter(|other| other.peer == peer) {
                    if other.acceptance.take().is_some() {
                        other.replaced_until = Some(until);
                    }
                }
                let of_peer = self.incoming.iter().filter(|(_, other)| other.identity() == Some(peer));
                let tickets: Vec<HalfOpenTicket> = of_peer.map(|(ticket, _)| *ticket).collect();
                for ticket in tickets {
                    self.drop_incoming(ticket, now);
                }
            }
            HandshakeRole::Initiator => {}
        }
        self.events.push_back(DatagramEvent::Up { spi, peer, credentials, renews: before.is_some() });
    }

    /// Removes all but the latest replaced associations of a peer. Packets may be on their way under several of them, if
    /// both sides make new keys at once.
    fn limit_replaced(&mut self, peer: &PublicKey) {
        let of_peer = self.links.iter().filter(|(_, link)| link.peer == *peer);
        let mut replaced: Vec<(Nanos, Spi)> =
            of_peer.filter_map(|(spi, link)| Some((link.replaced_until?, *spi))).collect();
        replaced.sort();
        for (_, spi) in replaced.iter().rev().skip(REPLACED_MAX) {
            self.links.remove(spi);
        }
    }

    /// Removes a half-open handshake, and gives its place at the gate back.
    pub(super) fn drop_incoming(&mut self, ticket: HalfOpenTicket, now: Nanos) -> Option<IncomingHandshake> {
        self.gate.leave(ticket, now);
        self.forget_incoming(ticket)
    }

    /// Removes a half-open handshake that has left the gate.
    pub(super) fn forget_incoming(&mut self, ticket: HalfOpenTicket) -> Option<IncomingHandshake> {
        let incoming = self.incoming.remove(&ticket)?;
        if let Some(own) = incoming.own() {
            self.tickets.remove(&own);
        }
        Some(incoming)
    }

    /// Removes the half-open handshake with this index, if its peer asks and is not late.
    fn take_asking(&mut self, now: Nanos, spi: Spi) -> Result<IncomingHandshake, UnknownPeer> {
        let ticket = *self.tickets.get(&spi).ok_or(UnknownPeer)?;
        let stage = self.incoming.get(&ticket).map(|incoming| &incoming.stage);
        if !matches!(stage, Some(IncomingStage::Introduced(introduced)) if introduced.is_asked) {
            return Err(UnknownPeer);
        }
        let is_in_time = self.gate.leave(ticket, now);
        let incoming = self.forget_incoming(ticket).ok_or(UnknownPeer)?;
        if is_in_time { Ok(incoming) } else { Err(UnknownPeer) }
    }
}

impl std::fmt::Debug for DatagramEndpoint {
    /// Writes the sizes without the keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [incoming, attempts, links] = self.sizes();
        write!(f, "DatagramEndpoint({incoming} half-open, {attempts} attempts, {links} associations)")
    }
}
