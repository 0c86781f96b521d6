//! The timers of an endpoint.

use super::attempt::Attempt;
use super::control::ControlMessage;
use super::endpoint::DatagramEndpoint;
use super::error::AttemptError;
use super::event::{DatagramEvent, DownReason};
use super::format::Spi;
use super::limits::after;
use super::link::{CHALLENGES_MAX, probe_padding};
use crate::association::Signer;
use rand_core::{CryptoRng, RngCore};
use weir_units::Nanos;

impl DatagramEndpoint {
    /// Returns the time at which [`DatagramEndpoint::handle_timeout`] is to be called, if nothing else happens before.
    pub fn next_timeout(&self, now: Nanos) -> Option<Nanos> {
        let attempts = self.attempts.values().map(|attempt| attempt.at.min(attempt.until));
        let links = self.links.keys().filter_map(|spi| self.link_timeout(*spi, now));
        attempts.chain(links).chain(self.gate.next_event(now)).min()
    }

    /// Returns the next time at which an association needs something.
    fn link_timeout(&self, spi: Spi, now: Nanos) -> Option<Nanos> {
        let link = self.links.get(&spi)?;
        let end = after(link.since, self.limits.age_max).min(after(link.received_at, self.limits.silence));
        if let Some(acceptance) = &link.acceptance {
            return Some(acceptance.at.min(acceptance.until).min(end));
        }
        if let Some(until) = link.replaced_until {
            return Some(until.min(end));
        }
        let keepalive = after(link.sent_at, self.limits.keepalive);
        let renew = (!self.is_renewing(spi)).then(|| link.renew_at(now, &self.limits));
        let challenge = link.moving.map(|moving| moving.at);
        let test = link.test_at(&self.limits);
        let always = [end, keepalive, test, link.mtu.next()];
        always.into_iter().chain(renew).chain(challenge).min()
    }

    /// Returns true if an attempt makes new keys for this association.
    fn is_renewing(&self, spi: Spi) -> bool {
        let peer = self.links.get(&spi).map(|link| link.peer);
        self.attempts.values().any(|attempt| attempt.renews && attempt.peer() == peer)
    }

    /// Does what is due at this time: repetitions, new keys, keepalives, probes, challenges, and the ends of what took
    /// too long.
    pub fn handle_timeout(
        &mut self,
        now: Nanos,
        signer: &dyn Signer,
        random: &mut (impl RngCore + CryptoRng),
    ) {
        for ticket in self.gate.expire(now) {
            self.forget_incoming(ticket);
        }
        self.answer_waiting(now, signer, random);
        let attempts: Vec<Spi> = self.attempts.keys().copied().collect();
        for spi in attempts {
            self.handle_attempt_timeout(now, spi, random);
        }
        let links: Vec<Spi> = self.links.keys().copied().collect();
        for spi in links {
            if !self.end_link(now, spi) {
                self.repeat_acceptance(now, spi);
                self.renew(now, spi, random);
                self.send_due(now, spi, random);
            }
        }
    }

    fn handle_attempt_timeout(&mut self, now: Nanos, spi: Spi, random: &mut (impl RngCore + CryptoRng)) {
        let Some(attempt) = self.attempts.get_mut(&spi) else { return };
        if now < attempt.until.min(attempt.at) {
            return;
        }
        let begun = attempt.renew_hello(random);
        if now < attempt.until && begun.is_ok() {
            self.transmits.extend(attempt.send(now, &self.limits));
            self.counters.repeated += 1;
            return;
        }
        let Some(attempt) = self.attempts.remove(&spi) else { return };
        if attempt.renews {
            let link = attempt.peer().and_then(|peer| self.peers.get(&peer).copied());
            if let Some(link) = link.and_then(|link| self.links.get_mut(&link)) {
                link.renew_from = after(now, self.limits.retry_max);
            }
            return;
        }
        let error = attempt.reason.unwrap_or(AttemptError::Late);
        self.events.push_back(DatagramEvent::Failed { spi, address: attempt.address, error });
    }

    /// Removes an association whose time is over, and returns true. No event tells of one without confirmation, or of
    /// replaced keys.
    fn end_link(&mut self, now: Nanos, spi: Spi) -> bool {
        let Some(link) = self.links.get(&spi) else { return true };
        let is_unconfirmed = link.acceptance.as_ref().is_some_and(|acceptance| now >= acceptance.until);
        let is_replaced = link.replaced_until.is_some_and(|until| now >= until);
        let reason = if link.is_old(now, &self.limits) {
            DownReason::UsedUp
        } else if is_unconfirmed || is_replaced || now >= after(link.received_at, self.limits.silence) {
            DownReason::Silent
        } else {
            return false;
        };
        self.remove_link(spi, reason);
        true
    }

    fn repeat_acceptance(&mut self, now: Nanos, spi: Spi) {
        let Some(link) = self.links.get_mut(&spi) else { return };
        let Some(acceptance) = &mut link.acceptance else { return };
        if now < acceptance.at {
            return;
        }
        acceptance.tries = acceptance.tries.saturating_add(1);
        acceptance.at = after(now, self.limits.retry(acceptance.tries));
        let missing = acceptance.exchange.missing();
        self.transmits.extend(missing.iter().filter_map(|control| link.channel.seal(control)));
        self.counters.repeated += 1;
    }

    /// Begins an attempt to make new keys, when it is time.
    fn renew(&mut self, now: Nanos, spi: Spi, random: &mut (impl RngCore + CryptoRng)) {
        let Some(link) = self.links.get(&spi).filter(|link| link.is_current()) else { return };
        if now < link.renew_at(now, &self.limits) || self.is_renewing(spi) {
            return;
        }
        let (address, peer, credentials) = (link.channel.address, link.peer, link.credentials.clone());
        let has_place = self.attempts.len() < self.limits.attempts;
        let new = self.new_spi(random).ok().filter(|_| has_place);
        let begun = new.and_then(|new| {
            Attempt::begin(new, address, Some(peer), credentials, now, &self.limits, random).ok()
        });
        let Some(mut attempt) = begun else {
            if let Some(link) = self.links.get_mut(&spi) {
                link.renew_from = after(now, self.limits.retry_max);
            }
            return;
        };
        self.counters.curve_steps += 1;
        attempt.renews = true;
        self.transmits.extend(attempt.send(now, &self.limits));
        self.attempts.insert(attempt.spi, attempt);
    }

    /// Sends keepalives, tests of a silent peer, probes of the path's length, and challenges to a new address.
    fn send_due(&mut self, now: Nanos, spi: Spi, random: &mut (impl RngCore + CryptoRng)) {
        let Some(link) = self.links.get_mut(&spi).filter(|link| link.is_current()) else { return };
        let token = random.next_u64();
        if let Some((token, bytes)) = link.mtu.due(now, token) {
            let probe = ControlMessage::Probe { token, padding: probe_padding(bytes) };
            self.transmits.extend(link.channel.seal(&probe));
        }
        if let Some(moving) = link.moving.filter(|moving| now >= moving.at) {
            if moving.tries >= CHALLENGES_MAX {
                link.moving = None;
            } else {
                let token = moving.token.unwrap_or_else(|| random.next_u64());
                let challenge = ControlMessage::Probe { token, padding: 0 };
                self.transmits.extend(link.channel.seal_to(&challenge, moving.address));
                let (tries, at) = (moving.tries + 1, after(now, self.limits.retry(moving.tries)));
                link.moving = Some(super::link::MovingPeer { token: Some(token), tries, at, ..moving });
            }
        }
        if now >= link.test_at(&self.limits) {
            link.test_from = after(now, self.limits.retry_max);
            let test = ControlMessage::Probe { token: random.next_u64(), padding: 0 };
            self.transmits.extend(link.channel.seal(&test));
        }
        if now >= after(link.sent_at, self.limits.keepalive) {
            link.sent_at = now;
            self.transmits.extend(link.channel.seal(&ControlMessage::Keepalive));
        }
    }
}
