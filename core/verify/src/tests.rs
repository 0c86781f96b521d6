//! Tests of the abstract domain: results contain what arithmetic on their members gives.

use proptest::prelude::*;

use crate::value::{AddressBase, Value, Width};

/// An interval and two of its members.
#[derive(Clone, Copy, Debug)]
struct Members {
    value: Value,
    members: [i64; 2],
}

fn word() -> impl Strategy<Value = i64> {
    prop_oneof![
        any::<i64>(),
        (any::<i64>(), 0u32..64).prop_map(|(word, shift)| word >> shift),
        (0u32..64, -2i64..3).prop_map(|(bit, near)| (1i64 << bit).wrapping_add(near)),
        -300i64..300,
    ]
}

fn members() -> impl Strategy<Value = Members> {
    let bound = || prop_oneof![word().prop_map(Some), Just(None)];
    (word(), word(), bound(), bound()).prop_map(|(first, second, lo, hi)| {
        let (least, most) = (first.min(second), first.max(second));
        let lo = lo.map_or(least, |lo| lo.min(least));
        let hi = hi.map_or(most, |hi| hi.max(most));
        Members { value: Value { base: AddressBase::ZERO, lo, hi }, members: [first, second] }
    })
}

const WIDTHS: [Width; 4] = [Width::W8, Width::W16, Width::W32, Width::W64];

/// The low bits of a word, zero-extended.
fn low(word: i64, width: Width) -> i64 {
    match width {
        Width::W64 => word,
        _ => word & ((1 << width.bits()) - 1),
    }
}

/// The low bits of a word, sign-extended.
fn signed(word: i64, width: Width) -> i64 {
    let unused = 64 - width.bits();
    word << unused >> unused
}

fn contains(value: Value, word: i64) -> bool {
    value.base == AddressBase::ZERO && value.lo <= word && word <= value.hi
}

/// Asserts that an abstract operation contains the concrete one on all members.
fn check(
    name: &str,
    (a, b): (Members, Members),
    width: Width,
    value: Value,
    concrete: impl Fn(i64, i64) -> i64,
) -> Result<(), TestCaseError> {
    for x in a.members {
        for y in b.members {
            let word = low(concrete(x, y), width);
            prop_assert!(
                contains(value, word),
                "{name} at {width:?} of {x} and {y}: {word} is not in {value:?}"
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn abstract_arithmetic_contains_concrete_arithmetic(a in members(), b in members()) {
        for width in WIDTHS {
            let (x, y) = (a.value, b.value);
            let unsigned = |word: i64| low(word, width).cast_unsigned();
            let count = |word: i64| u32::try_from(word & if width == Width::W64 { 63 } else { 31 }).unwrap();
            let wide = |word: i64| i128::from(signed(word, width));
            let part = |word: i128| i64::try_from(word & i128::from(u64::MAX) & 0x7fff_ffff_ffff_ffff).unwrap()
                | if word >> 63 & 1 == 1 { i64::MIN } else { 0 };
            check("add", (a, b), width, x.add(y, width), i64::wrapping_add)?;
            check("sub", (a, b), width, x.sub(y, width), i64::wrapping_sub)?;
            check("mul", (a, b), width, x.mul(y, width), i64::wrapping_mul)?;
            check("and", (a, b), width, x.and(y, width), |x, y| x & y)?;
            check("or", (a, b), width, x.or(y, width), |x, y| x | y)?;
            check("xor", (a, b), width, x.or(y, width), |x, y| x ^ y)?;
            check("shl", (a, b), width, x.shift_left(y, width), |x, y| part(wide(x) << count(y)))?;
            check("shr", (a, b), width, x.shift_right(y, width), |x, y| (unsigned(x) >> count(y)).cast_signed())?;
            check("sar", (a, b), width, x.shift_right_signed(y, width), |x, y| part(wide(x) >> count(y)))?;
            check("low", (a, b), width, x.low(width), |x, _| x)?;
            for to in WIDTHS {
                check("sign", (a, b), to, x.sign_extended(width, to), |x, _| signed(x, width))?;
            }
            if matches!(width, Width::W8 | Width::W16) {
                let merged = |x: i64, y: i64| x & !low(-1, width) | low(y, width);
                check("with_low", (a, b), Width::W64, x.with_low(y, width), merged)?;
            }
        }
    }

    #[test]
    fn joins_contain_both_and_widening_ends(values in prop::collection::vec(members(), 2..12)) {
        let mut widened = values[0].value;
        let mut changes = 0;
        for other in &values {
            for joined in [widened.join(other.value), widened.widen(other.value)] {
                let all = [widened.lo, widened.hi, other.value.lo, other.value.hi];
                prop_assert!(all.iter().all(|word| contains(joined, *word)));
            }
            let next = widened.widen(other.value);
            changes += u32::from(next != widened);
            widened = next;
        }
        prop_assert!(changes <= 4, "{changes}");
    }

    #[test]
    fn bases_do_not_mix(a in word(), b in word()) {
        let stack = Value::exact(AddressBase::STACK, a);
        let image = Value::exact(AddressBase::IMAGE, b);
        let number = Value::exact(AddressBase::ZERO, b);
        prop_assert_eq!(stack.join(image), Value::TOP);
        prop_assert_eq!(stack.join(number), Value::TOP);
        prop_assert_eq!(stack.add(image, Width::W64), Value::TOP);
        prop_assert_eq!(number.sub(stack, Width::W64), Value::TOP);
        prop_assert_eq!(stack.mul(Value::exact(AddressBase::ZERO, 1), Width::W64), Value::TOP);
        prop_assert_eq!(stack.low(Width::W32), Value::any(Width::W32));
        let moved = a.checked_add(b).map_or(Value::TOP, |sum| Value::exact(AddressBase::STACK, sum));
        prop_assert_eq!(stack.add(number, Width::W64), moved);
        prop_assert_eq!(Value::exact(AddressBase::entry(3), 0).join(Value::exact(AddressBase::entry(5), 0)), Value::TOP);
    }
}
