//! People who come to a node from elsewhere with what nobody gave them, or in somebody else's place, each from a process of their own and over real sockets.

use crate::module::{MANIFEST, assemble, text};
use crate::people::{self, FRIEND, OPERATOR, RESEARCHER, STUDENT, THIEF, authority, block, preamble};
use crate::people::{raw_append, raw_token, rewritten};
use crate::place::{PATIENCE, is_inside, udp};
use crate::remote::{Net, Person, SESSION, modest, seconds_from_now};
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
use weir_node::client::{Client, ClientError, Whereabouts};
use weir_node::control::protocol::{ControlRequest, LINE_BYTES_MAX, Reply};
use weir_remote::{Acceptor, SecureStream};
use weir_trust::association::{Initiator, SECOND_BYTES, frame};
use weir_trust::credential::Credential;
use weir_trust::gate::GateLimits;
use weir_trust::grant::{Ceilings, CpuShare, Grant, ModuleHash, ModuleSet, Modules};
use weir_trust::key::{Identity, KeyFile, PublicKey};
use weir_units::BitsPerSecond;

const NODE: &str = "127.0.0.1:7353";

/// Shows these bytes as a credential, and asks how things are. Why it is refused; nothing where it is not.
fn shown(node: PublicKey, identity: Identity, credential: &[u8]) -> Option<String> {
    let there = Whereabouts::There {
        addresses: vec![NODE.parse().unwrap()],
        expected: Some(node),
        identity: Box::new(identity),
        credential: credential.to_vec(),
    };
    let asked = Client::to(&there).and_then(|mut client| {
        client.send(ControlRequest::Show, &[])?;
        client.receive()
    });
    match asked {
        Ok(Reply::Snapshot(_)) => None,
        Err(ClientError::Refused(why)) => Some(why),
        other => panic!("{other:?}"),
    }
}

/// A node that trusts the operator of whom everybody here has something, too.
fn net_of_people() -> Net {
    let net = Net::new();
    let config = std::fs::read_to_string(net.place.config()).unwrap();
    let with = config.replace("roots = [\"", &format!("roots = [\"{}\", \"", OPERATOR.key()));
    std::fs::write(net.place.config(), with).unwrap();
    net.place.done(json!("reload"));
    net
}

/// What the operator gives the researcher, until an hour from now.
fn granted(change: impl FnOnce(&mut Grant)) -> Credential {
    let mut grant = modest();
    change(&mut grant);
    Credential::mint(&OPERATOR.identity(), RESEARCHER.key(), grant, &mut people::Counting(0)).unwrap()
}

#[test]
fn credentials_that_nobody_granted_open_nothing() {
    if !is_inside("adversaries::credentials_that_nobody_granted_open_nothing") {
        return;
    }
    let mut net = net_of_people();
    let first = granted(|grant| grant.delegations = Some(1));
    let free = granted(|_| ());
    // From the researcher, for somebody.
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
        ("circular", RESEARCHER, circle, "in a circle"),
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
        let why = shown(net.node, peer.identity(), &credential);
        assert!(why.as_ref().is_some_and(|why| why.contains(says)), "{what}: {why:?}");
        assert!(why.is_some_and(|why| why.len() < 2000), "{what}");
    }
    assert!(net.sessions().is_empty());
    // What somebody was granted is worth something to him: none of it was refused for another reason.
    for (peer, credential) in [(RESEARCHER, free.as_bytes()), (STUDENT, &there), (STUDENT, &to_student)] {
        assert_eq!(shown(net.node, peer.identity(), credential), None);
    }
    // Whoever got through so far has taken nothing from others.
    let researcher = net.granted("researcher", modest());
    net.done(&researcher, &SESSION);
    assert!(net.place.stop().success());
}

#[test]
fn of_no_part_more_is_passed_on_than_somebody_has() {
    if !is_inside("adversaries::of_no_part_more_is_passed_on_than_somebody_has") {
        return;
    }
    let mut net = net_of_people();
    let hash = |byte: &str| format!("hex:{}", byte.repeat(32));
    let (one, other) = (hash("11"), hash("22"));
    let begins = seconds_from_now(0);
    let has = granted(|grant| {
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
    // Of each part more than he has, with how that is called, and then no more.
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
        // It was passed on once by then.
        ("further delegations", "delegations(2);".into(), "delegations(1);".into()),
    ];
    let passed_on = |part: &str| {
        let block = block(&format!("{} {part}", preamble(STUDENT)));
        raw_append(has.as_bytes(), &RESEARCHER.private(), block, 5)
    };
    for (part, more, same) in &parts {
        let why = shown(net.node, STUDENT.identity(), &passed_on(more));
        let says = format!("widened: block 1 asks for more than its holder was given; {part}: asked for");
        assert!(why.as_ref().is_some_and(|why| why.contains(&says)), "{more}: {why:?}");
        assert_eq!(shown(net.node, STUDENT.identity(), &passed_on(same)), None, "{same}");
        // Nor when it was right so far and is passed on again.
        let again = block(&format!("{} {more}", preamble(THIEF)));
        let again = raw_append(&passed_on(same), &STUDENT.private(), again, 6);
        let why = shown(net.node, THIEF.identity(), &again);
        assert!(why.as_ref().is_some_and(|why| why.contains("widened: block 2")), "{more}: {why:?}");
    }
    assert!(net.sessions().is_empty());
    assert!(net.place.stop().success());
}

/// Has the system ask for names in this namespace alone, here. How many were asked for since.
fn asked_here(folder: &std::path::Path) -> Arc<AtomicUsize> {
    for (name, text) in [("resolv.conf", "nameserver 127.0.0.1\n"), ("nsswitch.conf", "hosts: files dns\n")] {
        let (here, there) = (folder.join(name), std::path::Path::new("/etc").join(name));
        std::fs::write(&here, text).unwrap();
        // Where there is none the system does what is written here.
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
            // There is no such name.
            question[2..4].copy_from_slice(&[0x81, 0x83]);
            _ = socket.send_to(&question[..len], from);
        }
    });
    asked
}

#[test]
fn a_delegated_filter_breaks_out_of_nothing_looks_nothing_up_and_ends() {
    if !is_inside("adversaries::a_delegated_filter_breaks_out_of_nothing_looks_nothing_up_and_ends") {
        return;
    }
    let mut net = Net::new();
    let asked = asked_here(net.folder.path());
    let filters = ["udp".parse().unwrap()].into();
    // Half of a core, from which is paid what their filters take.
    let ceilings = Ceilings { cpu: Some(CpuShare(500_000)), ..modest().ceilings };
    let researcher = net.granted("researcher", Grant { filters, ceilings, ..modest() });
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
        // His credential is one, as nobody has looked at the text so far; but there are no packets by it, whatever his own filter is.
        net.done(&student, &["session", "list"]);
        net.refused(&student, &with("interface=b"), says);
        net.refused(&student, &with("interface=b,filter=udp"), says);
        // Nor for whom he passes it on to.
        let friend = net.delegated(&student, &format!("friend-{number}"), Grant::default());
        net.refused(&friend, &with("interface=b"), says);
    }
    assert!(net.sessions().is_empty());

    // One that is a filter selects what it selects, of what the researcher has; and one that everything passes, no more than that.
    let all = passed_on("all", "tcp or udp or arp or ip or not ip");
    let some = passed_on("some", "tcp or udp port 53");
    for student in [&all, &some] {
        net.done(student, &with("interface=b,filter=tcp or udp"));
        net.done(student, &["load", "study", "port-count"]);
    }
    let mut tcp = udp(53, b"not for them");
    tcp[23] = 6;
    net.place.send(&[tcp.clone(), udp(53, b"for both"), tcp, udp(7, b"for one of them")]);
    for (student, packets) in [(&all, 2), (&some, 1)] {
        let name = student.name_of("study");
        net.place.until("they have arrived", |place| place.count(&name, "port-count", "packets") >= packets);
        assert_eq!(net.place.part(&name, "channels", "main")["packets"], packets);
    }
    // Nobody has asked for a name. Who does is seen.
    assert_eq!(asked.load(Ordering::Acquire), 0);
    assert!(("example.com", 80).to_socket_addrs().is_err());
    assert!(asked.load(Ordering::Acquire) > 0);
    assert!(net.place.stop().success());
}

#[test]
fn a_guests_filter_breaks_out_of_nothing_looks_nothing_up_and_ends() {
    if !is_inside("adversaries::a_guests_filter_breaks_out_of_nothing_looks_nothing_up_and_ends") {
        return;
    }
    let mut net = Net::new();
    let filters = ["udp".parse().unwrap()].into();
    let guest = net.granted("guest", Grant { filters, ..modest() });
    net.done(
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
        net.refused(&guest, &["session", "change", "study", "--channel", &channel], says);
    }
    net.done(&guest, &["load", "study", "port-count"]);
    // His own text selects both; the credential's, one.
    let mut tcp = udp(1, b"not for him");
    tcp[23] = 6;
    net.place.send(&[tcp.clone(), udp(2, b"for him"), tcp, udp(3, b"and this")]);
    let name = guest.name_of("study");
    net.place.until("they have arrived", |place| place.count(&name, "port-count", "packets") >= 2);
    assert_eq!(net.place.part(&name, "channels", "main")["packets"], 2);
    assert!(net.place.stop().success());
}

#[test]
fn a_name_that_is_somebody_elses_leads_to_nobody_else() {
    if !is_inside("adversaries::a_name_that_is_somebody_elses_leads_to_nobody_else") {
        return;
    }
    let mut net = Net::new();
    let (alice, bob) = (net.granted("alice", modest()), net.granted("bob", modest()));
    let create = |name: &str| ["session", "create", name, "--memory", "1 MiB"].map(str::to_owned);
    let done = |who: &Person, arguments: &[String]| {
        net.done(who, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    done(&alice, &create("study"));
    let hers = alice.name_of("study");
    // He calls his own what the node calls hers, and the operator's as well.
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
    assert!(net.place.refused(json!({"create": {"name": hers.as_str()}})).contains("already"));
    // What he does by that name he does to his own, and by the node's name of it as well.
    done(&bob, &["session", "close", &hers].map(str::to_owned));
    assert_eq!(names(&net), [hers.as_str()]);
    net.refused(&bob, &["session", "close", &hers], "no session");
    net.refused(&bob, &["load", &hers, "port-count"], "no session");
    net.place.done(json!({"create": {"name": "study"}}));
    net.refused(&bob, &["session", "close", "study"], "no session");
    assert_eq!(net.sessions().len(), 2);
    assert!(net.place.stop().success());
}

/// A connection from this address.
fn connect_from(from: Ipv4Addr) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddrV4::new(from, 0)).unwrap();
    connect(&socket, &NODE.parse::<SocketAddrV4>().unwrap()).unwrap();
    TcpStream::from(socket)
}

#[test]
fn ten_thousand_half_open_connections_keep_no_guest_out() {
    if !is_inside("adversaries::ten_thousand_half_open_connections_keep_no_guest_out") {
        return;
    }
    let mut net = Net::new();
    let guest = net.granted("guest", modest());
    weir_netio::raise_descriptor_limit().unwrap();
    // As many as there may be are open at the same time; the oldest give way to others.
    let most = usize::try_from(weir_netio::descriptor_limit().unwrap() / 2).unwrap_or(usize::MAX);
    let mut open = std::collections::VecDeque::new();
    for number in 0..10_000u32 {
        let [.., host] = number.to_be_bytes();
        let mut stream = connect_from(Ipv4Addr::new(127, 7, host % 4, 1 + host % 2));
        // Some cost the node its answer, too. They may have been closed already.
        if number % 10 == 0 {
            let (_, first) = Initiator::begin(None, &mut rand_core::OsRng).unwrap();
            _ = stream.write_all(&frame::framed(&first).unwrap());
        }
        open.push_back(stream);
        if open.len() > most {
            open.pop_front();
        }
        if number % 2000 == 1999 {
            net.done(&guest, &["session", "list"]);
        }
    }
    net.done(&guest, &SESSION);
    drop(open);
    assert!(net.place.stop().success());
}

/// An association of somebody's.
pub fn associated(net: &Net, who: &Person) -> SecureStream {
    let credential: Credential = std::fs::read_to_string(&who.credential).unwrap().parse().unwrap();
    let identity = identity(who);
    let address: SocketAddr = NODE.parse().unwrap();
    let mut stream =
        weir_remote::connect(address, &identity, Some(net.node), credential.as_bytes(), PATIENCE).unwrap();
    stream.set_deadline(Some(Instant::now() + PATIENCE));
    stream
}

fn identity(who: &Person) -> Identity {
    KeyFile::parse(&std::fs::read_to_string(&who.key).unwrap()).unwrap().open(None).unwrap()
}

#[test]
fn messages_that_are_cut_huge_or_of_another_version_disturb_nobody() {
    if !is_inside("adversaries::messages_that_are_cut_huge_or_of_another_version_disturb_nobody") {
        return;
    }
    let mut net = Net::new();
    let guest = net.granted("guest", modest());
    net.done(&guest, &SESSION);
    let load = |body: u64| {
        format!(
            "{{\"weir\":1,\"ask\":{{\"load\":{{\"session\":\"study\",\"module\":{{\"module\":\"m\"}}}}}},\"body\":{body}}}\n"
        )
    };
    let line = vec![b'a'; LINE_BYTES_MAX + 2];
    let deep = [vec![b'['; 200_000], b"\n".to_vec()].concat();
    for (what, bytes, says) in [
        ("of another version", b"{\"weir\":2,\"ask\":\"show\"}\n".to_vec(), Some("speaks version 1")),
        (
            "of a version that no number is",
            b"{\"weir\":1e999,\"ask\":\"show\"}\n".to_vec(),
            Some("no request"),
        ),
        ("nothing", b"\n".to_vec(), Some("no request")),
        ("no text", vec![0xff, 0xfe, b'\n'], Some("no request")),
        ("deep", deep, Some("no request")),
        ("a line without an end", line, Some("a line has at most")),
        ("a file that is too long", load(u32::MAX.into()).into_bytes(), Some("has at most")),
        ("a length that is none", load(u64::MAX).into_bytes(), Some("no request")),
        (
            "a part that is too long",
            b"{\"weir\":1,\"ask\":{\"upload\":{\"file\":\"00\",\"bytes\":1,\"from\":0}},\"body\":9999999}\n"
                .to_vec(),
            Some("no request"),
        ),
        ("cut in a line", b"{\"weir\":1,\"ask\":{\"clo".to_vec(), Some("no request")),
        ("cut in a file", [load(100).into_bytes(), vec![0; 50]].concat(), None),
        (
            "two at once",
            b"{\"weir\":1,\"ask\":\"show\"}\n{\"weir\":1,\"ask\":\"explode\"}\n".to_vec(),
            Some("explode"),
        ),
    ] {
        let mut stream = associated(&net, &guest);
        // The node may have closed before all of it has gone.
        _ = stream.write_all(&bytes).and_then(|()| stream.finish());
        let mut answers = Vec::new();
        let ended = stream.read_to_end(&mut answers);
        let answers = String::from_utf8(answers).unwrap();
        match says {
            // Of what is too long, the answer may be lost with the connection.
            Some(says) => assert!(
                answers.contains(says) || bytes.len() > LINE_BYTES_MAX && ended.is_err(),
                "{what}: {answers}"
            ),
            None => assert_eq!(answers, "", "{what}"),
        }
        assert!(answers.len() < 100_000, "{what}");
    }
    // Nothing of it has changed anything.
    assert_eq!(net.sessions().len(), 1);
    let shown = net.done(&guest, &["session", "show", "study", "--json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap()["modules"], json!([]));
    assert!(net.place.stop().success());
}

/// As many of these as fit on a line with what stands around them; each is told from the others by its number.
fn crowded(before: &str, one: &str, after: &str) -> String {
    let (mut line, mut number) = (format!("{{\"weir\":1,\"ask\":{before}"), 0);
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
fn of_what_a_request_lists_nothing_is_done_where_there_is_too_much() {
    if !is_inside("adversaries::of_what_a_request_lists_nothing_is_done_where_there_is_too_much") {
        return;
    }
    let mut net = Net::new();
    // Long filters of his own: each of his channels would have them.
    let researcher = net.granted("researcher", modest());
    let hosts = (0..190).map(|n| format!("host 10.0.0.{n}")).collect::<Vec<_>>().join(" or ");
    let filters = [hosts.parse().unwrap()].into();
    let guest = net.delegated(&researcher, "guest", Grant { filters, ..Grant::default() });
    net.done(&guest, &SESSION);
    let before = net.place.memory();
    for (begin, one, end, what) in [
        (r#"{"create":{"name":"t","channel":["#, r#"{"interface":""}"#, "]}}", "channels"),
        (r#"{"create":{"name":"t","module":["#, r#"{"module":"rtt"}"#, "]}}", "modules"),
        (r#"{"change":{"session":"study","cpu":["#, r#"{"name":"a#"}"#, "]}}", "virtual processors"),
        (r#"{"change":{"session":"study","forgo":["#, r#""a#""#, "]}}", "names in a list"),
        (
            r#"{"explain":{"ask":{"change":{"session":"study","cpu":["#,
            r#"{"name":"a#"}"#,
            "]}}}}",
            "virtual processors",
        ),
        (
            r#"{"explain":{"ask":{"create":{"name":"t","channel":["#,
            r#"{"interface":""}"#,
            "]}}}}",
            "channels",
        ),
    ] {
        let line = crowded(begin, one, end);
        let says = format!("too many {what} (64 at most) at line 1 column");
        let mut stream = associated(&net, &guest);
        stream.write_all(line.as_bytes()).and_then(|()| stream.finish()).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        assert!(answers.contains(&says), "{what}: {answers}");
        // Whoever it is.
        let mut operator = net.place.connect();
        operator.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        operator.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(&says), "{what}: {answer}");
    }
    // Of 60,000 channels none was made, let alone with filters.
    let after = net.place.memory();
    assert!(after < before + (64 << 20), "{before} bytes before, {after} after");
    assert_eq!(net.sessions().len(), 1);
    assert!(net.place.stop().success());
}

/// Passes on one connection, with one byte of what goes to the node changed, if one is to be. All that went there, when it has ended.
fn on_the_way(change: Option<usize>) -> (SocketAddr, Receiver<Vec<u8>>) {
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

/// The same as what `net` does with its commands, but by another way.
fn by_way(net: &Net, who: &Person, way: SocketAddr, arguments: &[&str]) -> (bool, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).arg("--node").arg(format!("{}@{way}", net.node));
    let output =
        command.arg("--credential").arg(&who.credential).arg("--key").arg(&who.key).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    (output.status.success(), said)
}

#[test]
fn who_is_in_the_middle_changes_nothing_repeats_nothing_and_is_nobody_else() {
    if !is_inside("adversaries::who_is_in_the_middle_changes_nothing_repeats_nothing_and_is_nobody_else") {
        return;
    }
    let mut net = Net::new();
    let guest = net.granted("guest", modest());
    // The versions that are offered, behind the length and four letters: an older one, and a newer one. Then keys, and what is sealed.
    for at in [6, 7, 8, 40, 195 + 2 + 10, 195 + 2 + 100, 195 + 2 + 200] {
        let (way, _) = on_the_way(Some(at));
        let (is_done, said) = by_way(&net, &guest, way, &SESSION);
        assert!(!is_done && said.starts_with("weir: "), "byte {at}: {said}");
        assert!(net.sessions().is_empty(), "byte {at}");
    }
    // All that somebody said, once more: the node has other keys each time.
    let (way, seen) = on_the_way(None);
    let (is_done, said) = by_way(&net, &guest, way, &SESSION);
    assert!(is_done, "{said}");
    let recorded = seen.recv().unwrap();
    net.done(&guest, &["session", "close", "study"]);
    let mut replay = TcpStream::connect(NODE).unwrap();
    replay.set_read_timeout(Some(PATIENCE)).unwrap();
    _ = replay.write_all(&recorded);
    let mut answer = Vec::new();
    // It may be closed over what it did not read.
    _ = replay.read_to_end(&mut answer);
    assert!(answer.len() <= 2 + SECOND_BYTES, "it got further than the second message: {}", answer.len());
    assert!(net.sessions().is_empty());

    // Somebody with a key of his own, in the node's place: he is told nothing, not even by whom he was asked.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap();
    let met = Arc::new(AtomicUsize::new(0));
    let (impostor, theirs) = (Identity::from_seed(&[9; 32]), Arc::clone(&met));
    let thread = std::thread::spawn(move || {
        let acceptor = Acceptor::new(GateLimits::default());
        let is_over = AtomicBool::new(false);
        let gone = || {
            // One connection, answered once, and closed by the client.
            if acceptor.counters().closed > 0 {
                is_over.store(true, Ordering::Release);
            }
        };
        let heard = |_| _ = theirs.fetch_add(1, Ordering::AcqRel);
        acceptor.serve(listener, &impostor, &is_over, heard, gone).unwrap();
        theirs.fetch_add(acceptor.counters().gate.answered.try_into().unwrap(), Ordering::AcqRel);
    });
    let (is_done, said) = by_way(&net, &guest, place, &["session", "list"]);
    thread.join().unwrap();
    assert!(!is_done && said.contains("weir-key:"), "{said}");
    assert_eq!(met.load(Ordering::Acquire), 1, "he learned who it was");
    assert!(net.place.stop().success());
}

#[test]
fn a_credential_that_ends_before_it_begins_or_has_ended_opens_nothing() {
    if !is_inside("adversaries::a_credential_that_ends_before_it_begins_or_has_ended_opens_nothing") {
        return;
    }
    let mut net = net_of_people();
    let (past, future) = (seconds_from_now(0), seconds_from_now(1800));
    for (grant, says) in [
        (Grant { expires: Some(past), ..modest() }, "expired"),
        (Grant { not_before: Some(future), ..modest() }, "not yet valid"),
        (Grant { not_before: Some(future), expires: Some(past), ..modest() }, ""),
    ] {
        let minted =
            Credential::mint(&OPERATOR.identity(), RESEARCHER.key(), grant, &mut people::Counting(0));
        // One that can never hold need not be made.
        let Ok(credential) = minted else { continue };
        let why = shown(net.node, RESEARCHER.identity(), credential.as_bytes());
        assert!(why.as_ref().is_some_and(|why| why.contains(says)), "{says}: {why:?}");
        // Nor does a delegate have what has ended.
        let passed = raw_append(credential.as_bytes(), &RESEARCHER.private(), block(&preamble(STUDENT)), 5);
        assert!(shown(net.node, STUDENT.identity(), &passed).is_some());
    }
    assert!(net.place.stop().success());
}

#[test]
fn an_import_that_the_profile_does_not_have_is_refused() {
    if !is_inside("adversaries::an_import_that_the_profile_does_not_have_is_refused") {
        return;
    }
    let mut net = Net::new();
    std::fs::write(net.place.path().join("listening.toml"), "imports = ['emit']\n").unwrap();
    let config = std::fs::read_to_string(net.place.config()).unwrap();
    let profile = "[[profile]]\nname = \"listening\"\nfile = \"listening.toml\"\n";
    std::fs::write(net.place.config(), config + profile).unwrap();
    net.place.done(json!("reload"));
    let guest =
        net.granted("guest", Grant { profiles: Some(["listening".parse().unwrap()].into()), ..modest() });
    net.done(&guest, &SESSION);
    let module = assemble(
        &text(r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#),
        Some(MANIFEST.replace("NAME", "sender").as_bytes()),
    );
    let file = net.folder.path().join("sender.wasm");
    std::fs::write(&file, module).unwrap();
    net.refused(&guest, &["load", "study", file.to_str().unwrap()], "import");
    // Nor may he choose another profile than his credential's.
    net.refused(&guest, &["session", "change", "study", "--profile", "default"], "profile");
    assert!(net.place.stop().success());
}
