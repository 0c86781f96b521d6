//! Opening interfaces, and the errors if that is not possible.

use crate::net;
use crate::receiving::open;
use weir_netio::{LiveOptions, LiveSink, LiveSource, QueueSet, SocketKind};
use weir_units::Bytes;

fn sent<T: Send>() {}

#[test]
fn sources_and_sinks_can_cross_threads() {
    sent::<LiveSource>();
    sent::<LiveSink>();
}

fn refused(interface: &str, kind: SocketKind) -> String {
    LiveSource::open(interface, LiveOptions { kind, ring: Bytes(1 << 20), ..LiveOptions::default() })
        .unwrap_err()
        .to_string()
}

#[test]
fn an_error_for_an_unknown_name_lists_the_existing_interfaces() {
    if !net::create_veth_pair() {
        return;
    }
    for kind in [SocketKind::Auto, SocketKind::Packet, SocketKind::Xdp] {
        let message = refused("eth9\n", kind);
        assert_eq!(message, "there is no interface `eth9\\n`; the interfaces are: lo, b, a");
    }
    assert!(
        LiveSink::open("eth9", SocketKind::Packet)
            .unwrap_err()
            .to_string()
            .contains("the interfaces are: lo")
    );
}

#[test]
fn an_error_names_a_queue_that_is_in_use_or_does_not_exist() {
    if !net::create_veth_pair() {
        return;
    }
    let first = open("b", SocketKind::Xdp);
    let message = refused("b", SocketKind::Xdp);
    assert!(
        message.starts_with("b: using a queue for AF_XDP is not possible, because another socket"),
        "{message}"
    );
    drop(first);
    drop(open("b", SocketKind::Xdp));
    let options = LiveOptions {
        kind: SocketKind::Xdp,
        queues: QueueSet::of([63]),
        ring: Bytes(1 << 20),
        ..LiveOptions::default()
    };
    let message = LiveSource::open("b", options).unwrap_err().to_string();
    assert!(message.contains("ethtool -l"), "{message}");
    let options = LiveOptions { queues: None, zero_copy: true, ..options };
    let message = LiveSource::open("b", options).unwrap_err().to_string();
    assert!(message.contains("zero copy") && message.contains("leave zero copy out"), "{message}");
}

#[test]
fn hardware_time_stamps_are_refused_if_the_card_has_none() {
    if !net::create_veth_pair() {
        return;
    }
    let options = LiveOptions { hardware_time: true, ring: Bytes(1 << 20), ..LiveOptions::default() };
    let message = LiveSource::open("b", options).unwrap_err().to_string();
    assert!(message.contains("use the kernel's time stamps"), "{message}");
}

#[test]
fn an_error_names_the_missing_capability() {
    if !net::create_veth_pair() {
        return;
    }
    // SAFETY: only integers are passed. Only this thread's capabilities are dropped, by changing its user.
    let done = unsafe { libc::syscall(libc::SYS_setresuid, -1, 65534, -1) };
    assert_eq!(done, 0);
    for (kind, capability) in [
        (SocketKind::Packet, "cap_net_raw"),
        (SocketKind::Xdp, "cap_net_raw"),
        (SocketKind::Tap, "cap_net_admin"),
    ] {
        let message = refused(if kind == SocketKind::Tap { "tap9" } else { "b" }, kind);
        assert!(message.contains(capability) && message.contains("setcap"), "{message}");
    }
}

fn count_open(resource: &str) -> usize {
    match resource {
        "fds" => std::fs::read_dir("/proc/self/fd").unwrap().count(),
        _ => std::fs::read_to_string("/proc/self/maps").unwrap().lines().count(),
    }
}

fn opened_and_closed(interface: &str, kind: SocketKind, times: usize) {
    let options = LiveOptions { kind, ring: Bytes(256 << 10), ..LiveOptions::default() };
    (0..times).for_each(|_| drop(LiveSource::open(interface, options).unwrap()));
}

#[test]
fn opening_and_closing_many_sources_leaks_nothing() {
    if !net::create_veth_pair() {
        return;
    }
    // Resources that are created only once for the process are created here.
    opened_and_closed("b", SocketKind::Packet, 1);
    opened_and_closed("b", SocketKind::Xdp, 1);
    let before = ["fds", "maps"].map(count_open);
    // Opening waits for all CPUs in the kernel, so several threads are faster.
    std::thread::scope(|scope| {
        for _ in 0..25 {
            scope.spawn(|| opened_and_closed("a", SocketKind::Packet, 40));
        }
        scope.spawn(|| opened_and_closed("b", SocketKind::Xdp, 40));
        scope.spawn(|| (0..50).for_each(|i| opened_and_closed(&format!("tap{i}"), SocketKind::Tap, 2)));
    });
    // Other tests run at the same time, so this looks for more growth than they can cause.
    let after = ["fds", "maps"].map(count_open);
    for (before, after) in before.into_iter().zip(after) {
        assert!(after < before + 300, "{before} {after}");
    }
}
