//! Conditions as unions of cubes. A cube states for some bytes of a packet which values they may have.
//!
//! Every test of a word falls into tests of its bytes, and those of different bytes are independent. So a decision over a
//! cube needs one look at each byte, whatever the masks and ranges of the rules are.

use super::expression::{Part, PatternExpression, PatternRelation, PatternTest};

/// The most cubes of a condition, also while it is converted.
const CUBES_MAX: usize = 256;

/// The most looks at the set of a byte while the conditions of an element are converted.
const LOOKS_MAX: usize = 1 << 24;

/// The most sets of bytes that a product of conditions may have.
const SETS_MAX: usize = 1 << 18;

/// The work that is left for the conversion of an element's conditions. Cubes have as many bytes as a rule names, and a
/// product of conditions has as many cubes as both have together, so a short text can ask for gigabytes.
#[derive(Debug)]
pub struct CubeBudget {
    looks: usize,
}

impl Default for CubeBudget {
    fn default() -> Self {
        Self { looks: LOOKS_MAX }
    }
}

impl CubeBudget {
    /// Takes looks; `None` if there are not so many.
    pub fn take(&mut self, looks: usize) -> Option<()> {
        self.looks = self.looks.checked_sub(looks)?;
        Some(())
    }
}

/// A byte of a packet.
pub type BytePlace = (Part, u16);

/// A set of values of a byte, among them that it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSet {
    values: [u64; 4],
    has_missing: bool,
}

impl ByteSet {
    const ALL: ByteSet = ByteSet { values: [u64::MAX; 4], has_missing: true };
    const PRESENT: ByteSet = ByteSet { values: [u64::MAX; 4], has_missing: false };
    const MISSING: ByteSet = ByteSet { values: [0; 4], has_missing: true };

    fn of(contains: impl Fn(u8) -> bool) -> Self {
        let mut values = [0; 4];
        for byte in (0..=u8::MAX).filter(|byte| contains(*byte)) {
            values[usize::from(byte) / 64] |= 1 << (byte % 64);
        }
        Self { values, has_missing: false }
    }

    /// Returns true if a byte with this value, or a missing one, is in the set.
    pub fn contains(&self, byte: Option<u8>) -> bool {
        match byte {
            Some(byte) => self.values[usize::from(byte) / 64] >> (byte % 64) & 1 == 1,
            None => self.has_missing,
        }
    }

    fn is_empty(&self) -> bool {
        self.values == [0; 4] && !self.has_missing
    }

    fn and(&self, other: &Self) -> Self {
        let values = std::array::from_fn(|at| self.values[at] & other.values[at]);
        Self { values, has_missing: self.has_missing && other.has_missing }
    }

    fn or(&self, other: &Self) -> Self {
        let values = std::array::from_fn(|at| self.values[at] | other.values[at]);
        Self { values, has_missing: self.has_missing || other.has_missing }
    }
}

/// The sets of some bytes, in the order of their places. Other bytes have any value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cube(pub Vec<(BytePlace, ByteSet)>);

impl Cube {
    /// Returns the set of a byte.
    pub fn set(&self, place: BytePlace) -> ByteSet {
        match self.0.binary_search_by_key(&place, |(place, _)| *place) {
            Ok(index) => self.0[index].1,
            Err(_) => ByteSet::ALL,
        }
    }

    /// Narrows the set of a byte. Returns false if no packet is left.
    fn narrow(&mut self, place: BytePlace, set: &ByteSet) -> bool {
        match self.0.binary_search_by_key(&place, |(place, _)| *place) {
            Ok(index) => {
                let both = self.0[index].1.and(set);
                self.0[index].1 = both;
                !both.is_empty()
            }
            Err(_) if *set == ByteSet::ALL => true,
            Err(index) => {
                self.0.insert(index, (place, *set));
                !set.is_empty()
            }
        }
    }

    /// Returns the sets of this cube and another one for each byte that one of them names, in order.
    fn pairs<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (BytePlace, ByteSet, ByteSet)> {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        std::iter::from_fn(move || {
            let place = match (left.peek(), right.peek()) {
                (Some((left, _)), Some((right, _))) => *left.min(right),
                (Some((place, _)), None) | (None, Some((place, _))) => *place,
                (None, None) => return None,
            };
            let first = left.next_if(|(at, _)| *at == place).map_or(ByteSet::ALL, |(_, set)| *set);
            let second = right.next_if(|(at, _)| *at == place).map_or(ByteSet::ALL, |(_, set)| *set);
            Some((place, first, second))
        })
    }

    /// Returns the packets of both cubes; `None` if there are none.
    fn and(&self, other: &Self) -> Option<Self> {
        let both = self.pairs(other).map(|(place, first, second)| {
            let set = first.and(&second);
            (!set.is_empty()).then_some((place, set))
        });
        both.collect::<Option<_>>().map(Self)
    }

    /// Returns true if every packet of this cube is one of the other's.
    pub fn is_within(&self, other: &Self) -> bool {
        self.pairs(other).all(|(_, first, second)| first.and(&second) == first)
    }

    /// Returns the union with another cube, if it is a cube that differs at one byte.
    fn merged(&self, other: &Self) -> Option<Self> {
        let mut merged = Vec::new();
        let mut differences = 0;
        for (place, first, second) in self.pairs(other) {
            differences += u32::from(first != second);
            if differences > 1 {
                return None;
            }
            let either = first.or(&second);
            if either != ByteSet::ALL {
                merged.push((place, either));
            }
        }
        Some(Self(merged))
    }
}

/// Returns the cubes of a condition; `None` if there are too many, or the budget is used up.
pub fn cubes(expression: &PatternExpression, budget: &mut CubeBudget) -> Option<Vec<Cube>> {
    of(expression, false, budget)
}

fn of(expression: &PatternExpression, negated: bool, budget: &mut CubeBudget) -> Option<Vec<Cube>> {
    match expression {
        PatternExpression::Constant(value) => {
            Some(if *value != negated { vec![Cube::default()] } else { Vec::new() })
        }
        PatternExpression::PatternTest(test) if !negated => Some(of_test(test)),
        PatternExpression::PatternTest(test) => {
            let mut all = of_test(&PatternTest { negated: !test.negated, ..*test });
            all.push(Cube(vec![(last_byte(test), ByteSet::MISSING)]));
            simplify(all, budget)
        }
        PatternExpression::Not(inner) => of(inner, !negated, budget),
        PatternExpression::And(list) if !negated => all_of(list, negated, budget),
        PatternExpression::Or(list) if negated => all_of(list, negated, budget),
        PatternExpression::And(list) | PatternExpression::Or(list) => {
            let mut all = Vec::new();
            for it in list {
                all.extend(of(it, negated, budget)?);
                if all.len() > CUBES_MAX {
                    all = simplify(all, budget)?;
                }
            }
            simplify(all, budget)
        }
        PatternExpression::If(all) => {
            let [condition, then, otherwise] = &**all;
            let mut first = both(&of(condition, false, budget)?, &of(then, negated, budget)?, budget)?;
            first.extend(both(&of(condition, true, budget)?, &of(otherwise, negated, budget)?, budget)?);
            simplify(first, budget)
        }
    }
}

fn all_of(list: &[PatternExpression], negated: bool, budget: &mut CubeBudget) -> Option<Vec<Cube>> {
    let mut all = vec![Cube::default()];
    for it in list {
        all = both(&all, &of(it, negated, budget)?, budget)?;
    }
    Some(all)
}

fn both(left: &[Cube], right: &[Cube], budget: &mut CubeBudget) -> Option<Vec<Cube>> {
    budget.take(looks(left).saturating_mul(right.len()))?;
    budget.take(looks(right).saturating_mul(left.len()))?;
    let mut all = Vec::new();
    let mut sets = 0;
    for cube in left.iter().flat_map(|left| right.iter().filter_map(|right| left.and(right))) {
        sets += cube.0.len();
        if sets > SETS_MAX || all.len() == LIST_MAX {
            return None;
        }
        all.push(cube);
    }
    simplify(all, budget)
}

/// Returns the looks that one pass over cubes takes.
fn looks(cubes: &[Cube]) -> usize {
    cubes.iter().map(|cube| cube.0.len() + 1).sum()
}

fn last_byte(test: &PatternTest) -> BytePlace {
    (test.part, u16::try_from(test.needed_bytes() - 1).unwrap_or(u16::MAX))
}

/// Returns the cubes of a test: a comparison of bytes from the highest one on.
fn of_test(test: &PatternTest) -> Vec<Cube> {
    let (mask, value) = (test.mask.to_be_bytes(), test.value.to_be_bytes());
    let place = |byte: u16| (test.part, test.offset.saturating_add(byte));
    let mut all = Vec::new();
    // The packets whose earlier bytes equal those of the value.
    let mut equal = Cube::default();
    equal.narrow(last_byte(test), &ByteSet::PRESENT);
    for (index, (mask, value)) in mask.into_iter().zip(value).enumerate() {
        let byte = place(u16::try_from(index).unwrap_or_default());
        let decides = match (test.relation, test.negated) {
            (PatternRelation::Equal, false) => None,
            (PatternRelation::Equal, true) => Some(ByteSet::of(|byte| byte & mask != value)),
            (PatternRelation::Greater, false) => Some(ByteSet::of(|byte| byte & mask > value)),
            (PatternRelation::Greater, true) => Some(ByteSet::of(|byte| byte & mask < value)),
        };
        if let Some(set) = decides {
            let mut cube = equal.clone();
            if set == ByteSet::PRESENT || cube.narrow(byte, &set) {
                all.push(cube);
            }
        }
        let same = ByteSet::of(|byte| byte & mask == value);
        if same != ByteSet::PRESENT && !equal.narrow(byte, &same) {
            return all;
        }
    }
    if matches!(
        (test.relation, test.negated),
        (PatternRelation::Equal, false) | (PatternRelation::Greater, true)
    ) {
        all.push(equal);
    }
    all
}

/// The most cubes of a list before it is simplified.
const LIST_MAX: usize = 4 * CUBES_MAX;

/// Joins cubes, and drops those within others. Returns `None` if too many are left.
fn simplify(mut all: Vec<Cube>, budget: &mut CubeBudget) -> Option<Vec<Cube>> {
    if all.len() > LIST_MAX {
        return None;
    }
    let mut at = 0;
    while at < all.len() {
        budget.take(at * (all[at].0.len() + 1))?;
        let joined = (0..at).find_map(|earlier| {
            if all[at].is_within(&all[earlier]) {
                return Some((earlier, all[earlier].clone()));
            }
            if all[earlier].is_within(&all[at]) {
                return Some((earlier, all[at].clone()));
            }
            all[earlier].merged(&all[at]).map(|merged| (earlier, merged))
        });
        match joined {
            Some((earlier, cube)) => {
                let has_changed = all[earlier] != cube;
                all[earlier] = cube;
                all.swap_remove(at);
                if has_changed {
                    // The cube may now join those before it.
                    at = earlier;
                }
            }
            None => at += 1,
        }
    }
    (all.len() <= CUBES_MAX).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A condition that is true if one of the bytes is 1.
    fn one_of(places: std::ops::Range<u16>) -> PatternExpression {
        let test = |at| PatternExpression::equal(Part::Main, at * 4, 0xff00_0000, 0x0100_0000);
        PatternExpression::Or(places.map(test).collect())
    }

    #[test]
    fn a_product_is_refused_before_it_is_made() {
        let product = PatternExpression::And(vec![one_of(0..10), one_of(10..20)]);
        let of = |looks| cubes(&product, &mut CubeBudget { looks }).map(|all| all.len());
        assert_eq!(of(LOOKS_MAX), Some(100));
        // Both lists cost less than 400 looks, and their product at least 400.
        assert_eq!(of(400), None);
        assert_eq!(cubes(&one_of(0..10), &mut CubeBudget { looks: 400 }).map(|all| all.len()), Some(10));
    }

    #[test]
    fn a_product_with_too_many_bytes_is_refused() {
        let wide = PatternExpression::And((0..2000).map(|at| one_of(at..at + 1)).collect());
        assert_eq!(cubes(&wide, &mut CubeBudget::default()).map(|all| all.len()), Some(1));
        let product = PatternExpression::And(vec![wide, one_of(2000..2200)]);
        assert_eq!(cubes(&product, &mut CubeBudget::default()), None);
    }
}
