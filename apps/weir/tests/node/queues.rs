//! Interfaces with several receive queues, read by several receive threads.

use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{Testbed, has_carrier, ip, is_inside, udp};
use serde_json::{Value, json};

const QUEUES: u32 = 4;
const FLOWS: u64 = 64;

/// Replaces the testbed's cable by one with several queues at each end.
fn make_cable(testbed: &mut Testbed) {
    ip("link delete dev a");
    let queues = format!("numtxqueues {QUEUES} numrxqueues {QUEUES}");
    ip(&format!("link add name a {queues} type veth peer name b {queues}"));
    for end in ["a", "b"] {
        ip(&format!("link set dev {end} addrgenmode none"));
        ip(&format!("link set dev {end} up"));
    }
    let begin = std::time::Instant::now();
    while !has_carrier("a") || !has_carrier("b") {
        assert!(begin.elapsed() < crate::testbed::TIMEOUT, "{}", testbed.log());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Packets of all flows, which the kernel distributes among the queues.
fn packets(count: u64) -> Vec<Vec<u8>> {
    let port = |number: u64| u16::try_from(2000 + number % FLOWS).unwrap();
    (0..count).map(|number| udp(port(number), &number.to_be_bytes())).collect()
}

/// Two sessions, of which one sees packets where they arrived and one sees copies of half of the flows.
fn sessions(kind: &str, keys: &str) -> String {
    let session = |name: &str, channel: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\nchannel = [{{ interface = \"b\", queue = 20000, {channel} }}]\n\
             module = [{{ module = \"trajectory\" }}]\n"
        )
    };
    let in_place = session(
        "place",
        "filter = \"udp\", visibility = \"all\", subflows = { by = [\"dst_port\"], queues = 8 }",
    );
    format!(
        "kind = \"{kind}\"\n{keys}\n{in_place}{}",
        session("copies", "filter = \"udp dst portrange 2000-2031\"")
    )
}

#[test]
fn receive_threads_share_the_queues_of_an_interface() {
    if is_inside("queues::receive_threads_share_the_queues_of_an_interface") {
        receive_threads_share_an_interface("xdp", "");
    }
}

#[test]
fn receive_threads_share_the_flows_of_an_interface() {
    if is_inside("queues::receive_threads_share_the_flows_of_an_interface") {
        receive_threads_share_an_interface("packet", "outgoing = false");
    }
}

#[test]
fn receive_threads_share_the_flows_of_an_interface_that_delivers_at_once() {
    if is_inside("queues::receive_threads_share_the_flows_of_an_interface_that_delivers_at_once") {
        receive_threads_share_an_interface("auto", "latency = \"low\"");
    }
}

fn receive_threads_share_an_interface(kind: &str, more: &str) {
    let mut testbed = Testbed::prepared("", "", None);
    make_cable(&mut testbed);
    let cores = if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        "[0, 1]"
    } else {
        "[0]"
    };
    testbed.configure(&sessions(kind, &format!("receive_cores = {cores}\n{more}")));
    let (is_valid, said) = check_config(&testbed);
    assert!(is_valid, "{said}");
    testbed.start();
    testbed.send(&packets(2048));
    let counted = |testbed: &mut Testbed, session: &str| testbed.count(session, "trajectory", "packets");
    testbed.until("each session has its packets", |testbed| {
        counted(testbed, "place") == 2048 && counted(testbed, "copies") == 1024
    });
    testbed.until("the counters of both threads are added", |testbed| {
        let interface = testbed.snapshot()["interfaces"][0].clone();
        (&interface["packets"], &interface["missed"], &interface["unmatched"])
            == (&json!(2048), &json!(0), &json!(0))
    });
    let drops = |testbed: &Testbed, session: &str| testbed.part(session, "channels", "main")["drops"].clone();
    assert_eq!((drops(&testbed, "place"), drops(&testbed, "copies")), (json!({}), json!({})));
    // A closed session gets no more packets from any thread, and the other one still gets all.
    testbed.request(json!({"close": {"session": "copies"}}));
    testbed.send(&packets(2048));
    testbed.until("the other session has its packets", |testbed| counted(testbed, "place") == 4096);
    // The interface is removed and comes back with as many queues.
    make_cable(&mut testbed);
    testbed.until("the interface is open again", |testbed| {
        testbed.log().matches("exists again and was opened").count() >= 1
            && testbed.snapshot()["interfaces"][0]["state"] == json!("up")
    });
    let mut all = 4096;
    testbed.until("all queues are read again", |testbed| {
        // Packets that arrive before a thread has opened its queues go to the host.
        testbed.send(&packets(FLOWS));
        all = counted(testbed, "place");
        all >= 4096 + 2 * FLOWS
    });
    assert!(testbed.stop().success());
}

#[test]
fn a_start_names_a_queue_that_does_not_exist() {
    if !is_inside("queues::a_start_names_a_queue_that_does_not_exist") {
        return;
    }
    let mut testbed = Testbed::prepared("", "", None);
    make_cable(&mut testbed);
    testbed.configure(&sessions("xdp", "queues = [0, 3]"));
    testbed.start();
    testbed.send(&packets(512));
    testbed.until("the packets of two queues have arrived", |testbed| {
        testbed.count("place", "trajectory", "packets") > 0
    });
    assert!(testbed.stop().success());
    testbed.configure(&sessions("xdp", "queues = [1, 4]"));
    let (is_valid, said) = check_config(&testbed);
    assert!(!is_valid && said.contains("there is no receive queue 4"), "{said}");
}

/// Returns true if `weir config check` finds no error, and its output.
fn check_config(testbed: &Testbed) -> (bool, String) {
    let check = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["config", "check"])
        .arg(testbed.config())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&check.stderr).into_owned() + &String::from_utf8_lossy(&check.stdout);
    (check.status.success(), said)
}

/// A reader holds packets of both rings, in order of arrival. When a ring is nearly full, it loses the oldest ones, and
/// another reader loses nothing. When its session is closed, both rings are free again.
#[test]
fn a_slow_reader_holds_up_no_ring_of_several_packet_sockets() {
    if !is_inside("queues::a_slow_reader_holds_up_no_ring_of_several_packet_sockets") {
        return;
    }
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        return;
    }
    let mut testbed = Testbed::prepared("", "", None);
    make_cable(&mut testbed);
    let session = |name: &str, cpu: &str, channel: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\ncpu = [{{ {cpu} }}]\n\
             channel = [{{ interface = \"b\", filter = \"udp\", {channel} }}]\n"
        )
    };
    testbed.configure(
        &("kind = \"packet\"\nreceive_cores = [0, 1]\noutgoing = false\n".to_owned()
            + &session("quick", "period = \"20ms\", slice = \"4ms\", borrow = true", "queue = 4096")
            + &session(
                "slow",
                "period = \"10s\", slice = \"100us\"",
                "visibility = \"all\", queue = 100000, lag_max = \"1 GiB\"",
            )),
    );
    let (is_valid, said) = check_config(&testbed);
    assert!(is_valid, "{said}");
    testbed.start();
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (local $i i32)
        (local.set $i (i32.const 400000))
        (loop $next (br_if $next (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
        (i32.const 0))"#;
    let slow = assemble(&text(body), Some(MANIFEST.replace("NAME", "slow").as_bytes()));
    assert!(testbed.load("slow", json!({"module": "slow.wasm"}), &slow)["done"].is_object());
    assert!(testbed.load("quick", json!({"module": "trajectory"}), &[])["done"].is_object());
    let drops = |testbed: &Testbed, session: &str| testbed.part(session, "channels", "main")["drops"].clone();
    let counted = |testbed: &mut Testbed| testbed.count("quick", "trajectory", "packets");
    // A thread that gets no processor time for a while cannot make room in its ring, so packets can be missed.
    let missed = |testbed: &Testbed| testbed.snapshot()["interfaces"][0]["missed"].as_u64().unwrap();
    let mut sent = 0;
    let mut send_some = |testbed: &mut Testbed| {
        testbed.send(&packets(1024));
        sent += 1024;
        testbed
            .until("the quick reader has all packets", |testbed| counted(testbed) + missed(testbed) == sent);
    };
    // The memory holds less than 40,000 of these packets.
    while testbed.part("slow", "channels", "main")["packets"].as_u64().unwrap() < 120_000 {
        send_some(&mut testbed);
    }
    let lost: u64 = drops(&testbed, "slow").as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert!(lost > 60_000, "{}", drops(&testbed, "slow"));
    testbed.request(json!({"close": {"session": "slow"}}));
    let before = counted(&mut testbed);
    (0..60).for_each(|_| send_some(&mut testbed));
    // If the closed session still held blocks, most of these packets would be missed.
    assert!(counted(&mut testbed) > before + 30 * 1024, "{} missed", missed(&testbed));
    assert_eq!(drops(&testbed, "quick"), json!({}));
    assert!(testbed.stop().success());
}
