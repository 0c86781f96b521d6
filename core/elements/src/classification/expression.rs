//! Conditions on the bytes of a packet, and their plain evaluation, to which faster ones are compared.

/// The parts of a packet that conditions refer to. Bytes that a packet does not have are missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketParts<'p> {
    /// The packet from its network header on; for a `Classifier`, the whole packet.
    pub main: &'p [u8],
    /// The packet from its transport header on.
    pub transport: &'p [u8],
    /// The packet from its link header on.
    pub link: &'p [u8],
}

/// A part of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// [`PacketParts::main`].
    Main,
    /// [`PacketParts::transport`].
    Transport,
    /// [`PacketParts::link`].
    Link,
}

impl<'p> PacketParts<'p> {
    /// Returns the bytes of a part.
    #[inline]
    pub fn get(&self, part: Part) -> &'p [u8] {
        match part {
            Part::Main => self.main,
            Part::Transport => self.transport,
            Part::Link => self.link,
        }
    }
}

/// The comparison of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PatternRelation {
    /// The masked word equals the value.
    Equal,
    /// The masked word is greater than the value.
    Greater,
}

/// A test of a word of four bytes, in network byte order. It is false if one of the bytes that it looks at is missing,
/// also if it is negated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PatternTest {
    /// The part of the packet.
    pub part: Part,
    /// The offset of the word in it, a multiple of four.
    pub offset: u16,
    /// The comparison.
    pub relation: PatternRelation,
    /// The bits that are compared, at least one.
    pub mask: u32,
    /// The value.
    pub value: u32,
    /// The opposite is tested.
    pub negated: bool,
}

impl PatternTest {
    /// Returns the number of bytes that the part needs.
    #[inline]
    pub fn needed_bytes(&self) -> usize {
        usize::from(self.offset) + 4 - self.mask.trailing_zeros() as usize / 8
    }

    /// Returns the result if the bytes are there.
    #[inline]
    pub fn result(&self, part: &[u8]) -> Option<bool> {
        if part.len() < self.needed_bytes() {
            return None;
        }
        let at = usize::from(self.offset);
        let word = match part.get(at..at + 4) {
            Some(word) => u32::from_be_bytes(word.try_into().unwrap_or_default()),
            // Bits of bytes behind the end are not in the mask.
            None => (0..4).fold(0, |word, byte| word << 8 | u32::from(*part.get(at + byte).unwrap_or(&0))),
        };
        let is_true = match self.relation {
            PatternRelation::Equal => word & self.mask == self.value,
            PatternRelation::Greater => word & self.mask > self.value,
        };
        Some(is_true != self.negated)
    }
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternExpression {
    /// True or false.
    Constant(bool),
    /// A test.
    PatternTest(PatternTest),
    /// The opposite.
    Not(Box<PatternExpression>),
    /// All are true.
    And(Vec<PatternExpression>),
    /// At least one is true.
    Or(Vec<PatternExpression>),
    /// The second if the first is true, else the third.
    If(Box<[PatternExpression; 3]>),
}

impl PatternExpression {
    /// Returns a test for equality; a constant if no bit is compared.
    pub fn equal(part: Part, offset: u16, mask: u32, value: u32) -> Self {
        if mask == 0 {
            return Self::Constant(true);
        }
        let relation = PatternRelation::Equal;
        Self::PatternTest(PatternTest { part, offset, relation, mask, value: value & mask, negated: false })
    }

    /// Returns the opposite, in which a test of missing bytes stays false. For conditions of `And`, `Or` and tests.
    pub fn negated_tests(self) -> Self {
        let all = |list: Vec<Self>| list.into_iter().map(Self::negated_tests).collect();
        match self {
            Self::Constant(value) => Self::Constant(!value),
            Self::PatternTest(test) => Self::PatternTest(PatternTest { negated: !test.negated, ..test }),
            Self::And(list) => Self::Or(all(list)),
            Self::Or(list) => Self::And(all(list)),
            other => Self::Not(Box::new(other)),
        }
    }

    /// Evaluates the condition.
    pub fn is_true(&self, parts: &PacketParts<'_>) -> bool {
        match self {
            Self::Constant(value) => *value,
            Self::PatternTest(test) => test.result(parts.get(test.part)).unwrap_or(false),
            Self::Not(inner) => !inner.is_true(parts),
            Self::And(list) => list.iter().all(|it| it.is_true(parts)),
            Self::Or(list) => list.iter().any(|it| it.is_true(parts)),
            Self::If(all) => {
                let [condition, then, otherwise] = &**all;
                if condition.is_true(parts) { then.is_true(parts) } else { otherwise.is_true(parts) }
            }
        }
    }
}
