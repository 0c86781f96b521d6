//! The parser. It has the rules of libpcap: `and` and `or` have the same precedence and associate to the left, `not`
//! applies to the next primitive, and an identifier without qualifiers has those of the primitive before it. An
//! encapsulation (`vlan`, `mpls`, ...) shifts the header offsets for all text after it.

use crate::arithmetic::{self, Number};
use crate::condition::{ConditionId, Conditions};
use crate::error::{FilterError, FilterFault};
use crate::layers::Layers;
use crate::names::Names;
use crate::network::AddressSide;
use crate::qualified::{IdentifierCompiler, Qualifiers, TypeQualifier};
use crate::ranges::Ranges;
use crate::token::{Token, TokenKind, escaped_excerpt, tokens};
use crate::value::Relation;
use crate::word::{Proto, Word};
use weir_demux::{Alu, LoadWidth};

/// The precedence of unary operators. Operators with a higher number bind more tightly.
const UNARY_PRECEDENCE: u8 = 6;

/// A parsed part of the text.
enum ParsedItem {
    /// A literal number. It can be an identifier or an operand.
    Literal(u32),
    /// An arithmetic expression.
    Arithmetic(Number),
    Condition(ParsedCondition),
}

/// A condition, and what the text after it depends on.
#[derive(Clone, Copy)]
struct ParsedCondition {
    condition: ConditionId,
    /// The qualifiers that an identifier without qualifiers has after this condition.
    qualifiers: Option<Qualifiers>,
    kind: ParsedKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ParsedKind {
    /// A primitive, or several primitives in parentheses.
    Primitive,
    /// An identifier without qualifiers.
    Identifier,
    /// Identifiers without qualifiers, in parentheses.
    ParenthesisedIdentifiers,
}

/// The state of parsing a text.
pub(crate) struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    /// The index of the next token.
    next: usize,
    /// The number of levels of nesting around the next token.
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

    /// The condition of the whole text. An empty text matches every packet.
    pub(crate) fn parse(&mut self) -> Result<ConditionId, FilterError> {
        if self.tokens.is_empty() {
            return self.code.always(true).map_err(|fault| FilterError { at: 0, len: 0, fault });
        }
        let item = self.sequence(None)?;
        if self.peek().is_some() {
            return Err(self.expected("`and`, `or` or the end"));
        }
        match item {
            ParsedItem::Condition(ParsedCondition { condition, kind: ParsedKind::Primitive, .. }) => {
                Ok(condition)
            }
            // A number or an address without a test.
            _ => {
                Err(self.expected("a comparison, or `host`, `port` or the like before an address or number"))
            }
        }
    }

    fn peek(&self) -> Option<&TokenKind> {
        self.peek_at(0)
    }

    /// The token that is `more` tokens after the next one.
    fn peek_at(&self, more: usize) -> Option<&TokenKind> {
        self.tokens.get(self.next + more).map(|token| &token.kind)
    }

    fn is_next(&self, kind: &TokenKind) -> bool {
        self.peek() == Some(kind)
    }

    /// Takes the next token if it is of this kind. Returns true if the token was taken.
    fn take_if(&mut self, kind: &TokenKind) -> bool {
        let is_next = self.is_next(kind);
        self.next += usize::from(is_next);
        is_next
    }

    /// The offset and length of the next token.
    fn place(&self) -> (usize, usize) {
        self.tokens.get(self.next).map_or((self.text.len(), 0), |token| (token.at, token.len))
    }

    /// The error that the next token is not as expected.
    fn expected(&self, expected: &'static str) -> FilterError {
        let (at, len) = self.place();
        let found = match self.text.get(at..at + len) {
            Some(text) if len > 0 => format!("`{}`", escaped_excerpt(text)),
            _ => "the end".to_owned(),
        };
        FilterError { at, len, fault: FilterFault::Expected { expected, found } }
    }

    /// Gives a fault its place: the text from the token `first` up to the last token that was taken.
    fn with_place<T>(&self, first: usize, result: Result<T, FilterFault>) -> Result<T, FilterError> {
        result.map_err(|fault| {
            let start = self.tokens.get(first).map_or(self.text.len(), |token| token.at);
            let last = self.tokens.get(self.next.saturating_sub(1).max(first));
            let end = last.map_or(self.text.len(), |token| token.at + token.len);
            FilterError { at: start, len: end.saturating_sub(start), fault }
        })
    }

    /// Checks that one more level of nesting is allowed.
    fn enter_level(&mut self) -> Result<(), FilterError> {
        self.depth += 1;
        if self.depth > crate::DEPTH_MAX {
            let (at, len) = self.place();
            return Err(FilterError { at, len, fault: FilterFault::TooDeep });
        }
        Ok(())
    }

    /// Parses primitives or identifiers with `and` and `or` between them, or a single item. `inherited` are the
    /// qualifiers of an identifier without qualifiers.
    fn sequence(&mut self, inherited: Option<Qualifiers>) -> Result<ParsedItem, FilterError> {
        let start = self.next;
        let first = self.item(inherited)?;
        let is_combined =
            |parser: &Self| matches!(parser.peek(), Some(TokenKind::Word(Word::And | Word::Or)));
        if !is_combined(self) {
            return Ok(first);
        }
        let mut left = match first {
            ParsedItem::Literal(number) => self.identifier(start, number, inherited)?,
            ParsedItem::Arithmetic(_) => return Err(self.expected("an operator or a comparison")),
            ParsedItem::Condition(parsed) => parsed,
        };
        if left.kind == ParsedKind::ParenthesisedIdentifiers {
            return Err(self.expected("`)`"));
        }
        let is_of_identifiers = left.kind == ParsedKind::Identifier;
        while is_combined(self) {
            let is_and = self.is_next(&TokenKind::Word(Word::And));
            self.next += 1;
            let start = self.next;
            let right = match self.item(left.qualifiers)? {
                ParsedItem::Literal(number) => self.identifier(start, number, left.qualifiers)?,
                ParsedItem::Arithmetic(_) => return Err(self.expected("an operator or a comparison")),
                ParsedItem::Condition(parsed) => parsed,
            };
            if is_of_identifiers && right.kind == ParsedKind::Primitive {
                self.next = start;
                return Err(self.expected("an address, number or name, as before"));
            }
            let condition = if is_and {
                self.code.and(left.condition, right.condition)
            } else {
                self.code.or(left.condition, right.condition)
            };
            left = ParsedCondition {
                condition: self.with_place(start, condition)?,
                kind: left.kind,
                qualifiers: right.qualifiers,
            };
        }
        Ok(ParsedItem::Condition(left))
    }

    /// Compiles a number as an identifier: a port, an address or the like.
    fn identifier(
        &mut self,
        start: usize,
        number: u32,
        inherited: Option<Qualifiers>,
    ) -> Result<ParsedCondition, FilterError> {
        self.compile_identifier(start, inherited, |compiler, qualifiers| compiler.number(number, qualifiers))
    }

    /// Compiles an identifier, which begins with the token `start`, by `make`.
    fn compile_identifier(
        &mut self,
        start: usize,
        inherited: Option<Qualifiers>,
        make: impl FnOnce(&mut IdentifierCompiler<'_>, Qualifiers) -> Result<ConditionId, FilterFault>,
    ) -> Result<ParsedCondition, FilterError> {
        let Some(qualifiers) = inherited else {
            self.next = start;
            return Err(self.expected("`host`, `net`, `port` or the like before an address, number or name"));
        };
        let mut compiler =
            IdentifierCompiler { layers: &self.layers, names: self.names, code: &mut self.code };
        let condition = make(&mut compiler, qualifiers);
        let condition = self.with_place(start, condition)?;
        Ok(ParsedCondition { condition, qualifiers: inherited, kind: ParsedKind::Identifier })
    }

    /// Parses a primitive, identifier, number or comparison, or several items in parentheses.
    fn item(&mut self, inherited: Option<Qualifiers>) -> Result<ParsedItem, FilterError> {
        let start = self.next;
        let item = match self.peek() {
            Some(TokenKind::Word(Word::Not)) => {
                self.next += 1;
                self.enter_level()?;
                let inner = self.item(inherited)?;
                self.depth -= 1;
                let inner = match inner {
                    ParsedItem::Literal(number) => self.identifier(start, number, inherited)?,
                    ParsedItem::Arithmetic(_) => return Err(self.expected("an operator or a comparison")),
                    ParsedItem::Condition(parsed) => parsed,
                };
                let condition = self.code.not(inner.condition);
                let condition = self.with_place(start, condition)?;
                let kind = match inner.kind {
                    ParsedKind::Primitive => ParsedKind::Primitive,
                    ParsedKind::Identifier | ParsedKind::ParenthesisedIdentifiers => ParsedKind::Identifier,
                };
                return Ok(ParsedItem::Condition(ParsedCondition { condition, kind, ..inner }));
            }
            Some(TokenKind::Open) => {
                self.next += 1;
                self.enter_level()?;
                let inner = self.sequence(inherited)?;
                self.depth -= 1;
                if !self.take_if(&TokenKind::Close) {
                    return Err(self.expected("`)`"));
                }
                match inner {
                    ParsedItem::Condition(ParsedCondition { condition, kind, .. }) => {
                        let kind = match kind {
                            ParsedKind::Primitive => ParsedKind::Primitive,
                            ParsedKind::Identifier => ParsedKind::ParenthesisedIdentifiers,
                            ParsedKind::ParenthesisedIdentifiers => {
                                self.next = start;
                                return Err(self.expected("one pair of parentheses around addresses"));
                            }
                        };
                        return Ok(ParsedItem::Condition(ParsedCondition {
                            condition,
                            qualifiers: inherited,
                            kind,
                        }));
                    }
                    arithmetic => arithmetic,
                }
            }
            Some(TokenKind::Name(_) | TokenKind::Dotted(_) | TokenKind::Ip6(_) | TokenKind::Mac(_)) => {
                return self.address(inherited).map(ParsedItem::Condition);
            }
            Some(TokenKind::Number(_) | TokenKind::Minus | TokenKind::Word(Word::Length)) => {
                self.operand()?
            }
            Some(TokenKind::Word(Word::Proto(_))) if self.peek_at(1) == Some(&TokenKind::OpenIndex) => {
                self.operand()?
            }
            Some(TokenKind::Word(_)) => return self.primitive().map(ParsedItem::Condition),
            _ => return Err(self.expected("a primitive, such as `tcp port 80`")),
        };
        self.relation(start, item)
    }

    /// Parses the operators and the comparison after `left`, if there are any.
    fn relation(&mut self, start: usize, left: ParsedItem) -> Result<ParsedItem, FilterError> {
        let left = self.operators(start, left, 0)?;
        let (relation, is_negated) = match self.peek() {
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
        let condition = self.compare(relation, is_negated, left, right);
        let condition = self.with_place(start, condition)?;
        Ok(ParsedItem::Condition(ParsedCondition {
            condition,
            qualifiers: None,
            kind: ParsedKind::Primitive,
        }))
    }

    /// The condition that a relation of two numbers holds, or does not hold if `is_negated`.
    fn compare(
        &mut self,
        relation: Relation,
        is_negated: bool,
        a: Number,
        b: Number,
    ) -> Result<ConditionId, FilterFault> {
        let (value, numbers) = self.code.values.relate(relation, a.value, b.value)?;
        let test = self.code.test(value, if is_negated { numbers.not() } else { numbers })?;
        match arithmetic::and_optional(&mut self.code, a.required, b.required)? {
            Some(required) => self.code.and(required, test),
            None => Ok(test),
        }
    }

    /// The number that an item stands for; an error if the item is a condition.
    fn number(&mut self, start: usize, item: ParsedItem) -> Result<Number, FilterError> {
        match item {
            ParsedItem::Literal(number) => {
                let number = Number::constant(&mut self.code, number);
                self.with_place(start, number)
            }
            ParsedItem::Arithmetic(number) => Ok(number),
            ParsedItem::Condition(_) => {
                self.next = start;
                Err(self.expected("a number"))
            }
        }
    }

    /// Parses an arithmetic expression whose operators have at least this precedence.
    fn expression(&mut self, precedence: u8) -> Result<ParsedItem, FilterError> {
        self.enter_level()?;
        let start = self.next;
        let left = self.operand()?;
        let whole = self.operators(start, left, precedence)?;
        self.depth -= 1;
        Ok(whole)
    }

    /// Parses the operators of at least this precedence after `left`, with their right operands. As in libpcap,
    /// everything after `%` and `^` is their right operand.
    fn operators(
        &mut self,
        start: usize,
        mut left: ParsedItem,
        precedence: u8,
    ) -> Result<ParsedItem, FilterError> {
        if matches!(left, ParsedItem::Condition(_)) {
            return Ok(left);
        }
        loop {
            let (operator, own_precedence, right_precedence) = match self.peek() {
                Some(TokenKind::Bar) => (Alu::Or, 1, 2),
                Some(TokenKind::Ampersand) => (Alu::And, 2, 3),
                Some(TokenKind::ShiftLeft) => (Alu::Lsh, 3, 4),
                Some(TokenKind::ShiftRight) => (Alu::Rsh, 3, 4),
                Some(TokenKind::Plus) => (Alu::Add, 4, 5),
                Some(TokenKind::Minus) => (Alu::Sub, 4, 5),
                Some(TokenKind::Times) => (Alu::Mul, 5, UNARY_PRECEDENCE),
                Some(TokenKind::Slash) => (Alu::Div, 5, UNARY_PRECEDENCE),
                Some(TokenKind::Percent) => (Alu::Mod, u8::MAX, 0),
                Some(TokenKind::Caret) => (Alu::Xor, u8::MAX, 0),
                _ => return Ok(left),
            };
            if own_precedence < precedence {
                return Ok(left);
            }
            self.next += 1;
            let a = self.number(start, left)?;
            let right_start = self.next;
            let b = self.expression(right_precedence)?;
            let b = self.number(right_start, b)?;
            let number = arithmetic::compute(&mut self.code, operator, a, b);
            left = ParsedItem::Arithmetic(self.with_place(start, number)?);
        }
    }

    /// Parses one operand of an arithmetic expression.
    fn operand(&mut self) -> Result<ParsedItem, FilterError> {
        let start = self.next;
        match self.peek() {
            Some(&TokenKind::Number(number)) => {
                self.next += 1;
                Ok(ParsedItem::Literal(number))
            }
            Some(TokenKind::Minus) => {
                self.next += 1;
                let of = self.expression(UNARY_PRECEDENCE)?;
                let of = self.number(start + 1, of)?;
                let value = self.code.values.negate(of.value);
                Ok(ParsedItem::Arithmetic(Number {
                    value: self.with_place(start, value)?,
                    required: of.required,
                }))
            }
            Some(TokenKind::Word(Word::Length)) => {
                self.next += 1;
                let value = self.code.values.length();
                Ok(ParsedItem::Arithmetic(Number { value: self.with_place(start, value)?, required: None }))
            }
            Some(TokenKind::Open) => {
                self.next += 1;
                let inner = self.expression(0)?;
                if !self.take_if(&TokenKind::Close) {
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
                if self.take_if(&TokenKind::Colon) {
                    size = self.literal("1, 2 or 4")?;
                }
                if !self.take_if(&TokenKind::CloseIndex) {
                    return Err(self.expected("an operator, `:` or `]`"));
                }
                let bytes = self.layers.bytes(&mut self.code, protocol, index, size);
                Ok(ParsedItem::Arithmetic(self.with_place(start, bytes)?))
            }
            _ => Err(self.expected("a number, `len` or bytes such as `ip[0]`")),
        }
    }

    /// Parses a literal number. `expected` describes it for the error.
    fn literal(&mut self, expected: &'static str) -> Result<u32, FilterError> {
        match self.peek() {
            Some(&TokenKind::Number(number)) => {
                self.next += 1;
                Ok(number)
            }
            _ => Err(self.expected(expected)),
        }
    }

    /// Parses an optional number, which may be in parentheses.
    fn optional_number(&mut self) -> Result<Option<u32>, FilterError> {
        let mut open = 0;
        while self.peek_at(open) == Some(&TokenKind::Open) {
            open += 1;
        }
        let Some(&TokenKind::Number(number)) = self.peek_at(open) else {
            return if open == 0 { Ok(None) } else { Err(self.expected("a number, `and`, `or` or the end")) };
        };
        self.next += open + 1;
        for _ in 0..open {
            if !self.take_if(&TokenKind::Close) {
                return Err(self.expected("`)`"));
            }
        }
        Ok(Some(number))
    }

    /// Parses an address or name, with the qualifiers of the primitive before it.
    fn address(&mut self, inherited: Option<Qualifiers>) -> Result<ParsedCondition, FilterError> {
        let start = self.next;
        let Some(kind) = self.peek().cloned() else {
            return Err(self.expected("an address, number or name"));
        };
        self.next += 1;
        if matches!(kind, TokenKind::Dotted(_) | TokenKind::Ip6(_)) && self.take_if(&TokenKind::Slash) {
            let length = self.literal("the length of a prefix")?;
            return self.compile_identifier(start, inherited, |compiler, qualifiers| match kind {
                TokenKind::Ip6(address) => compiler.ip6(address, Some(length), qualifiers),
                TokenKind::Dotted(text) => compiler.network4(&text, length, qualifiers),
                _ => compiler.token(&kind, qualifiers),
            });
        }
        if let TokenKind::Dotted(text) = &kind
            && self.take_if(&TokenKind::Word(Word::Mask))
        {
            let Some(TokenKind::Dotted(mask)) = self.peek().cloned() else {
                return Err(self.expected("a mask such as 255.255.0.0"));
            };
            self.next += 1;
            return self.compile_identifier(start, inherited, |compiler, qualifiers| {
                compiler.netmask4(text, &mask, qualifiers)
            });
        }
        self.compile_identifier(start, inherited, |compiler, qualifiers| compiler.token(&kind, qualifiers))
    }

    /// Parses a primitive that begins with a word.
    fn primitive(&mut self) -> Result<ParsedCondition, FilterError> {
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
                ParsedItem::Literal(number) => self.identifier(start, number, Some(qualifiers))?,
                ParsedItem::Condition(parsed) if parsed.kind != ParsedKind::Primitive => parsed,
                _ => {
                    self.next = start;
                    return Err(self.expected("an address, number or name"));
                }
            };
            return Ok(ParsedCondition { kind: ParsedKind::Primitive, ..parsed });
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
                return self.with_place(self.next - 1, Err(FilterFault::Unsupported { word, why }));
            }
            (Some(protocol), _) => layers.named_protocol(code, protocol),
            (None, Some(&TokenKind::Word(word))) => {
                self.next += 1;
                return self.word_primitive(start, word);
            }
            (None, _) => return Err(self.expected("a primitive, such as `tcp port 80`")),
        };
        let condition = self.with_place(start, condition)?;
        Ok(ParsedCondition { condition, qualifiers: None, kind: ParsedKind::Primitive })
    }

    /// Parses the qualifiers after an optional protocol; `None` if there are none.
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
                    if !self.take_if(&TokenKind::Word(other)) {
                        return Err(self.expected("the other one of `src` and `dst`"));
                    }
                }
                Some(both.unwrap_or(one))
            }
            _ => None,
        };
        let kind = match self.peek() {
            Some(TokenKind::Word(Word::Host)) => Some(TypeQualifier::Host),
            Some(TokenKind::Word(Word::Net)) => Some(TypeQualifier::Net),
            Some(TokenKind::Word(Word::Port)) => Some(TypeQualifier::Port),
            Some(TokenKind::Word(Word::PortRange)) => Some(TypeQualifier::PortRange),
            Some(TokenKind::Word(Word::ProtoNumber)) if direction.is_none() => Some(TypeQualifier::Protocol),
            Some(TokenKind::Word(Word::ProtoChain)) if direction.is_none() => {
                Some(TypeQualifier::ProtocolChain)
            }
            Some(TokenKind::Word(Word::Gateway)) if direction.is_none() => Some(TypeQualifier::Gateway),
            _ => None,
        };
        self.next += usize::from(kind.is_some());
        let is_some = direction.is_some() || kind.is_some();
        Ok(is_some.then_some(Qualifiers { protocol, direction, kind }))
    }

    /// Parses the rest of a primitive that consists of one word and perhaps an argument. The parser is behind the word.
    fn word_primitive(&mut self, start: usize, word: Word) -> Result<ParsedCondition, FilterError> {
        let condition = match word {
            Word::Less | Word::Greater => {
                let length = self.literal("a length")?;
                let numbers = if word == Word::Less {
                    Ranges::between(0, length)
                } else {
                    Ranges::between(length, u32::MAX)
                };
                self.layers.length(&mut self.code, numbers)
            }
            Word::Byte => return self.byte_primitive(start),
            Word::Inbound | Word::Outbound => self.layers.outbound(&mut self.code, word == Word::Outbound),
            Word::IfIndex => {
                let number = self.literal("the number of an interface")?;
                self.layers.interface(&mut self.code, number)
            }
            Word::Vlan => {
                let id = self.optional_number()?;
                self.layers.vlan(&mut self.code, id)
            }
            Word::Mpls => {
                let label = self.optional_number()?;
                self.layers.mpls(&mut self.code, label)
            }
            Word::PppoeDiscovery => self.layers.carries(&mut self.code, 0x8863),
            Word::PppoeSession => {
                let session = self.optional_number()?;
                self.layers.pppoe(&mut self.code, session)
            }
            Word::Geneve => {
                let network = self.optional_number()?;
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
        let condition = self.with_place(start, condition)?;
        Ok(ParsedCondition { condition, qualifiers: None, kind: ParsedKind::Primitive })
    }

    /// Parses the rest of `byte OFFSET OPERATOR NUMBER`, after `byte`.
    fn byte_primitive(&mut self, start: usize) -> Result<ParsedCondition, FilterError> {
        let offset = self.literal("the offset of a byte")?;
        let operator = self.peek().cloned();
        self.next += 1;
        let number = match operator {
            Some(
                TokenKind::Ampersand
                | TokenKind::Bar
                | TokenKind::Less
                | TokenKind::Greater
                | TokenKind::Equal,
            ) => self.literal("a number")?,
            _ => {
                self.next -= 1;
                return Err(self.expected("`=`, `<`, `>`, `&` or `|`"));
            }
        };
        let condition = self.byte_condition(offset, operator, number);
        let condition = self.with_place(start, condition)?;
        Ok(ParsedCondition { condition, qualifiers: None, kind: ParsedKind::Primitive })
    }

    /// The condition of a `byte` primitive.
    fn byte_condition(
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
