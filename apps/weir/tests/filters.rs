//! Tests of filters from untrusted users: no name is looked up, and the work of compilation is bounded.

use weir_netio::{EXPRESSION_BYTES_MAX, compile_filter};
use weir_sandbox::thread_time;
use weir_units::Nanos;
use weir_wire::LinkType;

fn fault(expression: &str) -> String {
    match compile_filter(expression, LinkType::Ethernet) {
        Ok(_) => panic!("{expression}: was compiled"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn host_names_are_refused_without_a_lookup() {
    // Most of these are in files of every machine, such as /etc/services.
    for name in [
        "host example.com",
        "host localhost",
        "src host a-name-that-is-not-known.example",
        "ip6 host ip6-localhost",
        "net loopback",
        "port no-such-service",
        "tcp portrange http-nonsense",
        "ether host somename",
        "proto foo",
        "ip proto \\nonsense",
        "udp port 53 or host example.com",
    ] {
        let fault = fault(name);
        assert!(fault.contains("names are not looked up: write the address"), "{name}: {fault}");
    }
}

#[test]
fn no_text_can_escape_from_an_expression() {
    for text in [
        ") or (",
        "udp) or (tcp",
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
        "ip[0xffffffffffffffff:4] = 1",
        "ip[0] / 0 = 1",
        "ip[0] << 99 = 1",
        "port 99999",
        "vlan 99999999999",
        "net 1.2.3.4/99",
        "udp\0tcp",
    ] {
        let fault = fault(text);
        assert!(!fault.contains(char::is_control) && fault.contains("at byte"), "{fault:?}");
    }
    assert!(fault(&("udp or ".repeat(1000) + "udp")).contains("7003 bytes"));
    assert!(compile_filter("udp\nor tcp", LinkType::Ethernet).is_ok());
}

/// Returns expressions of at most 4096 bytes that are as hard to compile as possible.
fn hard_expressions() -> Vec<String> {
    let fill = |one: &dyn Fn(usize) -> String, between: &str| {
        let mut text = String::new();
        for number in 0.. {
            let next = one(number);
            if text.len() + between.len() + next.len() > EXPRESSION_BYTES_MAX {
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
        "-".repeat(4000) + "1 = 1",
        "1%".repeat(2000) + "1 = 1",
        "greater 0 and ".repeat(290) + "udp",
        fill(&|number| format!("portrange {number}-65535"), " or "),
        fill(&|number| format!("portrange {number}-65535"), " and "),
        fill(&|number| format!("port {number}"), " or "),
        fill(&|number| format!("{}{}", if number == 0 { "port " } else { "" }, 7 * number), " or "),
        fill(&|number| format!("not port {number}"), " and "),
        fill(&|number| format!("host fd{number:02x}::1"), " or "),
        fill(&|number| format!("(host 10.0.{}.{} and port {number})", number / 256, number % 256), " or "),
        fill(&|number| format!("(src net 10.{number}.0.0/16 and tcp[{number}] > {number})"), " or "),
        fill(&|number| format!("ip6[{number}]&1=1"), " or "),
        fill(&|number| format!("ether[{number}]<ether[{}]", number + 1), " or "),
        fill(&|number| format!("(ether[{number}]&1=1 and ether[{}]&2=2)", number + 1), " or "),
        fill(&|number| format!("(tcp[{number}]>udp[{}] or vlan)", number + 1), " and "),
        fill(&|_| "vlan".to_owned(), " and "),
        fill(&|_| "mpls".to_owned(), " and "),
        fill(&|_| "geneve".to_owned(), " and "),
        fill(&|_| "pppoes".to_owned(), " or "),
        fill(&|number| format!("ip protochain {number}"), " or "),
        fill(&|number| format!("ip6 protochain {number}"), " and "),
        fill(&|number| format!("protochain {number}"), " or "),
        fill(&|number| format!("(vlan {number} or ip proto {number})"), " and "),
        fill(&|number| format!("icmp6[ip6[{number}]]=tcp[{number}]"), " or "),
        sums(480),
        format!("{}ip[0]{} = 1", "ip[".repeat(90), "]".repeat(90)),
        format!("{}ip[0]{} = 1", "ip[".repeat(900), "]".repeat(900)),
        format!("ip[0] {} = 1", "* 3 - 1 ".repeat(400)),
    ]
}

/// Compilation is bounded by counts. This test checks that the processor time per count has the expected order of magnitude.
#[test]
fn a_hard_expression_is_refused_or_compiled_within_the_limits() {
    let mut slowest = (Nanos(0), String::new());
    for expression in hard_expressions() {
        assert!(expression.len() <= EXPRESSION_BYTES_MAX, "{}", expression.len());
        for link_type in [LinkType::Ethernet, LinkType::Raw] {
            let begin = thread_time();
            match compile_filter(&expression, link_type) {
                Ok(program) => assert!(program.instructions().len() <= 4096),
                Err(error) => assert!(error.to_string().len() < 1000, "{error}"),
            }
            let took = Nanos(thread_time().0 - begin.0);
            if took > slowest.0 {
                slowest = (took, expression.chars().take(60).collect());
            }
        }
    }
    println!("slowest: {} for {}", slowest.0, slowest.1);
    assert!(slowest.0 < Nanos::SECOND, "{slowest:?}");
}
