//! The grammar, with libpcap's precedence: `and` and `or` bind equally and from the left, `not` binds to one primitive, and an identifier alone has the
//! qualifiers of the primitive before it. Headers move (`vlan`, `mpls`, ...) in the order of the text.

use crate::arithmetic::{self, Number};
use crate::condition::{ConditionId, Conditions};
use crate::error::{FilterError, FilterFault};
use crate::layers::Layers;
use crate::names::Names;
use crate::network::AddressSide;
use crate::qualified::{Identifiers, Qualifier, Qualifiers};
use crate::ranges::Ranges;
use crate::token::{Token, TokenKind, shown, tokens};
use crate::value::Relation;
use crate::word::{Proto, Word};
use weir_demux::{Alu, LoadWidth};

/// The binding of operators: a greater number binds closer.
const UNARY: u8 = 6;

/// A parsed part of the text.
enum Item {
    /// A number alone: an identifier, or arithmetic.
    Plain(u32),
    Arithmetic(Number),
    Condition(Parsed),
}

#[derive(Clone, Copy)]
struct Parsed {
    condition: ConditionId,
    /// For an identifier behind it.
    qualifiers: Option<Qualifiers>,
    kind: ParsedKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ParsedKind {
    /// A primitive, or several in parentheses.
    Primitive,
    /// An identifier without qualifiers of its own.
    Identifier,
    /// Several of them in parentheses.
    Identifiers,
}

pub(crate) struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
    layers: Layers,
    names: &'a dyn Names,
    pub(crate) code: Conditions,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(text: &'a str, layers: Layers, names: &'a dyn Names) -> Result<Self, FilterError> {
        let tokens = tokens(text)?;
        Ok(Self { text, tokens, next: 0, depth: 0, layers, names, code: Conditions::default() })
    }

    /// The condition of the whole text. An empty text holds for every packet.
    pub(crate) fn parse(&mut self) -> Result<ConditionId, FilterError> {
        if self.tokens.is_empty() {
            return self.code.always(true).map_err(|fault| FilterError { at: 0, len: 0, fault });
        }
        let item = self.sequence(None)?;
        if self.peek().is_some() {
            return Err(self.expected("`and`, `or` or the end"));
        }
        match item {
            Item::Condition(Parsed { condition, kind: ParsedKind::Primitive, .. }) => Ok(condition),
            // An address or number alone.
            _ => {
                Err(self.expected("a comparison, or `host`, `port` or the like before an address or number"))
            }
        }
    }

    fn peek(&self) -> Option<&TokenKind> {
        self.peek_at(0)
    }

    fn peek_at(&self, more: usize) -> Option<&TokenKind> {
        self.tokens.get(self.next + more).map(|token| &token.kind)
    }

    fn is_next(&self, kind: &TokenKind) -> bool {
        self.peek() == Some(kind)
    }

    fn take(&mut self, kind: &TokenKind) -> bool {
        let is_next = self.is_next(kind);
        self.next += usize::from(is_next);
        is_next
    }

    /// The place of the next token.
    fn place(&self) -> (usize, usize) {
        self.tokens.get(self.next).map_or((self.text.len(), 0), |token| (token.at, token.len))
    }

    fn expected(&self, expected: &'static str) -> FilterError {
        let (at, len) = self.place();
        let found = match self.text.get(at..at + len) {
            Some(text) if len > 0 => format!("`{}`", shown(text)),
            _ => "the end".to_owned(),
        };
        FilterError { at, len, fault: FilterFault::Expected { expected, found } }
    }

    /// An error about the text from token `first` up to the next one.
    fn at<T>(&self, first: usize, result: Result<T, FilterFault>) -> Result<T, FilterError> {
        result.map_err(|fault| {
            let start = self.tokens.get(first).map_or(self.text.len(), |token| token.at);
            let last = self.tokens.get(self.next.saturating_sub(1).max(first));
            let end = last.map_or(self.text.len(), |token| token.at + token.len);
            FilterError { at: start, len: end.saturating_sub(start), fault }
        })
    }

    fn deeper(&mut self) -> Result<(), FilterError> {
        self.depth += 1;
        if self.depth > crate::DEPTH_MAX {
            let (at, len) = self.place();
            return Err(FilterError { at, len, fault: FilterFault::Deep });
        }
        Ok(())
    }

    /// Primitives or identifiers with `and` and `or` between them, or one item alone.
    fn sequence(&mut self, inherited: Option<Qualifiers>) -> Result<Item, FilterError> {
        let start = self.next;
        let first = self.item(inherited)?;
        let is_combined =
            |parser: &Self| matches!(parser.peek(), Some(TokenKind::Word(Word::And | Word::Or)));
        if !is_combined(self) {
            return Ok(first);
        }
        let mut left = match first {
            Item::Plain(number) => self.identifier(start, number, inherited)?,
            Item::Arithmetic(_) => return Err(self.expected("an operator or a comparison")),
            Item::Condition(parsed) => parsed,
        };
        if left.kind == ParsedKind::Identifiers {
            return Err(self.expected("`)`"));
        }
        let of_identifiers = left.kind == ParsedKind::Identifier;
        while is_combined(self) {
            let is_and = self.is_next(&TokenKind::Word(Word::And));
            self.next += 1;
            let start = self.next;
            let right = match self.item(left.qualifiers)? {
                Item::Plain(number) => self.identifier(start, number, left.qualifiers)?,
                Item::Arithmetic(_) => return Err(self.expected("an operator or a comparison")),
                Item::Condition(parsed) => parsed,
            };
            if of_identifiers && right.kind == ParsedKind::Primitive {
                self.next = start;
                return Err(self.expected("an address, number or name, as before"));
            }
            let condition = if is_and {
                self.code.and(left.condition, right.condition)
            } else {
                self.code.or(left.condition, right.condition)
            };
            left = Parsed {
                condition: self.at(start, condition)?,
                kind: left.kind,
                qualifiers: right.qualifiers,
            };
        }
        Ok(Item::Condition(left))
    }

    /// A number that stands for a port, an address or the like.
    fn identifier(
        &mut self,
        start: usize,
        number: u32,
        inherited: Option<Qualifiers>,
    ) -> Result<Parsed, FilterError> {
        self.identify(start, inherited, |of, qualifiers| of.number(number, qualifiers))
    }

    fn identify(
        &mut self,
        start: usize,
        inherited: Option<Qualifiers>,
        make: impl FnOnce(&mut Identifiers<'_>, Qualifiers) -> Result<ConditionId, FilterFault>,
    ) -> Result<Parsed, FilterError> {
        let Some(qualifiers) = inherited else {
            self.next = start;
            return Err(self.expected("`host`, `net`, `port` or the like before an address, number or name"));
        };
        let mut of = Identifiers { layers: &self.layers, names: self.names, code: &mut self.code };
        let condition = make(&mut of, qualifiers);
        let condition = self.at(start, condition)?;
        Ok(Parsed { condition, qualifiers: inherited, kind: ParsedKind::Identifier })
    }

    /// One primitive, identifier or number, or several in parentheses.
    fn item(&mut self, inherited: Option<Qualifiers>) -> Result<Item, FilterError> {
        let start = self.next;
        let item = match self.peek() {
            Some(TokenKind::Word(Word::Not)) => {
                self.next += 1;
                self.deeper()?;
                let inner = self.item(inherited)?;
                self.depth -= 1;
                let inner = match inner {
                    Item::Plain(number) => self.identifier(start, number, inherited)?,
                    Item::Arithmetic(_) => return Err(self.expected("an operator or a comparison")),
                    Item::Condition(parsed) => parsed,
                };
                let condition = self.code.not(inner.condition);
                let condition = self.at(start, condition)?;
                let kind = match inner.kind {
                    ParsedKind::Primitive => ParsedKind::Primitive,
                    ParsedKind::Identifier | ParsedKind::Identifiers => ParsedKind::Identifier,
                };
                return Ok(Item::Condition(Parsed { condition, kind, ..inner }));
            }
            Some(TokenKind::Open) => {
                self.next += 1;
                self.deeper()?;
                let inner = self.sequence(inherited)?;
                self.depth -= 1;
                if !self.take(&TokenKind::Close) {
                    return Err(self.expected("`)`"));
                }
                match inner {
                    Item::Condition(Parsed { condition, kind, .. }) => {
                        let kind = match kind {
                            ParsedKind::Primitive => ParsedKind::Primitive,
                            ParsedKind::Identifier => ParsedKind::Identifiers,
                            ParsedKind::Identifiers => {
                                self.next = start;
                                return Err(self.expected("one pair of parentheses around addresses"));
                            }
                        };
                        return Ok(Item::Condition(Parsed { condition, qualifiers: inherited, kind }));
                    }
                    arithmetic => arithmetic,
                }
            }
            Some(TokenKind::Name(_) | TokenKind::Dotted(_) | TokenKind::Ip6(_) | TokenKind::Mac(_)) => {
                return self.address(inherited).map(Item::Condition);
            }
            Some(TokenKind::Number(_) | TokenKind::Minus | TokenKind::Word(Word::Length)) => {
                self.operand()?
            }
            Some(TokenKind::Word(Word::Proto(_))) if self.peek_at(1) == Some(&TokenKind::OpenIndex) => {
                self.operand()?
            }
            Some(TokenKind::Word(_)) => return self.primitive().map(Item::Condition),
            _ => return Err(self.expected("a primitive, such as `tcp port 80`")),
        };
        self.relation(start, item)
    }

    /// The rest of an arithmetic expression, and a comparison.
    fn relation(&mut self, start: usize, left: Item) -> Result<Item, FilterError> {
        let left = self.operators(start, left, 0)?;
        let (relation, is_reversed) = match self.peek() {
            Some(TokenKind::Greater) => (Relation::Greater, false),
            Some(TokenKind::GreaterOrEqual) => (Relation::GreaterOrEqual, false),
            Some(TokenKind::Equal) => (Relation::Equal, false),
            Some(TokenKind::LessOrEqual) => (Relation::Greater, true),
            Some(TokenKind::Less) => (Relation::GreaterOrEqual, true),
            Some(TokenKind::NotEqual) => (Relation::Equal, true),
            _ => return Ok(left),
        };
        self.next += 1;
        let left = self.number(start, left)?;
        let right_start = self.next;
        let right = self.expression(0)?;
        let right = self.number(right_start, right)?;
        let condition = self.compare(relation, is_reversed, left, right);
        let condition = self.at(start, condition)?;
        Ok(Item::Condition(Parsed { condition, qualifiers: None, kind: ParsedKind::Primitive }))
    }

    fn compare(
        &mut self,
        relation: Relation,
        is_reversed: bool,
        a: Number,
        b: Number,
    ) -> Result<ConditionId, FilterFault> {
        let (value, numbers) = self.code.values.relate(relation, a.value, b.value)?;
        let test = self.code.test(value, if is_reversed { numbers.not() } else { numbers })?;
        match arithmetic::both(&mut self.code, a.given, b.given)? {
            Some(given) => self.code.and(given, test),
            None => Ok(test),
        }
    }

    fn number(&mut self, start: usize, item: Item) -> Result<Number, FilterError> {
        match item {
            Item::Plain(number) => {
                let number = Number::constant(&mut self.code, number);
                self.at(start, number)
            }
            Item::Arithmetic(number) => Ok(number),
            Item::Condition(_) => {
                self.next = start;
                Err(self.expected("a number"))
            }
        }
    }

    /// Arithmetic whose operators bind at least as closely as `binding`.
    fn expression(&mut self, binding: u8) -> Result<Item, FilterError> {
        self.deeper()?;
        let start = self.next;
        let left = self.operand()?;
        let all = self.operators(start, left, binding)?;
        self.depth -= 1;
        Ok(all)
    }

    /// Operators behind `left`. `%` and `^` have no precedence in libpcap: all that follows is their right operand.
    fn operators(&mut self, start: usize, mut left: Item, binding: u8) -> Result<Item, FilterError> {
        if matches!(left, Item::Condition(_)) {
            return Ok(left);
        }
        loop {
            let (operator, binds, right) = match self.peek() {
                Some(TokenKind::Bar) => (Alu::Or, 1, 2),
                Some(TokenKind::Ampersand) => (Alu::And, 2, 3),
                Some(TokenKind::ShiftLeft) => (Alu::Lsh, 3, 4),
                Some(TokenKind::ShiftRight) => (Alu::Rsh, 3, 4),
                Some(TokenKind::Plus) => (Alu::Add, 4, 5),
                Some(TokenKind::Minus) => (Alu::Sub, 4, 5),
                Some(TokenKind::Times) => (Alu::Mul, 5, UNARY),
                Some(TokenKind::Slash) => (Alu::Div, 5, UNARY),
                Some(TokenKind::Percent) => (Alu::Mod, u8::MAX, 0),
                Some(TokenKind::Caret) => (Alu::Xor, u8::MAX, 0),
                _ => return Ok(left),
            };
            if binds < binding {
                return Ok(left);
            }
            self.next += 1;
            let a = self.number(start, left)?;
            let right_start = self.next;
            let b = self.expression(right)?;
            let b = self.number(right_start, b)?;
            let number = arithmetic::compute(&mut self.code, operator, a, b);
            left = Item::Arithmetic(self.at(start, number)?);
        }
    }

    /// One operand of arithmetic.
    fn operand(&mut self) -> Result<Item, FilterError> {
        let start = self.next;
        match self.peek() {
            Some(&TokenKind::Number(number)) => {
                self.next += 1;
                Ok(Item::Plain(number))
            }
            Some(TokenKind::Minus) => {
                self.next += 1;
                let of = self.expression(UNARY)?;
                let of = self.number(start + 1, of)?;
                let value = self.code.values.negate(of.value);
                Ok(Item::Arithmetic(Number { value: self.at(start, value)?, given: of.given }))
            }
            Some(TokenKind::Word(Word::Length)) => {
                self.next += 1;
                let value = self.code.values.length();
                Ok(Item::Arithmetic(Number { value: self.at(start, value)?, given: None }))
            }
            Some(TokenKind::Open) => {
                self.next += 1;
                let inner = self.expression(0)?;
                if !self.take(&TokenKind::Close) {
                    return Err(self.expected("an operator or `)`"));
                }
                Ok(inner)
            }
            Some(&TokenKind::Word(Word::Proto(protocol)))
                if self.peek_at(1) == Some(&TokenKind::OpenIndex) =>
            {
                self.next += 2;
                let index_start = self.next;
                let index = self.expression(0)?;
                let index = self.number(index_start, index)?;
                let mut size = 1;
                if self.take(&TokenKind::Colon) {
                    size = self.plain("1, 2 or 4")?;
                }
                if !self.take(&TokenKind::CloseIndex) {
                    return Err(self.expected("an operator, `:` or `]`"));
                }
                let bytes = self.layers.bytes(&mut self.code, protocol, index, size);
                Ok(Item::Arithmetic(self.at(start, bytes)?))
            }
            _ => Err(self.expected("a number, `len` or bytes such as `ip[0]`")),
        }
    }

    /// A number that is written out.
    fn plain(&mut self, expected: &'static str) -> Result<u32, FilterError> {
        match self.peek() {
            Some(&TokenKind::Number(number)) => {
                self.next += 1;
                Ok(number)
            }
            _ => Err(self.expected(expected)),
        }
    }

    /// A number behind a word, where there is one, perhaps in parentheses.
    fn optional(&mut self) -> Result<Option<u32>, FilterError> {
        let mut open = 0;
        while self.peek_at(open) == Some(&TokenKind::Open) {
            open += 1;
        }
        let Some(&TokenKind::Number(number)) = self.peek_at(open) else {
            return if open == 0 { Ok(None) } else { Err(self.expected("a number, `and`, `or` or the end")) };
        };
        self.next += open + 1;
        for _ in 0..open {
            if !self.take(&TokenKind::Close) {
                return Err(self.expected("`)`"));
            }
        }
        Ok(Some(number))
    }

    /// An address or name with the qualifiers of the primitive before it.
    fn address(&mut self, inherited: Option<Qualifiers>) -> Result<Parsed, FilterError> {
        let start = self.next;
        let Some(kind) = self.peek().cloned() else {
            return Err(self.expected("an address, number or name"));
        };
        self.next += 1;
        if matches!(kind, TokenKind::Dotted(_) | TokenKind::Ip6(_)) && self.take(&TokenKind::Slash) {
            let length = self.plain("the length of a prefix")?;
            return self.identify(start, inherited, |of, qualifiers| match kind {
                TokenKind::Ip6(address) => of.ip6(address, Some(length), qualifiers),
                TokenKind::Dotted(text) => of.network4(&text, length, qualifiers),
                _ => of.token(&kind, qualifiers),
            });
        }
        if let TokenKind::Dotted(text) = &kind
            && self.take(&TokenKind::Word(Word::Mask))
        {
            let Some(TokenKind::Dotted(mask)) = self.peek().cloned() else {
                return Err(self.expected("a mask such as 255.255.0.0"));
            };
            self.next += 1;
            return self.identify(start, inherited, |of, qualifiers| of.netmask4(text, &mask, qualifiers));
        }
        self.identify(start, inherited, |of, qualifiers| of.token(&kind, qualifiers))
    }

    /// A primitive that begins with a word.
    fn primitive(&mut self) -> Result<Parsed, FilterError> {
        let start = self.next;
        let protocol = match self.peek() {
            Some(&TokenKind::Word(Word::Proto(protocol))) => {
                self.next += 1;
                Some(protocol)
            }
            _ => None,
        };
        if let Some(qualifiers) = self.qualifiers(protocol)? {
            let start = self.next;
            let parsed = match self.item(Some(qualifiers))? {
                Item::Plain(number) => self.identifier(start, number, Some(qualifiers))?,
                Item::Condition(parsed) if parsed.kind != ParsedKind::Primitive => parsed,
                _ => {
                    self.next = start;
                    return Err(self.expected("an address, number or name"));
                }
            };
            return Ok(Parsed { kind: ParsedKind::Primitive, ..parsed });
        }
        let (layers, code) = (&mut self.layers, &mut self.code);
        let condition = match (protocol, self.tokens.get(self.next).map(|token| &token.kind)) {
            (_, Some(TokenKind::Word(word @ (Word::Broadcast | Word::Multicast)))) => {
                self.next += 1;
                if *word == Word::Broadcast {
                    layers.broadcast(code, protocol)
                } else {
                    layers.multicast(code, protocol)
                }
            }
            (_, Some(&TokenKind::Word(Word::Foreign(word, why)))) => {
                self.next += 1;
                return self.at(self.next - 1, Err(FilterFault::Unsupported { word, why }));
            }
            (Some(protocol), _) => layers.named(code, protocol),
            (None, Some(&TokenKind::Word(word))) => {
                self.next += 1;
                return self.word(start, word);
            }
            (None, _) => return Err(self.expected("a primitive, such as `tcp port 80`")),
        };
        let condition = self.at(start, condition)?;
        Ok(Parsed { condition, qualifiers: None, kind: ParsedKind::Primitive })
    }

    /// The qualifiers at this place, where there are any besides the protocol.
    fn qualifiers(&mut self, protocol: Option<Proto>) -> Result<Option<Qualifiers>, FilterError> {
        let direction = match self.peek() {
            Some(TokenKind::Word(word @ (Word::Src | Word::Dst))) => {
                let (one, other) = if *word == Word::Src {
                    (AddressSide::Src, Word::Dst)
                } else {
                    (AddressSide::Dst, Word::Src)
                };
                self.next += 1;
                let both = match self.peek() {
                    Some(TokenKind::Word(Word::Or)) => Some(AddressSide::Either),
                    Some(TokenKind::Word(Word::And)) => Some(AddressSide::Both),
                    _ => None,
                };
                if both.is_some() {
                    self.next += 1;
                    if !self.take(&TokenKind::Word(other)) {
                        return Err(self.expected("`src` or `dst`, the other one"));
                    }
                }
                Some(both.unwrap_or(one))
            }
            _ => None,
        };
        let thing = match self.peek() {
            Some(TokenKind::Word(Word::Host)) => Some(Qualifier::Host),
            Some(TokenKind::Word(Word::Net)) => Some(Qualifier::Net),
            Some(TokenKind::Word(Word::Port)) => Some(Qualifier::Port),
            Some(TokenKind::Word(Word::PortRange)) => Some(Qualifier::PortRange),
            Some(TokenKind::Word(Word::ProtoNumber)) if direction.is_none() => Some(Qualifier::Protocol),
            Some(TokenKind::Word(Word::ProtoChain)) if direction.is_none() => Some(Qualifier::ProtocolChain),
            Some(TokenKind::Word(Word::Gateway)) if direction.is_none() => Some(Qualifier::Gateway),
            _ => None,
        };
        self.next += usize::from(thing.is_some());
        let is_some = direction.is_some() || thing.is_some();
        Ok(is_some.then_some(Qualifiers { protocol, direction, thing }))
    }

    /// A primitive of one word, which has been read, and perhaps numbers behind it.
    fn word(&mut self, start: usize, word: Word) -> Result<Parsed, FilterError> {
        let condition = match word {
            Word::Less | Word::Greater => {
                let length = self.plain("a length")?;
                let numbers = if word == Word::Less {
                    Ranges::between(0, length)
                } else {
                    Ranges::between(length, u32::MAX)
                };
                self.layers.length(&mut self.code, numbers)
            }
            Word::Byte => return self.byte(start),
            Word::Inbound | Word::Outbound => self.layers.outbound(&mut self.code, word == Word::Outbound),
            Word::IfIndex => {
                let number = self.plain("the number of an interface")?;
                self.layers.interface(&mut self.code, number)
            }
            Word::Vlan => {
                let id = self.optional()?;
                self.layers.vlan(&mut self.code, id)
            }
            Word::Mpls => {
                let label = self.optional()?;
                self.layers.mpls(&mut self.code, label)
            }
            Word::PppoeDiscovery => self.layers.carries(&mut self.code, 0x8863),
            Word::PppoeSession => {
                let session = self.optional()?;
                self.layers.pppoe(&mut self.code, session)
            }
            Word::Geneve => {
                let network = self.optional()?;
                self.layers.geneve(&mut self.code, network)
            }
            Word::Llc => {
                let kind = match self.peek().cloned() {
                    Some(TokenKind::Name(name)) => Some(name),
                    Some(TokenKind::Word(Word::Foreign("rnr", _))) => Some("rnr".to_owned()),
                    _ => None,
                };
                self.next += usize::from(kind.is_some());
                self.layers.llc(&mut self.code, kind.as_deref())
            }
            _ => {
                self.next = start;
                return Err(self.expected("a primitive, such as `tcp port 80`"));
            }
        };
        let condition = self.at(start, condition)?;
        Ok(Parsed { condition, qualifiers: None, kind: ParsedKind::Primitive })
    }

    /// `byte OFFSET OPERATOR NUMBER`.
    fn byte(&mut self, start: usize) -> Result<Parsed, FilterError> {
        let offset = self.plain("the offset of a byte")?;
        let operator = self.peek().cloned();
        self.next += 1;
        let number = match operator {
            Some(
                TokenKind::Ampersand
                | TokenKind::Bar
                | TokenKind::Less
                | TokenKind::Greater
                | TokenKind::Equal,
            ) => self.plain("a number")?,
            _ => {
                self.next -= 1;
                return Err(self.expected("`=`, `<`, `>`, `&` or `|`"));
            }
        };
        let condition = self.byte_is(offset, operator, number);
        let condition = self.at(start, condition)?;
        Ok(Parsed { condition, qualifiers: None, kind: ParsedKind::Primitive })
    }

    fn byte_is(
        &mut self,
        offset: u32,
        operator: Option<TokenKind>,
        number: u32,
    ) -> Result<ConditionId, FilterFault> {
        let byte = self.code.load(self.layers.header.plus(offset), LoadWidth::Byte)?;
        let numbers = match operator {
            Some(TokenKind::Equal) => Ranges::one(number),
            Some(TokenKind::Less) => Ranges::between(number, u32::MAX).not(),
            Some(TokenKind::Greater) => Ranges::between(0, number).not(),
            other => {
                let operator = if other == Some(TokenKind::Ampersand) { Alu::And } else { Alu::Or };
                let number = self.code.values.constant(number)?;
                let value = self.code.values.compute(operator, byte, number)?;
                return self.code.test(value, Ranges::one(0).not());
            }
        };
        self.code.test(byte, numbers)
    }
}
