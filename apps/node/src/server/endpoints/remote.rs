//! Serves remote connections, of holders of credentials and of the node's operators.
//!
//! The [`Acceptor`] performs the handshakes. A peer takes a client slot only after its credential was verified; until
//! then it occupies no more than its half-open handshake. A peer with an invalid credential is told the reason if a
//! small pool of connections has a free slot; otherwise its connection is closed without an answer.

use super::CLIENT_THREAD;
use super::connection::{CLIENT_TIMEOUT, Connection, PeerStream, RequestServer, send_refusal};
use super::delivery::{ANONYMOUS_MAX, ANONYMOUS_PER_SOURCE_MAX, ROOTS_MAX, ROOTS_PER_KEY_MAX};
use super::quota::PeerQuota;
use crate::control::access::{FloodLog, RefusalCause};
use crate::control::audit::PendingDecision;
use crate::control::authority::{RequestRefusal, Requester, delegation_chain};
use crate::log::warn;
use crate::server::trust::Trust;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_remote::{AcceptError, Acceptor, AuthenticatedPeer, KeyAgent, PendingPeer, SecureStream};
use weir_trust::association::Peer;
use weir_trust::credential::{Credential, CredentialRefusal, DelegationId, VerifiedCredential};
use weir_trust::gate::{GateLimits, PeerSource};
use weir_trust::grant::UnixSecond;
use weir_trust::key::PublicKey;

/// The maximum number of connected clients with a valid credential.
const CLIENTS_MAX: usize = 64;
/// The maximum number of connected clients with the same key.
const CLIENTS_PER_KEY_MAX: usize = 8;
/// The maximum number of connected clients of one party. A quarter of the slots is left for others.
const CLIENTS_PER_PARTY_MAX: usize = 48;
/// The maximum number of connections of the node's operators.
const OPERATORS_MAX: usize = 16;
/// The maximum number of peers with an invalid credential that are being sent a refusal.
const REFUSED_MAX: usize = 16;
/// The maximum number of refused peers from one source address.
const REFUSED_PER_SOURCE_MAX: usize = 2;
/// The maximum number of holders that are being told that all slots are taken.
const TURNED_AWAY_MAX: usize = 16;
/// The maximum number of holders with the same key that are being told that all slots are taken.
const TURNED_AWAY_PER_KEY_MAX: usize = 1;

/// The interval at which the counters of refused peers are checked for a log line.
const LOG_INTERVAL: Duration = Duration::from_millis(100);
/// The time for which a connection stays open after a refusal, so that the peer can read it.
const LINGER_TIME: Duration = Duration::from_secs(2);
/// The maximum number of bytes that are read from a peer without a valid credential during [`LINGER_TIME`].
const UNVERIFIED_BYTES_MAX: usize = 1 << 20;

/// The state that all remote connections share.
pub(super) struct RemoteServer {
    pub(super) key_agent: KeyAgent,
    pub(super) requests: Arc<RequestServer>,
    acceptor: Acceptor,
    /// Slots of holders, limited for each key.
    clients: PeerQuota<PublicKey>,
    /// Slots of holders, limited for each party: see [`delegation_chain`].
    by_party: PeerQuota<DelegationId>,
    /// Slots of holders that only receive the refusal that all slots are taken.
    turned_away: PeerQuota<PublicKey>,
    /// Slots of the node's operators.
    operators: PeerQuota<PublicKey>,
    /// Quotas for the operators' requests, apart from those of holders.
    operator_requests: Arc<RequestServer>,
    /// Slots of peers with a root's key and no credential.
    roots: PeerQuota<PublicKey>,
    /// Slots of peers that present no credential.
    anonymous: PeerQuota<PeerSource>,
    /// Slots of peers whose credential is invalid.
    refused: PeerQuota<PeerSource>,
}

impl RemoteServer {
    pub(super) fn new(key_agent: KeyAgent, requests: Arc<RequestServer>) -> Arc<Self> {
        let limits = GateLimits::default();
        let half_open = crate::sessions::descriptors::half_open_max(limits.half_open);
        let acceptor = Acceptor::new(GateLimits { half_open, ..limits });
        requests.daemon.access.set_acceptor(&acceptor);
        Arc::new(Self {
            key_agent,
            acceptor,
            clients: PeerQuota::new(CLIENTS_MAX, CLIENTS_PER_KEY_MAX),
            by_party: PeerQuota::new(CLIENTS_MAX, CLIENTS_PER_PARTY_MAX),
            turned_away: PeerQuota::new(TURNED_AWAY_MAX, TURNED_AWAY_PER_KEY_MAX),
            operators: PeerQuota::new(OPERATORS_MAX, OPERATORS_MAX),
            operator_requests: RequestServer::new(&requests.daemon, &requests.is_stopping),
            roots: PeerQuota::new(ROOTS_MAX, ROOTS_PER_KEY_MAX),
            anonymous: PeerQuota::new(ANONYMOUS_MAX, ANONYMOUS_PER_SOURCE_MAX),
            refused: PeerQuota::new(REFUSED_MAX, REFUSED_PER_SOURCE_MAX),
            requests,
        })
    }
}

/// Accepts connections until the node stops.
pub(super) fn accept(listener: TcpListener, server: &Arc<RemoteServer>) {
    let daemon = &server.requests.daemon;
    let mut log = FloodLog::new(Instant::now());
    let mut log_checked = Instant::now();
    let mut failed = 0;
    let report_counters = || {
        let now_failed = server.acceptor.counters().refused();
        if now_failed > failed {
            daemon.count_failed_handshakes(now_failed - failed);
            failed = now_failed;
        }
        let now = Instant::now();
        if now.saturating_duration_since(log_checked) < LOG_INTERVAL {
            return;
        }
        log_checked = now;
        if let Some(line) = daemon.access.status().and_then(|status| log.line(&status.refused, now)) {
            warn(&line);
        }
    };
    let is_stopping = &server.requests.is_stopping;
    let served = server.acceptor.serve(
        listener,
        &server.key_agent,
        is_stopping,
        |peer| spawn_server(peer, server),
        report_counters,
    );
    if let Err(error) = served {
        warn(&format_args!("the node accepts no remote connections any more: {error}"));
    }
}

fn spawn_server(peer: PendingPeer, server: &Arc<RemoteServer>) {
    let thread_server = Arc::clone(server);
    // The number of these threads is limited by the half-open handshakes and the slots of all quotas.
    let spawned = std::thread::Builder::new().name(CLIENT_THREAD.to_owned()).spawn(move || {
        thread_server.requests.daemon.bind_to_other_cores();
        // An I/O error affects only this peer.
        _ = serve(peer, &thread_server);
    });
    if spawned.is_err() {
        server.requests.daemon.access.refused(RefusalCause::Thread);
    }
}

/// The right of a connected peer.
enum PeerRight {
    /// The peer's key is that of an operator of the node.
    Operator,
    /// The peer has presented a valid credential.
    Holder(Arc<VerifiedCredential>),
    /// The peer has presented no credential, and its key is that of a root of trust.
    Root,
    /// The peer has presented no credential, and its key is not known.
    None,
    /// The peer has presented an invalid credential.
    Invalid(Box<PendingDecision>, RequestRefusal),
    /// The configuration allows no remote access any more.
    NoRemoteAccess,
}

fn serve(peer: PendingPeer, server: &RemoteServer) -> Result<(), AcceptError> {
    let peer = peer.authenticate()?;
    // The credential is verified while the peer still occupies its half-open handshake, and no client slot.
    match server.right_of(peer.peer()) {
        PeerRight::Operator => {
            peer.mark_proven();
            server.serve_operator(peer)
        }
        PeerRight::Holder(verified) => {
            peer.mark_proven();
            server.serve_holder(peer, verified)
        }
        PeerRight::Root => {
            peer.mark_proven();
            server.serve_root(peer)
        }
        PeerRight::None => server.serve_anonymous(peer),
        PeerRight::Invalid(decision, refusal) => {
            server.requests.daemon.record_decision(decision.refused(&refusal.to_string()));
            server.refuse_unverified(peer, &refusal)
        }
        PeerRight::NoRemoteAccess => {
            server.refuse_unverified(peer, &"this node allows no remote access any more")
        }
    }
}

impl RemoteServer {
    /// Verifies a peer's credential, and determines its right.
    fn right_of(&self, peer: &Peer) -> PeerRight {
        let daemon = &self.requests.daemon;
        if peer.credentials.is_empty() {
            return match peer.key {
                key if daemon.is_operator(&key) => PeerRight::Operator,
                key if daemon.is_root(&key) => PeerRight::Root,
                _ => PeerRight::None,
            };
        }
        let Some(trust) = daemon.trust() else { return PeerRight::NoRemoteAccess };
        let credential = Credential::parse(&peer.credentials);
        match verify(&trust, peer, credential.as_ref()) {
            Ok(verified) => PeerRight::Holder(Arc::new(verified)),
            Err(refusal) => {
                let decision = PendingDecision::of_stranger(&peer.key, "connect");
                let decision =
                    credential.as_ref().map_or(decision.clone(), |credential| decision.claiming(credential));
                PeerRight::Invalid(Box::new(decision), refusal)
            }
        }
    }

    fn serve_operator(&self, peer: AuthenticatedPeer) -> Result<(), AcceptError> {
        let (daemon, key) = (&self.requests.daemon, peer.peer().key);
        // All operators share these slots, without a limit for each key.
        let slot = self.operators.acquire(key);
        let mut stream = RemoteStream::accept(peer)?;
        let result = if slot.is_some() {
            daemon.record_decision(PendingDecision::of_operator(&key));
            let _connected = daemon.access.connected();
            Connection::new(&mut stream, Requester::Operator(Some(key)), &self.operator_requests).serve()
        } else {
            daemon.access.refused(RefusalCause::Slots);
            let why = format!("{OPERATORS_MAX} operators are connected, which is the maximum");
            daemon.record_decision(PendingDecision::of_operator(&key).refused(&why));
            send_refusal(&mut stream, &why)
        };
        stream.linger(result, usize::MAX);
        Ok(())
    }

    fn serve_holder(
        &self,
        peer: AuthenticatedPeer,
        verified: Arc<VerifiedCredential>,
    ) -> Result<(), AcceptError> {
        let (daemon, key) = (&self.requests.daemon, peer.peer().key);
        let party = delegation_chain(&verified).next().map_or(verified.id(), |(first, _)| first);
        let slot = self
            .by_party
            .acquire(party)
            .and_then(|party_permit| Some((party_permit, self.clients.acquire(key)?)));
        let Some(_slot) = slot else {
            daemon.access.refused(RefusalCause::Slots);
            let why = format!(
                "the node has {CLIENTS_MAX} clients connected, or {CLIENTS_PER_PARTY_MAX} under your root's grant, or {CLIENTS_PER_KEY_MAX} with your key, which is the maximum"
            );
            daemon.record_decision(PendingDecision::of_peer(&verified).refused(&why));
            let Some(_permit) = self.turned_away.acquire(key) else { return Ok(()) };
            let mut stream = RemoteStream::accept(peer)?;
            let result = send_refusal(&mut stream, &why);
            stream.linger(result, UNVERIFIED_BYTES_MAX);
            return Ok(());
        };
        let _connected = daemon.access.connected();
        let mut stream = RemoteStream::accept(peer)?;
        daemon.record_decision(PendingDecision::of_peer(&verified));
        let result = Connection::new(&mut stream, Requester::Holder(verified), &self.requests).serve();
        stream.linger(result, usize::MAX);
        Ok(())
    }

    /// Serves a peer with a root's key, which delivers revocation lists and reads the root's revocations.
    fn serve_root(&self, peer: AuthenticatedPeer) -> Result<(), AcceptError> {
        let key = peer.peer().key;
        let Some(_permit) = self.roots.acquire(key) else {
            self.requests.daemon.access.refused(RefusalCause::Slots);
            return Ok(());
        };
        let mut stream = RemoteStream::accept(peer)?;
        let result = super::delivery::serve_root(&mut stream, &key, &self.requests);
        stream.linger(result, UNVERIFIED_BYTES_MAX);
        Ok(())
    }

    /// Serves a peer without a credential, which can only deliver a revocation list. The peer takes no client slot.
    fn serve_anonymous(&self, peer: AuthenticatedPeer) -> Result<(), AcceptError> {
        let Some(_permit) = self.anonymous.acquire(peer.source()) else {
            self.requests.daemon.access.refused(RefusalCause::Anonymous);
            return Ok(());
        };
        let key = peer.peer().key;
        let mut stream = RemoteStream::accept(peer)?;
        let result = super::delivery::serve_anonymous(&mut stream, &key, &self.requests);
        stream.linger(result, UNVERIFIED_BYTES_MAX);
        Ok(())
    }

    /// Sends the reason to a peer whose credential is invalid, if a slot is free; otherwise closes the connection.
    fn refuse_unverified(&self, peer: AuthenticatedPeer, why: &dyn Display) -> Result<(), AcceptError> {
        let access = &self.requests.daemon.access;
        let Some(_permit) = self.refused.acquire(peer.source()) else {
            access.refused(RefusalCause::CredentialNoReply);
            return Ok(());
        };
        access.refused(RefusalCause::Credential);
        let mut stream = RemoteStream::accept(peer)?;
        let result = send_refusal(&mut stream, why);
        stream.linger(result, UNVERIFIED_BYTES_MAX);
        Ok(())
    }
}

fn verify(
    trust: &Trust,
    peer: &Peer,
    credential: Result<&Credential, &CredentialRefusal>,
) -> Result<VerifiedCredential, RequestRefusal> {
    let credential = credential.map_err(Clone::clone)?;
    Ok(trust.verify(credential, &peer.key, UnixSecond::containing(weir_datapath::clock::wall_clock()))?)
}

/// The encrypted stream of a remote peer.
#[derive(Debug)]
struct RemoteStream {
    stream: SecureStream,
    deadline: Instant,
}

impl RemoteStream {
    /// Completes the handshake. The node presents no credential of its own.
    fn accept(peer: AuthenticatedPeer) -> Result<Self, AcceptError> {
        Ok(Self { stream: peer.accept(&[])?, deadline: Instant::now() + CLIENT_TIMEOUT })
    }

    /// Reads on for [`LINGER_TIME`], since closing a connection with unread bytes would discard the last answer. Does
    /// nothing if `result` is an I/O error: the connection is then closed at once.
    fn linger(&mut self, result: io::Result<()>, bytes_max: usize) {
        if result.is_err() {
            return;
        }
        self.deadline = Instant::now() + LINGER_TIME;
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

impl PeerStream for &mut RemoteStream {
    fn set_read_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    fn is_closed_by_peer(&mut self) -> bool {
        self.stream.set_deadline(Some(Instant::now() + Duration::from_millis(1)));
        match self.stream.read(&mut [0]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() != io::ErrorKind::TimedOut,
        }
    }
}

impl Read for RemoteStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_deadline(Some(self.deadline));
        self.stream.read(bytes)
    }
}

impl Write for RemoteStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_deadline(Some(Instant::now() + CLIENT_TIMEOUT));
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
