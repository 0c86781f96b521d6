//! Rules about an image as a whole.

use iced_x86::code_asm::*;
use weir_verify::{CodeImage, Rule, VerifyLimits};

use crate::support::*;

#[test]
fn an_empty_image_is_accepted() {
    let verified = accept_image(CodeImage::default());
    assert_eq!(verified.stack_bound(), Some(0));
}

#[test]
fn a_verified_image_keeps_its_bytes() {
    let code = code!(push(rax); mov(eax, 1); pop(rcx); ret());
    let verified = accept(&code);
    assert_eq!(verified.code(), code);
    assert_eq!(verified.constants(), [7; 64]);
    assert_eq!(verified.constants_start(), 4096);
    assert_eq!(verified.functions().len(), 1);
    assert_eq!(verified.facts()[0].frame_bytes, 8);
}

#[test]
fn functions_divide_the_code() {
    let order = [(0, Rule::FunctionOrder)];
    let code = hex("c3 c3 c3 c3");
    assert_eq!(rules_of(image_of(&code, &[])), order);
    assert_eq!(rules_of(image_of(&code, &[(1, 0)])), order);
    assert_eq!(rules_of(image_of(&code, &[(0, 0), (0, 0)])), [(1, Rule::FunctionOrder)]);
    assert_eq!(rules_of(image_of(&code, &[(0, 0), (3, 0), (2, 0)])), [(2, Rule::FunctionOrder)]);
    assert_eq!(rules_of(image_of(&code, &[(0, 0), (4, 0)])), [(1, Rule::FunctionOrder)]);
    assert_eq!(rules_of(image_of(&code, &[(0, 0), (u32::MAX, 0)])), [(1, Rule::FunctionOrder)]);
    assert_eq!(rules_of(image_of(&[], &[(0, 0)])), order);
    assert_eq!(rules_of(image_of(&code, &[(0, 0), (1, 0), (2, 0), (3, 0)])), []);
}

#[test]
fn stack_arguments_have_whole_slots() {
    let found = rules_of(image_of(&hex("c3 c3"), &[(0, 8), (1, 12)]));
    assert_eq!(found, [(1, Rule::StackArgumentSize { bytes: 12 })]);
    let limits = VerifyLimits { thunks: vec![8, 4], ..limits() };
    assert_eq!(rejections(image(&hex("c3")), &limits)[0].rule, Rule::StackArgumentSize { bytes: 4 });
}

#[test]
fn sizes_over_the_limits_are_refused() {
    let limits = VerifyLimits { code_max: 100, functions_max: 2, ..limits() };
    let rule = |image| rejections(image, &limits).first().map(|rejection| rejection.rule);
    assert_eq!(rule(image(&[0xc3; 100])), None);
    assert_eq!(rule(image(&[0xc3; 101])), Some(Rule::ImageTooLarge { bytes: 101, max: 100 }));
    let constants = CodeImage { constants: vec![0; 101], ..image(&[0xc3]) };
    assert_eq!(rule(constants), Some(Rule::ImageTooLarge { bytes: 101, max: 100 }));
    let functions = image_of(&[0xc3; 3], &[(0, 0), (1, 0), (2, 0)]);
    assert_eq!(rule(functions), Some(Rule::TooManyFunctions { functions: 3, max: 2 }));
}

#[test]
fn all_rejections_up_to_a_limit_are_reported() {
    let access = code!(mov(eax, dword_ptr(rdi).gs()));
    let function = |count: usize| [access.repeat(count), vec![0xc3]].concat();
    let code = [function(30), function(20)].concat();
    let second = u32::try_from(function(30).len()).unwrap();
    let found = rejections(image_of(&code, &[(0, 0), (second, 0)]), &limits());
    assert_eq!(found.iter().filter(|found| found.function == 0).count(), 30);
    assert_eq!(found.iter().filter(|found| found.function == 1).count(), 20);
    assert!(found.is_sorted_by_key(|found| (found.function, found.offset)));
    let code = [function(30), function(100)].concat();
    let found = rejections(image_of(&code, &[(0, 0), (second, 0)]), &limits());
    assert_eq!(found.len(), weir_verify::REJECTIONS_MAX);
}

#[test]
fn an_instruction_is_reported_once() {
    // The access is visited in each round of the analysis.
    let code = hex("65 8b 04 07 ff c7 ff c9 75 f6 c3");
    assert_eq!(rejections(image(&code), &limits()).len(), 1);
}
