//! The cubes of all rules as one table: for each byte and each of its values, the set of cubes that allow it.
//!
//! A packet is decided by the intersection of the sets of its bytes: the first cube that is left is of the first rule that
//! matches. The looks at different bytes do not depend on each other, and there is no branch that a processor could
//! mispredict. So the time for a packet does not depend on the rule that it matches.
//!
//! - T. V. Lakshman, D. Stiliadis: "High-Speed Policy-based Packet Forwarding Using Efficient Multi-dimensional Range
//!   Matching", SIGCOMM 1998.

use super::cubes::{BytePlace, ByteSet, Cube, CubeBudget, cubes};
use super::expression::{PacketParts, Part};
use super::rules::PatternRule;

/// The most cubes of a table.
pub const TABLE_CUBES_MAX: usize = 1024;

/// The most words of 64 bits of a table.
const TABLE_WORDS_MAX: usize = 512 * 1024;

/// The table, with as many words for each set of cubes as it needs.
#[derive(Debug)]
pub enum CubeTable {
    One(Sets<1>),
    Two(Sets<2>),
    Four(Sets<4>),
    Eight(Sets<8>),
    Sixteen(Sets<16>),
}

/// A table with sets of `64 * W` cubes.
#[derive(Debug)]
pub struct Sets<const W: usize> {
    parts: Vec<TablePart<W>>,
    early: Option<EarlyCubes<W>>,
    all: [u64; W],
    /// The output of each cube.
    outputs: Vec<u16>,
    otherwise: u16,
}

/// The cubes that some bytes of the first part decide.
#[derive(Debug)]
struct EarlyCubes<const W: usize> {
    /// The number of bytes.
    count: usize,
    /// The cubes without conditions on later bytes.
    cubes: [u64; W],
}

/// The bytes of one part of a packet.
#[derive(Debug)]
struct TablePart<const W: usize> {
    part: Part,
    /// The length at which no byte is missing.
    needed: usize,
    bytes: Vec<TableByte<W>>,
}

/// A byte that rules look at.
#[derive(Debug)]
struct TableByte<const W: usize> {
    offset: u16,
    /// The cubes that allow that the byte is missing.
    missing: [u64; W],
    /// The cubes that allow each value.
    values: [[u64; W]; 256],
}

impl CubeTable {
    /// Returns the table of rules; `None` if it would be too large, or making it would cost too much. Marks the rules that can match.
    pub fn new(rules: &[PatternRule], otherwise: u16, can_match: &mut [bool]) -> Option<Self> {
        let mut all: Vec<(Cube, u16)> = Vec::new();
        let mut budget = CubeBudget::default();
        for (index, PatternRule { condition, output }) in rules.iter().enumerate() {
            for cube in cubes(condition, &mut budget)? {
                budget.take(all.len() * (cube.0.len() + 1))?;
                // A cube within an earlier one never decides.
                if !all.iter().any(|(earlier, _)| cube.is_within(earlier)) {
                    can_match[index] = true;
                    all.push((cube, *output));
                }
            }
            if all.len() > TABLE_CUBES_MAX {
                return None;
            }
        }
        // A last cube of all packets is what happens otherwise.
        let mut otherwise = otherwise;
        if let Some((cube, output)) = all.last()
            && cube.0.is_empty()
        {
            otherwise = *output;
        }
        // Cubes at the end that do what happens without a match need no place.
        while all.last().is_some_and(|(_, output)| *output == otherwise) {
            all.pop();
        }
        let words = all.len().div_ceil(64).next_power_of_two();
        (places(&all).len() * words <= TABLE_WORDS_MAX / 256).then(|| Self::of(&all, otherwise))
    }

    fn of(all: &[(Cube, u16)], otherwise: u16) -> Self {
        match all.len() {
            0..=64 => Self::One(Sets::new(all, otherwise)),
            65..=128 => Self::Two(Sets::new(all, otherwise)),
            129..=256 => Self::Four(Sets::new(all, otherwise)),
            257..=512 => Self::Eight(Sets::new(all, otherwise)),
            _ => Self::Sixteen(Sets::new(all, otherwise)),
        }
    }

    /// Returns the output of the first rule that matches.
    #[inline(always)]
    pub fn decide(&self, parts: &PacketParts<'_>) -> u16 {
        match self {
            Self::One(sets) => sets.decide(parts),
            _ => self.decide_by_many(parts),
        }
    }

    /// Returns the same for more than 64 cubes. Its code is apart, so that the usual case stays short.
    #[inline(never)]
    fn decide_by_many(&self, parts: &PacketParts<'_>) -> u16 {
        match self {
            Self::One(sets) => sets.decide(parts),
            Self::Two(sets) => sets.decide(parts),
            Self::Four(sets) => sets.decide(parts),
            Self::Eight(sets) => sets.decide(parts),
            Self::Sixteen(sets) => sets.decide(parts),
        }
    }
}

impl<const W: usize> Sets<W> {
    fn new(cubes: &[(Cube, u16)], otherwise: u16) -> Self {
        let mut parts: Vec<TablePart<W>> = Vec::new();
        for (part, offset) in places(cubes) {
            if parts.last().is_none_or(|it| it.part != part) {
                parts.push(TablePart { part, needed: 0, bytes: Vec::new() });
            }
            let Some(place) = parts.last_mut() else { continue };
            place.needed = usize::from(offset) + 1;
            place.bytes.push(TableByte::new(cubes, (part, offset)));
        }
        let mut all = [0; W];
        for index in 0..cubes.len() {
            all[index / 64] |= 1 << (index % 64);
        }
        let early = parts.first().and_then(|first| EarlyCubes::new(cubes, first));
        let outputs = cubes.iter().map(|(_, output)| *output).collect();
        Self { parts, early, all, outputs, otherwise }
    }

    #[inline(always)]
    fn decide(&self, parts: &PacketParts<'_>) -> u16 {
        let mut left = self.all;
        let mut later = &self.parts[..];
        if let (Some(early), [first, rest @ ..]) = (&self.early, &self.parts[..]) {
            let bytes = parts.get(first.part);
            if bytes.len() >= first.needed {
                let (before, behind) = first.bytes.split_at(early.count);
                before.iter().for_each(|byte| byte.keep(&mut left, bytes));
                match lowest(&left) {
                    None => return self.otherwise,
                    Some(cube) if early.cubes[cube / 64] >> (cube % 64) & 1 != 0 => {
                        return self.outputs[cube];
                    }
                    Some(_) => {}
                }
                behind.iter().for_each(|byte| byte.keep(&mut left, bytes));
                later = rest;
            }
        }
        for it in later {
            let bytes = parts.get(it.part);
            if bytes.len() >= it.needed {
                it.bytes.iter().for_each(|byte| byte.keep(&mut left, bytes));
            } else {
                it.bytes.iter().for_each(|byte| byte.keep_of_short(&mut left, bytes));
            }
        }
        lowest(&left).map_or(self.otherwise, |cube| self.outputs[cube])
    }
}

/// Returns the number of the first cube of a set.
#[inline]
fn lowest<const W: usize>(left: &[u64; W]) -> Option<usize> {
    let mut index = 0;
    while index < W {
        if left[index] != 0 {
            return Some(index * 64 + left[index].trailing_zeros() as usize);
        }
        index += 1;
    }
    None
}

impl<const W: usize> EarlyCubes<W> {
    /// Returns the place in the first part where a look saves most: cubes that are decided there, times bytes behind it.
    /// It is one place only, since the processor mispredicts some looks.
    fn new(cubes: &[(Cube, u16)], first: &TablePart<W>) -> Option<Self> {
        let decided = |count: usize| {
            let before = &first.bytes[..count];
            let is_before =
                |place: &BytePlace| place.0 == first.part && before.iter().any(|byte| byte.offset == place.1);
            cubes.iter().map(move |(cube, _)| cube.0.iter().all(|(place, _)| is_before(place)))
        };
        let saved = |count: usize| decided(count).filter(|is| *is).count() * (first.bytes.len() - count);
        let count = (1..first.bytes.len()).rev().max_by_key(|count| saved(*count))?;
        let mut set = [0; W];
        for (index, _) in decided(count).enumerate().filter(|(_, is)| *is) {
            set[index / 64] |= 1 << (index % 64);
        }
        (set != [0; W]).then_some(Self { count, cubes: set })
    }
}

#[inline]
fn keep<const W: usize>(left: &mut [u64; W], set: &[u64; W]) {
    let mut index = 0;
    while index < W {
        left[index] &= set[index];
        index += 1;
    }
}

/// Returns the bytes that cubes look at, in order.
fn places(cubes: &[(Cube, u16)]) -> Vec<BytePlace> {
    let mut places: Vec<BytePlace> =
        cubes.iter().flat_map(|(cube, _)| cube.0.iter().map(|(place, _)| *place)).collect();
    places.sort_unstable();
    places.dedup();
    places
}

impl<const W: usize> TableByte<W> {
    #[inline]
    fn keep(&self, left: &mut [u64; W], bytes: &[u8]) {
        keep(left, &self.values[usize::from(bytes[usize::from(self.offset)])]);
    }

    /// Does the same for bytes that may end before this one.
    #[inline]
    fn keep_of_short(&self, left: &mut [u64; W], bytes: &[u8]) {
        let value = bytes.get(usize::from(self.offset));
        keep(left, value.map_or(&self.missing, |value| &self.values[usize::from(*value)]));
    }

    fn new(cubes: &[(Cube, u16)], place: BytePlace) -> Self {
        let sets: Vec<ByteSet> = cubes.iter().map(|(cube, _)| cube.set(place)).collect();
        let with = |value: Option<u8>| {
            let mut set = [0; W];
            for (index, _) in sets.iter().enumerate().filter(|(_, it)| it.contains(value)) {
                set[index / 64] |= 1 << (index % 64);
            }
            set
        };
        let mut values = [[0; W]; 256];
        for (value, set) in (0..=u8::MAX).zip(&mut values) {
            *set = with(Some(value));
        }
        Self { offset: place.1, missing: with(None), values }
    }
}
