//! Lookups in tables, and with a name server of the tests on the loopback interface.

use super::dns::{Answer, read_answer};
use super::*;
use simple_dns::rdata::{A, AAAA, CNAME, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};
use std::io::Write;
use std::net::TcpListener;

fn record<'a>(name: &'a str, data: RData<'a>) -> ResourceRecord<'a> {
    ResourceRecord::new(Name::new(name).unwrap(), CLASS::IN, 60, data)
}

/// The answer of a zone in which `host.example` has addresses, and `www.example` is an alias for it.
fn reply(question: &[u8], is_stream: bool) -> Vec<u8> {
    let question = Packet::parse(question).unwrap();
    let asked = &question.questions[0];
    let name = asked.qname.to_string().to_ascii_lowercase();
    let mut packet = Packet::new_reply(question.id());
    packet.questions.push(asked.clone());
    match (name.as_str(), asked.qtype) {
        ("host.example" | "www.example", kind) => {
            if name == "www.example" {
                let target = Name::new("host.example").unwrap();
                packet.answers.push(record("www.example", RData::CNAME(CNAME(target))));
            }
            match kind {
                QTYPE::TYPE(TYPE::A) => {
                    packet.answers.push(record("host.example", RData::A(A { address: 0xc000_0201 })));
                    // Not asked for, so not taken.
                    packet.answers.push(record("other.example", RData::A(A { address: 0xc000_0263 })));
                }
                _ => {
                    let address = Ipv6Addr::LOCALHOST.to_bits();
                    packet.answers.push(record("host.example", RData::AAAA(AAAA { address })));
                }
            }
        }
        ("long.example", QTYPE::TYPE(TYPE::A)) if is_stream => {
            for last in 1..=40 {
                let address = 0x7f00_0000 + last;
                packet.answers.push(record("long.example", RData::A(A { address })));
            }
        }
        ("long.example", QTYPE::TYPE(TYPE::A)) => packet.set_flags(PacketFlag::TRUNCATION),
        ("long.example", _) => {}
        ("broken.example", _) => *packet.rcode_mut() = RCODE::ServerFailure,
        _ => *packet.rcode_mut() = RCODE::NameError,
    }
    packet.build_bytes_vec().unwrap()
}

/// Starts a server that ends with the test program, and returns its port.
fn name_server() -> u16 {
    let stream = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = stream.local_addr().unwrap().port();
    let datagrams = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        loop {
            let (length, from) = datagrams.recv_from(&mut buffer).unwrap();
            let answer = reply(&buffer[..length], false);
            // A forged answer comes first: the question with another identifier.
            let mut forged = answer.clone();
            forged[0] ^= 1;
            datagrams.send_to(&forged, from).unwrap();
            datagrams.send_to(&answer, from).unwrap();
        }
    });
    std::thread::spawn(move || {
        loop {
            let (mut connection, _) = stream.accept().unwrap();
            let mut length = [0; 2];
            connection.read_exact(&mut length).unwrap();
            let mut question = vec![0; u16::from_be_bytes(length).into()];
            connection.read_exact(&mut question).unwrap();
            let answer = reply(&question, true);
            connection.write_all(&u16::try_from(answer.len()).unwrap().to_be_bytes()).unwrap();
            connection.write_all(&answer).unwrap();
        }
    });
    port
}

#[test]
fn names_have_the_addresses_of_the_table_and_of_the_name_server() {
    let config =
        "search other.test example\nnameserver 127.0.0.1\noptions ndots:1 timeout:2 attempts:1 unknown\n";
    let hosts = "192.0.2.7 table.example table # comment alias\n::1 six\nbad-line\n";
    let resolver = Resolver::new(hosts, config, name_server());
    let addresses = |name: &str| {
        let found = resolver.addresses(name).map_err(|error| error.kind())?;
        let mut found: Vec<String> = found.iter().map(ToString::to_string).collect();
        found.sort();
        Ok::<_, io::ErrorKind>(found)
    };
    assert_eq!(addresses("TABLE"), Ok(vec!["192.0.2.7".to_owned()]));
    assert_eq!(addresses("six."), Ok(vec!["::1".to_owned()]));
    let both = Ok(vec!["192.0.2.1".to_owned(), "::1".to_owned()]);
    for name in ["host.example", "HOST.Example.", "www.example", "host"] {
        assert_eq!(addresses(name), both, "{name}");
    }
    assert_eq!(addresses("long.example").unwrap().len(), 40);
    assert_eq!(addresses("a.localhost"), Ok(vec!["127.0.0.1".to_owned(), "::1".to_owned()]));
    assert_eq!(addresses("missing.example"), Ok(vec![]));
    assert_eq!(addresses("broken.example"), Err(io::ErrorKind::Other));
    for name in ["", "a b", "a\\046b", "a/b", &"a.".repeat(200), &"a".repeat(70)] {
        assert!(addresses(name).is_err(), "{name}");
    }
}

#[test]
fn a_silent_name_server_is_given_up() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let resolver = Resolver::new("", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", port);
    let start = Instant::now();
    assert_eq!(resolver.addresses("host.example.").unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
}

#[test]
fn damaged_messages_are_no_answers() {
    let mut question = Packet::new_query(7);
    question.questions.push(simple_dns::Question::new(
        Name::new("www.example").unwrap(),
        QTYPE::TYPE(TYPE::A),
        simple_dns::QCLASS::CLASS(CLASS::IN),
        false,
    ));
    let question = question.build_bytes_vec().unwrap();
    let answer = reply(&question, false);
    let read = |bytes: &[u8]| read_answer(bytes, 7, "www.example", TYPE::A);
    assert_eq!(read(&answer), Answer::Addresses(vec![Ipv4Addr::new(192, 0, 2, 1).into()]));
    assert_eq!(read_answer(&answer, 8, "www.example", TYPE::A), Answer::Foreign);
    assert_eq!(read_answer(&answer, 7, "host.example", TYPE::A), Answer::Foreign);
    assert_eq!(read_answer(&answer, 7, "www.example", TYPE::AAAA), Answer::Foreign);
    assert_eq!(read(&question), Answer::Foreign);
    for length in 0..answer.len() {
        assert_eq!(read(&answer[..length]), Answer::Foreign, "{length}");
    }
    // Each flipped bit leaves a message that is read without a panic, and makes up no addresses from none.
    for bit in 0..answer.len() * 8 {
        let mut damaged = answer.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        if let Answer::Addresses(found) = read(&damaged) {
            assert!(found.len() <= 2, "{bit}: {found:?}");
        }
    }
}

#[test]
fn a_zone_is_an_interface() {
    assert_eq!(literal("192.0.2.1", 7), Some("192.0.2.1:7".parse().unwrap()));
    assert_eq!(literal("fe80::1%3", 7), Some(SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 0, 3).into()));
    assert_eq!(literal("fe80::1%lo", 7), Some(SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 0, 1).into()));
    for host in ["fe80::1%no-such", "192.0.2.1%lo", "host", "", "%lo"] {
        assert_eq!(literal(host, 7), None, "{host}");
    }
}
