//! The rate of packets and its CPU time: measurements, not requirements.
//! `cargo test --release -p weir-netio --test live -- --ignored --nocapture rates`

use crate::net;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_netio::{LiveOptions, LivePoll, LiveSink, LiveSource, SocketKind};
use weir_units::Nanos;

/// The CPU time of this thread.
fn used() -> Duration {
    // SAFETY: zeros are a valid time, and the kernel writes into it.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
#[ignore = "it measures for some seconds"]
fn rates() {
    for (out, into) in [
        (SocketKind::Packet, SocketKind::Packet),
        (SocketKind::Packet, SocketKind::Xdp),
        (SocketKind::Xdp, SocketKind::Packet),
        (SocketKind::Xdp, SocketKind::Xdp),
    ] {
        for (len, wait) in [(64, 20), (1514, 20), (64, 0)] {
            if !net::create_veth_pair() {
                return;
            }
            let mut live =
                LiveSource::open("b", LiveOptions { kind: into, ..LiveOptions::default() }).unwrap();
            let mut sink = LiveSink::open("a", out).unwrap();
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let sender = scope.spawn(|| {
                    let frame = crate::frames::ethernet(0x0800, &crate::frames::ipv4(1, len - 42, None));
                    let frames = [&frame[..]; 64];
                    while !stop.load(Ordering::Relaxed) {
                        sink.send(&frames);
                    }
                    sink.totals().packets
                });
                let (begin, before) = (Instant::now(), used());
                while begin.elapsed() < Duration::from_secs(1) {
                    if let LivePoll::Block(block) = live.next_block(Nanos(wait * 1_000_000)).unwrap() {
                        std::hint::black_box(&block);
                    }
                }
                let (elapsed, used) = (begin.elapsed(), used() - before);
                stop.store(true, Ordering::Relaxed);
                let sent = sender.join().unwrap();
                let totals = live.totals();
                let packets = totals.received.packets;
                println!(
                    "{out:?} -> {into:?}, {len} B, wait {wait} ms: {:.0} packets/s received of {:.0} sent, {} dropped by the socket, {:.0} ns of this thread a packet",
                    packets as f64 / elapsed.as_secs_f64(),
                    sent as f64 / elapsed.as_secs_f64(),
                    totals.drops.packets(),
                    used.as_nanos() as f64 / packets as f64,
                );
            });
        }
    }
}
