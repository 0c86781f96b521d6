//! Where others reach the node over a network: holders of credentials, who are let in when they have proven to be that.
//!
//! Strangers are held off by [`Door`]; whoever is let in is told why a request is refused. Before that nobody is told anything.

use super::CLIENT;
use super::conversation::{Conversation, Line, Office, PATIENCE, refuse};
use super::delivery::{VISITORS_MAX, VISITORS_OF_ONE_MAX};
use super::room::Seats;
use crate::audit::Asked;
use crate::authority::{Asker, Refusal};
use crate::log::warn;
use crate::trust::Trust;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_remote::{Door, Keeper, MeetError, Stream, Visitor};
use weir_trust::association::Peer;
use weir_trust::credential::{Credential, Refusal as Worthless, Verified};
use weir_trust::gate::Limits;
use weir_trust::grant::Second;

/// Clients at a time, at most,
const CLIENTS_MAX: usize = 64;
/// and of those with one key.
const CLIENTS_OF_ONE_MAX: usize = 8;

/// Connections of the node's operators at a time, at most.
const OPERATORS_MAX: usize = 16;

/// How long who is turned away can take to hear why.
const LETTING_GO: Duration = Duration::from_secs(2);

/// What all that come from elsewhere have in common.
pub(super) struct Gatehouse {
    pub(super) keeper: Keeper,
    pub(super) office: Arc<Office>,
    door: Arc<Door>,
    seats: Seats,
    /// For the node's operators, with rooms of their own,
    operators: Seats,
    operators_office: Arc<Office>,
    /// and for those who have no credential.
    visitors: Seats,
}

impl Gatehouse {
    pub(super) fn new(keeper: Keeper, office: Arc<Office>) -> Arc<Self> {
        let seats = Seats::new(CLIENTS_MAX, CLIENTS_OF_ONE_MAX);
        let visitors = Seats::new(VISITORS_MAX, VISITORS_OF_ONE_MAX);
        let operators = Seats::new(OPERATORS_MAX, OPERATORS_MAX);
        let door = Arc::new(Door::new(Limits::default()));
        let operators_office = Office::new(&office.daemon, &office.is_over);
        Arc::new(Self { keeper, office, door, seats, operators, operators_office, visitors })
    }
}

/// Answers who connects, until the node stops.
pub(super) fn accept(listener: &TcpListener, house: &Arc<Gatehouse>) {
    loop {
        let accepted = listener.accept();
        if house.office.is_over() {
            return;
        }
        let Ok((stream, from)) = accepted else {
            // No descriptor is free. It may be different soon.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        if let Err(error) = begin(stream, from, house) {
            warn(&format_args!("a client cannot be answered: {error}"));
        }
    }
}

fn begin(stream: TcpStream, from: SocketAddr, house: &Arc<Gatehouse>) -> io::Result<()> {
    // One that is gone already is nobody's business.
    let Ok(visitor) = house.door.knock(stream, from) else { return Ok(()) };
    let house = Arc::clone(house);
    // There are as many of these threads as handshakes can be half open, and as clients are let in.
    std::thread::Builder::new().name(CLIENT.to_owned()).spawn(move || {
        house.office.daemon.work_beside_modules();
        // What a client does to its connection is its own business.
        _ = receive(visitor, &house);
    })?;
    Ok(())
}

fn receive(visitor: Visitor, house: &Gatehouse) -> Result<(), MeetError> {
    let daemon = &house.office.daemon;
    let guest = visitor.meet(&house.keeper).inspect_err(|_| daemon.handshake_failed())?;
    let peer = guest.peer().clone();
    if peer.credentials.is_empty() && daemon.is_operator(&peer.key) {
        // Others may have all seats; he looks after that.
        let seat = house.operators.take(peer.key);
        let mut line = Remote { stream: guest.accept(&[])?, until: Instant::now() + PATIENCE };
        let answered = if seat.is_some() {
            daemon.decided(Asked::of_operator(&peer.key));
            Conversation::new(&mut line, Asker::Operator(Some(peer.key)), &house.operators_office).serve()
        } else {
            let why = format!("{OPERATORS_MAX} operators are connected; that is the most");
            daemon.decided(Asked::of_operator(&peer.key).refused(&why));
            refuse(&mut line, &why)
        };
        if answered.is_ok() {
            line.let_go();
        }
        return Ok(());
    }
    if peer.credentials.is_empty() {
        // Who has none keeps nobody out who has one.
        let Some(_seat) = house.visitors.take(peer.key) else { return Ok(()) };
        let mut line = Remote { stream: guest.accept(&[])?, until: Instant::now() + PATIENCE };
        if super::delivery::receive(&mut line, &peer.key, &house.office).is_ok() {
            line.let_go();
        }
        return Ok(());
    }
    let seat = house.seats.take(peer.key);
    // The node has no credentials of its own to show.
    let stream = guest.accept(&[])?;
    let credential = Credential::parse(&peer.credentials);
    let verified = house.office.daemon.trust().map(|trust| verify(&trust, &peer, credential.as_ref()));
    let mut line = Remote { stream, until: Instant::now() + PATIENCE };
    let answered = match (verified, &seat) {
        (Some(Ok(verified)), Some(_)) => {
            daemon.decided(Asked::of_guest(&verified));
            Conversation::new(&mut line, Asker::Holder(Arc::new(verified)), &house.office).serve()
        }
        (Some(Err(refusal)), _) => {
            let asked = Asked::of_stranger(&peer.key, "connect");
            let asked = credential.as_ref().map_or(asked.clone(), |credential| asked.claiming(credential));
            daemon.decided(asked.refused(&refusal.to_string()));
            refuse(&mut line, &refusal)
        }
        (_, None) => {
            let why = format!(
                "{CLIENTS_MAX} clients are connected, or {CLIENTS_OF_ONE_MAX} with your key; that is the most"
            );
            daemon.decided(Asked::of_stranger(&peer.key, "connect").refused(&why));
            refuse(&mut line, &why)
        }
        (None, _) => refuse(&mut line, &"nobody is let in here any more"),
    };
    // A connection that breaks has nobody to be told about it.
    if answered.is_ok() {
        line.let_go();
    }
    drop(seat);
    Ok(())
}

fn verify(
    trust: &Trust,
    peer: &Peer,
    credential: Result<&Credential, &Worthless>,
) -> Result<Verified, Refusal> {
    let credential = credential.map_err(Clone::clone)?;
    Ok(trust.verify(credential, &peer.key, Second::of(crate::runner::wall_clock()))?)
}

/// A client elsewhere.
#[derive(Debug)]
struct Remote {
    stream: Stream,
    until: Instant,
}

impl Remote {
    /// Takes what is still under way, for a moment: a connection that is closed over it would take with it what was said last.
    fn let_go(&mut self) {
        self.until = Instant::now() + LETTING_GO;
        if self.stream.finish().is_ok() {
            while self.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {}
        }
    }
}

impl Line for &mut Remote {
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
