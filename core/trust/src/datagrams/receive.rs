//! The handling of received datagrams.

use super::attempt::AttemptStage;
use super::control::{CloseCode, ControlMessage, CredentialsMessage};
use super::endpoint::{DatagramEndpoint, Transmit};
use super::error::{AttemptError, PacketError};
use super::event::{DatagramEvent, DownReason};
use super::format::{AssociationDatagram, COOKIE_BYTES, SEALED_HEAD_BYTES, Spi, echo};
use super::incoming::{IncomingHandshake, IncomingStage, IntroducedPeer};
use super::keys::PacketKeys;
use super::link::{Link, SealedChannel};
use super::parts::CredentialsExchange;
use super::path_mtu::PathMtu;
use crate::association::{HandshakeError, HandshakeRole, Responder, Signer, check_first};
use core::net::SocketAddr;
use rand_core::{CryptoRng, RngCore};
use weir_units::Nanos;

impl DatagramEndpoint {
    /// Handles a datagram that came from this address. Datagrams that are none of this protocol are counted and dropped.
    pub fn handle_datagram(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        bytes: &[u8],
        signer: &dyn Signer,
        random: &mut (impl RngCore + CryptoRng),
    ) {
        let Some(datagram) = AssociationDatagram::read(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        match datagram {
            AssociationDatagram::Hello { initiator, cookie, first } => {
                self.handle_hello(now, from, initiator, cookie, first);
                self.answer_waiting(now, signer, random);
            }
            AssociationDatagram::Cookie { initiator, cookie, echo } => {
                let attempt = self.attempts.get_mut(&initiator).filter(|attempt| attempt.address == from);
                if let Some(attempt) = attempt
                    && attempt.handle_cookie(cookie, echo)
                {
                    self.transmits.extend(attempt.send(now, &self.limits));
                    self.counters.accepted += 1;
                } else {
                    self.counters.unexpected += 1;
                }
            }
            AssociationDatagram::Versions { initiator, lowest, highest, echo } => {
                let attempt = self.attempts.get_mut(&initiator).filter(|attempt| attempt.address == from);
                let is_answer = attempt.is_some_and(|attempt| attempt.handle_versions(lowest, highest, echo));
                self.counters.accepted += u64::from(is_answer);
                self.counters.unexpected += u64::from(!is_answer);
            }
            AssociationDatagram::Reply { initiator, responder, second } => {
                self.handle_reply(now, from, initiator, responder, second, signer);
            }
            AssociationDatagram::Third { responder, third } => self.handle_third(now, from, responder, third),
            AssociationDatagram::Sealed { spi, counter, head, sealed } => {
                let received = SealedDatagram { counter, head, sealed, bytes: bytes.len() };
                let handled = self.handle_sealed(now, from, spi, received);
                self.count_packet(handled);
            }
        }
    }

    /// Counts a packet by the result of its handling.
    pub(super) fn count_packet(&mut self, handled: Result<(), PacketError>) {
        let counters = &mut self.counters;
        match handled {
            Ok(()) => counters.accepted += 1,
            Err(PacketError::Unknown(_) | PacketError::NoAssociation) => counters.unknown += 1,
            Err(PacketError::Again(_)) => counters.replayed += 1,
            Err(PacketError::Damaged) => counters.damaged += 1,
            Err(PacketError::UsedUp) => counters.used_up += 1,
        }
    }

    fn handle_hello(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        initiator: Spi,
        cookie: [u8; COOKIE_BYTES],
        first: &[u8],
    ) {
        let repeated = echo(first);
        match check_first(first) {
            Ok(()) => {}
            Err(HandshakeError::NoCommonVersion { .. }) => {
                let answer = AssociationDatagram::own_versions(initiator, repeated);
                self.transmits.push_back(Transmit { to: from, bytes: answer.to_bytes() });
                self.counters.versions += 1;
                return;
            }
            Err(_) => {
                self.counters.malformed += 1;
                return;
            }
        }
        if !self.cookies.is_valid(&cookie, from, initiator, first, now) {
            // Nothing is stored, and no operation on the curve is made.
            if let Ok(cookie) = self.cookies.make(from, initiator, first, now) {
                let answer = AssociationDatagram::Cookie { initiator, cookie, echo: repeated };
                self.transmits.push_back(Transmit { to: from, bytes: answer.to_bytes() });
            }
            self.counters.cookies += 1;
            return;
        }
        let is_same = |other: &&IncomingHandshake| {
            other.address == from && other.peer == initiator && other.echo == repeated
        };
        if let Some(open) = self.incoming.values().find(is_same) {
            if let IncomingStage::Replied { own, second, .. } = &open.stage {
                let reply = AssociationDatagram::Reply { initiator, responder: *own, second };
                self.transmits.push_back(Transmit { to: from, bytes: reply.to_bytes() });
            }
            self.counters.unexpected += 1;
            return;
        }
        let permit = self.gate.admit(from.ip(), now);
        if let Some(evicted) = permit.evicted {
            self.forget_incoming(evicted);
        }
        if self.gate.first_message_arrived(permit.ticket, now).is_err() {
            self.counters.refused += 1;
            return;
        }
        let stage = IncomingStage::Waiting { first: first.to_vec() };
        self.incoming.insert(
            permit.ticket,
            IncomingHandshake { address: from, peer: initiator, echo: repeated, stage },
        );
        self.counters.accepted += 1;
    }

    /// Answers the first messages that the gate selects.
    pub(super) fn answer_waiting(
        &mut self,
        now: Nanos,
        signer: &dyn Signer,
        random: &mut (impl RngCore + CryptoRng),
    ) {
        while let Some(permit) = self.gate.next(now) {
            let own = self.new_spi(random);
            let Some(incoming) = self.incoming.get_mut(&permit.ticket) else { continue };
            let IncomingStage::Waiting { first } = &incoming.stage else { continue };
            self.counters.curve_steps += 1;
            let begun = Responder::begin_in_datagrams(signer, first, random);
            let (Ok(own), Ok((responder, second))) = (own, begun) else {
                self.counters.refused += 1;
                self.drop_incoming(permit.ticket, now);
                continue;
            };
            let reply =
                AssociationDatagram::Reply { initiator: incoming.peer, responder: own, second: &second };
            self.transmits.push_back(Transmit { to: incoming.address, bytes: reply.to_bytes() });
            incoming.stage = IncomingStage::Replied { own, responder, second };
            self.tickets.insert(own, permit.ticket);
        }
    }

    fn handle_reply(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        initiator: Spi,
        responder: Spi,
        second: &[u8],
        signer: &dyn Signer,
    ) {
        let attempt = self.attempts.get_mut(&initiator).filter(|attempt| attempt.address == from);
        let Some(attempt) = attempt else {
            self.counters.unexpected += 1;
            return;
        };
        match attempt.handle_reply(responder, second, signer, self.limits.packets_max) {
            Ok(false) => self.counters.unexpected += 1,
            Ok(true) => {
                self.counters.curve_steps += 1;
                self.counters.accepted += 1;
                self.transmits.extend(attempt.send(now, &self.limits));
            }
            Err(error) => {
                self.counters.curve_steps += 1;
                self.counters.damaged += 1;
                let is_final = matches!(error, HandshakeError::Unsigned(_));
                attempt.reason = Some(AttemptError::Handshake(error));
                if is_final {
                    attempt.until = now;
                }
            }
        }
    }

    fn handle_third(&mut self, now: Nanos, from: SocketAddr, own: Spi, third: &[u8]) {
        let Some(ticket) = self.tickets.get(&own).copied() else {
            // The initiator repeats its third message until it has an answer.
            let is_known = self.links.contains_key(&own);
            self.counters.unexpected += u64::from(is_known);
            self.counters.unknown += u64::from(!is_known);
            return;
        };
        let is_awaited = self.incoming.get(&ticket).is_some_and(|incoming| {
            incoming.address == from && matches!(incoming.stage, IncomingStage::Replied { .. })
        });
        if !is_awaited {
            self.counters.unexpected += 1;
            return;
        }
        let Some(mut incoming) = self.incoming.remove(&ticket) else { return };
        let IncomingStage::Replied { responder, .. } = incoming.stage else { return };
        self.counters.curve_steps += 1;
        let introduced = responder.read_third_in_datagrams(third).and_then(|(peer, split)| {
            let (role, packets_max) = (HandshakeRole::Responder, self.limits.packets_max);
            let keys = PacketKeys::derive(&split, role, incoming.peer, own, packets_max)?;
            if peer == self.own {
                // The own messages came back.
                return Err(HandshakeError::Signature { key: peer });
            }
            Ok((peer, SealedChannel { own, peer: incoming.peer, keys, address: from }))
        });
        let Ok((peer, channel)) = introduced else {
            self.counters.damaged += 1;
            self.tickets.remove(&own);
            self.gate.leave(ticket, now);
            return;
        };
        let exchange = CredentialsExchange::new(Vec::new());
        let introduced = IntroducedPeer { peer, channel, exchange, is_asked: false };
        incoming.stage = IncomingStage::Introduced(Box::new(introduced));
        self.incoming.insert(ticket, incoming);
        self.counters.accepted += 1;
    }

    fn handle_sealed(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        spi: Spi,
        received: SealedDatagram<'_>,
    ) -> Result<(), PacketError> {
        if self.links.contains_key(&spi) {
            self.handle_for_link(now, from, spi, received)
        } else if self.attempts.contains_key(&spi) {
            self.handle_for_attempt(now, from, spi, received)
        } else {
            self.handle_for_incoming(from, spi, received)
        }
    }

    /// Handles a message of a peer that has proved its identity, and sends its credentials.
    fn handle_for_incoming(
        &mut self,
        from: SocketAddr,
        spi: Spi,
        received: SealedDatagram<'_>,
    ) -> Result<(), PacketError> {
        let ticket = self.tickets.get(&spi).ok_or(PacketError::Unknown(spi))?;
        let incoming = self.incoming.get_mut(ticket).ok_or(PacketError::Unknown(spi))?;
        let IncomingStage::Introduced(introduced) = &mut incoming.stage else {
            // The third message is late, or lost. It will be repeated with this message.
            return Err(PacketError::Unknown(spi));
        };
        let IntroducedPeer { peer, channel, exchange, is_asked } = &mut **introduced;
        if channel.address != from {
            return Err(PacketError::Unknown(spi));
        }
        let (control, _) = received.open(channel)?;
        let ControlMessage::Credentials(message) = control else { return Ok(()) };
        if !exchange.handle(&message) {
            return Err(PacketError::Damaged);
        }
        if message.asks {
            self.transmits.extend(channel.seal(&exchange.acknowledgement()));
        }
        if !*is_asked && let Some(credentials) = exchange.complete() {
            *is_asked = true;
            self.events.push_back(DatagramEvent::Asks {
                spi,
                peer: *peer,
                credentials: credentials.to_vec(),
                address: from,
            });
        }
        Ok(())
    }

    /// Handles a message of the responder of an own attempt.
    fn handle_for_attempt(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        spi: Spi,
        received: SealedDatagram<'_>,
    ) -> Result<(), PacketError> {
        let attempt = self.attempts.get_mut(&spi).ok_or(PacketError::Unknown(spi))?;
        let AttemptStage::Introduced(introduced) = &mut attempt.stage else {
            return Err(PacketError::Unknown(spi));
        };
        if attempt.address != from {
            return Err(PacketError::Unknown(spi));
        }
        let (control, _) = received.open(&mut introduced.channel)?;
        introduced.note_answer();
        match control {
            ControlMessage::Closed(reason) => {
                attempt.until = now;
                attempt.reason = Some(match reason {
                    CloseCode::Refused => AttemptError::Refused,
                    CloseCode::Done => AttemptError::Late,
                });
            }
            ControlMessage::Credentials(message) => {
                if !introduced.exchange.handle(&message) {
                    return Err(PacketError::Damaged);
                }
                if introduced.exchange.complete().is_some() {
                    self.complete_attempt(now, spi);
                } else if message.asks {
                    self.transmits.extend(introduced.send_missing());
                }
            }
            ControlMessage::Keepalive | ControlMessage::Probe { .. } | ControlMessage::Answer { .. } => {}
        }
        Ok(())
    }

    /// Makes an association of an attempt whose responder has accepted.
    fn complete_attempt(&mut self, now: Nanos, spi: Spi) {
        let Some(mut attempt) = self.attempts.remove(&spi) else { return };
        if !attempt.peer().is_some_and(|peer| self.has_place(&peer)) {
            attempt.until = now;
            attempt.reason = Some(AttemptError::Full);
            self.attempts.insert(spi, attempt);
            return;
        }
        let AttemptStage::Introduced(introduced) = attempt.stage else { return };
        let mut channel = introduced.channel;
        let confirmation = introduced.exchange.acknowledgement();
        self.transmits.extend(channel.seal(&confirmation));
        let link = Link {
            credentials: attempt.credentials,
            peer_credentials: introduced.exchange.complete().unwrap_or_default().to_vec(),
            confirmation: Some(confirmation),
            ..self.new_link(now, channel, introduced.peer, HandshakeRole::Initiator)
        };
        self.links.insert(spi, link);
        self.put_up(spi, now);
    }

    /// Handles a message of an association.
    fn handle_for_link(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        spi: Spi,
        received: SealedDatagram<'_>,
    ) -> Result<(), PacketError> {
        let link = self.links.get_mut(&spi).ok_or(PacketError::Unknown(spi))?;
        if link.is_old(now, &self.limits) {
            return Err(PacketError::UsedUp);
        }
        let bytes = u16::try_from(received.bytes).unwrap_or(u16::MAX);
        let (control, is_newest) = received.open(&mut link.channel)?;
        link.note_received(from, is_newest, now);
        match control {
            ControlMessage::Keepalive => {}
            ControlMessage::Credentials(message) => {
                self.handle_credentials(now, spi, &message);
                return Ok(());
            }
            ControlMessage::Closed(_) => {
                self.remove_link(spi, DownReason::Closed);
                return Ok(());
            }
            ControlMessage::Probe { token, .. } => {
                self.transmits.extend(link.channel.seal(&ControlMessage::Answer { token, bytes }));
            }
            ControlMessage::Answer { token, bytes } => {
                if let Some(moving) = link.moving
                    && moving.token == Some(token)
                {
                    (link.channel.address, link.moving) = (moving.address, None);
                    link.mtu = PathMtu::new(now);
                    let moved = DatagramEvent::Moved { peer: link.peer, address: moving.address };
                    self.events.push_back(moved);
                } else {
                    link.mtu.handle_answer(token, bytes, now);
                }
            }
        }
        self.confirm(spi, now);
        Ok(())
    }

    /// Handles a credentials message that belongs to a complete association, or to one that waits for its confirmation.
    fn handle_credentials(&mut self, now: Nanos, spi: Spi, message: &CredentialsMessage) {
        let Some(link) = self.links.get_mut(&spi) else { return };
        if let Some(acceptance) = &mut link.acceptance {
            if !acceptance.exchange.handle(message) {
                return;
            }
            if acceptance.exchange.is_sent() {
                self.confirm(spi, now);
            } else if message.asks {
                let missing = acceptance.exchange.missing();
                self.transmits.extend(missing.iter().filter_map(|control| link.channel.seal(control)));
            }
        } else if message.asks
            && let Some(confirmation) = &link.confirmation
        {
            self.transmits.extend(link.channel.seal(confirmation));
        }
    }

    /// Puts an accepted association into use: the initiator has shown that it has the acceptance.
    pub(super) fn confirm(&mut self, spi: Spi, now: Nanos) {
        if self.links.get(&spi).is_some_and(|link| link.acceptance.is_some()) {
            self.put_up(spi, now);
        }
    }

    /// Removes an association. There is an event if the peer has no other one.
    pub(super) fn remove_link(&mut self, spi: Spi, reason: DownReason) {
        let Some(link) = self.links.remove(&spi) else { return };
        if self.peers.get(&link.peer) == Some(&spi) {
            self.peers.remove(&link.peer);
            self.attempts.retain(|_, attempt| !attempt.renews || attempt.peer() != Some(link.peer));
            self.events.push_back(DatagramEvent::Down { peer: link.peer, reason });
        }
    }
}

/// A received sealed datagram.
struct SealedDatagram<'a> {
    counter: u64,
    head: &'a [u8; SEALED_HEAD_BYTES],
    sealed: &'a [u8],
    /// The length of the whole datagram.
    bytes: usize,
}

impl SealedDatagram<'_> {
    fn open(&self, channel: &mut SealedChannel) -> Result<(ControlMessage, bool), PacketError> {
        channel.open(self.counter, self.head, self.sealed)
    }
}
