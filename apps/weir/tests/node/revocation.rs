//! Revocation: lists from several machines, credential identifiers, delegators, and deliveries during floods.

use crate::adversaries::authenticated_stream;
use crate::remote::{AT, Net, Person, SESSION, modest_grant, person, seconds_from_now};
use crate::testbed::{TIMEOUT, is_inside};
use rand_core::OsRng;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use serde_json::{Value, json};
use std::io::Read;
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_trust::credential::{Credential, DatedId};
use weir_trust::grant::{Grant, UnixSecond};
use weir_trust::key::{Identity, SignatureContext};
use weir_trust::revocation::{Issuer, RevocationList, RevokedSet};

fn weir(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    for variable in ["WEIR_KEY", "WEIR_PASSPHRASE_FILE", "WEIR_NODE", "WEIR_CREDENTIAL"] {
        command.env_remove(variable);
    }
    command.args(arguments).output().unwrap()
}

fn run(arguments: &[&str]) -> String {
    let output = weir(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn run_failing(arguments: &[&str]) -> String {
    let output = weir(arguments);
    assert!(!output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Revokes credentials with a key, in a list with its own file and numbers, and delivers the list to the node.
fn revoke_and_deliver(net: &Net, by: &Person, list: &str, what: &[&str], more: &[&str]) -> String {
    let (list, node) = (net.folder.path().join(list), format!("{}@{AT}", net.node));
    let end = ["--key", text(&by.key), "--list", text(&list), "--node", &node];
    run(&[&["credential", "revoke"], what, &end, more].concat())
}

fn credential_id(person: &Person) -> String {
    let credential: Credential = std::fs::read_to_string(&person.credential).unwrap().parse().unwrap();
    DatedId::of_chain(credential.claimed_blocks()).last().unwrap().to_string()
}

/// The revocations that the node shows to a client.
fn shown_revocations(net: &Net, with: &[&str]) -> Vec<Value> {
    let node = format!("{}@{AT}", net.node);
    let shown = run(&[&["credential", "revocations", "--json", "--node", &node], with].concat());
    serde_json::from_str(&shown).unwrap()
}

#[test]
fn lists_of_two_machines_add_up_and_a_restart_loses_nothing() {
    if !is_inside("revocation::lists_of_two_machines_add_up_and_a_restart_loses_nothing") {
        return;
    }
    let mut net = Net::new();
    let people = ["alice", "bob", "carol", "dave"].map(|name| net.granted(name, modest_grant()));
    let [alice, bob, carol, dave] = &people;
    revoke_and_deliver(&net, &net.operator, "first", &[text(&alice.credential)], &[]);
    // Another machine, without the earlier list: its lists have the numbers 1 and 2.
    let told = revoke_and_deliver(&net, &net.operator, "second", &[text(&bob.credential)], &[]);
    assert!(told.contains("revocation list 1 of") && told.contains("has 2 revocations in all"), "{told}");
    revoke_and_deliver(&net, &net.operator, "second", &[text(&carol.credential)], &[]);
    let refused = |net: &Net| {
        for person in [alice, bob, carol] {
            net.run_refused(person, &["session", "list"], "revoked");
        }
        net.run(dave, &["session", "list"]);
    };
    refused(&net);
    let root = shown_revocations(&net, &["--key", text(&net.operator.key)]).remove(0);
    let entries: Vec<&str> =
        root["entries"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    let mut tokens = [alice, bob, carol].map(credential_id);
    // Sorted by their bytes, which is another order than that of their text.
    tokens.sort_by_key(|token| token.parse::<DatedId>().unwrap().id);
    assert_eq!(
        (entries, &root["root"]),
        (tokens.iter().map(String::as_str).collect(), &json!(net.operator.identity.public().to_string()))
    );
    // A holder sees the revocations of its root.
    let dave_sees =
        shown_revocations(&net, &["--key", text(&dave.key), "--credential", text(&dave.credential)]);
    assert_eq!(dave_sees, [root]);
    // The node stores them, though its configuration names no list.
    assert!(net.testbed.stop().success());
    net.testbed.start();
    refused(&net);
    assert!(net.testbed.stop().success());
}

#[test]
fn lists_stored_by_an_earlier_version_become_part_of_the_state() {
    if !is_inside("revocation::lists_stored_by_an_earlier_version_become_part_of_the_state") {
        return;
    }
    let mut net = Net::new();
    let (alice, bob) = (net.granted("alice", modest_grant()), net.granted("bob", modest_grant()));
    assert!(net.testbed.stop().success());
    let key = net.operator.identity.public().to_string();
    let id = credential_id(&alice).split('@').next().unwrap().to_owned();
    let signed =
        format!("weir revocation list 1\nroot {key}\nsequence 7\nissued 2026-11-21T12:00:00Z\n{id}\n");
    let signature = net.operator.identity.sign(SignatureContext::new("revocation list"), signed.as_bytes());
    let list = format!("{signed}signature {}\n", base32(&signature.0));
    let folder = net.testbed.path().join("state/revoked");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{}.list", key.rsplit(':').next().unwrap())), &list).unwrap();
    net.testbed.start();
    net.run_refused(&alice, &["session", "list"], "revoked");
    revoke_and_deliver(&net, &net.operator, "new", &[text(&bob.credential)], &[]);
    // A peer with a right can also deliver a list of the old format.
    let old = net.folder.path().join("old");
    std::fs::write(&old, &list).unwrap();
    let node = format!("{}@{AT}", net.node);
    let said = run(&["credential", "deliver", text(&old), "--node", &node, "--key", text(&net.operator.key)]);
    assert!(said.contains("known already"), "{said}");
    let said = run_failing(&["credential", "deliver", text(&old), "--node", &node]);
    assert!(said.contains("of the previous format"), "{said}");
    assert!(net.testbed.stop().success());
    net.testbed.start();
    for person in [&alice, &bob] {
        net.run_refused(person, &["session", "list"], "revoked");
    }
    assert!(net.testbed.stop().success());
}

fn base32(bytes: &[u8]) -> String {
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let digit = |five: &[u8]| {
        let value = (0..5).fold(0, |value, at| value << 1 | usize::from(five.get(at).copied().unwrap_or(0)));
        char::from(b"abcdefghijklmnopqrstuvwxyz234567"[value])
    };
    bits.chunks(5).map(digit).collect()
}

#[test]
fn a_printed_credential_identifier_can_be_revoked() {
    if !is_inside("revocation::a_printed_credential_identifier_can_be_revoked") {
        return;
    }
    let mut net = Net::new();
    let alice = net.granted("alice", modest_grant());
    net.run(&alice, &SESSION);
    let (id, socket) = (credential_id(&alice), net.testbed.path().join("node.sock"));
    assert!(id.contains("@20"), "{id}");
    let explained = run(&["credential", "explain", text(&alice.credential), "--socket", text(&socket)]);
    let top = run(&["top", "--once", "--socket", text(&socket)]);
    net.testbed.until("the decision is in the ledger", |testbed| {
        let decisions = run(&["ledger", "--decisions", "--socket", text(&testbed.path().join("node.sock"))]);
        decisions.contains(&id)
    });
    let shown = run(&["credential", "show", text(&alice.credential)]);
    for (what, said) in [("explain", explained), ("top", top), ("show", shown)] {
        assert!(said.contains(&id), "{what}: {said}");
    }
    // Alice still sees the entries of her sessions in the ledger.
    assert!(net.run(&alice, &["ledger"]).contains("study"));
    revoke_and_deliver(&net, &net.operator, "list", &[&id], &[]);
    net.testbed.until("Alice's session is closed", |testbed| {
        testbed.snapshot()["sessions"].as_array().unwrap().is_empty()
    });
    net.run_refused(&alice, &["session", "list"], "revoked");
    assert!(net.testbed.stop().success());
}

#[test]
fn revoking_all_before_a_time_works_on_a_full_node_too() {
    if !is_inside("revocation::revoking_all_before_a_time_works_on_a_full_node_too") {
        return;
    }
    let mut net = Net::new();
    let at = |name: &str, seconds: u64| {
        let person = person(net.folder.path(), name);
        let issued = UnixSecond::new(seconds_from_now(0).number() - 100 + seconds).unwrap();
        let (root, to) = (&net.operator.identity, person.identity.public());
        let credential = Credential::mint(root, to, modest_grant(), Some(issued), &mut OsRng).unwrap();
        std::fs::write(&person.credential, credential.to_string()).unwrap();
        (person, issued)
    };
    let ((early, _), (late, time)) = (at("early", 0), at("late", 50));
    // All entries of the node are used.
    let ids = (0..weir_trust::revocation::ROOT_ENTRIES_MAX as u64).map(|number| {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&number.to_be_bytes());
        let digits: String = seed.iter().map(|byte| char::from(b'a' + byte % 16)).collect();
        let more: String = (0..16).map(|at| char::from(b'a' + (number >> at & 1) as u8)).collect();
        let id = format!("weir-id:{}{more}", &digits[..16]);
        DatedId { id: id.parse().unwrap(), expires: Some(seconds_from_now(3600)) }
    });
    let full: RevokedSet = ids.collect();
    let list = RevocationList::sign(&net.operator.identity, 1, seconds_from_now(0), full).unwrap();
    let reply = net.testbed.send_request_with_body(json!("revoke"), list.to_string().as_bytes());
    assert!(reply.get("done").is_some(), "{reply}");
    let (node, file) = (format!("{}@{AT}", net.node), net.folder.path().join("list"));
    let revoke = |what: &str| {
        let key = text(&net.operator.key);
        run_failing(&["credential", "revoke", what, "--key", key, "--list", text(&file), "--node", &node])
    };
    let said = revoke(text(&early.credential));
    assert!(
        said.contains("1 entries of the revocation list found no room") && said.contains("--all-before"),
        "{said}"
    );
    net.run(&early, &["session", "list"]);
    let before = time.to_string();
    revoke_and_deliver(&net, &net.operator, "all", &["--all-before", &before], &[]);
    net.run_refused(&early, &["session", "list"], "was signed before");
    net.run(&late, &["session", "list"]);
    let counts = &net.testbed.snapshot()["revocations"];
    assert_eq!(counts["deliveries"]["full"], 1, "{counts}");
    assert_eq!(counts["entries"][net.operator.identity.public().to_string()], 16_384, "{counts}");
    assert!(net.testbed.stop().success());
}

#[test]
fn a_holder_can_revoke_its_delegations_and_deliver_the_list() {
    if !is_inside("revocation::a_holder_can_revoke_its_delegations_and_deliver_the_list") {
        return;
    }
    let mut net = Net::new();
    let researcher = net.granted("researcher", modest_grant());
    let [student, other] = ["student", "other"].map(|name| {
        let grant = Grant { expires: Some(seconds_from_now(name.len() as u64 * 100)), ..Grant::default() };
        net.delegated(&researcher, name, grant)
    });
    net.run(&student, &SESSION);
    let own = ["--credential", text(&researcher.credential)];
    let (list, key, node) =
        (net.folder.path().join("list"), text(&researcher.key), format!("{}@{AT}", net.node));
    // A holder cannot revoke its own credential, and a list without a right is not delivered.
    let said = run_failing(&[
        "credential",
        "revoke",
        text(&researcher.credential),
        "--key",
        key,
        "--list",
        text(&list),
    ]);
    assert!(said.contains("has no right to revoke"), "{said}");
    let student_s = text(&student.credential);
    let said = run_failing(&[
        "credential",
        "revoke",
        student_s,
        "--key",
        key,
        "--list",
        text(&list),
        "--node",
        &node,
    ]);
    assert!(said.contains("Name its file with --credential"), "{said}");
    let said = run_failing(&["credential", "deliver", text(&list), "--node", &node]);
    assert!(said.contains("the signer has to deliver it") && said.contains("1 of 1 nodes"), "{said}");
    net.run(&student, &["session", "list"]);
    revoke_and_deliver(&net, &researcher, "list", &[student_s], &own);
    net.testbed.until("the student's session has ended", |testbed| {
        testbed.snapshot()["sessions"].as_array().unwrap().is_empty()
    });
    net.run_refused(&student, &["session", "list"], "revoked");
    for person in [&researcher, &other] {
        net.run(person, &["session", "list"]);
    }
    let root = shown_revocations(&net, &["--key", text(&net.operator.key)]).remove(0);
    assert_eq!(root["delegated"][0]["entries"], json!([credential_id(&student)]), "{root}");
    assert!(net.testbed.stop().success());
    net.testbed.start();
    net.run_refused(&student, &["session", "list"], "revoked");
    assert!(net.testbed.stop().success());
}

#[test]
fn a_delegate_over_its_rate_delays_no_list_of_its_delegator() {
    if !is_inside("revocation::a_delegate_over_its_rate_delays_no_list_of_its_delegator") {
        return;
    }
    let mut net = Net::new();
    let researcher = net.granted("researcher", modest_grant());
    let student = net.delegated(&researcher, "student", Grant::default());
    // A list of a delegator below its own link, delivered once: `weir credential deliver` would retry.
    let deliver = |who: &Person, number: u64, what: DatedId| {
        let under = credential_id(who).parse::<DatedId>().unwrap().id;
        let issuer = Issuer::delegator(net.operator.identity.public(), who.identity.public(), under);
        let list = RevocationList::sign_as(&who.identity, issuer, number, seconds_from_now(0), what.into());
        let (mut stream, list) = (authenticated_stream(&net, who), list.unwrap().to_string());
        let request = json!({"weir": 1, "request": "revoke", "body": list.len()});
        std::io::Write::write_all(&mut stream, format!("{request}\n{list}").as_bytes()).unwrap();
        stream.finish().unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        serde_json::from_str::<Value>(&said).unwrap()["reply"].clone()
    };
    // Each list of the student revokes another credential, until the rate is exceeded.
    let mut taken = 0;
    let why = loop {
        let digits: String = (0..32).map(|at| char::from(b'a' + (taken >> (at % 5) & 1) as u8)).collect();
        let what = DatedId { id: format!("weir-id:{digits}").parse().unwrap(), expires: None };
        let reply = deliver(&student, taken, what);
        if let Some(refused) = reply.get("refused") {
            break refused["why"].to_string();
        }
        taken += 1;
        assert!(taken < 32, "so many lists were taken");
    };
    assert!(taken >= 8 && why.contains("come too often"), "{taken}: {why}");
    // The researcher's list is accepted at the first attempt.
    let reply = deliver(&researcher, 1, credential_id(&student).parse().unwrap());
    assert!(reply.get("done").is_some(), "{reply}");
    net.run_refused(&student, &["session", "list"], "revoked");
    let counts = &net.testbed.snapshot()["revocations"]["deliveries"];
    assert_eq!(counts["rate-limited"], 1, "{counts}");
    assert!(net.testbed.stop().success());
}

#[test]
fn a_list_is_refused_until_it_is_written_and_a_restart_loses_nothing() {
    if !is_inside("revocation::a_list_is_refused_until_it_is_written_and_a_restart_loses_nothing") {
        return;
    }
    let mut net = Net::new();
    let [alice, bob] = ["alice", "bob"].map(|name| net.granted(name, modest_grant()));
    // A file in the place of the folder prevents all writes.
    let folder = net.testbed.path().join("state/revoked");
    _ = std::fs::remove_dir_all(&folder);
    std::fs::write(&folder, "").unwrap();
    let (list, node) = (net.folder.path().join("first"), format!("{}@{AT}", net.node));
    let end = ["--key", text(&net.operator.key), "--list", text(&list), "--node", &node];
    let said = run_failing(&[&["credential", "revoke", text(&alice.credential)], &end[..]].concat());
    assert!(said.contains("cannot be written") && said.contains("1 of 1 nodes"), "{said}");
    // The list is in effect, but each delivery is refused while it cannot be written.
    net.run_refused(&alice, &["session", "list"], "revoked");
    let deliver = ["credential", "deliver", text(&list), "--node", &node];
    assert!(run_failing(&deliver).contains("cannot be written"));
    // The same list as a whole, without an offer.
    let whole = std::fs::read(&list).unwrap();
    let said = net.testbed.send_request_with_body(json!("revoke"), &whole)["refused"]["why"].to_string();
    assert!(said.contains("cannot be written"), "{said}");
    // When another list can be written, the first one is written with it.
    std::fs::remove_file(&folder).unwrap();
    revoke_and_deliver(&net, &net.operator, "second", &[text(&bob.credential)], &[]);
    let said = run(&deliver);
    assert!(said.contains("known already"), "{said}");
    let counts = &net.testbed.snapshot()["revocations"]["deliveries"];
    assert_eq!(
        (&counts["not-stored"], &counts["accepted"], &counts["known"]),
        (&json!(3), &json!(1), &json!(1))
    );
    let said = net.testbed.log();
    assert_eq!(
        (said.matches("in effect, but cannot be written:").count(), said.matches("written again").count()),
        (1, 1)
    );
    net.testbed.kill();
    net.testbed.start();
    for person in [&alice, &bob] {
        net.run_refused(person, &["session", "list"], "revoked");
    }
    // The delivery of a known list also causes a write.
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, "").unwrap();
    let carol = net.granted("carol", modest_grant());
    let third = net.folder.path().join("third");
    let end = ["--key", text(&net.operator.key), "--list", text(&third), "--node", &node];
    run_failing(&[&["credential", "revoke", text(&carol.credential)], &end[..]].concat());
    std::fs::remove_file(&folder).unwrap();
    let deliver = ["credential", "deliver", text(&third), "--node", &node];
    net.testbed.until("the state is written", |_| weir(&deliver).status.success());
    net.testbed.kill();
    net.testbed.start();
    for person in [&alice, &bob, &carol] {
        net.run_refused(person, &["session", "list"], "revoked");
    }
    assert!(net.testbed.stop().success());
}

#[test]
fn a_list_without_changes_is_known_by_its_header_afterwards() {
    if !is_inside("revocation::a_list_without_changes_is_known_by_its_header_afterwards") {
        return;
    }
    let mut net = Net::new();
    let entry = |name: &str| {
        let guest = net.granted(name, modest_grant());
        let credential: Credential = std::fs::read_to_string(&guest.credential).unwrap().parse().unwrap();
        DatedId::of_chain(credential.claimed_blocks()).last().unwrap()
    };
    let (alice, bob) = (entry("alice"), entry("bob"));
    // The second list contains less than the first.
    let [first, second] =
        [(1, RevokedSet::from_iter([alice, bob])), (2, alice.into())].map(|(number, revoked)| {
            RevocationList::sign(&net.operator.identity, number, UnixSecond::default(), revoked).unwrap()
        });
    let deliver = |list: &RevocationList| {
        net.testbed.send_request_with_body(json!("revoke"), list.to_string().as_bytes())
    };
    let offer = |list: &RevocationList| {
        net.testbed.send_request_with_body(json!("revoke"), list.header().unwrap().as_bytes())
    };
    for list in [&first, &second] {
        let reply = offer(list);
        assert!(reply.get("uploaded").is_some(), "{reply}");
        let reply = deliver(list);
        assert!(reply.get("done").is_some(), "{reply}");
        let reply = offer(list);
        assert!(reply["done"]["notes"][0].as_str().is_some_and(|note| note.contains("known")), "{reply}");
    }
    assert!(net.testbed.stop().success());
}

#[test]
fn a_list_that_could_not_be_written_is_written_when_the_node_stops() {
    if !is_inside("revocation::a_list_that_could_not_be_written_is_written_when_the_node_stops") {
        return;
    }
    let mut net = Net::new();
    let alice = net.granted("alice", modest_grant());
    let folder = net.testbed.path().join("state/revoked");
    _ = std::fs::remove_dir_all(&folder);
    std::fs::write(&folder, "").unwrap();
    let (list, node) = (net.folder.path().join("list"), format!("{}@{AT}", net.node));
    let end = ["--key", text(&net.operator.key), "--list", text(&list), "--node", &node];
    run_failing(&[&["credential", "revoke", text(&alice.credential)], &end[..]].concat());
    // The last attempt was a moment ago, so none is due now.
    let list = std::fs::read(&list).unwrap();
    net.testbed.until("an attempt has failed", |testbed| {
        testbed.send_request_with_body(json!("revoke"), &list)["refused"]["why"]
            .as_str()
            .is_some_and(|why| why.contains("cannot be written"))
    });
    std::fs::remove_file(&folder).unwrap();
    assert!(net.testbed.stop().success());
    net.testbed.start();
    net.run_refused(&alice, &["session", "list"], "revoked");
    assert!(net.testbed.stop().success());
}

/// Starts a relay through which connections reach the node from this source address. Returns the relay's address.
fn relay_from(from: Ipv4Addr) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            std::thread::spawn(move || {
                let there = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
                bind(&there, &SocketAddrV4::new(from, 0)).unwrap();
                connect(&there, &AT.parse::<SocketAddrV4>().unwrap()).unwrap();
                let mut node = TcpStream::from(there);
                let (mut back, mut to) = (node.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || {
                    _ = std::io::copy(&mut back, &mut to);
                    _ = to.shutdown(Shutdown::Both);
                });
                _ = std::io::copy(&mut client, &mut node);
                _ = node.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

#[test]
fn deliveries_arrive_while_peers_without_a_credential_flood_the_node() {
    if !is_inside("revocation::deliveries_arrive_while_peers_without_a_credential_flood_the_node") {
        return;
    }
    let mut net = Net::new();
    let holder = net.granted("holder", modest_grant());
    let (is_over, held_open) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    // Seven threads from one address, each with new keys and no credential. Each connection occupies a slot as long as possible.
    let flood: Vec<_> = (0..7)
        .map(|_| {
            let (is_over, held_open) = (Arc::clone(&is_over), Arc::clone(&held_open));
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    let (at, key) = (AT.parse().unwrap(), Identity::generate(&mut OsRng));
                    let Ok(mut stream) = weir_remote::connect(at, &key, None, &[], Duration::from_secs(5))
                    else {
                        continue;
                    };
                    held_open.fetch_add(1, Ordering::AcqRel);
                    stream.set_deadline(Some(Instant::now() + TIMEOUT));
                    _ = stream.read(&mut [0]);
                }
            })
        })
        .collect();
    net.testbed.until("the flood has arrived", |_| held_open.load(Ordering::Acquire) >= 7);
    // Deliverers with a right use another source address than the flood, with a rate limit of its own.
    let node = format!("{}@{}", net.node, relay_from(Ipv4Addr::new(127, 8, 8, 8)));
    let list = net.folder.path().join("list");
    let mut known = 0;
    let mut listed = |count: u64| {
        // Each list has one more entry.
        let digits: String = (0..32).map(|at| char::from(b'a' + (count >> (at % 5) & 1) as u8)).collect();
        let revoked = DatedId { id: format!("weir-id:{digits}").parse().unwrap(), expires: None };
        let signed = RevocationList::sign(&net.operator.identity, count, seconds_from_now(0), revoked.into());
        std::fs::write(&list, signed.unwrap().to_string()).unwrap();
        known += 1;
        known
    };
    for count in 0..25 {
        let entries = listed(count);
        let by = if count % 2 == 0 {
            vec!["--key", text(&net.operator.key)]
        } else {
            vec!["--key", text(&holder.key), "--credential", text(&holder.credential)]
        };
        let output = weir(&[&["credential", "deliver", text(&list), "--node", &node], &by[..]].concat());
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(&format!("has {entries} revocations in all")), "{output:?}");
        // At the first attempt.
        assert!(!String::from_utf8_lossy(&output.stderr).contains("attempt"), "{output:?}");
    }
    // Also without any right, from a third address.
    let relay = format!("{}@{}", net.node, relay_from(Ipv4Addr::new(127, 9, 9, 9)));
    for count in 25..30 {
        let entries = listed(count);
        let said = run(&["credential", "deliver", text(&list), "--node", &relay]);
        assert!(said.contains(&format!("has {entries} revocations in all")), "{said}");
    }
    let shot = net.testbed.snapshot();
    assert_eq!(shot["revocations"]["deliveries"]["accepted"], 30, "{shot}");
    assert!(shot["remote"]["refused"]["anonymous"].as_u64().unwrap() > 0, "{shot}");
    is_over.store(true, Ordering::Release);
    assert!(net.testbed.stop().success());
    flood.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_list_of_an_unknown_signer_is_refused_by_its_header_and_counted() {
    if !is_inside("revocation::a_list_of_an_unknown_signer_is_refused_by_its_header_and_counted") {
        return;
    }
    let mut net = Net::new();
    let theirs = Identity::generate(&mut OsRng);
    let list = RevocationList::sign(&theirs, 1, seconds_from_now(0), RevokedSet::default()).unwrap();
    let header = list.header().unwrap();
    // The header of a list whose body is never sent: the reply does not wait for it.
    let header = header.replace("body 0 ", "body 900000 ");
    let request =
        format!("{{\"weir\":1,\"request\":\"revoke\",\"body\":{}}}\n{header}", header.len() + 900_000);
    let (at, key) = (AT.parse().unwrap(), Identity::generate(&mut OsRng));
    let mut stream = weir_remote::connect(at, &key, Some(net.node), &[], TIMEOUT).unwrap();
    stream.set_deadline(Some(Instant::now() + TIMEOUT));
    std::io::Write::write_all(&mut stream, format!("{request}{}", "x".repeat(600)).as_bytes()).unwrap();
    std::io::Write::flush(&mut stream).unwrap();
    let mut said = [0; 512];
    let len = stream.read(&mut said).unwrap();
    let said = String::from_utf8_lossy(&said[..len]);
    assert!(said.contains("no root of trust here"), "{said}");
    let counts = net.testbed.snapshot()["revocations"]["deliveries"].clone();
    assert_eq!(counts, json!({"unknown-signer": 1}));
    assert!(net.testbed.log().contains("deliveries of revocation lists were refused: unknown-signer 1"));
    assert!(net.testbed.stop().success());
}
