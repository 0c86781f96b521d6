//! Bandwidth limits of credentials: each output channel has a cap, and all delegates of one holder share the holder's bandwidth.

use crate::links;
use crate::module::{MANIFEST, assemble, text};
use crate::remote::{Net, modest_grant};
use crate::remote_limits::file;
use crate::testbed::{is_inside, udp};
use weir_trust::grant::{Ceilings, CpuShare, Grant};
use weir_units::BitsPerSecond;

/// The arguments to create the session `s` with these output channels.
fn create<'a>(outputs: &[&'a str]) -> Vec<&'a str> {
    let session = ["session", "create", "s", "--memory", "1 MiB", "--cpu", "period=10ms,slice=1ms"];
    let channel = ["--channel", "interface=b,filter=udp,forward=up"];
    let outputs = outputs.iter().flat_map(|output| ["--output", output]);
    session.into_iter().chain(channel).chain(outputs).collect()
}

#[test]
fn bandwidth_of_delegates_is_capped_and_counts_for_their_delegator() {
    if !is_inside("remote_bandwidth::bandwidth_of_delegates_is_capped_and_counts_for_their_delegator") {
        return;
    }
    links::far_cable();
    let mut net =
        Net::with_interface_lines("outgoing = false\n[[link]]\ninterface = \"c\"\nrate = \"100 Mbit/s\"\n");
    let mut far = links::FarEnd::open();
    let bandwidth = |rate: u64| Some(BitsPerSecond(rate));
    let ceilings = Ceilings {
        cpu: Some(CpuShare(500_000)),
        bandwidth: bandwidth(10_000_000),
        sessions: Some(5),
        ..modest_grant().ceilings
    };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest_grant() });
    let student = net.delegated(&researcher, "student", Grant::default());
    let less = Ceilings { bandwidth: bandwidth(3_000_000), ..Ceilings::default() };
    let narrow = net.delegated(&researcher, "narrow", Grant { ceilings: less, ..Grant::default() });
    let all = format!("of the 10 Mbit/s given to {}", researcher.identity.public());

    // More than granted, at once or in parts, and as much as the link has.
    let too_much = format!("bandwidth: asked for 11 Mbit/s; {all}, 10 Mbit/s is left");
    net.run_refused(&researcher, &create(&["name=up,link=c,cap=11 Mbit/s"]), &too_much);
    let parts = ["name=up,link=c,cap=6 Mbit/s", "name=aside,link=c,cap=5 Mbit/s"];
    net.run_refused(&researcher, &create(&parts), &too_much);
    let without = "its output channel `up` would take bandwidth beyond what is granted: give it a `cap`";
    net.run_refused(&researcher, &create(&["name=up,link=c"]), without);
    // Neither a reservation nor a queue length is a cap; nor does the cap of another channel count.
    net.run_refused(&researcher, &create(&["name=up,link=c,reserve=1 Mbit/s"]), without);
    let other = ["name=aside,link=c,cap=1 Mbit/s", "name=up,link=c,weight=1"];
    net.run_refused(&researcher, &create(&other), without);
    net.run_refused(&student, &create(&["name=up,link=c"]), without);
    assert!(net.sessions().is_empty());

    // A cap within the grant is allowed, and the session's packets are sent.
    net.run(&researcher, &create(&["name=up,link=c,cap=6 Mbit/s"]));
    net.testbed.send(&[udp(1, b"one"), udp(2, b"two")]);
    assert_eq!(far.datagrams(2), [udp(1, b"one"), udp(2, b"two")]);
    // The delegates' bandwidth is part of the delegator's, and limited by their own grants.
    let rest = format!("bandwidth: asked for 5 Mbit/s; {all}, less than that is left");
    net.run_refused(&student, &create(&["name=up,link=c,cap=5 Mbit/s"]), &rest);
    let own = format!("asked for 4 Mbit/s; of the 3 Mbit/s given to {}", narrow.identity.public());
    net.run_refused(&narrow, &create(&["name=up,link=c,cap=4 Mbit/s"]), &own);
    net.run(&narrow, &create(&["name=up,link=c,cap=3 Mbit/s"]));
    net.run_refused(
        &student,
        &create(&["name=up,link=c,cap=2 Mbit/s"]),
        "asked for 2 Mbit/s; of the 10 Mbit/s given to",
    );
    net.run(&student, &create(&["name=up,link=c,cap=1 Mbit/s"]));
    // A change cannot exceed the grant either, nor remove the cap, even in the delegator's own session.
    let change = |output: &'static str| ["session", "change", "s", "--output", output];
    net.run_refused(&student, &change("name=up,link=c,cap=2 Mbit/s"), "less than that is left");
    net.run_refused(&researcher, &change("name=up,link=c,cap=7 Mbit/s"), "6 Mbit/s is left");
    net.run_refused(&researcher, &change("name=up,link=c"), without);
    net.run_refused(&researcher, &change("name=more,link=c,cap=1 kbit/s"), &all);
    assert_eq!(net.sessions().len(), 3);

    // Freed bandwidth can be used by another session: a part, and then all of it.
    net.run(&researcher, &change("name=up,link=c,cap=5 Mbit/s"));
    net.run(&student, &change("name=up,link=c,cap=2 Mbit/s"));
    net.run(&narrow, &["session", "close", "s"]);
    net.run_refused(&student, &change("name=up,link=c,cap=6 Mbit/s"), "less than that is left");
    net.run(&student, &change("name=up,link=c,cap=5 Mbit/s"));
    net.run(&student, &["session", "close", "s"]);
    net.run(&researcher, &["session", "close", "s"]);
    net.run(&student, &create(&["name=up,link=c,cap=10 Mbit/s"]));
    let wants = create(&["name=up,link=c,cap=8 kbit/s"]);
    net.run_refused(&researcher, &wants, &format!("{all}, 0 bit/s is left"));
    // A session without outputs needs no bandwidth, and may load a module that could send.
    let session = ["session", "create", "silent", "--memory", "4 MiB", "--cpu", "period=10ms,slice=1ms"];
    net.run(&researcher, &[&session[..], &["--channel", "interface=b,filter=udp"]].concat());
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (drop (call $send (i32.const 0) (i32.load offset=8 (local.get $d)) (i32.load offset=12 (local.get $d))))
            (i32.const 0))"#;
    let manifest =
        format!("kind = 'active'\n{}[[output]]\nname = 'up'\n", MANIFEST.replace("NAME", "sender"));
    let module = file(&net, "sender.wasm", &assemble(&text(body), Some(manifest.as_bytes())));
    net.run(&researcher, &["load", "silent", &module]);
    net.testbed.send(&[udp(3, b"three"), udp(4, b"four")]);
    let silent = researcher.name_of("silent");
    net.testbed.until("the module has received the packets", |testbed| {
        testbed.count(&silent, "sender", "packets") == 2
    });
    // Each packet was sent once, by the student's session.
    assert_eq!(far.datagrams(2), [udp(3, b"three"), udp(4, b"four")]);
    assert!(net.testbed.stop().success());
}
