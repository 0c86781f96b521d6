//! The time to deliver revocation lists to a node while peers without a credential hold connections to the node. A table
//! of the part `floods` of the benchmark.

use crate::floods::{EXPIRES, NODE_ADDRESS, Target, connect_from};
use crate::statistics::Sample;
use crate::table::Table;
use rand_core::OsRng;
use std::io::{self, Read};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_node::client::{Client, ClientError, NodeLocation};
use weir_node::control::protocol::{ControlRequest, Reply};
use weir_trust::credential::{DatedId, DelegationId};
use weir_trust::grant::UnixSecond;
use weir_trust::key::Identity;
use weir_trust::revocation::RevocationList;

/// Attacking threads, all from one address, with a new key for each connection.
const ATTACKERS: usize = 7;
/// The number of deliveries by each kind of peer.
const DELIVERIES: u16 = 25;
/// The promised limit of a delivery in seconds.
const TIME_MAX: f64 = 2.0;
/// The time after which a delivery counts as failed.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The address from which the relay connects to the node, other than that of the attackers.
const RELAY_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 9, 9);

/// The table of delivery times by a root's key, by a holder, and by a peer without a right.
pub(crate) fn table(target: &Target) -> io::Result<Table> {
    let is_over = AtomicBool::new(false);
    let attackers = AtomicUsize::new(0);
    let mut table =
        Table::new("deliveries | by | accepted | took, s: median | quartiles | longest | promised | kept");
    let relay = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let relayed = relay.local_addr()?;
    std::thread::spawn(move || relay_connections(&relay));
    std::thread::scope(|scope| {
        for _ in 0..ATTACKERS {
            scope.spawn(|| hold_connections(target, &is_over, &attackers));
        }
        let begin = Instant::now();
        while attackers.load(Ordering::Acquire) < ATTACKERS && begin.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(10));
        }
        let stranger = Identity::generate(&mut OsRng);
        let direct = SocketAddr::V4(NODE_ADDRESS);
        for (kind, (by, at, identity, credential)) in [
            ("the root's key, from the attackers' address", direct, &target.root, &[][..]),
            ("a credential, from the attackers' address", direct, &target.holder, &target.credential),
            ("no right, from another address", relayed, &stranger, &[][..]),
        ]
        .into_iter()
        .enumerate()
        {
            let mut sample = Sample::default();
            for count in 0..DELIVERIES {
                let number = u16::try_from(kind).unwrap_or_default() * DELIVERIES + count;
                let node = target.location_for(identity, credential, at);
                if let Some(took) = deliver(&target.root, number, &node) {
                    sample.push(took);
                }
            }
            let waits = sample.wait_cells(DELIVERIES.into(), TIME_MAX);
            table.row(format_args!("{DELIVERIES} | {by} | {waits}"));
        }
        is_over.store(true, Ordering::Release);
    });
    Ok(table)
}

/// An attacker: opens connections without a credential, and holds each for as long as possible. Increments `attackers`
/// at its first connection.
fn hold_connections(target: &Target, is_over: &AtomicBool, attackers: &AtomicUsize) {
    let mut count = 0;
    while !is_over.load(Ordering::Acquire) {
        let (key, within) = (Identity::generate(&mut OsRng), Duration::from_secs(5));
        if let Ok(mut stream) =
            weir_remote::connect(NODE_ADDRESS.into(), &key, Some(target.node), &[], within)
        {
            count += 1;
            if count == 1 {
                attackers.fetch_add(1, Ordering::AcqRel);
            }
            stream.set_deadline(Some(Instant::now() + Duration::from_secs(20)));
            _ = stream.read(&mut [0]);
        }
    }
}

/// Delivers a revocation list with one entry as `weir credential deliver` does. Returns the duration in seconds, or
/// `None` after the timeout.
fn deliver(root: &Identity, number: u16, node: &NodeLocation) -> Option<f64> {
    let mut seed = [0; 32];
    seed.split_at_mut(2).0.copy_from_slice(&number.to_be_bytes());
    let id = DelegationId::of_root(&Identity::from_seed(&seed).public());
    let entry = DatedId { id, expires: UnixSecond::new(EXPIRES) };
    let list = RevocationList::sign(root, u64::from(number) + 1, UnixSecond::default(), entry.into()).ok()?;
    let (begin, mut pause) = (Instant::now(), Duration::from_millis(200));
    while begin.elapsed() < TIMEOUT {
        if offer(&list, node).is_ok() {
            return Some(begin.elapsed().as_secs_f64());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_secs(5));
    }
    None
}

/// Sends a list once, if the node wants it after reading its header.
fn offer(list: &RevocationList, node: &NodeLocation) -> Result<(), ClientError> {
    let mut client = Client::connect_to(node)?;
    client.send(ControlRequest::Revoke, list.header().unwrap_or_default().as_bytes())?;
    match client.receive()? {
        Reply::Uploaded { .. } => {
            client.execute(ControlRequest::Revoke, list.to_string().as_bytes()).map(drop)
        }
        _ => Err(ClientError::Gone),
    }
}

/// Relays connections to the node, so that they come from [`RELAY_ADDRESS`].
fn relay_connections(relay: &TcpListener) {
    while let Ok((mut client, _)) = relay.accept() {
        let from = SocketAddrV4::new(RELAY_ADDRESS, 0);
        let Ok(mut node) = connect_from(from, NODE_ADDRESS) else { continue };
        let (Ok(mut back), Ok(mut to)) = (node.try_clone(), client.try_clone()) else { continue };
        std::thread::spawn(move || {
            _ = io::copy(&mut back, &mut to);
            _ = to.shutdown(Shutdown::Both);
        });
        std::thread::spawn(move || {
            _ = io::copy(&mut client, &mut node);
            _ = TcpStream::shutdown(&node, Shutdown::Write);
        });
    }
}
