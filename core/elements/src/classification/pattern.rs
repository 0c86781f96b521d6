//! The language of IP patterns.
//!
//! | rule | text |
//! |---|---|
//! | expression | alternatives, or `alternatives ? expression : expression` |
//! | alternatives | terms between `or` or `\|\|` |
//! | term | factors, with or without `and` or `&&` between them |
//! | factor | `not factor`, `! factor`, `( expression )`, or a primitive |
//! | primitive | `true`, `false`, or words that qualify a value, a mask, an operator, and the value |

use super::expression::PatternExpression;
use super::primitive::{AddressDirection, Data, Field, HeaderWord, Kind, Operator, Primitive};
use super::words::{self, Named};
use weir_graph::arguments::{ArgumentContext, ArgumentValue, EthernetAddress};

/// The deepest nesting of brackets and negations.
const DEPTH_MAX: usize = 200;

/// Parses a pattern. `-`, `any` and `all` match every packet.
///
/// # Errors
///
/// Fails with the first thing that is wrong.
pub fn parse(pattern: &str, context: &ArgumentContext<'_>) -> Result<PatternExpression, String> {
    let words = words::split(pattern);
    if let [] | ["-" | "any" | "all"] = words[..] {
        return Ok(PatternExpression::Constant(true));
    }
    let mut parser = Parser { words: &words, at: 0, earlier: Primitive::default(), context, depth: 0 };
    let expression = parser.expression()?;
    match parser.word(0) {
        Some(word) => Err(format!("the condition ends before '{word}'")),
        None => Ok(expression),
    }
}

struct Parser<'a> {
    words: &'a [&'a str],
    at: usize,
    /// The primitive before this one, of which words can be left out.
    earlier: Primitive,
    context: &'a ArgumentContext<'a>,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn word(&self, ahead: usize) -> Option<&'a str> {
        self.words.get(self.at + ahead).copied()
    }

    fn take(&mut self, any: &[&str]) -> bool {
        let is = self.word(0).is_some_and(|word| any.contains(&word));
        self.at += usize::from(is);
        is
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("conditions are nested more than {DEPTH_MAX} times"));
        }
        let result = parse(self);
        self.depth -= 1;
        result
    }

    fn expression(&mut self) -> Result<PatternExpression, String> {
        let condition = self.alternatives()?;
        if !self.take(&["?"]) {
            return Ok(condition);
        }
        let then = self.deeper(Self::expression)?;
        if !self.take(&[":"]) {
            return Err("no ':' for '?'; spaces have to stand around it".to_owned());
        }
        let otherwise = self.deeper(Self::expression)?;
        Ok(PatternExpression::If(Box::new([condition, then, otherwise])))
    }

    fn alternatives(&mut self) -> Result<PatternExpression, String> {
        let mut all = vec![self.term()?];
        while self.take(&["or", "||"]) {
            all.push(self.term()?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { PatternExpression::Or(all) })
    }

    fn term(&mut self) -> Result<PatternExpression, String> {
        let mut all = Vec::new();
        loop {
            if self.word(0).is_none_or(|word| [")", "||", "or", "?", ":"].contains(&word)) {
                return Err("a condition is missing".to_owned());
            }
            all.push(self.factor()?);
            let has_and = self.take(&["and", "&&"]);
            let ends = self.word(0).is_none_or(|word| [")", "||", "or", "?", ":"].contains(&word));
            if ends && !has_and {
                return Ok(if all.len() == 1 { all.remove(0) } else { PatternExpression::And(all) });
            }
        }
    }

    fn factor(&mut self) -> Result<PatternExpression, String> {
        if self.take(&["not", "!"]) {
            return Ok(PatternExpression::Not(Box::new(self.deeper(Self::factor)?)));
        }
        if !self.take(&["("]) {
            return self.primitive();
        }
        let inner = self.deeper(Self::expression)?;
        if !self.take(&[")"]) {
            return Err("no ')' for '('".to_owned());
        }
        Ok(inner)
    }

    fn primitive(&mut self) -> Result<PatternExpression, String> {
        if self.take(&["true"]) {
            return Ok(PatternExpression::Constant(true));
        }
        if self.take(&["false"]) {
            return Ok(PatternExpression::Constant(false));
        }
        let first = self.at;
        let mut it = Primitive::default();
        let negated = self.qualifiers(&mut it)?;
        if self.at > first {
            self.earlier = Primitive::default();
        } else if let Some((_, Data::Ethernet(_))) = self.earlier.data {
            it.header = Some(HeaderWord::Ether);
        }
        if self.at > first && it.kind.is_none() && self.word(0) == Some("[") {
            it.kind = Some(self.brackets(it.protocol)?);
        }
        self.mask(&mut it)?;
        let has_operator = self.operator(&mut it);
        self.data(&mut it, has_operator)?;
        if self.at == first {
            return Err(format!("'{}' is no condition", self.word(0).unwrap_or_default()));
        }
        it.complete(&self.earlier)?;
        let condition = it.condition()?;
        self.earlier = it;
        Ok(if negated { PatternExpression::Not(Box::new(condition)) } else { condition })
    }

    /// Reads the words that qualify the value. Returns true if the primitive is negated.
    fn qualifiers(&mut self, it: &mut Primitive) -> Result<bool, String> {
        let mut negated = false;
        while let Some(word) = self.word(0) {
            if let Some(kind) = words::kind(word) {
                if it.kind.replace(kind).is_some() {
                    return Err(format!("'{word}' is a second field"));
                }
                if let Kind::Field(Field { protocol: Some(protocol), .. }) = kind {
                    set_protocol(it, protocol)?;
                }
            } else {
                match word {
                    "src" | "dst" | "dest" => self.direction(it, word)?,
                    "ip" if it.header.is_none() => it.header = Some(HeaderWord::Ip),
                    "ether" if it.header.is_none() => it.header = Some(HeaderWord::Ether),
                    "not" | "!" => negated = !negated,
                    _ => match words::named(word, None, None, self.context) {
                        Some(Named::Value(Kind::Protocol, Data::Number(protocol))) => {
                            set_protocol(it, u16::try_from(protocol).unwrap_or_default())?;
                        }
                        _ => break,
                    },
                }
            }
            self.at += 1;
        }
        Ok(negated)
    }

    fn direction(&mut self, it: &mut Primitive, word: &str) -> Result<(), String> {
        let direction = match (word, self.word(1), self.word(2)) {
            ("src", Some("and" | "&&"), Some("dst" | "dest")) => AddressDirection::Both,
            ("src", Some("or" | "||"), Some("dst" | "dest")) => AddressDirection::Either,
            ("src", ..) => AddressDirection::Source,
            _ => AddressDirection::Destination,
        };
        if matches!(direction, AddressDirection::Both | AddressDirection::Either) {
            self.at += 2;
        }
        match it.direction.replace(direction) {
            Some(_) => Err("'src' or 'dst' is given twice".to_owned()),
            None => Ok(()),
        }
    }

    /// Reads `[POS]`, `[POS:LEN]` or `[FIRST,LAST]`.
    fn brackets(&mut self, protocol: Option<u16>) -> Result<Kind, String> {
        self.at += 1;
        let mut text = String::new();
        while !self.take(&["]"]) {
            text.push_str(self.word(0).ok_or("no ']' for '['")?);
            self.at += 1;
        }
        let wrong = || format!("'[{text}]' is none of [POS], [POS:LEN] and [FIRST,LAST]");
        let number = |text: &str| words::number(text).ok_or_else(wrong);
        let (at, length) = if let Some((at, length)) = text.split_once(':') {
            (number(at)?, number(length)?)
        } else if let Some((first, last)) = text.split_once(',') {
            let first = number(first)?;
            (first, number(last)?.saturating_add(1).saturating_sub(first))
        } else {
            (number(&text)?, 1)
        };
        if !(1..=4).contains(&length) {
            return Err(format!("'[{text}]' has a length of {length}, which has to be 1 to 4"));
        }
        if at % 4 + length > 4 {
            return Err(format!("'[{text}]' is not within one word of four bytes"));
        }
        let first_bit = at.checked_mul(8).and_then(|bit| u16::try_from(bit).ok());
        let bits = u8::try_from(length * 8).map_err(|_| wrong())?;
        Ok(Kind::Field(Field { protocol, first_bit: first_bit.ok_or_else(wrong)?, bits }))
    }

    fn mask(&mut self, it: &mut Primitive) -> Result<(), String> {
        let (Some("&"), Some(word)) = (self.word(0), self.word(1)) else { return Ok(()) };
        let number = || words::number(word).map(Data::Number);
        let address = || match words::address(word, false, self.context) {
            Some(data @ Data::Host(_)) if it.header != Some(HeaderWord::Ether) => Some(data),
            _ => None,
        };
        let mask = number().or_else(address).or_else(|| self.ethernet(word, it));
        it.mask = Some(mask.ok_or_else(|| format!("'{word}' is no mask"))?);
        if it.mask == Some(Data::Number(0)) || it.mask == Some(Data::Host(0)) {
            return Err("the mask has no bit".to_owned());
        }
        self.at += 2;
        Ok(())
    }

    fn operator(&mut self, it: &mut Primitive) -> bool {
        let operator = match self.word(0).filter(|_| self.word(1).is_some()) {
            Some("=" | "==") => Operator::Equal,
            Some("!=") => Operator::NotEqual,
            Some(">") => Operator::Greater,
            Some("<=") => Operator::AtMost,
            Some("<") => Operator::Less,
            Some(">=") => Operator::AtLeast,
            _ => return false,
        };
        it.operator = operator;
        self.at += 1;
        true
    }

    fn data(&mut self, it: &mut Primitive, has_operator: bool) -> Result<(), String> {
        let Some(word) = self.word(0) else { return Ok(()) };
        let is_connective =
            [")", "(", "||", "or", "&&", "and", "?", ":", "not", "!", "true", "false"].contains(&word);
        let named = match words::kind(word) {
            // A word that names a field is no value, unless the field is known, as in 'icmp type echo'.
            Some(_) if it.kind.is_none() => None,
            _ => words::named(word, it.kind, it.protocol, self.context),
        };
        let wants_prefix = it.kind == Some(Kind::Net);
        it.data = match named {
            Some(Named::Misfit(reason)) => return Err(reason),
            Some(Named::Value(kind, data)) => Some((Some(kind), data)),
            None if is_connective => None,
            None => {
                let number = || words::number(word).map(Data::Number);
                let address = || match it.header {
                    Some(HeaderWord::Ether) => None,
                    _ => words::address(word, wants_prefix, self.context),
                };
                let data = number().or_else(address).or_else(|| self.ethernet(word, it));
                data.map(|data| (None, data))
            }
        };
        match it.data {
            None if has_operator => return Err(format!("'{word}' is no value for the operator before it")),
            None => return Ok(()),
            Some(_) => self.at += 1,
        }
        // ADDRESS mask MASK
        if let (Some((None, Data::Host(address) | Data::Net(address, u32::MAX))), Some("mask"), Some(mask)) =
            (it.data, self.word(0), self.word(1))
            && let Some(Data::Host(mask)) = words::address(mask, false, self.context)
        {
            it.data = Some((None, Data::Net(address, mask)));
            self.at += 2;
        }
        Ok(())
    }

    fn ethernet(&self, word: &str, it: &Primitive) -> Option<Data> {
        if it.header == Some(HeaderWord::Ip) {
            return None;
        }
        let EthernetAddress(address) = EthernetAddress::parse_argument(word, self.context).ok()?;
        Some(Data::Ethernet(address))
    }
}

fn set_protocol(it: &mut Primitive, protocol: u16) -> Result<(), String> {
    match it.protocol.replace(protocol) {
        Some(before) if before != protocol => Err("there are two protocols".to_owned()),
        _ => Ok(()),
    }
}
