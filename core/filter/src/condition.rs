//! Conditions on a packet, combined as in the filter's text.

use crate::error::FilterFault;
use crate::ranges::Ranges;
use crate::value::{FilterValueId, FilterValues};
use weir_demux::{Alu, LoadWidth};

/// The most conditions of one filter.
const CONDITIONS_MAX: usize = 40_000;
/// The most words of scratch memory that hold offsets which depend on the packet. Arithmetic uses the other words.
const OFFSET_WORDS_MAX: u8 = 8;
/// The number of words of scratch memory that the machine has.
pub(crate) const WORDS: u8 = 16;
const _: () = assert!(WORDS as usize == weir_demux::SCRATCH);

/// The identifier of a condition in its [`Conditions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConditionId(usize);

/// A condition. Operands are evaluated from left to right, and only as far as needed. The order matters, because a load
/// beyond the packet's end rejects the packet.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    /// A condition that always holds (true) or never holds.
    Always(bool),
    /// The value is one of these numbers.
    Test(FilterValueId, Ranges),
    Not(ConditionId),
    And(ConditionId, ConditionId),
    Or(ConditionId, ConditionId),
    /// The second condition where the first one holds, else the third one.
    If(ConditionId, ConditionId, ConditionId),
    /// Stores a value in a word of scratch memory. The condition always holds.
    Store {
        word: u8,
        value: FilterValueId,
    },
}

/// All conditions of a filter, with the values that they test.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    all: Vec<Condition>,
    pub(crate) values: FilterValues,
    /// The number of words that are reserved now.
    reserved: u8,
    /// The most words that were reserved at once.
    reserved_most: u8,
}

impl Conditions {
    pub(crate) fn get(&self, id: ConditionId) -> Condition {
        self.all.get(id.0).cloned().unwrap_or(Condition::Always(false))
    }

    fn make(&mut self, condition: Condition) -> Result<ConditionId, FilterFault> {
        if self.all.len() >= CONDITIONS_MAX {
            return Err(FilterFault::TooComplex);
        }
        self.all.push(condition);
        Ok(ConditionId(self.all.len() - 1))
    }

    /// The truth of a condition, if it is constant.
    fn constant_of(&self, id: ConditionId) -> Option<bool> {
        match self.all.get(id.0) {
            Some(Condition::Always(holds)) => Some(*holds),
            _ => None,
        }
    }

    pub(crate) fn always(&mut self, holds: bool) -> Result<ConditionId, FilterFault> {
        self.make(Condition::Always(holds))
    }

    pub(crate) fn test(&mut self, value: FilterValueId, numbers: Ranges) -> Result<ConditionId, FilterFault> {
        match self.values.constant_of(value) {
            Some(number) => self.always(numbers.contains(number)),
            None => self.make(Condition::Test(value, numbers)),
        }
    }

    pub(crate) fn not(&mut self, of: ConditionId) -> Result<ConditionId, FilterFault> {
        match self.get(of) {
            Condition::Always(holds) => self.always(!holds),
            Condition::Test(value, numbers) => self.test(value, numbers.not()),
            Condition::Not(inner) => Ok(inner),
            _ => self.make(Condition::Not(of)),
        }
    }

    pub(crate) fn and(&mut self, a: ConditionId, b: ConditionId) -> Result<ConditionId, FilterFault> {
        match (self.constant_of(a), self.constant_of(b)) {
            (Some(false), _) | (_, Some(true)) => Ok(a),
            (Some(true), _) => Ok(b),
            _ => self.make(Condition::And(a, b)),
        }
    }

    pub(crate) fn or(&mut self, a: ConditionId, b: ConditionId) -> Result<ConditionId, FilterFault> {
        match (self.constant_of(a), self.constant_of(b)) {
            (Some(true), _) | (_, Some(false)) => Ok(a),
            (Some(false), _) => Ok(b),
            _ => self.make(Condition::Or(a, b)),
        }
    }

    pub(crate) fn if_else(
        &mut self,
        test: ConditionId,
        yes: ConditionId,
        no: ConditionId,
    ) -> Result<ConditionId, FilterFault> {
        match self.constant_of(test) {
            Some(true) => Ok(yes),
            Some(false) => Ok(no),
            None => self.make(Condition::If(test, yes, no)),
        }
    }

    /// The disjunction of several conditions, evaluated in order.
    pub(crate) fn any(&mut self, all: &[ConditionId]) -> Result<ConditionId, FilterFault> {
        let mut any = self.always(false)?;
        for &one in all {
            any = self.or(any, one)?;
        }
        Ok(any)
    }

    /// The conjunction of several conditions, evaluated in order.
    pub(crate) fn all(&mut self, all: &[ConditionId]) -> Result<ConditionId, FilterFault> {
        let mut every = self.always(true)?;
        for &one in all {
            every = self.and(every, one)?;
        }
        Ok(every)
    }

    pub(crate) fn equals(&mut self, value: FilterValueId, number: u32) -> Result<ConditionId, FilterFault> {
        self.test(value, Ranges::one(number))
    }

    /// `value & mask = number`.
    pub(crate) fn masked(
        &mut self,
        value: FilterValueId,
        mask: u32,
        number: u32,
    ) -> Result<ConditionId, FilterFault> {
        let mask = self.values.constant(mask)?;
        let masked = self.values.compute(Alu::And, value, mask)?;
        self.equals(masked, number)
    }

    /// Reserves a word of scratch memory and returns its index.
    pub(crate) fn reserve_word(&mut self) -> Result<u8, FilterFault> {
        if self.reserved >= OFFSET_WORDS_MAX {
            return Err(FilterFault::TooComplex);
        }
        self.reserved += 1;
        self.reserved_most = self.reserved_most.max(self.reserved);
        Ok(WORDS - self.reserved)
    }

    /// Releases the words that were reserved last. Their contents must not be used any more.
    pub(crate) fn release_words(&mut self, words: u8) {
        self.reserved = self.reserved.saturating_sub(words);
    }

    /// The number of words that [`Self::reserve_word`] has never reserved.
    pub(crate) fn never_reserved_words(&self) -> u8 {
        WORDS - self.reserved_most
    }

    /// A condition that always holds and stores a value in a word.
    pub(crate) fn store(&mut self, word: u8, value: FilterValueId) -> Result<ConditionId, FilterFault> {
        self.make(Condition::Store { word, value })
    }
}

/// An offset in the packet: a constant, plus a base that depends on the packet for some encapsulations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PacketOffset {
    pub(crate) constant: u32,
    pub(crate) base: Option<FilterValueId>,
}

impl PacketOffset {
    pub(crate) const fn at(constant: u32) -> Self {
        Self { constant, base: None }
    }

    /// The offset moved by this many bytes.
    pub(crate) const fn plus(self, bytes: u32) -> Self {
        Self { constant: self.constant.wrapping_add(bytes), base: self.base }
    }
}

impl Conditions {
    /// The number at an offset of the packet.
    pub(crate) fn load(
        &mut self,
        place: PacketOffset,
        width: LoadWidth,
    ) -> Result<FilterValueId, FilterFault> {
        self.values.load(place.base, place.constant, width)
    }

    /// Tests that the number at an offset of the packet is `number`.
    pub(crate) fn load_equals(
        &mut self,
        place: PacketOffset,
        width: LoadWidth,
        number: u32,
    ) -> Result<ConditionId, FilterFault> {
        let value = self.load(place, width)?;
        self.equals(value, number)
    }

    /// Tests that the number at an offset of the packet, under a mask, is `number`.
    pub(crate) fn load_masked(
        &mut self,
        place: PacketOffset,
        width: LoadWidth,
        mask: u32,
        number: u32,
    ) -> Result<ConditionId, FilterFault> {
        let value = self.load(place, width)?;
        self.masked(value, mask, number)
    }

    /// Tests that the packet has these bytes at an offset. They are compared in words, the last word first, as in
    /// libpcap.
    pub(crate) fn load_bytes(
        &mut self,
        place: PacketOffset,
        bytes: &[u8],
    ) -> Result<ConditionId, FilterFault> {
        let (mut all, mut remaining) = (self.always(true)?, bytes);
        while !remaining.is_empty() {
            let (width, size) = match remaining.len() {
                4.. => (LoadWidth::Word, 4),
                2 | 3 => (LoadWidth::Half, 2),
                _ => (LoadWidth::Byte, 1),
            };
            let (rest, last) = remaining.split_at(remaining.len() - size);
            let number = last.iter().fold(0, |number, &byte| number << 8 | u32::from(byte));
            let offset = u32::try_from(rest.len()).unwrap_or(u32::MAX);
            let one = self.load_equals(place.plus(offset), width, number)?;
            all = self.and(all, one)?;
            remaining = rest;
        }
        Ok(all)
    }
}
