//! The server for peers from elsewhere: holders of credentials, and the node's operators.
//!
//! The [`Acceptor`] makes handshakes. A peer gets a client slot after its credential was verified, and not before: until then it has no more than
//! its half-open handshake. Peers whose credential is not valid are told why, as far as there is a place in a small pool, and closed otherwise.

use super::CLIENT;
use super::conversation::{Conversation, PATIENCE, PeerStream, RequestServer, refuse};
use super::delivery::{ROOTS_MAX, ROOTS_OF_ONE_MAX, VISITORS_MAX, VISITORS_OF_ONE_MAX};
use super::room::PeerQuota;
use crate::control::access::{Cause, FloodLog};
use crate::control::audit::PendingDecision;
use crate::control::authority::{Asker, RequestRefusal, line};
use crate::server::log::warn;
use crate::server::trust::Trust;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_remote::{AcceptError, Acceptor, AuthenticatedPeer, KeyAgent, PendingPeer, SecureStream};
use weir_trust::association::Peer;
use weir_trust::credential::{Credential, CredentialRefusal as Worthless, PrefixId, VerifiedCredential};
use weir_trust::gate::{GateLimits, PeerSource};
use weir_trust::grant::Second;
use weir_trust::key::PublicKey;

/// Clients with a valid credential at a time, at most.
const CLIENTS_MAX: usize = 64;
/// Clients with one key at a time, at most.
const CLIENTS_OF_ONE_MAX: usize = 8;
/// Clients at a time, at most, under one grant of a root. A quarter of the slots is left for others.
const CLIENTS_OF_PARTY_MAX: usize = 48;
/// Connections of the node's operators at a time, at most.
const OPERATORS_MAX: usize = 16;
/// Peers without a valid credential that are told so at a time, at most.
const REFUSED_MAX: usize = 16;
/// Such peers from one source at a time, at most.
const REFUSED_OF_ONE_MAX: usize = 2;
/// Holders that are told at a time that all slots are taken, at most.
const CROWDED_MAX: usize = 16;
/// Such holders with one key at a time, at most.
const CROWDED_OF_ONE_MAX: usize = 1;

/// The time between two looks at the counters of refused peers, for the log: events come in rounds of milliseconds.
const LOOK: Duration = Duration::from_millis(100);
/// The time in which a peer that is refused can read why.
const LETTING_GO: Duration = Duration::from_secs(2);
/// The bytes that such a peer can send meanwhile, if it has no valid credential.
const UNVERIFIED_BYTES_MAX: usize = 1 << 20;

/// The state that all connections from elsewhere share.
pub(super) struct RemoteServer {
    pub(super) keeper: KeyAgent,
    pub(super) office: Arc<RequestServer>,
    acceptor: Acceptor,
    clients: PeerQuota<PublicKey>,
    /// The same, by the first grant of their chains.
    parties: PeerQuota<PrefixId>,
    /// Places for holders that find no slot.
    crowded: PeerQuota<PublicKey>,
    /// Places for the node's operators.
    operators: PeerQuota<PublicKey>,
    /// The operators' own quotas.
    operators_office: Arc<RequestServer>,
    /// Places for peers with a root's key and no credential.
    roots: PeerQuota<PublicKey>,
    /// Places for peers that show no credential.
    anonymous: PeerQuota<PeerSource>,
    /// Places for peers whose credential is not valid.
    refused: PeerQuota<PeerSource>,
}

impl RemoteServer {
    pub(super) fn new(keeper: KeyAgent, office: Arc<RequestServer>) -> Arc<Self> {
        let limits = GateLimits::default();
        let half_open = crate::server::descriptors::half_open(limits.half_open);
        let acceptor = Acceptor::new(GateLimits { half_open, ..limits });
        office.daemon.access.begin(&acceptor);
        Arc::new(Self {
            keeper,
            acceptor,
            clients: PeerQuota::new(CLIENTS_MAX, CLIENTS_OF_ONE_MAX),
            parties: PeerQuota::new(CLIENTS_MAX, CLIENTS_OF_PARTY_MAX),
            crowded: PeerQuota::new(CROWDED_MAX, CROWDED_OF_ONE_MAX),
            operators: PeerQuota::new(OPERATORS_MAX, OPERATORS_MAX),
            operators_office: RequestServer::new(&office.daemon, &office.is_over),
            roots: PeerQuota::new(ROOTS_MAX, ROOTS_OF_ONE_MAX),
            anonymous: PeerQuota::new(VISITORS_MAX, VISITORS_OF_ONE_MAX),
            refused: PeerQuota::new(REFUSED_MAX, REFUSED_OF_ONE_MAX),
            office,
        })
    }
}

/// Accepts connections until the node stops.
pub(super) fn accept(listener: TcpListener, server: &Arc<RemoteServer>) {
    let daemon = &server.office.daemon;
    let mut log = FloodLog::new(Instant::now());
    let mut looked = Instant::now();
    let mut failed = 0;
    let count = || {
        let now_failed = server.acceptor.counters().refused();
        if now_failed > failed {
            daemon.handshakes_failed(now_failed - failed);
            failed = now_failed;
        }
        let now = Instant::now();
        if now.saturating_duration_since(looked) < LOOK {
            return;
        }
        looked = now;
        if let Some(line) = daemon.access.shot().and_then(|shot| log.line(&shot.refused, now)) {
            warn(&line);
        }
    };
    let is_over = &server.office.is_over;
    let served = server.acceptor.serve(listener, &server.keeper, is_over, |peer| begin(peer, server), count);
    if let Err(error) = served {
        warn(&format_args!("nothing is accepted from elsewhere any more: {error}"));
    }
}

fn begin(peer: PendingPeer, server: &Arc<RemoteServer>) {
    let theirs = Arc::clone(server);
    // There are as many of these threads as handshakes can be half open, and as places for clients and refused peers.
    let spawned = std::thread::Builder::new().name(CLIENT.to_owned()).spawn(move || {
        theirs.office.daemon.work_beside_modules();
        // A peer does what it likes with its connection.
        _ = serve(peer, &theirs);
    });
    if spawned.is_err() {
        server.office.daemon.access.refused(Cause::Thread);
    }
}

/// The right by which a peer is here.
enum Right {
    /// Its key is one of the node's operators'.
    Operator,
    /// It has shown a valid credential.
    Holder(Arc<VerifiedCredential>),
    /// It has shown no credential, and its key is that of a root of trust.
    Root,
    /// It has shown no credential.
    None,
    /// The credential that it has shown is not valid.
    Invalid(Box<PendingDecision>, RequestRefusal),
    /// The node does not let anyone in any more.
    Closed,
}

fn serve(peer: PendingPeer, server: &RemoteServer) -> Result<(), AcceptError> {
    let peer = peer.authenticate()?;
    // The credential is verified in the half-open handshake's own place, which no other peer can take.
    match server.right_of(peer.peer()) {
        Right::Operator => {
            peer.is_proven();
            server.serve_operator(peer)
        }
        Right::Holder(verified) => {
            peer.is_proven();
            server.serve_holder(peer, verified)
        }
        Right::Root => {
            peer.is_proven();
            server.serve_root(peer)
        }
        Right::None => server.serve_anonymous(peer),
        Right::Invalid(asked, refusal) => {
            server.office.daemon.decided(asked.refused(&refusal.to_string()));
            server.refuse_unverified(peer, &refusal)
        }
        Right::Closed => server.refuse_unverified(peer, &"this node lets no one in any more"),
    }
}

impl RemoteServer {
    /// Verifies what a peer has shown.
    fn right_of(&self, peer: &Peer) -> Right {
        let daemon = &self.office.daemon;
        if peer.credentials.is_empty() {
            return match peer.key {
                key if daemon.is_operator(&key) => Right::Operator,
                key if daemon.is_root(&key) => Right::Root,
                _ => Right::None,
            };
        }
        let Some(trust) = daemon.trust() else { return Right::Closed };
        let credential = Credential::parse(&peer.credentials);
        match verify(&trust, peer, credential.as_ref()) {
            Ok(verified) => Right::Holder(Arc::new(verified)),
            Err(refusal) => {
                let asked = PendingDecision::of_stranger(&peer.key, "connect");
                let asked =
                    credential.as_ref().map_or(asked.clone(), |credential| asked.claiming(credential));
                Right::Invalid(Box::new(asked), refusal)
            }
        }
    }

    fn serve_operator(&self, peer: AuthenticatedPeer) -> Result<(), AcceptError> {
        let (daemon, key) = (&self.office.daemon, peer.peer().key);
        // Operators share these slots, and look after them themselves.
        let slot = self.operators.take(key);
        let mut line = Remote::accept(peer)?;
        let answered = if slot.is_some() {
            daemon.decided(PendingDecision::of_operator(&key));
            let _connected = daemon.access.connected();
            Conversation::new(&mut line, Asker::Operator(Some(key)), &self.operators_office).serve()
        } else {
            daemon.access.refused(Cause::Slots);
            let why = format!("{OPERATORS_MAX} operators are connected; that is the most");
            daemon.decided(PendingDecision::of_operator(&key).refused(&why));
            refuse(&mut line, &why)
        };
        line.let_go(answered, usize::MAX);
        Ok(())
    }

    fn serve_holder(
        &self,
        peer: AuthenticatedPeer,
        verified: Arc<VerifiedCredential>,
    ) -> Result<(), AcceptError> {
        let (daemon, key) = (&self.office.daemon, peer.peer().key);
        let party = line(&verified).next().map_or(verified.id(), |(first, _)| first);
        let slot = self.parties.take(party).and_then(|of_party| Some((of_party, self.clients.take(key)?)));
        let Some(_slot) = slot else {
            daemon.access.refused(Cause::Slots);
            let why = format!(
                "{CLIENTS_MAX} clients are connected, or {CLIENTS_OF_PARTY_MAX} that have their right from the same grant, or {CLIENTS_OF_ONE_MAX} with your key; that is the most"
            );
            daemon.decided(PendingDecision::of_guest(&verified).refused(&why));
            let Some(_place) = self.crowded.take(key) else { return Ok(()) };
            let mut line = Remote::accept(peer)?;
            let answered = refuse(&mut line, &why);
            line.let_go(answered, UNVERIFIED_BYTES_MAX);
            return Ok(());
        };
        let _connected = daemon.access.connected();
        let mut line = Remote::accept(peer)?;
        daemon.decided(PendingDecision::of_guest(&verified));
        let answered = Conversation::new(&mut line, Asker::Holder(verified), &self.office).serve();
        line.let_go(answered, usize::MAX);
        Ok(())
    }

    /// A peer with a root's key delivers revocation lists, and sees what is revoked.
    fn serve_root(&self, peer: AuthenticatedPeer) -> Result<(), AcceptError> {
        let key = peer.peer().key;
        let Some(_place) = self.roots.take(key) else {
            self.office.daemon.access.refused(Cause::Slots);
            return Ok(());
        };
        let mut line = Remote::accept(peer)?;
        let answered = super::delivery::serve_root(&mut line, &key, &self.office);
        line.let_go(answered, UNVERIFIED_BYTES_MAX);
        Ok(())
    }

    /// A peer without a credential can deliver a revocation list. It takes no place from a peer that has one.
    fn serve_anonymous(&self, peer: AuthenticatedPeer) -> Result<(), AcceptError> {
        let Some(_place) = self.anonymous.take(peer.source()) else {
            self.office.daemon.access.refused(Cause::Anonymous);
            return Ok(());
        };
        let key = peer.peer().key;
        let mut line = Remote::accept(peer)?;
        let answered = super::delivery::receive(&mut line, &key, &self.office);
        line.let_go(answered, UNVERIFIED_BYTES_MAX);
        Ok(())
    }

    /// Tells a peer without a valid credential why it is refused, where the pool of such peers has a place.
    fn refuse_unverified(&self, peer: AuthenticatedPeer, why: &dyn Display) -> Result<(), AcceptError> {
        let access = &self.office.daemon.access;
        let Some(_place) = self.refused.take(peer.source()) else {
            access.refused(Cause::Unheard);
            return Ok(());
        };
        access.refused(Cause::Credential);
        let mut line = Remote::accept(peer)?;
        let answered = refuse(&mut line, why);
        line.let_go(answered, UNVERIFIED_BYTES_MAX);
        Ok(())
    }
}

fn verify(
    trust: &Trust,
    peer: &Peer,
    credential: Result<&Credential, &Worthless>,
) -> Result<VerifiedCredential, RequestRefusal> {
    let credential = credential.map_err(Clone::clone)?;
    Ok(trust.verify(credential, &peer.key, Second::of(weir_datapath::moment::wall_clock()))?)
}

/// A client elsewhere.
#[derive(Debug)]
struct Remote {
    stream: SecureStream,
    until: Instant,
}

impl Remote {
    /// Lets a peer in. The node has no credentials of its own to show.
    fn accept(peer: AuthenticatedPeer) -> Result<Self, AcceptError> {
        Ok(Self { stream: peer.accept(&[])?, until: Instant::now() + PATIENCE })
    }

    /// Reads on for a moment: closing a connection with unread bytes would discard the last answer. A connection that broke is closed at once.
    fn let_go(&mut self, answered: io::Result<()>, bytes_max: usize) {
        if answered.is_err() {
            return;
        }
        self.until = Instant::now() + LETTING_GO;
        let mut left = bytes_max;
        if self.stream.finish().is_ok() {
            while let Ok(len @ 1..) = self.read(&mut [0; 4096])
                && len <= left
            {
                left -= len;
            }
        }
    }
}

impl PeerStream for &mut Remote {
    fn be_patient_until(&mut self, then: Instant) {
        self.until = then;
    }

    fn is_gone(&mut self) -> bool {
        self.stream.set_deadline(Some(Instant::now() + Duration::from_millis(1)));
        match self.stream.read(&mut [0]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() != io::ErrorKind::TimedOut,
        }
    }
}

impl Read for Remote {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_deadline(Some(self.until));
        self.stream.read(bytes)
    }
}

impl Write for Remote {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_deadline(Some(Instant::now() + PATIENCE));
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
