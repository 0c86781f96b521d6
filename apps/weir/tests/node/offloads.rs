//! Forwarding of packets whose checksums or TCP segmentation the sending host has left to its network card.

use crate::links::far_cable;
use crate::offload::{self, Arrivals, Host};
use crate::testbed::{Testbed, is_inside};
use serde_json::{Value, json};

/// Forwards from `b` to `c`, and from `c` to `b`.
const FORWARDING: &str = r#"outgoing = false
[[interface]]
name = "c"
arena = "8 MiB"
outgoing = false
[[link]]
interface = "b"
rate = "1 Gbit/s"
[[link]]
interface = "c"
rate = "1 Gbit/s"
[[session]]
name = "alice"
memory = "64 MiB"
channel = [{ name = "there", interface = "b", queue = 4096, forward = "up" },
    { name = "back", interface = "c", queue = 4096, forward = "down" }]
output = [{ name = "up", link = "c", queue = 4096 }, { name = "down", link = "b", queue = 4096 }]
"#;

fn forwarding_testbed(sessions: &str) -> (Testbed, [Host; 2]) {
    far_cable();
    let mut testbed = Testbed::new(sessions);
    let hosts = offload::hosts("a", "far");
    testbed.until("both are up again", |testbed| {
        let links = testbed.snapshot()["links"].clone();
        links.as_array().unwrap().iter().all(|link| link["state"] == "up")
    });
    (testbed, hosts)
}

fn output(testbed: &Testbed, name: &str) -> Value {
    testbed.part("alice", "outputs", name)
}

#[test]
fn offloaded_checksums_are_completed_in_forwarded_packets() {
    if !is_inside("offloads::offloaded_checksums_are_completed_in_forwarded_packets") {
        return;
    }
    let (mut testbed, hosts) = forwarding_testbed(FORWARDING);
    let (mut near, mut far) = (Arrivals::capture("b"), hosts[1].arrivals());
    hosts.iter().for_each(|host| host.leaves_segments_to_the_card(false));
    let [one, other] = &hosts;
    offload::datagrams(one, other);
    offload::streams(one, other);
    let tagged = offload::tagged(one, other);
    // The hosts really leave out checksums.
    let (wrong, right) =
        offload::checksums(&near.until("all packets have arrived", |frames| frames.len() > tagged));
    // A missing checksum is right by chance in one of 65,536 packets.
    assert!(wrong > tagged && right < 5, "{wrong} wrong and {right} right ones leave the host");
    let all = wrong + right;
    let arrived = far.until("all have arrived", |frames| offload::checksums(frames).1 == all);
    assert_eq!(offload::checksums(&arrived), (0, all));
    for name in ["up", "down"] {
        assert_eq!(output(&testbed, name)["drops"], json!({}), "{name}");
    }
    assert!(testbed.stop().success());
}

#[test]
fn offloaded_checksums_inside_a_tunnel_are_completed() {
    if !is_inside("offloads::offloaded_checksums_inside_a_tunnel_are_completed") {
        return;
    }
    let (mut testbed, mut hosts) = forwarding_testbed(FORWARDING);
    hosts.iter().for_each(|host| host.leaves_segments_to_the_card(false));
    if offload::tunnel(&mut hosts) {
        offload::datagrams(&hosts[0], &hosts[1]);
        offload::streams(&hosts[0], &hosts[1]);
    }
    assert!(testbed.stop().success());
}

#[test]
fn segments_too_long_for_the_link_are_counted_and_others_are_forwarded() {
    if !is_inside("offloads::segments_too_long_for_the_link_are_counted_and_others_are_forwarded") {
        return;
    }
    let (mut testbed, hosts) = forwarding_testbed(FORWARDING);
    hosts.iter().for_each(|host| host.leaves_segments_to_the_card(true));
    let [one, other] = &hosts;
    offload::too_long(one, other, &mut Arrivals::capture("b"));
    testbed.until("they are counted", |testbed| {
        let drops = output(testbed, "up")["drops"].clone();
        drops["too-long"].as_u64().unwrap_or(0) > 0 && drops.as_object().unwrap().len() == 1
    });
    // A link that accepts longer frames than its interface: then the interface counts them.
    assert!(testbed.stop().success());
    let longer = FORWARDING.replace("interface = \"c\"\nrate", "interface = \"c\"\nframe_max = 65535\nrate");
    testbed.configure(&longer.replace("64 MiB", "512 MiB"));
    testbed.start();
    let sent = |testbed: &Testbed| output(testbed, "up")["packets"].as_u64().unwrap();
    offload::too_long(one, other, &mut Arrivals::capture("b"));
    testbed.until("they are counted", |testbed| {
        output(testbed, "up")["drops"]["too-long"].as_u64().unwrap_or(0) > 0
    });
    assert!(sent(&testbed) > 0);
    assert!(testbed.stop().success());
}
