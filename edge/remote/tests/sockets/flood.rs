//! A thousand first messages a second from two hundred sources, against an acceptor with its default limits.

use crate::node::{CREDENTIALS, PATIENCE, client, connect_from, identity};
use rand_core::OsRng;
use std::collections::VecDeque;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_remote::{Acceptor, PendingPeer};
use weir_trust::association::{Initiator, frame};
use weir_trust::gate::GateLimits;

const FLOOD: u32 = 4000;

/// Ends the acceptor's thread, also if the test fails.
struct Stop<'a>(&'a AtomicBool, TcpStream);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        _ = self.1.shutdown(Shutdown::Both);
    }
}

#[test]
fn a_flood_gets_a_fixed_number_of_answers_and_only_third_messages_take_a_thread() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let shuts = TcpStream::from(OwnedFd::from(listener.try_clone().unwrap()));
    let (acceptor, is_over, threads) =
        (Acceptor::new(GateLimits::default()), AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _stop = Stop(&is_over, shuts);
        scope.spawn(|| {
            let serve = |peer: PendingPeer| {
                threads.fetch_add(1, Ordering::AcqRel);
                std::thread::spawn(move || {
                    let peer = peer.authenticate().unwrap();
                    assert_eq!(peer.peer().credentials, CREDENTIALS);
                    peer.mark_proven();
                    // It may have been evicted meanwhile.
                    _ = peer.accept(b"");
                });
            };
            acceptor.serve(listener, &identity(), &is_over, serve, || {}).unwrap();
        });
        let began = Instant::now();
        let flood = scope.spawn(|| {
            let first = frame::framed(&Initiator::begin(None, &mut OsRng).unwrap().1).unwrap();
            let (mut open, begin) = (VecDeque::new(), Instant::now());
            for number in 0..FLOOD {
                let [.., network] = (number % 200).to_be_bytes();
                let mut stream = connect_from(IpAddr::V4(Ipv4Addr::new(127, 7, network, 1)), address);
                // It may have been closed already.
                _ = stream.write_all(&first);
                open.push_back(stream);
                if open.len() > 300 {
                    open.pop_front();
                }
                std::thread::sleep((Duration::from_millis(1) * number).saturating_sub(begin.elapsed()));
            }
        });
        // A peer that is closed tries again, as clients do.
        let mut tries = 0;
        for _ in 0..6 {
            std::thread::sleep(Duration::from_millis(300));
            let connected = std::iter::repeat_with(|| {
                tries += 1;
                weir_remote::connect(address, &client(), Some(identity().public()), CREDENTIALS, PATIENCE)
            });
            let mut connected = connected.take(20);
            assert!(connected.any(|stream| stream.is_ok()), "after {tries} tries: {:?}", acceptor.counters());
        }
        flood.join().unwrap();
        // The last ones may wait to be accepted.
        while acceptor.counters().gate.admitted < u64::from(FLOOD) {
            assert!(began.elapsed() < PATIENCE, "{:?}", acceptor.counters());
            std::thread::sleep(Duration::from_millis(10));
        }
        let (counters, elapsed) = (acceptor.counters(), began.elapsed());
        let most = 250 + 50 * (elapsed.as_secs() + 1) + 2 * tries;
        assert!(counters.gate.answered <= most, "{elapsed:?}: {counters:?}");
        assert!(counters.gate.unanswered > 0, "{counters:?}");
        // A peer that was evicted at the very end has come again.
        assert!((6..=tries).contains(&counters.authenticated), "{tries} tries: {counters:?}");
        assert!((6..=tries).contains(&(threads.load(Ordering::Acquire) as u64)));
    });
    assert_eq!(acceptor.counters().invalid, 0);
}
