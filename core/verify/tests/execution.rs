//! Accepted code keeps the promises of the verifier when it runs: random programs in a plain interpreter.
//!
//! The interpreter shares no code with the verifier. It takes both ways of a branch at random, because the verifier must
//! not depend on flags, and it fills memory that it does not know with random bytes.

mod interpreter;
mod programs;
mod source;

use source::Source;
use weir_verify::verify;

use crate::support::*;

#[test]
fn accepted_programs_access_only_what_they_may() {
    let mut source = Source::new(24);
    let (mut accepted, mut accesses, mut returns) = (0, 0, 0);
    for _ in 0..40_000 {
        let code = programs::random(&mut source);
        if verify(image(&code), &limits()).is_err() {
            continue;
        }
        accepted += 1;
        for _ in 0..8 {
            let run = interpreter::run(&code, &mut source);
            accesses += run.accesses;
            returns += u64::from(run.returned);
        }
    }
    // Otherwise the test shows nothing.
    assert!(accepted > 2_000, "{accepted} programs");
    assert!(accesses > 100_000, "{accesses} accesses");
    assert!(returns > 5_000, "{returns} returns");
}
