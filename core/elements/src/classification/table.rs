//! The cubes of all rules as one table: for each byte and each of its values, the set of cubes that allow it.
//!
//! A packet is decided by the intersection of the sets of its bytes: the first cube that is left is of the first rule that
//! matches. The looks at different bytes do not depend on each other, and there is no branch that a processor could
//! mispredict. So the time for a packet does not depend on the rule that it matches.
//!
//! - T. V. Lakshman, D. Stiliadis: "High-Speed Policy-based Packet Forwarding Using Efficient Multi-dimensional Range
//!   Matching", SIGCOMM 1998.

use super::cubes::{BytePlace, Cube, cubes};
use super::expression::{PacketParts, Part};
use super::rules::Rule;

/// The most cubes of a table.
pub const TABLE_CUBES_MAX: usize = 1024;

/// The table, with as many words for each set of cubes as it needs.
#[derive(Debug)]
pub enum Table {
    One(Sets<1>),
    Two(Sets<2>),
    Four(Sets<4>),
    Eight(Sets<8>),
    Sixteen(Sets<16>),
}

/// A table with sets of `64 * W` cubes.
#[derive(Debug)]
pub struct Sets<const W: usize> {
    parts: Vec<TablePart>,
    /// The sets of all bytes: for each byte those of its classes, then that of a missing byte.
    sets: Vec<[u64; W]>,
    all: [u64; W],
    /// The output of each cube.
    outputs: Vec<u16>,
    otherwise: u16,
}

/// The bytes of one part of a packet.
#[derive(Debug)]
struct TablePart {
    part: Part,
    /// The length at which no byte is missing.
    needed: usize,
    bytes: Vec<TableByte>,
}

/// A byte that rules look at.
#[derive(Debug)]
struct TableByte {
    offset: u16,
    /// The place of the set of a missing byte.
    missing: u32,
    first_set: u32,
    /// The class of each value. Values of a class are in the same cubes.
    classes: [u8; 256],
}

impl Table {
    /// Returns the table of rules; `None` if it would be too large. Marks the rules that can match.
    pub fn new(rules: &[Rule], otherwise: u16, can_match: &mut [bool]) -> Option<Self> {
        let mut all: Vec<(Cube, u16)> = Vec::new();
        for (index, Rule { condition, output }) in rules.iter().enumerate() {
            for cube in cubes(condition)? {
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
        // Cubes at the end that do what happens without a match need no place.
        while all.last().is_some_and(|(_, output)| *output == otherwise) {
            all.pop();
        }
        if let Some(last) = all.last()
            && last.0.0.is_empty()
        {
            let otherwise = last.1;
            all.pop();
            while all.last().is_some_and(|(_, output)| *output == otherwise) {
                all.pop();
            }
            return Some(Self::of(&all, otherwise));
        }
        Some(Self::of(&all, otherwise))
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
    #[inline]
    pub fn decide(&self, parts: &PacketParts<'_>) -> u16 {
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
        let mut places: Vec<BytePlace> =
            cubes.iter().flat_map(|(cube, _)| cube.0.iter().map(|(place, _)| *place)).collect();
        places.sort_unstable();
        places.dedup();
        let (mut parts, mut sets): (Vec<TablePart>, _) = (Vec::new(), Vec::new());
        for (part, offset) in places {
            if parts.last().is_none_or(|it| it.part != part) {
                parts.push(TablePart { part, needed: 0, bytes: Vec::new() });
            }
            let Some(place) = parts.last_mut() else { continue };
            place.needed = usize::from(offset) + 1;
            place.bytes.push(TableByte::new(cubes, (part, offset), &mut sets));
        }
        let all = set_of(cubes, |_| true);
        Self { parts, sets, all, outputs: cubes.iter().map(|(_, output)| *output).collect(), otherwise }
    }

    #[inline]
    fn decide(&self, parts: &PacketParts<'_>) -> u16 {
        let mut left = self.all;
        for it in &self.parts {
            let bytes = parts.get(it.part);
            if bytes.len() >= it.needed {
                for byte in &it.bytes {
                    let class = byte.classes[usize::from(bytes[usize::from(byte.offset)])];
                    self.keep(&mut left, byte.first_set as usize + usize::from(class));
                }
            } else {
                for byte in &it.bytes {
                    let value = bytes.get(usize::from(byte.offset));
                    let class = value.map(|value| u32::from(byte.classes[usize::from(*value)]));
                    self.keep(&mut left, class.map_or(byte.missing, |class| byte.first_set + class) as usize);
                }
            }
        }
        let mut index = 0;
        while index < W {
            if left[index] != 0 {
                return self.outputs[index * 64 + left[index].trailing_zeros() as usize];
            }
            index += 1;
        }
        self.otherwise
    }

    #[inline]
    fn keep(&self, left: &mut [u64; W], set: usize) {
        let set = &self.sets[set];
        let mut index = 0;
        while index < W {
            left[index] &= set[index];
            index += 1;
        }
    }
}

/// Returns the set of cubes for which this is true.
fn set_of<const W: usize>(cubes: &[(Cube, u16)], contains: impl Fn(&Cube) -> bool) -> [u64; W] {
    let mut set = [0; W];
    for (index, _) in cubes.iter().enumerate().filter(|(_, (cube, _))| contains(cube)) {
        set[index / 64] |= 1 << (index % 64);
    }
    set
}

impl TableByte {
    fn new<const W: usize>(cubes: &[(Cube, u16)], place: BytePlace, sets: &mut Vec<[u64; W]>) -> Self {
        let first = sets.len();
        let mut classes = [0; 256];
        for (value, class) in (0..=u8::MAX).zip(&mut classes) {
            let set = set_of(cubes, |cube| cube.set(place).contains(Some(value)));
            let known = sets[first..].iter().position(|it| *it == set);
            // There are at most 256 classes.
            *class = u8::try_from(known.unwrap_or(sets.len() - first)).unwrap_or(u8::MAX);
            if known.is_none() {
                sets.push(set);
            }
        }
        let narrow = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        let missing = narrow(sets.len());
        sets.push(set_of(cubes, |cube| cube.set(place).contains(None)));
        Self { offset: place.1, missing, first_set: narrow(first), classes }
    }
}
