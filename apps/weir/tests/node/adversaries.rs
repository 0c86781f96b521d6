//! Attackers with forged, stolen or manipulated credentials and messages, over real sockets.

use crate::module::{MANIFEST, assemble, text};
use crate::people::{self, FRIEND, OPERATOR, RESEARCHER, STUDENT, THIEF, authority, block, preamble};
use crate::people::{raw_append, raw_token, rewritten};
use crate::remote::{Net, Person, SESSION, modest_grant, seconds_from_now};
use crate::testbed::{TIMEOUT, is_inside, udp};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{
    Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream, ToSocketAddrs, UdpSocket,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;
use weir_node::client::{Client, ClientError, NodeLocation};
use weir_node::control::protocol::{ControlRequest, LINE_BYTES_MAX, Reply};
use weir_remote::{Acceptor, SecureStream};
use weir_trust::association::{Initiator, SECOND_BYTES, frame};
use weir_trust::credential::Credential;
use weir_trust::gate::GateLimits;
use weir_trust::grant::{Ceilings, CpuShare, Grant, ModuleHash, ModuleSet, Modules};
use weir_trust::key::{Identity, KeyFile, PublicKey};
use weir_units::BitsPerSecond;

const NODE: &str = "127.0.0.1:7353";

/// Connects with these bytes as the credential, and requests a snapshot. Returns the refusal; none if the node accepts.
fn refusal_of(node: PublicKey, identity: Identity, credential: &[u8]) -> Option<String> {
    let there = NodeLocation::Remote {
        addresses: vec![NODE.parse().unwrap()],
        expected: vec![node],
        identity: Box::new(identity),
        credential: credential.to_vec(),
    };
    let asked = Client::connect_to(&there).and_then(|mut client| {
        client.send(ControlRequest::Show, &[])?;
        client.receive()
    });
    match asked {
        Ok(Reply::Snapshot(_)) => None,
        Err(ClientError::Refused(why)) => Some(why),
        other => panic!("{other:?}"),
    }
}

/// A node that trusts the operator of the test credentials.
fn trusting_net() -> Net {
    let net = Net::new();
    let config = std::fs::read_to_string(net.testbed.config()).unwrap();
    let with = config.replace("roots = [\"", &format!("roots = [\"{}\", \"", OPERATOR.key()));
    std::fs::write(net.testbed.config(), with).unwrap();
    net.testbed.request(json!("reload"));
    net
}

/// A credential of the researcher from the operator, valid for an hour.
fn researcher_credential(change: impl FnOnce(&mut Grant)) -> Credential {
    let mut grant = modest_grant();
    change(&mut grant);
    Credential::mint(&OPERATOR.identity(), RESEARCHER.key(), grant, None, &mut people::Counting(0)).unwrap()
}

#[test]
fn forged_credentials_are_refused() {
    if !is_inside("adversaries::forged_credentials_are_refused") {
        return;
    }
    let mut net = trusting_net();
    let first = researcher_credential(|grant| grant.delegations = Some(1));
    let free = researcher_credential(|_| ());
    // A block that the researcher appends for another key.
    let by_researcher = |to: people::Person, more: &str| {
        raw_append(free.as_bytes(), &RESEARCHER.private(), block(&format!("{} {more}", preamble(to))), 5)
    };
    let to_student = raw_append(first.as_bytes(), &RESEARCHER.private(), block(&preamble(STUDENT)), 5);
    let over = raw_append(&to_student, &STUDENT.private(), block(&preamble(FRIEND)), 6);
    let there = by_researcher(STUDENT, "");
    let circle = raw_append(&there, &STUDENT.private(), block(&preamble(RESEARCHER)), 6);
    let joins: String = (0..24).map(|number| format!("n({number});")).collect();
    let bomb = format!("{joins} b($a, $b, $c, $d, $e) <- n($a), n($b), n($c), n($d), n($e);");
    let mut flipped = free.as_bytes().to_vec();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let second = authority(THIEF).replace("weir(\"credential\", 1, null);", "weir(\"credential\", 2, null);");
    let cases = [
        ("stolen", THIEF, free.as_bytes().to_vec(), "but you are"),
        ("stolen from a delegate", THIEF, there.clone(), "but you are"),
        ("cut back to what he had before it was narrowed", STUDENT, free.as_bytes().to_vec(), "but you are"),
        ("of another operator", THIEF, raw_token(THIEF, block(&authority(THIEF))), "forged"),
        (
            "passed on by somebody else",
            THIEF,
            raw_append(free.as_bytes(), &THIEF.private(), block(&preamble(THIEF)), 5),
            "was signed by",
        ),
        ("over-delegated", FRIEND, over, "once more than block"),
        ("widened: memory", STUDENT, by_researcher(STUDENT, "memory(16777217);"), "widened"),
        ("widened: sessions", STUDENT, by_researcher(STUDENT, "sessions(3);"), "widened"),
        ("widened: time", STUDENT, by_researcher(STUDENT, "expires(2090-01-01T00:00:00Z);"), "widened"),
        ("circular", RESEARCHER, circle, "circular chains"),
        ("changed", RESEARCHER, flipped, ""),
        ("cut", RESEARCHER, free.as_bytes()[..middle].to_vec(), ""),
        ("Datalog that takes for ever", STUDENT, by_researcher(STUDENT, &bomb), "rules"),
        (
            "the same of the operator's",
            THIEF,
            raw_token(OPERATOR, block(&format!("{} {bomb}", authority(THIEF)))),
            "rules",
        ),
        ("a rule", STUDENT, by_researcher(STUDENT, "memory($x) <- sessions($x);"), "rules"),
        ("a check", STUDENT, by_researcher(STUDENT, "check if true;"), "checks"),
        ("an unknown fact", STUDENT, by_researcher(STUDENT, "right(\"all\");"), "right"),
        ("a block of another version", THIEF, raw_token(OPERATOR, block(&second)), "block 0"),
        (
            "too many blocks",
            RESEARCHER,
            rewritten(free.as_bytes(), |token| token.blocks = vec![token.authority.clone(); 40]),
            "41 blocks",
        ),
        ("no credential", RESEARCHER, vec![0x0a; 16_384], "no credential"),
        ("a little of something", RESEARCHER, vec![7], "no credential"),
    ];
    for (what, peer, credential, says) in cases {
        let why = refusal_of(net.node, peer.identity(), &credential);
        assert!(why.as_ref().is_some_and(|why| why.contains(says)), "{what}: {why:?}");
        assert!(why.is_some_and(|why| why.len() < 2000), "{what}");
    }
    assert!(net.sessions().is_empty());
    // The valid credentials are accepted, so the others were refused for their defects alone.
    for (peer, credential) in [(RESEARCHER, free.as_bytes()), (STUDENT, &there), (STUDENT, &to_student)] {
        assert_eq!(refusal_of(net.node, peer.identity(), credential), None);
    }
    // The refused connections have taken no resources from a valid holder.
    let researcher = net.granted("researcher", modest_grant());
    net.run(&researcher, &SESSION);
    assert!(net.testbed.stop().success());
}

#[test]
fn a_delegation_exceeds_its_delegator_in_no_resource() {
    if !is_inside("adversaries::a_delegation_exceeds_its_delegator_in_no_resource") {
        return;
    }
    let mut net = trusting_net();
    let hash = |byte: &str| format!("hex:{}", byte.repeat(32));
    let (one, other) = (hash("11"), hash("22"));
    let begins = seconds_from_now(0);
    let has = researcher_credential(|grant| {
        let hashes = [ModuleHash([0x11; 32])].into();
        grant.modules = Modules::from(ModuleSet { hashes, ..ModuleSet::default() });
        grant.profiles = Some(["strict".parse().unwrap()].into());
        grant.interfaces = Some(["b".parse().unwrap()].into());
        grant.view = Some("payload=none,addresses=anonymised,macs=zeroed".parse().unwrap());
        grant.writes = Some(["ttl".parse().unwrap()].into());
        grant.nodes = Some(["*.example".parse().unwrap()].into_iter().collect());
        grant.ceilings.bandwidth = Some(BitsPerSecond(1_000_000));
        grant.ceilings.records_per_second = Some(10);
        grant.ceilings.kept_packets = Some(10);
        grant.not_before = Some(begins);
        grant.delegations = Some(2);
    });
    let friend = FRIEND.datalog();
    // For each resource a grant beyond the holder's, the name of the resource in the refusal, and a grant within it.
    let parts = [
        ("profile", r#"profile("default");"#.to_owned(), r#"profile("strict");"#.to_owned()),
        ("modules", format!("modules([{one}, {other}], []);"), format!("modules([{one}], []);")),
        ("modules", format!("modules([{other}], []);"), "modules([], []);".into()),
        ("modules", format!("modules([{one}], [{friend}]);"), format!("modules([{one}], []);")),
        ("interfaces", r#"interfaces(["a", "b"]);"#.into(), r#"interfaces(["b"]);"#.into()),
        ("interfaces", r#"interfaces(["a"]);"#.into(), "interfaces([]);".into()),
        ("view", r#"view("all");"#.into(), r#"view("payload=none,addresses=zeroed,macs=zeroed");"#.into()),
        (
            "view",
            r#"view("payload=1,addresses=anonymised,macs=zeroed");"#.into(),
            r#"view("payload=none,addresses=anonymised,macs=zeroed");"#.into(),
        ),
        (
            "view",
            r#"view("payload=none,macs=zeroed");"#.into(),
            r#"view("payload=none,addresses=anonymised,macs=zeroed,ports=zeroed");"#.into(),
        ),
        ("fields to write", r#"writes(["payload", "ttl"]);"#.into(), r#"writes(["ttl"]);"#.into()),
        ("processor time", "cpu(100001);".into(), "cpu(100000);".into()),
        ("memory", "memory(16777217);".into(), "memory(16777216);".into()),
        ("bandwidth", "bandwidth(1000001);".into(), "bandwidth(1000000);".into()),
        ("records per second", "records(11);".into(), "records(10);".into()),
        ("kept packets", "kept(11);".into(), "kept(10);".into()),
        ("sessions", "sessions(3);".into(), "sessions(2);".into()),
        ("nodes", r#"nodes(["ix-1.org", "*.example"]);"#.into(), r#"nodes(["ix-1.example"]);"#.into()),
        ("beginning", "not_before(1970-01-02T00:00:00Z);".into(), format!("not_before({begins});")),
        ("end", "expires(2090-01-01T00:00:00Z);".into(), format!("expires({});", seconds_from_now(1800))),
        // The credential was delegated once before.
        ("further delegations", "delegations(2);".into(), "delegations(1);".into()),
    ];
    let passed_on = |part: &str| {
        let block = block(&format!("{} {part}", preamble(STUDENT)));
        raw_append(has.as_bytes(), &RESEARCHER.private(), block, 5)
    };
    for (part, more, same) in &parts {
        let why = refusal_of(net.node, STUDENT.identity(), &passed_on(more));
        let says = format!("widened: block 1 asks for more than its holder was given; {part}: asked for");
        assert!(why.as_ref().is_some_and(|why| why.contains(&says)), "{more}: {why:?}");
        assert_eq!(refusal_of(net.node, STUDENT.identity(), &passed_on(same)), None, "{same}");
        // A further delegation of a valid credential cannot exceed it either.
        let again = block(&format!("{} {more}", preamble(THIEF)));
        let again = raw_append(&passed_on(same), &STUDENT.private(), again, 6);
        let why = refusal_of(net.node, THIEF.identity(), &again);
        assert!(why.as_ref().is_some_and(|why| why.contains("widened: block 2")), "{more}: {why:?}");
    }
    assert!(net.sessions().is_empty());
    assert!(net.testbed.stop().success());
}

/// Makes the system's name resolution use a server in this namespace. Returns its number of queries.
fn count_name_lookups(folder: &std::path::Path) -> Arc<AtomicUsize> {
    for (name, text) in [("resolv.conf", "nameserver 127.0.0.1\n"), ("nsswitch.conf", "hosts: files dns\n")] {
        let (here, there) = (folder.join(name), std::path::Path::new("/etc").join(name));
        std::fs::write(&here, text).unwrap();
        // A missing file needs no replacement: the C library then uses these defaults.
        if there.exists() {
            let mount = std::process::Command::new("mount").arg("--bind").args([&here, &there]).status();
            assert!(mount.unwrap().success(), "{name}");
        }
    }
    let (socket, asked) = (UdpSocket::bind("127.0.0.1:53").unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut question) {
            count.fetch_add(1, Ordering::AcqRel);
            // Answers that the name does not exist.
            question[2..4].copy_from_slice(&[0x81, 0x83]);
            _ = socket.send_to(&question[..len], from);
        }
    });
    asked
}

#[test]
fn a_delegated_filter_escapes_nothing_looks_up_no_names_and_terminates() {
    if !is_inside("adversaries::a_delegated_filter_escapes_nothing_looks_up_no_names_and_terminates") {
        return;
    }
    let mut net = Net::new();
    let asked = count_name_lookups(net.folder.path());
    let filters = ["udp".parse().unwrap()].into();
    // Half of a core, which pays for compiling the filters.
    let ceilings = Ceilings { cpu: Some(CpuShare(500_000)), ..modest_grant().ceilings };
    let researcher = net.granted("researcher", Grant { filters, ceilings, ..modest_grant() });
    let passed_on = |name: &str, filter: &str| {
        let filters = [filter.parse().unwrap()].into();
        net.delegated(&researcher, name, Grant { filters, ..Grant::default() })
    };
    let create = ["session", "create", "study", "--memory", "1 MiB", "--cpu", "period=10ms,slice=100us"];
    let with = |channel: &'static str| [&create[..], &["--channel", channel]].concat();
    let hard = "(".repeat(200) + "udp" + &")".repeat(200);
    for (number, (filter, says)) in [
        (") or (", "syntax error"),
        ("udp) or (tcp", "syntax error"),
        ("port 53) or (1 = 1", "syntax error"),
        ("udp or", "syntax error"),
        ("host example.com", "names are not looked up"),
        ("udp or host example.com", "names are not looked up"),
        ("port no-such-service", "names are not looked up"),
        ("ip proto \\no-such-protocol", "names are not looked up"),
        (&hard, "more than 100 levels"),
    ]
    .into_iter()
    .enumerate()
    {
        let student = passed_on(&format!("student-{number}"), filter);
        // The credential is accepted, as its filter's text is only compiled with a session's filter. Then it is
        // refused, whatever the session's own filter is.
        net.run(&student, &["session", "list"]);
        net.run_refused(&student, &with("interface=b"), says);
        net.run_refused(&student, &with("interface=b,filter=udp"), says);
        // The same holds for a delegate of the student.
        let friend = net.delegated(&student, &format!("friend-{number}"), Grant::default());
        net.run_refused(&friend, &with("interface=b"), says);
    }
    assert!(net.sessions().is_empty());

    // A valid filter selects its packets, within those of the researcher; one that accepts everything selects no more than those.
    let all = passed_on("all", "tcp or udp or arp or ip or not ip");
    let some = passed_on("some", "tcp or udp port 53");
    for student in [&all, &some] {
        net.run(student, &with("interface=b,filter=tcp or udp"));
        net.run(student, &["load", "study", "port-count"]);
    }
    let mut tcp = udp(53, b"not for them");
    tcp[23] = 6;
    net.testbed.send(&[tcp.clone(), udp(53, b"for both"), tcp, udp(7, b"for one of them")]);
    for (student, packets) in [(&all, 2), (&some, 1)] {
        let name = student.name_of("study");
        net.testbed
            .until("they have arrived", |testbed| testbed.count(&name, "port-count", "packets") >= packets);
        assert_eq!(net.testbed.part(&name, "channels", "main")["packets"], packets);
    }
    // No name was looked up. The counter works: a lookup is counted.
    assert_eq!(asked.load(Ordering::Acquire), 0);
    assert!(("example.com", 80).to_socket_addrs().is_err());
    assert!(asked.load(Ordering::Acquire) > 0);
    assert!(net.testbed.stop().success());
}

#[test]
fn a_holders_filter_escapes_nothing_looks_up_no_names_and_terminates() {
    if !is_inside("adversaries::a_holders_filter_escapes_nothing_looks_up_no_names_and_terminates") {
        return;
    }
    let mut net = Net::new();
    let filters = ["udp".parse().unwrap()].into();
    let guest = net.granted("guest", Grant { filters, ..modest_grant() });
    net.run(
        &guest,
        &["session", "create", "study", "--memory", "1 MiB", "--channel", "interface=b,filter=tcp or udp"],
    );
    let hard = "(".repeat(200) + "udp" + &")".repeat(200);
    for (filter, says) in [
        (") or (", "syntax error"),
        ("udp) or (tcp", "syntax error"),
        ("port 53) or (1 = 1", "syntax error"),
        ("host example.com", "names are not looked up"),
        ("port no-such-service", "names are not looked up"),
        ("ip proto \\\\no-such-protocol", "names are not looked up"),
        (&hard, "more than 100 levels"),
    ] {
        let channel = format!("name=more,interface=b,filter={filter}");
        net.run_refused(&guest, &["session", "change", "study", "--channel", &channel], says);
    }
    net.run(&guest, &["load", "study", "port-count"]);
    // The student's own filter accepts both packets, the credential's only one.
    let mut tcp = udp(1, b"not for him");
    tcp[23] = 6;
    net.testbed.send(&[tcp.clone(), udp(2, b"for him"), tcp, udp(3, b"and this")]);
    let name = guest.name_of("study");
    net.testbed.until("they have arrived", |testbed| testbed.count(&name, "port-count", "packets") >= 2);
    assert_eq!(net.testbed.part(&name, "channels", "main")["packets"], 2);
    assert!(net.testbed.stop().success());
}

#[test]
fn a_holder_reaches_no_other_session_by_its_name() {
    if !is_inside("adversaries::a_holder_reaches_no_other_session_by_its_name") {
        return;
    }
    let mut net = Net::new();
    let (alice, bob) = (net.granted("alice", modest_grant()), net.granted("bob", modest_grant()));
    let create = |name: &str| ["session", "create", name, "--memory", "1 MiB"].map(str::to_owned);
    let done = |who: &Person, arguments: &[String]| {
        net.run(who, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    done(&alice, &create("study"));
    let hers = alice.name_of("study");
    // Bob names a session by the node's internal name of Alice's session, and by the name of the operator's.
    done(&bob, &create(&hers));
    let his = bob.name_of(&hers);
    let names = |net: &Net| {
        let mut names: Vec<String> =
            net.sessions().iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    let mut both = vec![hers.clone(), his.clone()];
    both.sort();
    assert_ne!(hers, his);
    assert_eq!(names(&net), both);
    assert!(net.testbed.request_refused(json!({"create": {"name": hers.as_str()}})).contains("already"));
    // Requests with that name concern Bob's session, also by the node's internal name of it.
    done(&bob, &["session", "close", &hers].map(str::to_owned));
    assert_eq!(names(&net), [hers.as_str()]);
    net.run_refused(&bob, &["session", "close", &hers], "no session");
    net.run_refused(&bob, &["load", &hers, "port-count"], "no session");
    net.testbed.request(json!({"create": {"name": "study"}}));
    net.run_refused(&bob, &["session", "close", "study"], "no session");
    assert_eq!(net.sessions().len(), 2);
    assert!(net.testbed.stop().success());
}

/// A connection from this source address.
fn connect_from(from: Ipv4Addr) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddrV4::new(from, 0)).unwrap();
    connect(&socket, &NODE.parse::<SocketAddrV4>().unwrap()).unwrap();
    TcpStream::from(socket)
}

#[test]
fn ten_thousand_half_open_connections_keep_no_holder_out() {
    if !is_inside("adversaries::ten_thousand_half_open_connections_keep_no_holder_out") {
        return;
    }
    let mut net = Net::new();
    let guest = net.granted("guest", modest_grant());
    weir_netio::raise_file_descriptor_limit().unwrap();
    // The maximum number of connections is open at the same time; the oldest are closed for new ones.
    let most = usize::try_from(weir_netio::file_descriptor_limit().unwrap() / 2).unwrap_or(usize::MAX);
    let mut open = std::collections::VecDeque::new();
    for number in 0..10_000u32 {
        let [.., host] = number.to_be_bytes();
        let mut stream = connect_from(Ipv4Addr::new(127, 7, host % 4, 1 + host % 2));
        // Some send a first message, which the node answers. They may have been closed already.
        if number % 10 == 0 {
            let (_, first) = Initiator::begin(None, &mut rand_core::OsRng).unwrap();
            _ = stream.write_all(&frame::framed(&first).unwrap());
        }
        open.push_back(stream);
        if open.len() > most {
            open.pop_front();
        }
        if number % 2000 == 1999 {
            net.run(&guest, &["session", "list"]);
        }
    }
    net.run(&guest, &SESSION);
    drop(open);
    assert!(net.testbed.stop().success());
}

/// An authenticated connection of this person.
pub fn authenticated_stream(net: &Net, who: &Person) -> SecureStream {
    let credential: Credential = std::fs::read_to_string(&who.credential).unwrap().parse().unwrap();
    let identity = identity(who);
    let address: SocketAddr = NODE.parse().unwrap();
    let mut stream =
        weir_remote::connect(address, &identity, Some(net.node), credential.as_bytes(), TIMEOUT).unwrap();
    stream.set_deadline(Some(Instant::now() + TIMEOUT));
    stream
}

fn identity(who: &Person) -> Identity {
    KeyFile::parse(&std::fs::read_to_string(&who.key).unwrap()).unwrap().open(None).unwrap()
}

#[test]
fn truncated_huge_or_foreign_messages_affect_no_other_client() {
    if !is_inside("adversaries::truncated_huge_or_foreign_messages_affect_no_other_client") {
        return;
    }
    let mut net = Net::new();
    let guest = net.granted("guest", modest_grant());
    net.run(&guest, &SESSION);
    let load = |body: u64| {
        format!(
            "{{\"weir\":1,\"request\":{{\"load\":{{\"session\":\"study\",\"module\":{{\"module\":\"m\"}}}}}},\"body\":{body}}}\n"
        )
    };
    let line = vec![b'a'; LINE_BYTES_MAX + 2];
    let deep = [vec![b'['; 200_000], b"\n".to_vec()].concat();
    for (what, bytes, says) in [
        ("of another version", b"{\"weir\":2,\"request\":\"show\"}\n".to_vec(), Some("speaks version 1")),
        (
            "of a version that no number is",
            b"{\"weir\":1e999,\"request\":\"show\"}\n".to_vec(),
            Some("not a request"),
        ),
        ("nothing", b"\n".to_vec(), Some("not a request")),
        ("no text", vec![0xff, 0xfe, b'\n'], Some("not a request")),
        ("deep", deep, Some("not a request")),
        ("a line without an end", line, Some("a line has at most")),
        ("a file that is too long", load(u32::MAX.into()).into_bytes(), Some("has at most")),
        ("a length that is none", load(u64::MAX).into_bytes(), Some("not a request")),
        (
            "a part that is too long",
            b"{\"weir\":1,\"request\":{\"upload\":{\"file\":\"00\",\"bytes\":1,\"from\":0}},\"body\":9999999}\n"
                .to_vec(),
            Some("not a request"),
        ),
        ("cut in a line", b"{\"weir\":1,\"request\":{\"clo".to_vec(), Some("not a request")),
        ("cut in a file", [load(100).into_bytes(), vec![0; 50]].concat(), None),
        (
            "two at once",
            b"{\"weir\":1,\"request\":\"show\"}\n{\"weir\":1,\"request\":\"explode\"}\n".to_vec(),
            Some("explode"),
        ),
    ] {
        let mut stream = authenticated_stream(&net, &guest);
        // The node may close the connection before all is written.
        _ = stream.write_all(&bytes).and_then(|()| stream.finish());
        let mut answers = Vec::new();
        let ended = stream.read_to_end(&mut answers);
        let answers = String::from_utf8(answers).unwrap();
        match says {
            // If the message is too long, the reply may be lost with the connection.
            Some(says) => assert!(
                answers.contains(says) || bytes.len() > LINE_BYTES_MAX && ended.is_err(),
                "{what}: {answers}"
            ),
            None => assert_eq!(answers, "", "{what}"),
        }
        assert!(answers.len() < 100_000, "{what}");
    }
    // Nothing has changed.
    assert_eq!(net.sessions().len(), 1);
    let status = net.run(&guest, &["session", "show", "study", "--json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&status).unwrap()["modules"], json!([]));
    assert!(net.testbed.stop().success());
}

/// Returns the line of a request with the maximum length: `before`, numbered copies of `one`, and `after`.
fn full_line(before: &str, one: &str, after: &str) -> String {
    let (mut line, mut number) = (format!("{{\"weir\":1,\"request\":{before}"), 0);
    while line.len() + one.len() + 8 + after.len() < LINE_BYTES_MAX {
        let comma = if number == 0 { "" } else { "," };
        line.push_str(comma);
        line.push_str(&one.replace('#', &format!("{number:x}")));
        number += 1;
    }
    assert!(number > 10_000, "{number}");
    line + after + "}\n"
}

#[test]
fn a_request_with_too_many_elements_is_refused_as_a_whole() {
    if !is_inside("adversaries::a_request_with_too_many_elements_is_refused_as_a_whole") {
        return;
    }
    let mut net = Net::new();
    // The credential has long filters, which each of its channels would need.
    let researcher = net.granted("researcher", modest_grant());
    let hosts = (0..190).map(|n| format!("host 10.0.0.{n}")).collect::<Vec<_>>().join(" or ");
    let filters = [hosts.parse().unwrap()].into();
    let guest = net.delegated(&researcher, "guest", Grant { filters, ..Grant::default() });
    net.run(&guest, &SESSION);
    let before = net.testbed.memory();
    for (begin, one, end, what) in [
        (r#"{"create":{"name":"t","channel":["#, r#"{"interface":""}"#, "]}}", "channels"),
        (r#"{"create":{"name":"t","module":["#, r#"{"module":"rtt"}"#, "]}}", "modules"),
        (r#"{"change":{"session":"study","cpu":["#, r#"{"name":"a#"}"#, "]}}", "virtual CPUs"),
        (r#"{"change":{"session":"study","remove_use":["#, r#""a#""#, "]}}", "names in a list"),
        (
            r#"{"explain":{"request":{"change":{"session":"study","cpu":["#,
            r#"{"name":"a#"}"#,
            "]}}}}",
            "virtual CPUs",
        ),
        (
            r#"{"explain":{"request":{"create":{"name":"t","channel":["#,
            r#"{"interface":""}"#,
            "]}}}}",
            "channels",
        ),
    ] {
        let line = full_line(begin, one, end);
        let says = format!("too many {what} (64 at most) at line 1 column");
        let mut stream = authenticated_stream(&net, &guest);
        stream.write_all(line.as_bytes()).and_then(|()| stream.finish()).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        assert!(answers.contains(&says), "{what}: {answers}");
        // The same for the operator.
        let mut operator = net.testbed.connect();
        operator.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        operator.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(&says), "{what}: {answer}");
    }
    // None of the 60,000 channels was created, nor their filters compiled.
    let after = net.testbed.memory();
    assert!(after < before + (64 << 20), "{before} bytes before, {after} after");
    assert_eq!(net.sessions().len(), 1);
    assert!(net.testbed.stop().success());
}

/// A relay for one connection, which changes the byte at `change`, if given. Returns its address, and a receiver of all
/// bytes to the node.
fn relay(change: Option<usize>) -> (SocketAddr, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (went, seen) = channel();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut node = TcpStream::connect(NODE).unwrap();
        let (mut back, mut to) = (node.try_clone().unwrap(), client.try_clone().unwrap());
        let other = std::thread::spawn(move || {
            _ = std::io::copy(&mut back, &mut to);
            _ = to.shutdown(Shutdown::Both);
        });
        let (mut all, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = client.read(&mut part) {
            let bytes = &mut part[..count];
            if let Some(byte) =
                change.and_then(|at| at.checked_sub(all.len())).and_then(|at| bytes.get_mut(at))
            {
                *byte = byte.wrapping_add(1);
            }
            all.extend_from_slice(bytes);
            if node.write_all(bytes).is_err() {
                break;
            }
        }
        _ = node.shutdown(Shutdown::Write);
        _ = other.join();
        _ = went.send(all);
    });
    (address, seen)
}

/// Runs a command of a person through the relay.
fn run_via(net: &Net, who: &Person, relay_address: SocketAddr, arguments: &[&str]) -> (bool, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).arg("--node").arg(format!("{}@{relay_address}", net.node));
    let output =
        command.arg("--credential").arg(&who.credential).arg("--key").arg(&who.key).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    (output.status.success(), said)
}

#[test]
fn a_man_in_the_middle_can_change_replay_and_impersonate_nothing() {
    if !is_inside("adversaries::a_man_in_the_middle_can_change_replay_and_impersonate_nothing") {
        return;
    }
    let mut net = Net::new();
    let guest = net.granted("guest", modest_grant());
    // The protocol versions in the first message, after the length and four letters: an older and a newer one. Then
    // keys, and encrypted data.
    for at in [6, 7, 8, 40, 195 + 2 + 10, 195 + 2 + 100, 195 + 2 + 200] {
        let (relay_address, _) = relay(Some(at));
        let (is_done, said) = run_via(&net, &guest, relay_address, &SESSION);
        assert!(!is_done && said.starts_with("weir: "), "byte {at}: {said}");
        assert!(net.sessions().is_empty(), "byte {at}");
    }
    // A replay of a whole connection fails, as the node uses new keys each time.
    let (relay_address, seen) = relay(None);
    let (is_done, said) = run_via(&net, &guest, relay_address, &SESSION);
    assert!(is_done, "{said}");
    let recorded = seen.recv().unwrap();
    net.run(&guest, &["session", "close", "study"]);
    let mut replay = TcpStream::connect(NODE).unwrap();
    replay.set_read_timeout(Some(TIMEOUT)).unwrap();
    _ = replay.write_all(&recorded);
    let mut answer = Vec::new();
    // The node may close the connection because of unread bytes.
    _ = replay.read_to_end(&mut answer);
    assert!(answer.len() <= 2 + SECOND_BYTES, "it got further than the second message: {}", answer.len());
    assert!(net.sessions().is_empty());

    // An impostor in the node's place, with another key: the client reveals neither its request nor its key.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let impostor_address = listener.local_addr().unwrap();
    let met = Arc::new(AtomicUsize::new(0));
    let (impostor, theirs) = (Identity::from_seed(&[9; 32]), Arc::clone(&met));
    let thread = std::thread::spawn(move || {
        let acceptor = Acceptor::new(GateLimits::default());
        let is_over = AtomicBool::new(false);
        let gone = || {
            // One connection, which was answered once and then closed by the client.
            if acceptor.counters().closed > 0 {
                is_over.store(true, Ordering::Release);
            }
        };
        let heard = |_| _ = theirs.fetch_add(1, Ordering::AcqRel);
        acceptor.serve(listener, &impostor, &is_over, heard, gone).unwrap();
        theirs.fetch_add(acceptor.counters().gate.answered.try_into().unwrap(), Ordering::AcqRel);
    });
    let (is_done, said) = run_via(&net, &guest, impostor_address, &["session", "list"]);
    thread.join().unwrap();
    assert!(!is_done && said.contains("weir-key:"), "{said}");
    assert_eq!(met.load(Ordering::Acquire), 1, "he learned who it was");
    assert!(net.testbed.stop().success());
}

#[test]
fn expired_credentials_and_empty_validity_periods_are_refused() {
    if !is_inside("adversaries::expired_credentials_and_empty_validity_periods_are_refused") {
        return;
    }
    let mut net = trusting_net();
    let (past, future) = (seconds_from_now(0), seconds_from_now(1800));
    for (grant, says) in [
        (Grant { expires: Some(past), ..modest_grant() }, "expired"),
        (Grant { not_before: Some(future), ..modest_grant() }, "not yet valid"),
        (Grant { not_before: Some(future), expires: Some(past), ..modest_grant() }, ""),
    ] {
        let minted =
            Credential::mint(&OPERATOR.identity(), RESEARCHER.key(), grant, None, &mut people::Counting(0));
        // Some of these credentials cannot even be created.
        let Ok(credential) = minted else { continue };
        let why = refusal_of(net.node, RESEARCHER.identity(), credential.as_bytes());
        assert!(why.as_ref().is_some_and(|why| why.contains(says)), "{says}: {why:?}");
        // A delegation of an expired credential is expired.
        let passed = raw_append(credential.as_bytes(), &RESEARCHER.private(), block(&preamble(STUDENT)), 5);
        assert!(refusal_of(net.node, STUDENT.identity(), &passed).is_some());
    }
    assert!(net.testbed.stop().success());
}

#[test]
fn an_import_that_the_profile_does_not_have_is_refused() {
    if !is_inside("adversaries::an_import_that_the_profile_does_not_have_is_refused") {
        return;
    }
    let mut net = Net::new();
    std::fs::write(net.testbed.path().join("listening.toml"), "imports = ['emit']\n").unwrap();
    let config = std::fs::read_to_string(net.testbed.config()).unwrap();
    let profile = "[[profile]]\nname = \"listening\"\nfile = \"listening.toml\"\n";
    std::fs::write(net.testbed.config(), config + profile).unwrap();
    net.testbed.request(json!("reload"));
    let guest = net
        .granted("guest", Grant { profiles: Some(["listening".parse().unwrap()].into()), ..modest_grant() });
    net.run(&guest, &SESSION);
    let module = assemble(
        &text(r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#),
        Some(MANIFEST.replace("NAME", "sender").as_bytes()),
    );
    let file = net.folder.path().join("sender.wasm");
    std::fs::write(&file, module).unwrap();
    net.run_refused(&guest, &["load", "study", file.to_str().unwrap()], "import");
    // A holder cannot choose another profile than its credential's.
    net.run_refused(&guest, &["session", "change", "study", "--profile", "default"], "profile");
    assert!(net.testbed.stop().success());
}
