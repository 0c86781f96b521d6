//! Code from clang, in the form that weir's lowering gives it: `compiled/module.c`, compiled by `compiled/make.sh`.

use weir_verify::{CodeImage, CpuFeatures, ImageFunction, REJECTIONS_MAX, Rule, VerifyLimits, verify};

use crate::support::*;

/// A compiled module and the level that it is compiled for.
pub struct Compiled {
    pub image: CodeImage,
    pub names: Vec<&'static str>,
    pub limits: VerifyLimits,
}

pub fn compiled() -> [Compiled; 2] {
    let v2 = (include_bytes!("compiled/module-v2.bin").as_slice(), include_str!("compiled/module-v2.txt"));
    let v3 = (include_bytes!("compiled/module-v3.bin").as_slice(), include_str!("compiled/module-v3.txt"));
    [(v2, CpuFeatures::Baseline), (v3, CpuFeatures::V3)].map(|((bytes, symbols), features)| {
        let symbols = symbols.lines().map(|line| line.split_once(' ').expect("offset and name"));
        let symbols = symbols.map(|(offset, name)| (u32::from_str_radix(offset, 16).expect("digits"), name));
        let (mut functions, mut names, mut end) = (Vec::new(), Vec::new(), 0);
        for (offset, name) in symbols {
            if name == "code_end" {
                end = offset as usize;
                continue;
            }
            let stack_arguments = name.split_once("_stack").map_or(0, |(_, bytes)| bytes.parse().unwrap());
            functions.push(ImageFunction { offset, stack_arguments });
            names.push(name);
        }
        let image = CodeImage {
            code: bytes[..end].to_vec(),
            constants: bytes[end.next_multiple_of(4096)..].to_vec(),
            functions,
        };
        Compiled { image, names, limits: VerifyLimits { features, ..limits() } }
    })
}

#[test]
fn compiled_code_is_accepted() {
    for Compiled { image, names, limits } in compiled() {
        let count = image.functions.len();
        match verify(image, &limits) {
            Ok(verified) => {
                assert_eq!(verified.facts().len(), count);
                // `recursive` calls itself.
                assert_eq!(verified.stack_bound(), None);
                let bound = |name| {
                    let index = names.iter().position(|known| *known == name).unwrap();
                    verified.facts()[index].stack_bound
                };
                assert_eq!(bound("hash"), Some(0));
                assert!(bound("spills") > Some(64));
                assert_eq!(bound("recursive"), None);
            }
            Err(rejections) => {
                let texts = rejections
                    .list()
                    .iter()
                    .map(|rejection| format!("{}: {rejection}", names[rejection.function as usize]));
                panic!("{:?}: {:#?}", limits.features, texts.collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn code_for_a_higher_level_is_refused() {
    let [_, v3] = compiled();
    let found = rejections(v3.image, &limits());
    assert!(found.iter().any(|rejection| rejection.rule == Rule::Feature));
}

#[test]
fn compiled_code_without_its_segment_is_refused() {
    for Compiled { image, limits, .. } in compiled() {
        // Each GS prefix becomes a prefix without effect.
        let mut code = image.code.clone();
        let mut decoder = iced_x86::Decoder::with_ip(64, &image.code, 0, 0);
        let mut changed = 0;
        while decoder.can_decode() {
            let from = decoder.position();
            let instruction = decoder.decode();
            if instruction.segment_prefix() == iced_x86::Register::GS {
                assert_eq!(code[from], 0x65);
                code[from] = 0x3e;
                changed += 1;
            }
        }
        assert!(changed > REJECTIONS_MAX);
        let found = rejections(CodeImage { code, ..image }, &limits);
        assert_eq!(found.len(), REJECTIONS_MAX);
        assert!(found.iter().all(|rejection| rejection.rule == Rule::Prefix));
    }
}
