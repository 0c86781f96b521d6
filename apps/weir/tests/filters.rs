//! Filter expressions of strangers, compiled by the program's own child: what it answers is what libpcap makes of them here, but without names, and not for ever.

#![forbid(unsafe_code)]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use weir_netio::{FILTER_CHILD, Filter, FilterCompiler, FilterFault, FilterLimits};
use weir_units::Nanos;
use weir_wire::LinkType;

/// The child gets the processor at last, on the slowest of machines.
const PATIENT: FilterLimits =
    FilterLimits { processor: Nanos(100 * Nanos::SECOND.0), time: Nanos(300 * Nanos::SECOND.0), ..USUAL };
const USUAL: FilterLimits = FilterLimits {
    processor: Nanos::SECOND,
    time: Nanos(300 * Nanos::SECOND.0),
    memory: weir_units::Bytes(256 << 20),
    cores: None,
};

fn compiler(limits: FilterLimits) -> FilterCompiler {
    FilterCompiler::new(limits, Some(PathBuf::from(env!("CARGO_BIN_EXE_weir"))))
}

fn fault(expression: &str) -> FilterFault {
    match compiler(PATIENT).compile(expression, LinkType::Ethernet) {
        Ok(_) => panic!("{expression}: was compiled"),
        Err(error) => error.fault,
    }
}

#[test]
fn honest_expressions_are_compiled_to_the_same() {
    let expressions = [
        "udp",
        "udp port 53",
        "tcp port 80 or udp port 53",
        "host 10.0.0.1",
        "src net 10.0.0.0/8 and not port 22",
        "net fd00::/16",
        "ip6 host fd00::1",
        "portrange 5000-7000",
        "vlan 5 and ip6",
        "greater 1000",
        "less 64 or len > 1400",
        "ether host 02:00:00:00:00:02",
        "ether proto 0x88cc",
        "ether broadcast or ip multicast",
        "ip proto 47",
        "icmp6 or icmp or arp or sctp or mpls",
        "udp[8:4] = 0x01020304",
        "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn",
        "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420",
        "ip[6:2] & 0x1fff != 0",
        "ether[len - 1] = 0",
        "ip6 protochain 6",
        "not (udp port 53 or (tcp and port 53))",
        "tcp prot 80",
        "ip and",
        "",
    ];
    let compiler = compiler(PATIENT);
    let mut compiled = 0;
    for expression in expressions {
        let here = Filter::new(expression);
        for link_type in LinkType::ALL {
            let there = compiler.compile(expression, link_type);
            match here.as_ref().map(|filter| filter.instructions(link_type)) {
                Ok(Ok(instructions)) => match there {
                    Ok(there) => {
                        assert_eq!(there.instructions(), instructions, "{expression}: {link_type:?}");
                        compiled += 1;
                    }
                    // What has a loop is no program of a node's.
                    Err(error) => assert!(
                        matches!(error.fault, FilterFault::Program(_)) && expression.contains("protochain"),
                        "{error}"
                    ),
                },
                Ok(Err(here)) => {
                    let (here, there) = (here.error.to_string(), there.unwrap_err().to_string());
                    let says = here.trim_start_matches("libpcap error: ");
                    assert!(there.contains(says), "{there}, not {says}");
                }
                Err(_) => {
                    assert!(matches!(there.unwrap_err().fault, FilterFault::Expression(_)), "{expression}")
                }
            }
        }
    }
    assert!(compiled > 100, "{compiled}");
}

#[test]
fn names_are_refused_and_nothing_is_asked_for_them() {
    // Of most of these the numbers are in files of every machine.
    for name in [
        "host example.com",
        "host localhost",
        "src host a-name-that-nobody-has.example",
        "ip6 host ip6-localhost",
        "net loopback",
        "port http",
        "tcp portrange http-https",
        "ether host somename",
        "proto foo",
        "ip proto \\tcp",
        "udp port 53 or host example.com",
    ] {
        let fault = fault(name);
        assert!(matches!(fault, FilterFault::Name(_)), "{name}: {fault}");
        assert!(fault.to_string().contains("names are not looked up: write the address"), "{fault}");
    }
}

#[test]
fn no_text_breaks_out_of_an_expression() {
    for text in [
        ") or (",
        "udp) or (tcp",
        "udp\nor tcp",
        "udp # tcp",
        "udp; tcp",
        "$(id)",
        "`id`",
        "-F /etc/passwd",
        "%s%n%s%n",
        "'",
        "\"",
        "\\",
        "udp or \u{202e}tcp",
        "ifname lo",
        "\u{1b}[2J",
        "or",
        "udp and",
        "0",
        "len = -1",
        "ip[0xffffffffffffffff:4] = 1",
        "ip[4294967295:4] = 1",
        "ip[0] / 0 = 1",
        "ip[0] << 99 = 1",
        "port 99999",
        "vlan 99999999999",
        "net 1.2.3.4/99",
    ] {
        let there = compiler(PATIENT).compile(text, LinkType::Ethernet);
        match Filter::new(text).and_then(|here| match here.instructions(LinkType::Ethernet) {
            Ok(instructions) => Ok(instructions),
            Err(error) => Filter::new(&error.expression).map(|_| Vec::new()),
        }) {
            Ok(instructions) if there.is_ok() => {
                assert_eq!(there.unwrap().instructions(), instructions, "{text}");
            }
            _ => {
                let error = there.unwrap_err().to_string();
                assert!(!error.contains(char::is_control), "{error:?}");
            }
        }
    }
    assert!(fault("udp\0tcp").to_string().contains("internal null"));
    let long = "udp or ".repeat(1000) + "udp";
    assert!(matches!(fault(&long), FilterFault::Long(7003)));
}

/// Expressions of at most 4096 bytes that are as hard as can be.
fn hard() -> Vec<String> {
    let fill = |one: &dyn Fn(usize) -> String, between: &str| {
        let mut text = String::new();
        for number in 0.. {
            let next = one(number);
            if text.len() + between.len() + next.len() > 4096 {
                break;
            }
            text += if number == 0 { "" } else { between };
            text += &next;
        }
        text
    };
    let deep = |open: &str, close: &str| {
        let depth = 4090 / (open.len() + close.len());
        open.repeat(depth) + "udp" + &close.repeat(depth)
    };
    let sums = |depth: usize| format!("ip[0] {} = 1", "+ ip[1] ".repeat(depth));
    vec![
        deep("(", ")"),
        "(".repeat(4096),
        "not ".repeat(1000) + "udp",
        "!".repeat(4090) + "udp",
        deep("not (", ")"),
        "greater 0 and ".repeat(290) + "udp",
        fill(&|number| format!("portrange {number}-65535"), " or "),
        fill(&|number| format!("portrange {number}-65535"), " and "),
        fill(&|number| format!("port {number}"), " or "),
        fill(&|number| format!("not port {number}"), " and "),
        fill(&|number| format!("host fd{number:02x}::1"), " or "),
        fill(&|number| format!("ip6[{number}]&1=1"), " or "),
        fill(&|number| format!("ether[{number}]<ether[{}]", number + 1), " or "),
        fill(&|number| format!("(ether[{number}]&1=1 and ether[{}]&2=2)", number + 1), " or "),
        fill(&|number| format!("(tcp[{number}]>udp[{}] or vlan)", number + 1), " and "),
        fill(&|_| "vlan".to_owned(), " and "),
        fill(&|_| "mpls".to_owned(), " and "),
        fill(&|_| "ip protochain 6".to_owned(), " or "),
        fill(&|_| "ip6 protochain 6".to_owned(), " and "),
        fill(&|number| format!("(vlan {number} or ip proto {number})"), " and "),
        fill(&|number| format!("icmp6[ip6[{number}]]=tcp[{number}]"), " or "),
        sums(480),
        format!("{}ip[0]{} = 1", "ip[".repeat(900), "]".repeat(900)),
        format!("ip[0] {} = 1", "* 3 - 1 ".repeat(400)),
    ]
}

#[test]
fn what_is_hard_to_compile_is_given_up_or_done_within_its_limits() {
    let compiler = compiler(USUAL);
    for expression in hard() {
        assert!(expression.len() <= 4096, "{}", expression.len());
        match compiler.compile(&expression, LinkType::Ethernet) {
            Ok(program) => assert!(program.instructions().len() <= 4096),
            Err(error) => {
                let is_theirs = !matches!(
                    error.fault,
                    FilterFault::Process(_) | FilterFault::Answer | FilterFault::Name(_)
                );
                assert!(is_theirs, "{error}");
                assert!(error.to_string().len() < 2000, "{error}");
            }
        }
    }
}

/// A child of which somebody else has made something.
fn instead(script: &str) -> FilterFault {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("child");
    std::fs::write(&program, format!("#!/bin/sh\nexport PATH=/usr/bin:/bin\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let compiler = FilterCompiler::new(PATIENT, Some(program));
    loop {
        match compiler.compile("udp", LinkType::Ethernet).unwrap_err().fault {
            // Another test's child was made while this file was open for writing, and has not executed its program yet.
            FilterFault::Process(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            fault => return fault,
        }
    }
}

#[test]
fn a_child_that_is_killed_or_taken_over_is_an_error() {
    let killed = instead("kill -KILL $$");
    assert!(matches!(killed, FilterFault::Killed { signal: 9, .. }), "{killed}");
    assert!(killed.to_string().contains("was killed by signal 9"), "{killed}");
    for (script, says) in [
        ("exit 0", "an answer that is none"),
        ("exec yes", "an answer that is none"),
        ("printf '\\002'", "an answer that is none"),
        ("printf '\\000'", "the program has no instructions"),
        // A jump out of the program.
        (
            "printf '\\000\\005\\000\\000\\000\\377\\377\\377\\377\\006\\000\\000\\000\\000\\000\\000\\000'",
            "leads out of the program",
        ),
        ("printf '\\001\\033[2Jall is well'", "\\u{1b}[2Jall is well"),
        ("echo ended >&2; exit 1", "ended"),
    ] {
        let fault = instead(script).to_string();
        assert!(fault.contains(says), "{script}: {fault}");
    }
    let nowhere = FilterCompiler::new(PATIENT, Some(PathBuf::from("/nowhere/weir")));
    let error = nowhere.compile("udp", LinkType::Raw).unwrap_err().to_string();
    assert!(error.contains("link type 101 (raw IP): there is no process to compile it in"), "{error}");
}

/// The process is given nothing to read, so it waits; what it has given up by then, it has given up before it read.
#[test]
fn the_child_is_confined_before_it_reads() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg(FILTER_CHILD)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let is_confined = || {
        let status = std::fs::read_to_string(&status).unwrap();
        let has =
            |line: &str| status.lines().any(|there| there.split_whitespace().eq(line.split_whitespace()));
        has("NoNewPrivs: 1") && has("Seccomp: 2") && has("CapPrm: 0000000000000000")
    };
    let confined = (0..30_000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        is_confined()
    });
    let is_there = child.try_wait().unwrap().is_none();
    child.stdin.take().unwrap().write_all(b"\x01\x00udp").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(confined && is_there, "it reads while it may still open files and ask name servers");
    assert!(output.status.success() && output.stdout.len() > 1 && output.stdout[0] == 0);
}
