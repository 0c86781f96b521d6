//! No input makes the verifier panic, and small changes of accepted code are accepted or refused for a reason.

use proptest::prelude::*;
use weir_verify::{CodeImage, ImageFunction, VerifyLimits, verify};

use crate::compiled::compiled;
use crate::support::*;

fn arbitrary_image() -> impl Strategy<Value = CodeImage> {
    let functions =
        prop::collection::vec((0u32..300, prop::sample::select(vec![0u32, 8, 12, u32::MAX, 16])), 0..5);
    let code = prop::collection::vec(any::<u8>(), 0..300);
    (code, prop::collection::vec(any::<u8>(), 0..20), functions, any::<bool>()).prop_map(
        |(code, constants, mut functions, sort)| {
            if sort {
                functions.sort_unstable();
                functions.dedup_by_key(|(offset, _)| *offset);
                if let Some((offset, _)) = functions.first_mut() {
                    *offset = 0;
                }
            }
            let functions = functions
                .into_iter()
                .map(|(offset, stack_arguments)| ImageFunction { offset, stack_arguments })
                .collect();
            CodeImage { code, constants, functions }
        },
    )
}

fn arbitrary_limits() -> impl Strategy<Value = VerifyLimits> {
    let sizes = || prop::sample::select(vec![0, 1, 8, 4096, u32::MAX]);
    (prop::collection::vec(sizes(), 0..3), sizes(), sizes(), sizes(), sizes()).prop_map(
        |(thunks, globals_bytes, guard_bytes, frame_max, code_max)| VerifyLimits {
            thunks,
            globals_bytes,
            guard_bytes,
            frame_max,
            code_max,
            ..limits_v3()
        },
    )
}

/// A compiled module with some bytes replaced.
fn mutated() -> impl Strategy<Value = (CodeImage, VerifyLimits)> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
    (any::<bool>(), changes).prop_map(|(second, changes)| {
        let [v2, v3] = compiled();
        let module = if second { v3 } else { v2 };
        let mut image = module.image;
        for (index, byte) in changes {
            let index = index.index(image.code.len());
            image.code[index] = byte;
        }
        (image, module.limits)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_bytes_do_not_panic(image in arbitrary_image(), limits in arbitrary_limits()) {
        let _ = verify(image, &limits);
    }

    #[test]
    fn mutated_code_does_not_panic((image, limits) in mutated()) {
        let _ = verify(image, &limits);
    }

    #[test]
    fn verification_is_deterministic((image, limits) in mutated()) {
        let first = verify(image.clone(), &limits).map(|verified| verified.facts().to_vec());
        let second = verify(image, &limits).map(|verified| verified.facts().to_vec());
        prop_assert_eq!(first, second);
    }

    #[test]
    fn more_room_refuses_no_more((image, limits) in mutated()) {
        let wider = VerifyLimits {
            guard_bytes: limits.guard_bytes * 2,
            globals_bytes: limits.globals_bytes * 2,
            frame_max: limits.frame_max * 2,
            ..limits.clone()
        };
        if verify(image.clone(), &limits).is_ok() {
            prop_assert!(verify(image, &wider).is_ok());
        }
    }
}
