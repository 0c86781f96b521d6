//! Elements without packets that state facts for others: names, tickets, threads, alignment.

use weir_graph::arguments::text::split_words;
use weir_graph::arguments::{
    ArgumentErrors, ElementArguments, EthernetAddress, FixedDecimal, IpProtocol, Ipv4Prefix, Ipv6Prefix,
};
use weir_graph::engine::{
    BuildContext, BuiltElement, Destination, Effects, Element, ElementClass, ElementContext, ElementCost,
    GraphPacket, OrderDependence, Reason, RoutingElement, Services, TICKETS_DEFAULT, TICKETS_MAX,
};

/// The class of names of addresses.
pub static ADDRESSES: ElementClass = ElementClass {
    name: "AddressInfo",
    ports: "0/0",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
names addresses

AddressInfo(NAME ADDRESS ..., ...)

Other arguments can have NAME instead of an address: an IPv4 or IPv6 address or prefix, or an Ethernet address. A name can \
have one of each. In a compound element it is known there, and in compound elements within.

`NAME:ip`, `NAME:ipnet`, `NAME:ip6`, `NAME:ip6net` and `NAME:eth` are one kind of address of a name. `NAME:bcast` is the \
broadcast address of its IPv4 prefix, and `NAME:gw` the first address in it. Names of devices are unknown.",
    build: |cx| {
        let mut args = cx.arguments();
        for text in args.rest() {
            let words: Vec<&str> = split_words(&text).collect();
            match words[..] {
                [] => {}
                [_] => args.error("", format!("'{text}': expected NAME ADDRESS ...")),
                [name, ref addresses @ ..] => {
                    for address in addresses {
                        define_address(name, address, cx, &mut args);
                    }
                }
            }
        }
        end(args)
    },
};

/// The class of names of ports.
pub static PORTS: ElementClass = ElementClass {
    name: "PortInfo",
    manual: "\
names ports of TCP and UDP

PortInfo(NAME PORT[/PROTOCOL] [NAME ...], ...)

Other arguments can have NAME instead of the port, without PROTOCOL for both TCP and UDP. The lines of a file of services \
can be arguments. In a compound element a name is known there, and in compound elements within.",
    build: |cx| {
        let mut args = cx.arguments();
        for text in args.rest() {
            let words: Vec<&str> = split_words(&text).take_while(|word| !word.starts_with('#')).collect();
            if let Err(reason) = define_port(&words, cx) {
                args.error("", format!("'{text}': {reason}"));
            }
        }
        end(args)
    },
    ..ADDRESSES
};

/// The class of tickets.
pub static SCHEDULE: ElementClass = ElementClass {
    name: "ScheduleInfo",
    manual: "\
states how often the tasks of elements run

ScheduleInfo(ELEMENT PARAMETER, ...)

The task of an element with parameter 2 runs twice as often as that of one with parameter 1, which is the default. The \
parameter of a compound element is a factor for all elements in it. A statement outside of a compound element about an \
element in it takes the place of one inside.",
    build: |cx| {
        let mut args = cx.arguments();
        for text in args.rest() {
            let words: Vec<&str> = split_words(&text).collect();
            let [name, parameter] = words[..] else {
                if !words.is_empty() {
                    args.error("", format!("'{text}': expected ELEMENT PARAMETER"));
                }
                continue;
            };
            match cx.read::<FixedDecimal<6>>(parameter).and_then(|it| u64::try_from(it.0).ok()) {
                Some(millionths) => {
                    let tickets = millionths.saturating_mul(TICKETS_DEFAULT.into()) / 1_000_000;
                    let tickets = u32::try_from(tickets).unwrap_or(TICKETS_MAX).clamp(1, TICKETS_MAX);
                    cx.services.names.tickets.insert((cx.scope().to_owned(), name.to_owned()), tickets);
                }
                None => args.error("", format!("'{parameter}' is no number of at least 0")),
            }
        }
        end(args)
    },
    ..ADDRESSES
};

/// The class of alignments.
pub static ALIGNMENT: ElementClass = ElementClass {
    name: "AlignmentInfo",
    manual: "\
states the alignment of packets

AlignmentInfo(ELEMENT [MODULUS OFFSET ...], ...)

AlignmentInfo has no effect: elements of weir read packets at any alignment. Configurations that a tool has aligned \
contain it.",
    build: |cx| {
        let mut args = cx.arguments();
        for text in args.rest() {
            let mut words = split_words(&text);
            _ = words.next();
            let numbers: Vec<Option<u32>> = words.map(|word| cx.read(word)).collect();
            if !numbers.len().is_multiple_of(2) || numbers.contains(&None) {
                args.error("", format!("'{text}': expected ELEMENT MODULUS OFFSET ..."));
            }
        }
        end(args)
    },
    ..ADDRESSES
};

/// The class of styles.
pub static CLICKY: ElementClass = ElementClass {
    name: "ClickyInfo",
    manual: "\
has styles for the program Clicky

ClickyInfo(STYLE, ...)

ClickyInfo has no effect. Clicky reads its arguments, and draws the graph by them.",
    build: |cx| {
        let mut args = cx.arguments();
        _ = args.rest();
        end(args)
    },
    ..ADDRESSES
};

/// The class of threads.
pub static THREADS: ElementClass = ElementClass {
    name: "StaticThreadSched",
    manual: "\
states the threads of elements

StaticThreadSched(ELEMENT THREAD, ...)

The task of the element runs on this thread; 0 is the first. A statement about a compound element is one about all \
elements in it. A statement outside of a compound element takes the place of one inside. -1 states no thread. The elements \
have to exist.

A graph is cut at its queues. Elements that are connected otherwise, or that share a table, run on one thread: the lowest \
that is stated for one of them. Elements without a statement go to the thread that has the fewest tasks. Threads that do not \
exist are the last one. `weir graph check -j N` shows the placement.",
    build: |cx| {
        let mut args = cx.arguments();
        let mut elements = Vec::new();
        for text in args.rest() {
            let words: Vec<&str> = split_words(&text).collect();
            match words[..] {
                [name, thread] if cx.read::<i32>(thread).is_some_and(|it| it >= -1) => {
                    if let Some(thread) = cx.read::<u32>(thread) {
                        let key = (cx.scope().to_owned(), name.to_owned());
                        cx.services.names.threads.insert(key, thread);
                    }
                    elements.push(name.to_owned());
                }
                _ => args.error("", format!("'{text}': expected ELEMENT THREAD")),
            }
        }
        args.end()?;
        Ok(BuiltElement::routing(Threads { elements, scope: cx.scope().to_owned() }))
    },
    ..ADDRESSES
};

/// The class of threads that are balanced.
pub static BALANCED: ElementClass = ElementClass {
    name: "BalancedThreadSched",
    manual: "\
states that threads are balanced

BalancedThreadSched([INTERVAL, INCREASING])

BalancedThreadSched has no effect: weir spreads elements over threads when a graph starts, and they stay there. \
StaticThreadSched states threads of elements.

Arguments:
  INTERVAL    accepted: milliseconds. Default 1000.
  INCREASING  accepted: true or false. Default true.",
    build: |cx| {
        let mut args = cx.arguments();
        let _: i32 = args.either("INTERVAL").or(1000);
        let _: bool = args.either("INCREASING").or(true);
        end(args)
    },
    ..ADDRESSES
};

fn end(args: ElementArguments<'_, '_>) -> Result<BuiltElement, ArgumentErrors> {
    args.end()?;
    Ok(BuiltElement::routing(Info))
}

fn define_address(name: &str, address: &str, cx: &mut BuildContext<'_>, args: &mut ElementArguments<'_, '_>) {
    let full = format!("{}{name}", cx.scope());
    let has_length = address.contains('/');
    let ethernet = cx.read::<EthernetAddress>(address);
    let (ipv4, ipv4_prefix) = (cx.read::<core::net::Ipv4Addr>(address), cx.read::<Ipv4Prefix>(address));
    let (ipv6, ipv6_prefix) = (cx.read::<core::net::Ipv6Addr>(address), cx.read::<Ipv6Prefix>(address));
    if ethernet.is_none() && ipv4_prefix.is_none() && ipv6_prefix.is_none() {
        args.error("", format!("'{address}' is no address"));
    }
    let names = &mut cx.services.names;
    if let Some(ethernet) = ethernet {
        names.ethernet.insert(full.clone(), ethernet);
    }
    if let Some(prefix) = ipv4_prefix.filter(|_| has_length) {
        names.ipv4_prefixes.insert(full.clone(), prefix);
    }
    // An address with bits behind its prefix is an address, too.
    let in_prefix = ipv4_prefix.filter(|it| it.address.to_bits() & !it.mask.to_bits() != 0);
    if let Some(address) = ipv4.or(in_prefix.filter(|_| has_length).map(|prefix| prefix.address)) {
        names.ipv4.insert(full.clone(), address);
    }
    if let Some(prefix) = ipv6_prefix.filter(|_| has_length) {
        names.ipv6_prefixes.insert(full.clone(), prefix);
    }
    let host_bits = |it: &Ipv6Prefix| u128::MAX.checked_shr(it.len.into()).unwrap_or(0);
    let in_prefix = ipv6_prefix.filter(|it| it.address.to_bits() & host_bits(it) != 0);
    if let Some(address) = ipv6.or(in_prefix.filter(|_| has_length).map(|prefix| prefix.address)) {
        names.ipv6.insert(full, address);
    }
}

/// The protocols of a port without one.
const TCP_AND_UDP: &[u8] = &[6, 17];

fn define_port(words: &[&str], cx: &mut BuildContext<'_>) -> Result<(), Reason> {
    let [name, port, others @ ..] = words else {
        return if words.is_empty() { Ok(()) } else { Err("expected NAME PORT[/PROTOCOL]".to_owned()) };
    };
    let (port, protocol) = port.split_once('/').map_or((*port, None), |(port, name)| (port, Some(name)));
    let port: u16 = cx.read(port).ok_or("expected NAME PORT[/PROTOCOL]")?;
    let protocols = match protocol {
        None => TCP_AND_UDP.to_vec(),
        Some(protocol) => match cx.read::<IpProtocol>(protocol) {
            Some(protocol) => vec![protocol.0],
            // Files of services name protocols that are not in the table.
            None => return Ok(()),
        },
    };
    for name in [name].into_iter().chain(others) {
        for protocol in &protocols {
            let full = format!("{}{name}", cx.scope());
            cx.services.names.ports.insert((*protocol, full), port);
        }
    }
    Ok(())
}

struct Info;

impl Element for Info {}

impl RoutingElement for Info {
    fn route(&mut self, _: usize, _: &mut GraphPacket, _: &mut Services) -> Destination {
        Destination::DISCARD
    }
}

struct Threads {
    elements: Vec<String>,
    scope: String,
}

impl Element for Threads {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        let list = cx.read_handler("list")?;
        for name in &self.elements {
            // A compound element is no element any more, but those in it have its name.
            let compound = format!("{}{name}/", self.scope);
            if cx.find(name).is_none() && !list.lines().any(|it| it.starts_with(&compound)) {
                return Err(format!("no element named '{name}'"));
            }
        }
        Ok(())
    }
}

impl RoutingElement for Threads {
    fn route(&mut self, _: usize, _: &mut GraphPacket, _: &mut Services) -> Destination {
        Destination::DISCARD
    }
}
