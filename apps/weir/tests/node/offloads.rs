//! What hosts leave to their network cards, checksums and the cutting of TCP into segments, where their packets go on.

use crate::links::far_cable;
use crate::offload::{self, Arrivals, Host};
use crate::place::{Place, is_inside};
use serde_json::{Value, json};

/// What comes at `b` goes on at `c`, and what comes at `c` at `b`.
const BETWEEN: &str = r#"outgoing = false
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

fn between(sessions: &str) -> (Place, [Host; 2]) {
    far_cable();
    let mut place = Place::new(sessions);
    let hosts = offload::hosts("a", "far");
    place.until("both are up again", |place| {
        let links = place.snapshot()["links"].clone();
        links.as_array().unwrap().iter().all(|link| link["state"] == "up")
    });
    (place, hosts)
}

fn output(place: &Place, name: &str) -> Value {
    place.part("alice", "outputs", name)
}

#[test]
fn checksums_that_a_host_left_to_its_card_are_right_where_packets_go_on() {
    if !is_inside("offloads::checksums_that_a_host_left_to_its_card_are_right_where_packets_go_on") {
        return;
    }
    let (mut place, hosts) = between(BETWEEN);
    let (mut near, mut far) = (Arrivals::at("b"), hosts[1].arrivals());
    hosts.iter().for_each(|host| host.leaves_segments_to_the_card(false));
    let [one, other] = &hosts;
    offload::datagrams(one, other);
    offload::streams(one, other);
    let tagged = offload::tagged(one, other);
    // The hosts really leave them out.
    let (wrong, right) = offload::checksums(&near.until("all have come", |frames| frames.len() > tagged));
    // What they leave is right by chance in one packet of 65,536.
    assert!(wrong > tagged && right < 5, "{wrong} wrong and {right} right ones leave the host");
    let all = wrong + right;
    let arrived = far.until("all have arrived", |frames| offload::checksums(frames).1 == all);
    assert_eq!(offload::checksums(&arrived), (0, all));
    for name in ["up", "down"] {
        assert_eq!(output(&place, name)["drops"], json!({}), "{name}");
    }
    assert!(place.stop().success());
}

#[test]
fn checksums_that_a_host_left_to_its_card_are_right_inside_a_tunnel() {
    if !is_inside("offloads::checksums_that_a_host_left_to_its_card_are_right_inside_a_tunnel") {
        return;
    }
    let (mut place, mut hosts) = between(BETWEEN);
    hosts.iter().for_each(|host| host.leaves_segments_to_the_card(false));
    if offload::tunnel(&mut hosts) {
        offload::datagrams(&hosts[0], &hosts[1]);
        offload::streams(&hosts[0], &hosts[1]);
    }
    assert!(place.stop().success());
}

#[test]
fn segments_that_are_longer_than_the_link_takes_are_counted_and_the_others_go_on() {
    if !is_inside("offloads::segments_that_are_longer_than_the_link_takes_are_counted_and_the_others_go_on") {
        return;
    }
    let (mut place, hosts) = between(BETWEEN);
    hosts.iter().for_each(|host| host.leaves_segments_to_the_card(true));
    let [one, other] = &hosts;
    offload::too_long(one, other, &mut Arrivals::at("b"));
    place.until("they are counted", |place| {
        let drops = output(place, "up")["drops"].clone();
        drops["too-long"].as_u64().unwrap_or(0) > 0 && drops.as_object().unwrap().len() == 1
    });
    // A link whose frames may be longer than its interface takes: then that counts them.
    assert!(place.stop().success());
    let longer = BETWEEN.replace("interface = \"c\"\nrate", "interface = \"c\"\nframe = 65535\nrate");
    place.configure(&longer.replace("64 MiB", "512 MiB"));
    place.start();
    let sent = |place: &Place| output(place, "up")["packets"].as_u64().unwrap();
    offload::too_long(one, other, &mut Arrivals::at("b"));
    place.until("they are counted", |place| {
        output(place, "up")["drops"]["too-long"].as_u64().unwrap_or(0) > 0
    });
    assert!(sent(&place) > 0);
    assert!(place.stop().success());
}
