//! What somebody may send by his credential: each output channel has a cap, and all that got the right from one and the same holder share his bandwidth.

use crate::links;
use crate::module::{MANIFEST, assemble, text};
use crate::place::{is_inside, udp};
use crate::remote::{Net, modest};
use crate::remote_limits::file;
use weir_trust::grant::{Ceilings, CpuShare, Grant};
use weir_units::BitsPerSecond;

/// To create `s` with these output channels.
fn create<'a>(outputs: &[&'a str]) -> Vec<&'a str> {
    let session = ["session", "create", "s", "--memory", "1 MiB", "--cpu", "period=10ms,slice=1ms"];
    let channel = ["--channel", "interface=b,filter=udp,forward=up"];
    let outputs = outputs.iter().flat_map(|output| ["--output", output]);
    session.into_iter().chain(channel).chain(outputs).collect()
}

#[test]
fn what_delegates_may_send_is_capped_and_counts_as_what_their_parent_may() {
    if !is_inside("remote_bandwidth::what_delegates_may_send_is_capped_and_counts_as_what_their_parent_may") {
        return;
    }
    links::far_cable();
    let mut net = Net::with("outgoing = false\n[[link]]\ninterface = \"c\"\nrate = \"100 Mbit/s\"\n");
    let mut far = links::Far::open();
    let bandwidth = |rate: u64| Some(BitsPerSecond(rate));
    let ceilings = Ceilings {
        cpu: Some(CpuShare(500_000)),
        bandwidth: bandwidth(10_000_000),
        sessions: Some(5),
        ..modest().ceilings
    };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest() });
    let student = net.delegated(&researcher, "student", Grant::default());
    let less = Ceilings { bandwidth: bandwidth(3_000_000), ..Ceilings::default() };
    let narrow = net.delegated(&researcher, "narrow", Grant { ceilings: less, ..Grant::default() });
    let all = format!("of the 10 Mbit/s given to {}", researcher.identity.public());

    // More than he has, at once or in parts, and as much as the link has.
    let too_much = format!("bandwidth: asked for 11 Mbit/s; {all}, 10 Mbit/s is left");
    net.refused(&researcher, &create(&["name=up,link=c,cap=11 Mbit/s"]), &too_much);
    let parts = ["name=up,link=c,cap=6 Mbit/s", "name=aside,link=c,cap=5 Mbit/s"];
    net.refused(&researcher, &create(&parts), &too_much);
    let without = "its output channel `up` would take bandwidth beyond what is granted: give it a `cap`";
    net.refused(&researcher, &create(&["name=up,link=c"]), without);
    // What is reserved for it, or how much may wait, is no cap; nor does another channel's count for it.
    net.refused(&researcher, &create(&["name=up,link=c,reserve=1 Mbit/s"]), without);
    let other = ["name=aside,link=c,cap=1 Mbit/s", "name=up,link=c,weight=1"];
    net.refused(&researcher, &create(&other), without);
    net.refused(&student, &create(&["name=up,link=c"]), without);
    assert!(net.sessions().is_empty());

    // Within it there is one, and what is sent goes out.
    net.done(&researcher, &create(&["name=up,link=c,cap=6 Mbit/s"]));
    net.place.send(&[udp(1, b"one"), udp(2, b"two")]);
    assert_eq!(far.datagrams(2), [udp(1, b"one"), udp(2, b"two")]);
    // What his delegates may send is a part of that, and of what they have themselves.
    let rest = format!("bandwidth: asked for 5 Mbit/s; {all}, less than that is left");
    net.refused(&student, &create(&["name=up,link=c,cap=5 Mbit/s"]), &rest);
    let own = format!("asked for 4 Mbit/s; of the 3 Mbit/s given to {}", narrow.identity.public());
    net.refused(&narrow, &create(&["name=up,link=c,cap=4 Mbit/s"]), &own);
    net.done(&narrow, &create(&["name=up,link=c,cap=3 Mbit/s"]));
    net.refused(
        &student,
        &create(&["name=up,link=c,cap=2 Mbit/s"]),
        "asked for 2 Mbit/s; of the 10 Mbit/s given to",
    );
    net.done(&student, &create(&["name=up,link=c,cap=1 Mbit/s"]));
    // Nor does a change give more, or take the cap away: not even the parent's own.
    let change = |output: &'static str| ["session", "change", "s", "--output", output];
    net.refused(&student, &change("name=up,link=c,cap=2 Mbit/s"), "less than that is left");
    net.refused(&researcher, &change("name=up,link=c,cap=7 Mbit/s"), "6 Mbit/s is left");
    net.refused(&researcher, &change("name=up,link=c"), without);
    net.refused(&researcher, &change("name=more,link=c,cap=1 kbit/s"), &all);
    assert_eq!(net.sessions().len(), 3);

    // What one gives back another can have: a part, and then all of it.
    net.done(&researcher, &change("name=up,link=c,cap=5 Mbit/s"));
    net.done(&student, &change("name=up,link=c,cap=2 Mbit/s"));
    net.done(&narrow, &["session", "close", "s"]);
    net.refused(&student, &change("name=up,link=c,cap=6 Mbit/s"), "less than that is left");
    net.done(&student, &change("name=up,link=c,cap=5 Mbit/s"));
    net.done(&student, &["session", "close", "s"]);
    net.done(&researcher, &["session", "close", "s"]);
    net.done(&student, &create(&["name=up,link=c,cap=10 Mbit/s"]));
    let wants = create(&["name=up,link=c,cap=8 kbit/s"]);
    net.refused(&researcher, &wants, &format!("{all}, 0 bit/s is left"));
    // Who sends nothing needs none of it, and may have a module that would.
    let session = ["session", "create", "silent", "--memory", "4 MiB", "--cpu", "period=10ms,slice=1ms"];
    net.done(&researcher, &[&session[..], &["--channel", "interface=b,filter=udp"]].concat());
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (drop (call $send (i32.const 0) (i32.load offset=8 (local.get $d)) (i32.load offset=12 (local.get $d))))
            (i32.const 0))"#;
    let manifest =
        format!("kind = 'active'\n{}[[output]]\nname = 'up'\n", MANIFEST.replace("NAME", "sender"));
    let module = file(&net, "sender.wasm", &assemble(&text(body), Some(manifest.as_bytes())));
    net.done(&researcher, &["load", "silent", &module]);
    net.place.send(&[udp(3, b"three"), udp(4, b"four")]);
    let silent = researcher.name_of("silent");
    net.place.until("it has seen them", |place| place.count(&silent, "sender", "packets") == 2);
    // Once, by the student's.
    assert_eq!(far.datagrams(2), [udp(3, b"three"), udp(4, b"four")]);
    assert!(net.place.stop().success());
}
