//! Integer arithmetic on values.

use crate::Linear;
use crate::facts::{FactId, PathConditions};
use crate::range::{BitWidth, Range, filled, smaller};
use crate::value::{BoundValueId, Cmp, LinearSum, Op, ValueTable, from};

/// Operations on two values of one width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    DivU,
    DivS,
    RemU,
    RemS,
    And,
    Or,
    Xor,
    Shl,
    ShrU,
    ShrS,
    Rotate,
}

/// Bits that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bits {
    Set,
    Above,
    Below,
}

/// What arithmetic needs: the values, and what is known at the place.
pub(crate) struct Arith<'v> {
    pub(crate) values: &'v mut ValueTable,
    pub(crate) facts: &'v PathConditions,
    pub(crate) at: FactId,
}

impl Arith<'_> {
    fn range(&self, id: BoundValueId) -> Range {
        self.facts.range(self.values, id, self.at)
    }

    fn opaque(&mut self, width: BitWidth, range: Range, zeros: u8, from: u8) -> BoundValueId {
        let id = self.values.add(Op::Opaque, width, range, from);
        let node = self.values.node_mut(id);
        node.zeros = node.zeros.max(zeros);
        id
    }

    fn sum(&mut self, width: BitWidth, sum: LinearSum) -> BoundValueId {
        let ranges: Vec<(BoundValueId, Range)> =
            sum.terms.iter().map(|(id, _)| (*id, self.range(*id))).collect();
        self.values.of_sum(width, sum, |id| {
            ranges.iter().find(|(of, _)| *of == id).map_or(Range::any(width), |(_, range)| *range)
        })
    }

    fn scaled(&mut self, width: BitWidth, id: BoundValueId, by: i64) -> BoundValueId {
        let sum = ValueTable::combined(width, &self.values.sum(id), by, &LinearSum::default(), 0);
        self.sum_of(width, sum, [id, id])
    }

    /// A sum of what two values consist of. A constant has no terms that would tell where it came from.
    fn sum_of(&mut self, width: BitWidth, sum: LinearSum, of: [BoundValueId; 2]) -> BoundValueId {
        let origin = of.map(|id| self.values.as_constant(id).map_or(0, |_| self.values.node(id).from));
        let next = self.values.next();
        let id = self.sum(width, sum);
        if id >= next {
            self.values.node_mut(id).from |= origin[0] | origin[1];
        }
        id
    }

    pub(crate) fn binary(
        &mut self,
        kind: Binary,
        width: BitWidth,
        a: BoundValueId,
        b: BoundValueId,
    ) -> BoundValueId {
        let (ca, cb) = (self.values.as_constant(a), self.values.as_constant(b));
        let bits = width.bits();
        match kind {
            Binary::Add | Binary::Sub => {
                let sign = if kind == Binary::Add { 1 } else { -1 };
                let sum = ValueTable::combined(width, &self.values.sum(a), 1, &self.values.sum(b), sign);
                return self.sum_of(width, sum, [a, b]);
            }
            Binary::Mul => {
                if let Some(by) = cb {
                    return self.scaled(width, a, by);
                }
                if let Some(by) = ca {
                    return self.scaled(width, b, by);
                }
            }
            Binary::Shl => {
                if let Some(by) = cb {
                    let by = u32::try_from(by.rem_euclid(bits.into())).unwrap_or(0);
                    return self.scaled(width, a, width.wrap_signed(1i128 << by));
                }
            }
            // Every bit the other way around: -1 - x.
            Binary::Xor => {
                let all = LinearSum { terms: Vec::new(), constant: -1 };
                if let Some(id) = (cb == Some(-1)).then_some(a).or((ca == Some(-1)).then_some(b)) {
                    let sum = ValueTable::combined(width, &all, 1, &self.values.sum(id), -1);
                    return self.sum_of(width, sum, [a, b]);
                }
            }
            _ => {}
        }
        let (x, y) = (self.range(a), self.range(b));
        let (na, nb) = (self.values.node(a), self.values.node(b));
        let mut from = na.from | nb.from;
        let (za, zb) = (na.zeros, nb.zeros);
        let any = Range::any(width);
        match kind {
            Binary::And => {
                // A mask that takes nothing from what the value can be.
                let keeps_all = |mask: i64, most: u64| filled(most) & !width.wrap(mask.into()) == 0;
                if cb.is_some_and(|mask| keeps_all(mask, x.hi)) {
                    return a;
                }
                let less_one = |p: BoundValueId, q: BoundValueId| {
                    let sum = self.values.difference(q, p);
                    sum.terms.is_empty() && sum.constant == -1
                };
                let lowest = if less_one(a, b) {
                    Some(a)
                } else if less_one(b, a) {
                    Some(b)
                } else {
                    None
                };
                let range = match (ca, cb) {
                    (_, Some(mask)) => x.masked(width, width.wrap(mask.into())),
                    (Some(mask), _) => y.masked(width, width.wrap(mask.into())),
                    _ => Range { per: smaller(x.per, y.per), ..Range::unsigned(width, 0, x.hi.min(y.hi)) },
                };
                if cb == Some(15) && x.hi <= 255 {
                    from = header_length(from);
                }
                let zeros = za.max(zb);
                let mask = cb.filter(|_| lowest.is_none()).map(|mask| (a, mask));
                if let Some(id) = mask.and_then(|mask| self.values.masked_before(mask, range, zeros, from)) {
                    return id;
                }
                let id = self.values.add(lowest.map_or(Op::And(a, b), Op::ClearLowest), width, range, from);
                let node = self.values.node_mut(id);
                node.zeros = node.zeros.max(zeros);
                if let Some(mask) = mask {
                    self.values.remember_masked(mask, id);
                }
                id
            }
            Binary::Or => {
                let range = Range::unsigned(width, x.lo.max(y.lo), filled(x.hi | y.hi));
                let id = self.values.add(Op::Or(a, b), width, range, from);
                self.values.node_mut(id).zeros = za.min(zb);
                id
            }
            Binary::Xor => {
                let range = Range::unsigned(width, 0, filled(x.hi | y.hi));
                self.opaque(width, range, za.min(zb), from)
            }
            Binary::ShrU => {
                if let Some(by) = cb {
                    let by = u32::try_from(by.rem_euclid(bits.into())).unwrap_or(0);
                    if by == 4 && x.hi <= 255 {
                        from = header_length(from);
                    }
                    let by = u8::try_from(by).unwrap_or(0);
                    let id = self.values.add(Op::Shift(a, by), width, x.shifted(width, by.into()), from);
                    let node = self.values.node_mut(id);
                    node.zeros = node.zeros.max(za.saturating_sub(by));
                    return id;
                }
                let least = if y.hi < u64::from(bits) { x.lo >> y.hi } else { 0 };
                let shift = if y.hi < u64::from(bits) { y.lo } else { 0 };
                let range = Range { per: x.per, ..Range::unsigned(width, least, x.hi >> shift) };
                self.opaque(width, range, 0, from)
            }
            Binary::ShrS => {
                let range = match cb {
                    Some(by) => {
                        let by = u32::try_from(by.rem_euclid(bits.into())).unwrap_or(0);
                        Range::signed(width, x.slo >> by, x.shi >> by)
                    }
                    None => Range::signed(width, x.slo.min(0), x.shi.max(0)),
                };
                self.opaque(width, range, 0, from)
            }
            Binary::Shl => {
                // By an amount that is not known: no overflow, or anything.
                let most = y.hi.min(u64::from(bits) - 1);
                let top = i128::from(x.hi) << most;
                let fits = y.hi < u64::from(bits) && top < width.modulus();
                let range = if fits {
                    let lo = x.lo << y.lo;
                    Range::unsigned(width, lo, u64::try_from(top).unwrap_or(u64::MAX))
                } else {
                    any
                };
                self.opaque(width, range, za, from)
            }
            Binary::Mul => {
                let top = i128::from(x.hi).checked_mul(y.hi.into());
                let range = match top {
                    Some(top) if top < width.modulus() => {
                        let lo = x.lo.saturating_mul(y.lo);
                        Range::unsigned(width, lo, u64::try_from(top).unwrap_or(u64::MAX))
                    }
                    _ => any,
                };
                self.opaque(width, range, za.saturating_add(zb).min(63), from)
            }
            Binary::DivU => {
                let least = y.lo.max(1);
                let mut range = Range::unsigned(width, x.lo / y.hi.max(1), x.hi / least);
                range.per = x.per.map(|per| per.divided(least));
                self.opaque(width, range, 0, from)
            }
            Binary::RemU => {
                let mut range = Range::unsigned(width, 0, x.hi.min(y.hi.saturating_sub(1)));
                range.per = smaller(x.per, y.per);
                self.opaque(width, range, 0, from)
            }
            Binary::DivS | Binary::RemS => {
                let range = if x.slo >= 0 && y.slo > 0 {
                    let most = if kind == Binary::DivS { x.shi / y.slo } else { x.shi.min(y.shi - 1) };
                    Range::signed(width, 0, most)
                } else if kind == Binary::RemS {
                    let most = y.slo.unsigned_abs().max(y.shi.unsigned_abs()).saturating_sub(1);
                    let most = i64::try_from(most).unwrap_or(i64::MAX);
                    Range::signed(width, -most, most)
                } else {
                    any
                };
                self.opaque(width, range, 0, from)
            }
            Binary::Add | Binary::Sub | Binary::Rotate => self.opaque(width, any, 0, from),
        }
    }

    /// A comparison: 1 or 0, or which of them where it is known.
    pub(crate) fn compare(&mut self, cmp: Cmp, a: BoundValueId, b: BoundValueId) -> BoundValueId {
        let from = self.values.node(a).from | self.values.node(b).from;
        let range = match self.decided(cmp, a, b) {
            Some(truth) => Range::unsigned(BitWidth::W32, truth.into(), truth.into()),
            None => Range::unsigned(BitWidth::W32, 0, 1),
        };
        self.values.add(Op::Compare(cmp, a, b), BitWidth::W32, range, from)
    }

    fn decided(&self, cmp: Cmp, a: BoundValueId, b: BoundValueId) -> Option<bool> {
        let (x, y) = (self.range(a), self.range(b));
        let same = self.values.same(a, b);
        match cmp {
            Cmp::Eq | Cmp::Ne => {
                let equal = if same || (x.only().is_some() && x.only() == y.only()) {
                    true
                } else if x.hi < y.lo || y.hi < x.lo || x.shi < y.slo || y.shi < x.slo {
                    false
                } else {
                    return None;
                };
                Some(equal == (cmp == Cmp::Eq))
            }
            Cmp::LtU if same || x.lo >= y.hi => Some(false),
            Cmp::LtU if x.hi < y.lo => Some(true),
            Cmp::LeU if same || x.hi <= y.lo => Some(true),
            Cmp::LeU if x.lo > y.hi => Some(false),
            Cmp::LtS if same || x.slo >= y.shi => Some(false),
            Cmp::LtS if x.shi < y.slo => Some(true),
            Cmp::LeS if same || x.shi <= y.slo => Some(true),
            Cmp::LeS if x.slo > y.shi => Some(false),
            _ => None,
        }
    }

    /// `i64.extend_i32_u`.
    pub(crate) fn extend_unsigned(&mut self, a: BoundValueId) -> BoundValueId {
        if let Op::Wrap(of) = self.values.node(a).op
            && self.values.range(of).hi <= BitWidth::W32.max()
        {
            return of;
        }
        let x = self.range(a);
        if let Some(value) = x.only() {
            return self.converted(BitWidth::W64, value.cast_signed(), a);
        }
        let range = Range { per: x.per, ..Range::unsigned(BitWidth::W64, x.lo, x.hi) };
        self.carried(Op::Extend(a), BitWidth::W64, range, a)
    }

    /// `i64.extend_i32_s`.
    pub(crate) fn extend_signed(&mut self, a: BoundValueId) -> BoundValueId {
        let x = self.range(a);
        if x.slo >= 0 {
            return self.extend_unsigned(a);
        }
        let range = Range::signed(BitWidth::W64, x.slo, x.shi);
        self.carried(Op::Opaque, BitWidth::W64, range, a)
    }

    /// `i32.wrap_i64`.
    pub(crate) fn wrap(&mut self, a: BoundValueId) -> BoundValueId {
        if let Op::Extend(of) = self.values.node(a).op {
            return of;
        }
        if let Some(value) = self.values.as_constant(a) {
            return self.converted(BitWidth::W32, value, a);
        }
        let x = self.range(a);
        let range = if x.hi <= BitWidth::W32.max() {
            Range { per: x.per, ..Range::unsigned(BitWidth::W32, x.lo, x.hi) }
        } else if x.slo >= i32::MIN.into() && x.shi <= i32::MAX.into() {
            Range::signed(BitWidth::W32, x.slo, x.shi)
        } else {
            Range::any(BitWidth::W32)
        };
        self.carried(Op::Wrap(a), BitWidth::W32, range, a)
    }

    /// A constant that was one of another width.
    fn converted(&mut self, width: BitWidth, value: i64, of: BoundValueId) -> BoundValueId {
        let from = self.values.node(of).from;
        let id = self.values.constant(width, value);
        self.values.node_mut(id).from = from;
        id
    }

    fn carried(&mut self, op: Op, width: BitWidth, range: Range, of: BoundValueId) -> BoundValueId {
        let (zeros, from) = (self.values.node(of).zeros, self.values.node(of).from);
        let id = self.values.add(op, width, range, from);
        let node = self.values.node_mut(id);
        node.zeros = node.zeros.max(zeros.min(31));
        id
    }

    /// The lowest `bits` of a value, with their sign.
    pub(crate) fn sign_extended(&mut self, width: BitWidth, a: BoundValueId, bits: u32) -> BoundValueId {
        let x = self.range(a);
        let half = 1i64 << (bits - 1);
        if x.slo >= -half && x.shi < half {
            return a;
        }
        let from = self.values.node(a).from;
        self.opaque(width, Range::signed(width, -half, half - 1), 0, from)
    }

    /// Number of bits that are set, of zeros above the highest of them, or below the lowest.
    pub(crate) fn counted_bits(&mut self, width: BitWidth, a: BoundValueId, bits: Bits) -> BoundValueId {
        let x = self.range(a);
        let unused = u64::BITS - width.bits();
        let above = |value: u64| u64::from(value.leading_zeros() - unused);
        let all = u64::from(width.bits());
        let (least, most) = match bits {
            Bits::Set => (u64::from(x.lo > 0), all - above(x.hi)),
            Bits::Above => (above(x.hi), above(x.lo)),
            Bits::Below if x.lo > 0 => (0, all - 1),
            Bits::Below => (0, all),
        };
        let from = self.values.node(a).from;
        self.opaque(width, Range::unsigned(width, least, most), 0, from)
    }

    /// `select`: one of two by a condition.
    pub(crate) fn select(
        &mut self,
        a: BoundValueId,
        b: BoundValueId,
        whether: (Option<FactId>, Option<FactId>),
    ) -> BoundValueId {
        let (then, other) = match whether {
            (Some(then), Some(other)) => (then, other),
            (Some(_), None) => return a,
            (None, _) => return b,
        };
        let width = self.values.width(a);
        if self.values.same(a, b) {
            return a;
        }
        if width == BitWidth::Other {
            return self.values.any(width);
        }
        let x = self.facts.range(self.values, a, then);
        let y = self.facts.range(self.values, b, other);
        let (na, nb) = (self.values.node(a), self.values.node(b));
        let (zeros, from) = (na.zeros.min(nb.zeros), na.from | nb.from);
        let id = self.values.add(Op::Join(vec![(a, then), (b, other)]), width, x.or(y), from);
        self.values.node_mut(id).zeros = zeros;
        id
    }
}

/// What was a field is the length of a header: the four bits of a byte that IPv4 and TCP keep it in.
fn header_length(bits: u8) -> u8 {
    if bits & from::HEADER_FIELD != 0 { (bits & !from::HEADER_FIELD) | from::HEADER_LENGTH } else { bits }
}

/// The captured bytes of the packet.
pub(crate) const LENGTH: Linear = Linear::per_byte(1);
