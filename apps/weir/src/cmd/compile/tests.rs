//! Tests of the output for code that the compiler does not make: rejected accesses, charges and a checked access.

#[path = "../../../tests/run/schema_coverage.rs"]
#[allow(dead_code, reason = "shared with integration tests")]
mod schema_coverage;

use super::facts::{CompiledModuleFacts, FunctionFilter};
use super::{json, listing, summary};
use crate::cmd::check::paint::Paint;
use crate::cmd::check::source::Sources;
use crate::shipped;
use std::collections::BTreeMap;
use weir_admission::Admitted;
use weir_bounds::Lines;
use weir_sandbox::{
    CodeOrigin, ExplainedCode, ExplainedFunction, ExplainedGlobal, ExplainedInstruction, LlvmExplanation,
    ModuleFunction,
};
use weir_units::Nanos;
use weir_verify::{CodeImage, CpuFeatures, ImageFunction, VerifyLimits, explain};

/// Explains the code of one function, which the loader adds. The thunk is `limit`, and the counter of fuel is 8 bytes below the
/// memory.
fn explanation(code: &[u8]) -> LlvmExplanation {
    let functions = vec![ImageFunction { offset: 0, stack_arguments: 0 }];
    let image = CodeImage { code: code.to_vec(), constants: Vec::new(), functions };
    let limits = VerifyLimits {
        thunks: vec![0],
        globals_bytes: 64,
        guard_bytes: 32 << 20,
        frame_max: 4096,
        code_max: 4096,
        functions_max: 1,
        features: CpuFeatures::Baseline,
    };
    let mut instructions = Vec::new();
    let verified = explain(image, &limits, |facts| {
        instructions.push(ExplainedInstruction {
            facts,
            origin: CodeOrigin::Loader,
            is_checked: true,
            is_isolated: false,
        });
    });
    let facts = verified.as_ref().ok().map(|verified| verified.facts()[0].clone());
    let code = ExplainedCode {
        functions: vec![ExplainedFunction {
            function: ModuleFunction::Loader("test".to_owned()),
            offset: 0,
            bytes: u32::try_from(code.len()).unwrap(),
            facts,
        }],
        verdict: verified.map(|verified| verified.stack_bound()),
        instructions,
        code: code.to_vec(),
        constants_bytes: 0,
        thunks: vec!["limit".to_owned()],
        globals: BTreeMap::from([(-8, ExplainedGlobal { name: "fuel counter".to_owned(), is_fuel: true })]),
        verifier_time: Nanos(1000),
        object: Vec::new(),
    };
    LlvmExplanation { code: Ok(code), is_from_cache: false, compiler_time: Nanos(1000) }
}

/// Returns the summary with the listing, and the JSON document.
fn outputs(code: &[u8]) -> [String; 2] {
    let bytes = shipped::find("rtt").unwrap().wasm.to_vec();
    let admitted = Admitted::admit(bytes, &[]).unwrap();
    let (lines, explanation) = (Lines::new(admitted.module()), explanation(code));
    let facts = CompiledModuleFacts::new(&admitted, &explanation, &lines);
    let (mut text, mut document) = (Vec::new(), Vec::new());
    summary::print(&mut text, &facts, None, Paint::NEVER).unwrap();
    listing::print(&mut text, &facts, &FunctionFilter::all(), &Sources::Shipped(&[]), Paint::NEVER).unwrap();
    json::print(&mut document, &facts, Some(&FunctionFilter::all())).unwrap();
    let mut coverage = schema_coverage::SchemaCoverage::of("compile");
    coverage.add(serde_json::from_slice(&document).unwrap());
    [text, document].map(|output| String::from_utf8(output).unwrap())
}

#[track_caller]
fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
}

#[test]
fn rejected_code_is_listed_with_the_rules_that_it_breaks() {
    // mov eax, gs:[rax]; ret
    let [text, document] = outputs(&[0x65, 0x8b, 0x00, 0xc3]);
    assert_has(
        &text,
        &[
            "Back end: Cranelift: the verifier rejects the code of LLVM in one place; the first is (test)+0x0",
            "\nRejected:\n  (test), offset 0, `mov eax, gs:[rax]`: the access through GS covers ",
            "     0  mov eax, gs:[rax]                             REJECTED: the access through GS covers ",
            "(added by weir)",
        ],
    );
    assert_has(
        &document,
        &[r#""back_end": "Cranelift""#, r#""instruction": "mov eax, gs:[rax]""#, r#""rejected": ""#],
    );
}

#[test]
fn a_charge_is_marked_where_the_fuel_is_compared_with_zero() {
    // sub qword ptr gs:[-8], 61; js 12; mov ecx, edi; inc dword ptr gs:[rcx + 64]; ret; push rax; call limit; ud1 eax, [eax + 1]
    let mut code = vec![0x65, 0x48, 0x83, 0x2c, 0x25, 0xf8, 0xff, 0xff, 0xff, 61, 0x78, 7, 0x89, 0xf9];
    code.extend([0x65, 0xff, 0x41, 64, 0xc3, 0x50, 0xe8]);
    let next = i32::try_from(code.len() + 4).unwrap();
    code.extend((-16 - next).to_le_bytes());
    code.extend([0x67, 0x0f, 0xb9, 0x40, 1]);
    let [text, document] = outputs(&code);
    assert_has(
        &text,
        &[
            "sub qword ptr gs:[-8], 0x3d                   charge of 61 fuel; fuel counter\n",
            "module memory: base + [0, 4294967295] + 64, compared with the end before\n",
            "call limit                                    calls `limit` of the host\n",
            "trap: `unreachable`\n",
            "1 charge\n",
            "2: 1 to the module's memory (1 with a check at run time), 1 to globals\n",
        ],
    );
    assert_has(&document, &[r#""charges": 1"#, r#""checked_memory": 1"#, r#""purpose": "charge""#]);
}

#[test]
fn only_a_jump_back_to_a_block_that_dominates_it_makes_a_loop() {
    // 0: jmp 5; 2: jne 8; 4: ret; 5: xor eax, eax; 7: nop; 8: dec eax; 10: jne 8; 12: test eax, eax; 14: jmp 2
    let code = [0xeb, 3, 0x75, 4, 0xc3, 0x31, 0xc0, 0x90, 0xff, 0xc8, 0x75, 0xfc, 0x85, 0xc0, 0xeb, 0xf2];
    let [text, _] = outputs(&code);
    // The jump at 14 leads back to 2, and from there to 8: the loop at 8 contains both jumps.
    assert_eq!(text.matches("loop; the last jump back is at").count(), 1, "{text}");
    assert_has(&text, &["loop; the last jump back is at a\n"]);
}
