//! `Classifier`: chooses an output by bytes at offsets.

use super::expression::{PacketParts, Part, PatternExpression};
use super::ip::warn_of_dead;
use super::rules::{PatternRule, RuleSet, output_of};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "Classifier",
    ports: "1/-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E4,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
chooses an output by bytes at offsets

Classifier(PATTERN, ...)

Classifier has a pattern for each output. A packet goes to the output of the first pattern that matches it, and is \
discarded if there is none. A pattern is a list of clauses, which all have to match, or - for every packet.

A clause OFFSET/VALUE or OFFSET/VALUE%MASK compares bytes from OFFSET on. OFFSET is decimal; VALUE and MASK are an even \
number of hexadecimal digits. A digit ? of VALUE is not compared, and MASK has a 1 for each bit that is. A ! before a \
clause makes it match the packets that it would not match. A clause does not match a packet that ends before its bytes.

All patterns together are one table of bytes, so the time for a packet depends on how many bytes they look at, not on \
how many patterns there are.

Handlers:
  program  r   the tests, one a line: offset, value and mask of a word, and what follows",
    build: |cx| {
        let outputs = cx.ports().targets.len();
        let mut args = cx.arguments();
        let patterns = args.rest();
        if patterns.len() != outputs {
            args.error("", format!("{outputs} outputs are connected, and each needs a pattern"));
        }
        let mut rules = Vec::new();
        for (index, pattern) in patterns.iter().enumerate() {
            match output_of(index).and_then(|output| Ok(PatternRule { condition: parse(pattern)?, output })) {
                Ok(rule) => rules.push(rule),
                Err(reason) => args.error(&format!("pattern {index}"), reason),
            }
        }
        args.end()?;
        let rules = RuleSet::new(rules);
        warn_of_dead(cx, &rules);
        Ok(BuiltElement::routing(Classifier { rules }))
    },
};

/// The largest offset of a clause.
const OFFSET_MAX: usize = 32_767;

/// Parses a pattern.
///
/// # Errors
///
/// Fails with the first thing that is wrong.
pub fn parse(pattern: &str) -> Result<PatternExpression, String> {
    let mut rest = pattern.trim();
    if rest == "-" {
        return Ok(PatternExpression::Constant(true));
    }
    let mut clauses = Vec::new();
    while !rest.is_empty() {
        let negated = rest.strip_prefix('!');
        rest = negated.unwrap_or(rest).trim_start();
        let (offset, after) = digits(rest, |c| c.is_ascii_digit());
        let offset: usize = match offset.parse() {
            Ok(offset) if offset <= OFFSET_MAX => offset,
            Ok(_) => return Err(format!("the offset {offset} is greater than {OFFSET_MAX}")),
            Err(_) => return Err(format!("expected an offset before '{rest}'")),
        };
        let after = after.strip_prefix('/').ok_or_else(|| format!("expected '/' behind {offset}"))?;
        let (value, after) = digits(after, |c| c.is_ascii_hexdigit() || c == '?');
        let (mask, after) = match after.strip_prefix('%') {
            Some(mask) => digits(mask, |c| c.is_ascii_hexdigit() || c == '?'),
            None => ("", after),
        };
        let has_mask = after.len() < rest.len() && rest[..rest.len() - after.len()].contains('%');
        if value.is_empty() || value.len() % 2 != 0 {
            return Err(format!("'{value}' is not an even number of hexadecimal digits"));
        }
        if has_mask && mask.len() != value.len() {
            return Err(format!("the mask '{mask}' is not as long as the value '{value}'"));
        }
        let clause = clause(offset, value, has_mask.then_some(mask));
        clauses.push(if negated.is_some() { PatternExpression::Not(Box::new(clause)) } else { clause });
        rest = after.trim_start();
    }
    Ok(PatternExpression::And(clauses))
}

fn digits(text: &str, is_digit: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !is_digit(c)).unwrap_or(text.len()))
}

/// Returns a clause as tests of words.
fn clause(offset: usize, value: &str, mask: Option<&str>) -> PatternExpression {
    let mut words: Vec<(usize, u32, u32)> = Vec::new();
    let nibble = |text: &str, at: usize| {
        let digit = text.as_bytes().get(at).and_then(|byte| char::from(*byte).to_digit(16));
        digit.map_or((0, 0), |digit| (digit, 0xf))
    };
    for at in 0..value.len() {
        let (digit, mut compared) = nibble(value, at);
        if let Some(mask) = mask {
            let (bits, given) = nibble(mask, at);
            compared &= bits & given;
        }
        let byte = offset + at / 2;
        let shift = 28 - (byte % 4 * 8 + at % 2 * 4);
        let word = byte / 4 * 4;
        if words.last().is_none_or(|(last, ..)| *last != word) {
            words.push((word, 0, 0));
        }
        if let Some((_, mask, value)) = words.last_mut() {
            *mask |= compared << shift;
            *value |= (digit & compared) << shift;
        }
    }
    let test = |(at, mask, value): (usize, u32, u32)| {
        PatternExpression::equal(Part::Main, u16::try_from(at).unwrap_or(u16::MAX), mask, value)
    };
    PatternExpression::And(words.into_iter().map(test).collect())
}

struct Classifier {
    rules: RuleSet,
}

impl Element for Classifier {
    reconfigured_fields!(rules);

    handlers! {
        "program": "the tests", read |this, _, _| Ok(this.rules.program(0));
    }
}

impl RoutingElement for Classifier {
    #[inline(always)]
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let parts = PacketParts { main: packet.bytes(), ..PacketParts::default() };
        Destination::output(usize::from(self.rules.decide(&parts)))
    }
}
