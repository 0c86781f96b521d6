//! `IPClassifier` and `IPFilter`: choose an output by conditions on the headers of IP packets.

use super::expression::PacketParts;
use super::pattern;
use super::rules::{NO_OUTPUT, PatternRule, RuleSet, output_of};
use super::words;
use std::fmt::Write;
use weir_graph::arguments::text::unquote;
use weir_graph::arguments::{ArgumentContext, ArgumentErrors};
use weir_graph::engine::{
    BuildContext, BuiltElement, Destination, Effects, Element, ElementClass, ElementContext, ElementCost,
    GraphPacket, HandlerDefinition, OrderDependence, Reason, RoutingElement, Services, TextOutput,
};
use weir_graph::reconfigured_fields;

/// The class with a pattern for each output.
pub static CLASSIFIER: ElementClass = ElementClass {
    name: "IPClassifier",
    ports: "1/-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E4,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
chooses an output by conditions on IP headers

IPClassifier(PATTERN, ...)

IPClassifier has a pattern for each output. A packet goes to the output of the first pattern that matches it, and is \
discarded if there is none. Its network header has to be known, as behind CheckIPHeader and MarkIPHeader; without one, \
only patterns for every packet match.

A pattern is -, any or all for every packet, or a condition of these:
  ip proto PROTO                    the IP protocol, a number or a name
  DIR host ADDRESS                  an IP address; DIR is src, dst, 'src and dst', or 'src or dst', the default
  DIR net ADDRESS/LENGTH            a prefix; also ADDRESS mask MASK
  DIR [tcp|udp] port PORT           a port, a number or a name. Default: of both protocols
  ip vers|hl|len|id|tos|dscp|ttl N  a field of the IP header
  ip ect, ip ce                     transport that is capable of ECN; congestion experienced
  ip frag, ip unfrag                is a fragment, or is not
  tcp opt FLAG                      a TCP flag: syn, fin, ack, rst, psh, urg
  tcp win N                         the TCP window, without its scale
  icmp type TYPE                    an ICMP type, a number or a name
  ip[POS:LEN] N, transp[POS:LEN] N  1 to 4 bytes of the IP or the transport header; also tcp[POS:LEN] and others
  DIR ether host ADDRESS            an Ethernet address, if the link header is known
  true, false                       every packet, no packet

Conditions are joined by and (&&), or (||), not (!), CONDITION ? THEN : ELSE, and brackets. Without a word between them, \
both have to be true. Before a value there can be ==, !=, and for numbers <, >, <= and >=; and before that & MASK. Words \
that follow from others can be left out: tcp, 10.0.0.0/8, syn, www, src port 80 or 81.

Conditions on ports, TCP and ICMP are only true for first fragments. 'src tcp port != 5' is true only for TCP packets; \
'not src tcp port 5' for all others, too. A packet that ends before a field makes a condition on it false.

All patterns together are one table of bytes, so the time for a packet depends on how many bytes they look at, not on \
how many patterns there are.

Handlers:
  program   r   the tests, one a line: offset, value and mask of a word, and what follows. The IP header begins at 256,
                the transport header at 512
  patternN  rw  the pattern of output N",
    build: |cx| build(cx, false),
};

/// The class with an action in each rule.
pub static FILTER: ElementClass = ElementClass {
    name: "IPFilter",
    manual: "\
passes or discards packets by rules on IP headers

IPFilter(ACTION PATTERN, ...)

IPFilter does with a packet what the first rule says whose pattern matches. A packet that matches none is discarded. The \
manual of IPClassifier describes patterns.

ACTION is allow, for output 0; deny or drop, to discard the packet; or the number of an output.

Handlers:
  program  r   the tests, as in IPClassifier",
    build: |cx| build(cx, true),
    ..CLASSIFIER
};

/// Parses a pattern for an output.
fn rule(pattern: &str, output: u16, context: &ArgumentContext<'_>) -> Result<PatternRule, Reason> {
    let pattern = unquote(pattern);
    let pattern = String::from_utf8_lossy(&pattern);
    if pattern.trim().is_empty() {
        return Err("the pattern is empty".to_owned());
    }
    Ok(PatternRule { condition: pattern::parse(&pattern, context)?, output })
}

/// Parses a rule of an `IPFilter`.
///
/// # Errors
///
/// Fails with the first thing that is wrong.
pub fn filter_rule(text: &str, outputs: usize, context: &ArgumentContext<'_>) -> Result<PatternRule, Reason> {
    let text = unquote(text);
    let text = String::from_utf8_lossy(&text);
    let text = text.trim();
    let action = words::split(text).first().copied().unwrap_or_default();
    let pattern = &text[action.len()..];
    let output = match action {
        "" => return Err("the rule is empty".to_owned()),
        "allow" => 0,
        "deny" | "drop" => NO_OUTPUT,
        _ => match words::number(action) {
            Some(output) => u16::try_from(output).unwrap_or(NO_OUTPUT - 1),
            None => {
                return Err(format!("'{action}' is no action: use allow, deny, or the number of an output"));
            }
        },
    };
    if output != NO_OUTPUT && usize::from(output) >= outputs {
        return Err(format!("output {output} is not connected"));
    }
    Ok(PatternRule { condition: pattern::parse(pattern, context)?, output })
}

fn build(cx: &mut BuildContext<'_>, is_filter: bool) -> Result<BuiltElement, ArgumentErrors> {
    let outputs = cx.ports().targets.len();
    let context = cx.argument_context();
    let mut args = cx.arguments();
    let patterns = args.rest();
    if !is_filter && patterns.len() != outputs {
        args.error("", format!("{outputs} outputs are connected, and each needs a pattern"));
    }
    let mut rules = Vec::new();
    for (index, text) in patterns.iter().enumerate() {
        let parsed = match is_filter {
            true => filter_rule(text, outputs, context),
            false => output_of(index).and_then(|output| rule(text, output, context)),
        };
        match parsed {
            Ok(rule) => rules.push(rule),
            Err(reason) => args.error(&format!("pattern {index}"), reason),
        }
    }
    args.end()?;
    let compiled = RuleSet::new(rules.clone());
    if is_filter {
        return Ok(BuiltElement::routing(IpRules { compiled, rules, patterns: Vec::new() }));
    }
    warn_of_dead(cx, &compiled);
    Ok(BuiltElement::routing(IpRules { compiled, rules, patterns }))
}

/// Warns of patterns that no packet can match.
pub fn warn_of_dead(cx: &mut BuildContext<'_>, rules: &RuleSet) {
    if rules.dead().is_empty() {
        return;
    }
    let ArgumentContext { element, class, landmark, .. } = cx.argument_context();
    let mut text = format!("{landmark}: While configuring '{element} :: {class}':\n");
    for index in rules.dead() {
        // Writing to a text does not fail.
        _ = writeln!(text, "  warning: pattern {index} matches no packets");
    }
    cx.services.system.write_text(TextOutput::Error, &text);
}

struct IpRules {
    compiled: RuleSet,
    rules: Vec<PatternRule>,
    /// The texts of the patterns, in an `IPClassifier`.
    patterns: Vec<String>,
}

/// The most patterns whose handlers are listed. Others can be used all the same.
const LISTED: usize = 64;

const DIGITS: &[u8; 10] = b"0123456789";

const NAME_BYTES: [[u8; 9]; LISTED] = {
    let mut names = [*b"pattern00"; LISTED];
    let mut index = 0;
    while index < LISTED {
        let (tens, ones) = (DIGITS[index / 10], DIGITS[index % 10]);
        if index < 10 {
            names[index][7] = ones;
        } else {
            (names[index][7], names[index][8]) = (tens, ones);
        }
        index += 1;
    }
    names
};

/// The handlers, that of the program first.
static HANDLERS: [HandlerDefinition; LISTED + 1] = {
    const PROGRAM: HandlerDefinition = HandlerDefinition {
        name: "program",
        reads: true,
        writes: false,
        measure: None,
        description: "the tests",
    };
    let mut all = [PROGRAM; LISTED + 1];
    let mut index = 0;
    while index < LISTED {
        let (name, _) = NAME_BYTES[index].split_at(if index < 10 { 8 } else { 9 });
        all[index + 1] = HandlerDefinition {
            name: match std::str::from_utf8(name) {
                Ok(name) => name,
                Err(_) => "",
            },
            reads: true,
            writes: true,
            measure: None,
            description: "the pattern of this output",
        };
        index += 1;
    }
    all
};

impl IpRules {
    fn pattern(&self, handler: &str) -> Option<usize> {
        let index: usize = handler.strip_prefix("pattern")?.parse().ok()?;
        (index < self.patterns.len()).then_some(index)
    }
}

impl Element for IpRules {
    reconfigured_fields!(compiled, rules, patterns);

    fn handlers(&self) -> &'static [HandlerDefinition] {
        &HANDLERS[..=self.patterns.len().min(LISTED)]
    }

    fn read_handler(
        &mut self,
        name: &str,
        _: &str,
        _: &mut ElementContext<'_>,
    ) -> Option<Result<String, Reason>> {
        if name == "program" {
            return Some(Ok(self.compiled.program(256)));
        }
        Some(Ok(self.patterns[self.pattern(name)?].clone()))
    }

    fn write_handler(
        &mut self,
        name: &str,
        value: &str,
        cx: &mut ElementContext<'_>,
    ) -> Option<Result<String, Reason>> {
        let index = self.pattern(name)?;
        let output = self.rules[index].output;
        Some(cx.with_argument_context(|context| rule(value, output, context)).map(|rule| {
            self.rules[index] = rule;
            self.patterns[index] = value.trim().to_owned();
            self.compiled = RuleSet::new(self.rules.clone());
            String::new()
        }))
    }
}

impl RoutingElement for IpRules {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let compiled = &self.compiled;
        let (main, transport) = packet.headers();
        let parts = PacketParts {
            main,
            transport,
            link: if compiled.uses_link() { packet.link_bytes().unwrap_or_default() } else { &[] },
        };
        Destination::output(usize::from(compiled.decide(&parts)))
    }
}
