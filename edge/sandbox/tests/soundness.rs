//! Soundness, the most important test: a module never uses more than the bound found before it ran.

use crate::oracle::generate::{self, loops, smith};
use crate::oracle::{Oracle, Tally, smallest};

/// Bytes of choices for a module of loops.
const CHOICES: usize = 500;

fn loops_of(oracle: &Oracle, seed: u64) -> Tally {
    let input = generate::bytes(seed, 40 + CHOICES * usize::try_from(seed % 7).unwrap_or(0) / 6);
    let attempt = |input: &[u8]| oracle.check(&generate::assembled(&loops::module(input)), seed);
    attempt(&input).unwrap_or_else(|_| {
        let input = smallest(&input, |input| attempt(input).is_err());
        let violation = attempt(&input).expect_err("it still fails");
        panic!("seed {seed}: {violation}\n{}", loops::module(&input))
    })
}

/// The number of seeds, or from the environment the number of minutes, for a long run.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let given = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = given("WEIR_FIRST_SEED").unwrap_or(0);
    first..first + given("WEIR_SEEDS").unwrap_or(usual)
}

#[test]
fn loops_cost_no_more_than_their_bound_by_an_independent_count() {
    let oracle = Oracle::new();
    let mut tally = Tally::default();
    for seed in seeds(2_000) {
        tally.add(loops_of(&oracle, seed));
    }
    println!("{tally:?}");
    assert!(
        tally.bounded * 10 > tally.entries,
        "hardly anything was bounded, so hardly anything was tested: {tally:?}"
    );
    assert!(tally.tight * 50 > tally.calls, "no bound was ever reached: {tally:?}");
}

#[test]
fn arbitrary_modules_cost_no_more_than_their_bound() {
    let oracle = Oracle::new();
    let mut tally = Tally::default();
    for seed in seeds(400) {
        let input = generate::bytes(seed, 3_000);
        let Some(module) = smith::module(&input) else { continue };
        match oracle.check(&module, seed) {
            Ok(done) => tally.add(done),
            Err(violation) => {
                panic!("seed {seed}: {violation}\n{}", wasmprinter::print_bytes(&module).unwrap_or_default())
            }
        }
    }
    println!("{tally:?}");
    assert!(tally.bounded * 10 > tally.entries, "{tally:?}");
}

/// Modules built to look cheaper than they are. If they have a bound, they keep it.
#[test]
fn hostile_modules_cost_no_more_than_their_bound() {
    let prelude = include_str!("../../../core/bounds/tests/support/prelude.wat");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../core/bounds/tests/hostile_modules");
    let oracle = Oracle::new();
    let mut tally = Tally::default();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let module =
            generate::assembled(&format!("(module {prelude} {})", std::fs::read_to_string(&path).unwrap()));
        for seed in 0..20 {
            tally.add(
                oracle.check(&module, seed).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
            );
        }
    }
    println!("{tally:?}");
    assert!(tally.modules >= 600 && tally.bounded > 0 && tally.exhausted > 100, "{tally:?}");
}
