//! Links and verifies machine code: a real object file with changed bytes, or an arbitrary image. Nothing panics, and accepted
//! code is the given one.
//!
//! The first byte of an input chooses the object file, or an image. For a file, each four bytes behind it are a change: a
//! position, and the new byte.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use weir_lower::{GUARD, Lowered, link, lower};
use weir_verify::{CodeImage, CpuFeatures, ImageFunction, VerifyLimits, verify};

const OBJECTS: [(&[u8], &[u8]); 2] = [
    (
        include_bytes!("../../edge/native/tests/objects/rtt.wasm"),
        include_bytes!("../../edge/native/tests/objects/rtt.o"),
    ),
    (
        include_bytes!("../../edge/native/tests/objects/http.wasm"),
        include_bytes!("../../edge/native/tests/objects/http.o"),
    ),
];

static LOWERED: LazyLock<[Lowered; 2]> =
    LazyLock::new(|| OBJECTS.map(|(wasm, _)| lower(wasm).expect("it is lowered in the tests")));

fn limits(thunks: usize) -> VerifyLimits {
    VerifyLimits {
        thunks: vec![0; thunks],
        globals_bytes: 56 << 10,
        guard_bytes: GUARD,
        frame_max: 60 << 10,
        code_max: 1 << 20,
        functions_max: 1000,
        features: CpuFeatures::Baseline,
    }
}

fn check(image: CodeImage, thunks: usize) {
    let limits = limits(thunks);
    if let Ok(verified) = verify(image.clone(), &limits) {
        assert_eq!(verified.code(), image.code);
        // A function that is cut off in an instruction falls through, or is refused.
        let mut shorter = image;
        if shorter.code.pop().is_some_and(|last| last != 0xcc && last != 0xc3) {
            _ = verify(shorter, &limits);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let Some((_, object)) = OBJECTS.get(usize::from(*choice)) else {
        let functions = (0..u32::from(choice / 64)).map(|index| ImageFunction { offset: 16 * index, stack_arguments: 0 });
        return check(CodeImage { code: rest.to_vec(), constants: vec![7; 64], functions: functions.collect() }, 4);
    };
    let lowered = &LOWERED[usize::from(*choice)];
    let mut object = object.to_vec();
    for change in rest.as_chunks::<4>().0 {
        let [low, middle, high, byte] = *change;
        let position = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
        let position = position % object.len();
        object[position] = byte;
    }
    if let Ok(linked) = link(&object, lowered, 1 << 20) {
        check(linked.image, lowered.thunks.len());
    }
});
