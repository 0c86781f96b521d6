//! Primitives of IP patterns, such as `src tcp port >= 1024`: their check, and the condition that each of them is.

use super::expression::{Part, PatternExpression, PatternRelation, PatternTest};
use super::words::{DCCP, TCP, TCP_OR_UDP, UDP};

/// A field of a header, at a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The protocol, for a field of the transport header.
    pub protocol: Option<u16>,
    /// The first bit, from the start of the header.
    pub first_bit: u16,
    /// The number of bits, at most 32.
    pub bits: u8,
}

/// The kinds of primitives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Host,
    Net,
    Ethernet,
    Protocol,
    Port,
    TcpOption,
    Ect,
    Ce,
    Fragment,
    Unfragmented,
    Field(Field),
}

/// The value of a primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    Number(u32),
    Host(u32),
    /// An address and a mask.
    Net(u32, u32),
    Ethernet([u8; 6]),
}

/// The direction of an address or a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressDirection {
    Source,
    Destination,
    Both,
    Either,
}

/// The operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operator {
    #[default]
    Equal,
    NotEqual,
    Greater,
    AtMost,
    Less,
    AtLeast,
}

/// The header that a primitive names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderWord {
    Ip,
    Ether,
}

/// A primitive, as far as it is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Primitive {
    pub kind: Option<Kind>,
    pub direction: Option<AddressDirection>,
    pub protocol: Option<u16>,
    pub header: Option<HeaderWord>,
    pub mask: Option<Data>,
    pub operator: Operator,
    /// The value, with the kind that its name gives it.
    pub data: Option<(Option<Kind>, Data)>,
}

impl Primitive {
    /// Completes the primitive from an earlier one, of which words can be left out.
    pub fn complete(&mut self, earlier: &Primitive) -> Result<(), String> {
        if self.kind.is_some() {
            return Ok(());
        }
        let kind = match self.data {
            Some((Some(kind), _)) => kind,
            Some((None, Data::Host(_))) => Kind::Host,
            Some((None, Data::Net(..))) => Kind::Net,
            Some((None, Data::Ethernet(_))) => Kind::Ethernet,
            Some((None, Data::Number(number))) => match earlier.kind {
                Some(kind @ (Kind::Field(_) | Kind::Protocol | Kind::Port)) => kind,
                _ => {
                    return Err(format!(
                        "{number} is a value of which field? Name it, such as 'port {number}'"
                    ));
                }
            },
            None if self.protocol.is_some() => Kind::Protocol,
            None => return Err("a part of the condition is missing".to_owned()),
        };
        if matches!(kind, Kind::Host | Kind::Net | Kind::TcpOption | Kind::Ethernet | Kind::Port) {
            self.direction = self.direction.or(earlier.direction);
        }
        if kind == Kind::Port {
            self.protocol = self.protocol.or(earlier.protocol);
        }
        self.kind = Some(kind);
        Ok(())
    }

    /// Returns the condition of a complete primitive.
    ///
    /// # Errors
    ///
    /// Fails with the reason if words do not fit each other.
    pub fn condition(&mut self) -> Result<PatternExpression, String> {
        let mut kind = self.kind.ok_or("a part of the condition is missing")?;
        let is_ether = match self.header {
            Some(header) => header == HeaderWord::Ether,
            None => matches!(self.data, Some((_, Data::Ethernet(_)))),
        };
        if is_ether && kind == Kind::Host {
            kind = Kind::Ethernet;
            self.kind = Some(kind);
        }
        if is_ether != (kind == Kind::Ethernet) {
            return Err("a condition on the Ethernet header can only be 'ether host'".to_owned());
        }
        if let Kind::Field(Field { protocol: Some(protocol), .. }) = kind {
            self.protocol = self.protocol.or(Some(protocol));
        }
        let condition = match kind {
            Kind::Host | Kind::Net => self.addresses(),
            Kind::Ethernet => self.ethernet(),
            Kind::Protocol => self.ip_protocol(),
            Kind::Port => self.ports(),
            Kind::TcpOption => self.tcp_option(),
            Kind::Ect if self.data.is_none() => {
                self.flag(PatternExpression::equal(Part::Main, 0, 0x0003_0000, 0).negated_tests())
            }
            Kind::Ect => self.field(Field { protocol: None, first_bit: 14, bits: 2 }, None),
            Kind::Ce => self.flag(PatternExpression::equal(Part::Main, 0, 0x0003_0000, 0x0003_0000)),
            Kind::Fragment => self.flag(PatternExpression::equal(Part::Main, 4, 0x3fff, 0).negated_tests()),
            Kind::Unfragmented => self.flag(PatternExpression::equal(Part::Main, 4, 0x3fff, 0)),
            Kind::Field(field) => self.field(field, self.protocol),
        }?;
        // These conditions are about all protocols; `tcp host 192.0.2.1` is about one.
        let is_general = matches!(
            kind,
            Kind::Host
                | Kind::Net
                | Kind::Ethernet
                | Kind::Ect
                | Kind::Ce
                | Kind::Fragment
                | Kind::Unfragmented
        );
        Ok(match self.protocol.filter(|_| is_general) {
            Some(protocol) => PatternExpression::And(vec![protocol_is(protocol), condition]),
            None => condition,
        })
    }

    fn flag(&self, condition: PatternExpression) -> Result<PatternExpression, String> {
        if self.data.is_some() || self.mask.is_some() || self.operator != Operator::Equal {
            return Err("this condition has no value, mask or operator".to_owned());
        }
        Ok(condition)
    }

    fn number(&self) -> Result<u32, String> {
        match self.data {
            Some((of, Data::Number(number))) if of.is_none_or(|of| Some(of) == self.kind) => Ok(number),
            _ => Err("a number is missing".to_owned()),
        }
    }

    fn number_mask(&self, all: u32) -> Result<u32, String> {
        match self.mask {
            None => Ok(all),
            Some(Data::Number(mask)) if mask & !all == 0 => Ok(mask),
            Some(Data::Number(_)) => Err(format!("mask out of range, bound {all:#X}")),
            Some(_) => Err("the mask has to be a number".to_owned()),
        }
    }

    fn has_equality(&self) -> Result<(), String> {
        match self.operator {
            Operator::Equal | Operator::NotEqual => Ok(()),
            _ => Err("addresses have no order: use == or !=".to_owned()),
        }
    }

    /// Returns a condition at the source, the destination, or both.
    fn directed(&self, at: impl Fn(bool) -> PatternExpression) -> PatternExpression {
        let condition = match self.direction.unwrap_or(AddressDirection::Either) {
            AddressDirection::Source => at(true),
            AddressDirection::Destination => at(false),
            AddressDirection::Both => PatternExpression::And(vec![at(true), at(false)]),
            AddressDirection::Either => PatternExpression::Or(vec![at(true), at(false)]),
        };
        match self.operator {
            Operator::NotEqual | Operator::AtMost | Operator::Less => condition.negated_tests(),
            _ => condition,
        }
    }

    fn addresses(&self) -> Result<PatternExpression, String> {
        self.has_equality()?;
        let (address, mask) = match self.data {
            Some((None, Data::Host(address))) if self.kind == Some(Kind::Host) => (address, u32::MAX),
            Some((None, Data::Net(address, mask))) if self.kind == Some(Kind::Net) => (address, mask),
            _ => return Err("an address is missing".to_owned()),
        };
        let mask = match self.mask {
            None => mask,
            Some(Data::Number(mask) | Data::Host(mask)) => mask,
            Some(_) => return Err("the mask has to be a number or an IP address".to_owned()),
        };
        Ok(self.directed(|is_source| {
            PatternExpression::equal(Part::Main, if is_source { 12 } else { 16 }, mask, address)
        }))
    }

    fn ethernet(&self) -> Result<PatternExpression, String> {
        self.has_equality()?;
        let Some((_, Data::Ethernet(address))) = self.data else {
            return Err("an Ethernet address is missing".to_owned());
        };
        let mask = match self.mask {
            None => [0xff; 6],
            Some(Data::Ethernet(mask)) => mask,
            Some(_) => return Err("the mask has to be an Ethernet address".to_owned()),
        };
        // The words of the link header in which the address lies.
        let words = |bytes: [u8; 6], is_source: bool| {
            let mut padded = [0; 12];
            padded[if is_source { 6 } else { 0 }..][..6].copy_from_slice(&bytes);
            let word =
                |at: usize| padded[at..at + 4].iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
            [word(0), word(4), word(8)]
        };
        Ok(self.directed(|is_source| {
            let pairs = words(mask, is_source).into_iter().zip(words(address, is_source));
            let tests = [0, 4, 8].into_iter().zip(pairs).filter(|(_, (mask, _))| *mask != 0);
            PatternExpression::And(
                tests
                    .map(|(at, (mask, value))| PatternExpression::equal(Part::Link, at, mask, value))
                    .collect(),
            )
        }))
    }

    fn ip_protocol(&mut self) -> Result<PatternExpression, String> {
        let given = match self.data {
            Some((of, Data::Number(number))) if of.is_none_or(|of| of == Kind::Protocol) => Some(number),
            None => None,
            Some(_) => return Err("the protocol is missing".to_owned()),
        };
        let named = self.protocol.map(u32::from);
        if given.is_some() && named.is_some() && given != named {
            return Err("there are two protocols".to_owned());
        }
        let value = given.or(named).ok_or("the protocol is missing")?;
        self.protocol = None;
        if let Ok(several) = u16::try_from(value)
            && (several == TCP_OR_UDP || several == super::words::TRANSPORT)
        {
            if self.operator != Operator::Equal || self.mask.is_some() {
                return Err("several protocols have no mask or operator".to_owned());
            }
            self.protocol = Some(several);
            return Ok(protocol_is(several));
        }
        let mask = self.number_mask(0xff)?;
        if self.operator == Operator::Equal && mask == 0xff {
            self.protocol = u16::try_from(value).ok();
        }
        let condition = compared(Part::Main, 8, 16, value, mask, 0xff, self.operator)?;
        Ok(self.apply_negation(condition))
    }

    fn apply_negation(&self, condition: PatternExpression) -> PatternExpression {
        match self.operator {
            Operator::NotEqual | Operator::AtMost | Operator::Less => condition.negated_tests(),
            _ => condition,
        }
    }

    fn ports(&mut self) -> Result<PatternExpression, String> {
        let protocol = self.protocol.unwrap_or(TCP_OR_UDP);
        if ![TCP, UDP, TCP_OR_UDP, DCCP].contains(&protocol) {
            return Err(format!("the protocol {protocol} has no ports"));
        }
        self.protocol = Some(protocol);
        let (value, mask) = (self.number()?, self.number_mask(0xffff)?);
        let at = |shift| compared(Part::Transport, 0, shift, value, mask, 0xffff, self.operator);
        let (source, destination) = (at(16)?, at(0)?);
        let condition =
            self.directed(|is_source| if is_source { source.clone() } else { destination.clone() });
        Ok(of_protocol(protocol, condition))
    }

    fn tcp_option(&mut self) -> Result<PatternExpression, String> {
        if self.protocol.is_some_and(|protocol| protocol != TCP) {
            return Err("only TCP has options of TCP".to_owned());
        }
        self.protocol = Some(TCP);
        let flags = self.number()?;
        if self.operator != Operator::Equal || self.mask.is_some() {
            return Err("'tcp opt' has no mask or operator".to_owned());
        }
        if flags > 255 {
            return Err("out of range, bound 255".to_owned());
        }
        Ok(of_protocol(TCP, PatternExpression::equal(Part::Transport, 12, flags << 16, flags << 16)))
    }

    fn field(&self, field: Field, protocol: Option<u16>) -> Result<PatternExpression, String> {
        let value = match self.data {
            Some((None, Data::Number(number))) => number,
            _ => self.number()?,
        };
        let all = u32::MAX >> (32 - u32::from(field.bits));
        let mask = self.number_mask(all)?;
        let offset = field.first_bit / 32 * 4;
        let shift = 32 - u32::from(field.first_bit % 32) - u32::from(field.bits);
        let part = if field.protocol.is_some() { Part::Transport } else { Part::Main };
        let condition = compared(part, offset, shift, value, mask, all, self.operator)?;
        let condition = self.apply_negation(condition);
        Ok(match (field.protocol, protocol) {
            (Some(_), Some(protocol)) => of_protocol(protocol, condition),
            (None, Some(protocol)) => PatternExpression::And(vec![protocol_is(protocol), condition]),
            _ => condition,
        })
    }
}

fn protocol_is(protocol: u16) -> PatternExpression {
    let is = |number: u16| PatternExpression::equal(Part::Main, 8, 0x00ff_0000, u32::from(number) << 16);
    match protocol {
        TCP_OR_UDP => PatternExpression::Or(vec![is(TCP), is(UDP)]),
        0..=255 => is(protocol),
        _ => PatternExpression::Constant(true),
    }
}

/// Adds that the packet is of a protocol, and its first fragment.
fn of_protocol(protocol: u16, condition: PatternExpression) -> PatternExpression {
    PatternExpression::And(vec![
        protocol_is(protocol),
        PatternExpression::equal(Part::Main, 4, 0x1fff, 0),
        condition,
    ])
}

/// Returns the comparison of a field. It is the opposite, without its negation, for `!=`, `<=` and `<`.
fn compared(
    part: Part,
    offset: u16,
    shift: u32,
    value: u32,
    mask: u32,
    all: u32,
    operator: Operator,
) -> Result<PatternExpression, String> {
    let zero = PatternExpression::equal(part, offset, mask << shift, 0);
    let value = match operator {
        Operator::Equal | Operator::NotEqual if value > all => {
            return Err(format!("out of range, bound {all}"));
        }
        Operator::Equal | Operator::NotEqual => {
            return Ok(PatternExpression::equal(part, offset, mask << shift, value << shift));
        }
        Operator::Greater | Operator::AtMost => value,
        // At least 0 is always true, and less than 0 never, if the field is there.
        Operator::Less | Operator::AtLeast => match value.checked_sub(1) {
            Some(below) => below,
            None => return Ok(PatternExpression::Or(vec![zero.clone(), zero.negated_tests()])),
        },
    };
    if value >= mask {
        return Ok(PatternExpression::And(vec![zero.clone(), zero.negated_tests()]));
    }
    // The mask has no bits below the field, so the bits of the value there do not count.
    let (mask, value) = (mask << shift, value << shift);
    Ok(PatternExpression::PatternTest(PatternTest {
        part,
        offset,
        relation: PatternRelation::Greater,
        mask,
        value,
        negated: false,
    }))
}
