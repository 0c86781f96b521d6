//! Own attempts to open an association.

use super::endpoint::Transmit;
use super::error::AttemptError;
use super::format::{AssociationDatagram, COOKIE_BYTES, Spi, echo};
use super::keys::PacketKeys;
use super::limits::{DatagramLimits, after};
use super::link::SealedChannel;
use super::parts::CredentialsExchange;
use crate::association::{HandshakeError, HandshakeRole, Initiator, Signer};
use crate::key::PublicKey;
use core::net::SocketAddr;
use rand_core::{CryptoRng, RngCore};
use weir_units::Nanos;
use zeroize::Zeroizing;

/// The number of repetitions without any answer after which the attempt begins with a new hello: the responder may have
/// lost its state by a forged message, or by a deadline.
const UNANSWERED_MAX: u32 = 4;
/// The number of second messages that one hello is completed with. Forged ones leave the attempt as it is.
const SECONDS_MAX: u32 = 16;

/// An attempt to open an association.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) spi: Spi,
    pub(super) address: SocketAddr,
    /// The peer that has to answer; `None` for any.
    pub(super) expected: Option<PublicKey>,
    pub(super) credentials: Vec<u8>,
    /// True if the attempt makes new keys for an association.
    pub(super) renews: bool,
    pub(super) stage: AttemptStage,
    /// The number of repetitions in this stage.
    pub(super) tries: u32,
    /// The time of the next repetition.
    pub(super) at: Nanos,
    pub(super) until: Nanos,
    /// The reason to give at the deadline, if a peer has shown one.
    pub(super) reason: Option<AttemptError>,
}

/// The stage of an attempt.
#[derive(Debug)]
pub(super) enum AttemptStage {
    Hello(Box<HelloStage>),
    Introduced(Box<IntroducedStage>),
}

/// An attempt that waits for the second message.
#[derive(Debug)]
pub(super) struct HelloStage {
    /// The randomness of the handshake, from which its state is made anew after a forged second message.
    secret: HelloSecret,
    first: Vec<u8>,
    cookie: [u8; COOKIE_BYTES],
    seconds: u32,
}

/// An attempt that has sent the third message, and exchanges credentials.
#[derive(Debug)]
pub(super) struct IntroducedStage {
    pub(super) peer: PublicKey,
    pub(super) channel: SealedChannel,
    pub(super) exchange: CredentialsExchange,
    third: Vec<u8>,
    /// True if the responder has answered the third message.
    is_heard: bool,
    /// The number of repetitions since the responder's last answer.
    unanswered: u32,
}

impl Attempt {
    /// Begins an attempt.
    pub(super) fn begin(
        spi: Spi,
        address: SocketAddr,
        expected: Option<PublicKey>,
        credentials: Vec<u8>,
        now: Nanos,
        limits: &DatagramLimits,
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<Self, HandshakeError> {
        Ok(Self {
            spi,
            address,
            expected,
            credentials,
            renews: false,
            stage: AttemptStage::Hello(Box::new(HelloStage::new(expected, random)?)),
            tries: 0,
            at: now,
            until: after(now, limits.deadline),
            reason: None,
        })
    }

    /// Returns the peer's identity, if it is known or expected.
    pub(super) fn peer(&self) -> Option<PublicKey> {
        match &self.stage {
            AttemptStage::Hello(_) => self.expected,
            AttemptStage::Introduced(introduced) => Some(introduced.peer),
        }
    }

    /// Returns the datagrams of this stage, and sets the time of the next repetition.
    pub(super) fn send(&mut self, now: Nanos, limits: &DatagramLimits) -> Vec<Transmit> {
        self.at = after(now, limits.retry(self.tries));
        self.tries = self.tries.saturating_add(1);
        match &mut self.stage {
            AttemptStage::Hello(hello) => {
                let datagram = AssociationDatagram::Hello {
                    initiator: self.spi,
                    cookie: hello.cookie,
                    first: &hello.first,
                };
                vec![Transmit { to: self.address, bytes: datagram.to_bytes() }]
            }
            AttemptStage::Introduced(introduced) => {
                introduced.unanswered += 1;
                let mut datagrams = Vec::new();
                if !introduced.is_heard {
                    let third = AssociationDatagram::Third {
                        responder: introduced.channel.peer,
                        third: &introduced.third,
                    };
                    datagrams.push(Transmit { to: self.address, bytes: third.to_bytes() });
                }
                datagrams.extend(introduced.send_missing());
                datagrams
            }
        }
    }

    /// Begins with a new hello, if the responder seems to have lost its state.
    pub(super) fn renew_hello(
        &mut self,
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<(), HandshakeError> {
        let is_lost = match &self.stage {
            AttemptStage::Hello(hello) => hello.seconds >= SECONDS_MAX,
            AttemptStage::Introduced(introduced) => introduced.unanswered >= UNANSWERED_MAX,
        };
        if is_lost {
            self.stage = AttemptStage::Hello(Box::new(HelloStage::new(self.expected, random)?));
            self.tries = 0;
        }
        Ok(())
    }

    /// Handles a cookie. Returns true if it answers this hello and is another one than before.
    pub(super) fn handle_cookie(&mut self, cookie: [u8; COOKIE_BYTES], repeated: [u8; 16]) -> bool {
        let AttemptStage::Hello(hello) = &mut self.stage else { return false };
        let is_new = echo(&hello.first) == repeated && hello.cookie != cookie;
        if is_new {
            (hello.cookie, self.tries) = (cookie, 0);
        }
        is_new
    }

    /// Notes the responder's versions. The note is no proof, so the attempt goes on.
    pub(super) fn handle_versions(&mut self, lowest: u8, highest: u8, repeated: [u8; 16]) -> bool {
        let AttemptStage::Hello(hello) = &self.stage else { return false };
        let is_answer = echo(&hello.first) == repeated;
        if is_answer {
            self.reason = Some(AttemptError::NoCommonVersion { lowest, highest });
        }
        is_answer
    }

    /// Handles the second message. `Ok(false)` if the attempt does not wait for one.
    ///
    /// # Errors
    /// The message is not of the expected peer, and the attempt goes on; or the local key does not sign.
    pub(super) fn handle_reply(
        &mut self,
        responder: Spi,
        second: &[u8],
        signer: &dyn Signer,
        packets_max: u64,
    ) -> Result<bool, HandshakeError> {
        let AttemptStage::Hello(hello) = &mut self.stage else { return Ok(false) };
        if hello.seconds >= SECONDS_MAX {
            return Ok(false);
        }
        hello.seconds += 1;
        let (initiator, _) = Initiator::begin_in_datagrams(self.expected, &mut hello.secret.replay())?;
        let knowing = initiator.read_second(second)?;
        let peer = knowing.node();
        if peer == signer.public() {
            // The own messages came back.
            return Err(HandshakeError::Signature { key: peer });
        }
        let (split, third) = knowing.introduce_in_datagrams(signer)?;
        let keys = PacketKeys::derive(&split, HandshakeRole::Initiator, self.spi, responder, packets_max)?;
        let channel = SealedChannel { own: self.spi, peer: responder, keys, address: self.address };
        let exchange = CredentialsExchange::new(self.credentials.clone());
        let introduced = IntroducedStage { peer, channel, exchange, third, is_heard: false, unanswered: 0 };
        self.stage = AttemptStage::Introduced(Box::new(introduced));
        self.tries = 0;
        Ok(true)
    }
}

impl HelloStage {
    fn new(
        expected: Option<PublicKey>,
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<Self, HandshakeError> {
        let secret = HelloSecret::new(random)?;
        let (_, first) = Initiator::begin_in_datagrams(expected, &mut secret.replay())?;
        Ok(Self { secret, first, cookie: [0; COOKIE_BYTES], seconds: 0 })
    }
}

impl IntroducedStage {
    /// Notes an authenticated answer of the responder.
    pub(super) fn note_answer(&mut self) {
        (self.is_heard, self.unanswered) = (true, 0);
    }

    /// Returns encrypted messages with the credentials that the responder does not have.
    pub(super) fn send_missing(&mut self) -> Vec<Transmit> {
        self.exchange.missing().iter().filter_map(|control| self.channel.seal(control)).collect()
    }
}

/// The randomness of one handshake: both X25519 secrets of its initiator.
struct HelloSecret(Zeroizing<[u8; 64]>);

impl HelloSecret {
    fn new(random: &mut (impl RngCore + CryptoRng)) -> Result<Self, HandshakeError> {
        let mut bytes = Zeroizing::new([0; 64]);
        let filled = random.try_fill_bytes(bytes.as_mut());
        filled.map_err(|_| HandshakeError::Library("there is no randomness"))?;
        Ok(Self(bytes))
    }

    /// Returns a source that gives these bytes once.
    fn replay(&self) -> ReplayedSecret<'_> {
        ReplayedSecret(self.0.as_slice())
    }
}

impl std::fmt::Debug for HelloSecret {
    /// Writes the name without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HelloSecret")
    }
}

/// A source of randomness that gives stored bytes, and then fails.
struct ReplayedSecret<'a>(&'a [u8]);

impl RngCore for ReplayedSecret<'_> {
    fn next_u32(&mut self) -> u32 {
        rand_core::impls::next_u32_via_fill(self)
    }

    fn next_u64(&mut self) -> u64 {
        rand_core::impls::next_u64_via_fill(self)
    }

    fn fill_bytes(&mut self, into: &mut [u8]) {
        // Handshakes use `try_fill_bytes`, which reports the end.
        _ = self.try_fill_bytes(into);
    }

    fn try_fill_bytes(&mut self, into: &mut [u8]) -> Result<(), rand_core::Error> {
        let (now, later) = self.0.split_at_checked(into.len()).ok_or_else(exhausted)?;
        into.copy_from_slice(now);
        self.0 = later;
        Ok(())
    }
}

impl CryptoRng for ReplayedSecret<'_> {}

fn exhausted() -> rand_core::Error {
    std::num::NonZeroU32::MIN.saturating_add(rand_core::Error::CUSTOM_START).into()
}
