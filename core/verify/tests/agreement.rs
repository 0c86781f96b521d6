//! A second decoder reads every accepted instruction in the same way.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};
use proptest::prelude::*;
use weir_verify::Rule;
use yaxpeax_arch::{Decoder as _, LengthedInstruction, U8Reader};
use yaxpeax_x86::long_mode::{InstDecoder, Segment};

use crate::compiled::compiled;
use crate::support::*;

/// Decodes the first instruction if its form is allowed, whatever its operands hold.
fn accepted(bytes: &[u8]) -> Option<Instruction> {
    let instruction = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE).decode();
    let length = instruction.len();
    let mut code = bytes.get(..length)?.to_vec();
    code.extend(hex("0f 0b"));
    let first = rejections(image(&code), &limits_v3()).into_iter().find(|rejection| rejection.offset == 0);
    let is_form = |rule| {
        matches!(
            rule,
            Rule::Undecodable
                | Rule::Forbidden
                | Rule::Feature
                | Rule::Prefix
                | Rule::Operand
                | Rule::Indirect
        )
    };
    (!instruction.is_invalid() && !first.is_some_and(|rejection| is_form(rejection.rule)))
        .then_some(instruction)
}

/// The name of an instruction, the same for all aliases.
fn family(name: &str) -> String {
    let name = name.to_lowercase();
    for prefix in ["cmov", "set", "j"] {
        if let Some(condition) = name.strip_prefix(prefix) {
            let condition = match condition {
                "z" => "e",
                "nz" => "ne",
                "nae" | "c" => "b",
                "nb" | "nc" => "ae",
                "na" => "be",
                "nbe" => "a",
                "nge" => "l",
                "nl" => "ge",
                "ng" => "le",
                "nle" => "g",
                "pe" => "p",
                "po" => "np",
                other => other,
            };
            return format!("{prefix}{condition}");
        }
    }
    match &*name {
        "sal" => "shl".to_owned(),
        "return" | "retn" => "ret".to_owned(),
        "int3" => "int".to_owned(),
        _ => name,
    }
}

/// Compares the two decoders. Returns a description of what differs.
fn difference(bytes: &[u8], ours: &Instruction) -> Option<String> {
    let theirs = match InstDecoder::default().decode(&mut U8Reader::new(bytes)) {
        Ok(theirs) => theirs,
        Err(error) => return Some(format!("{:?}: {error}", ours.code())),
    };
    let length = theirs.len().to_const();
    if length != ours.len() as u64 {
        return Some(format!("{:?}: {} and {length} bytes, {theirs}", ours.code(), ours.len()));
    }
    let names = (family(&format!("{:?}", ours.mnemonic())), family(&format!("{:?}", theirs.opcode())));
    if names.0 != names.1 {
        return Some(format!("{:?}: {names:?}", ours.code()));
    }
    let has_memory = ours.op_kinds().any(|kind| kind == OpKind::Memory);
    let is_accessed = has_memory && !matches!(&*names.0, "nop" | "lea" | "ud1");
    if is_accessed {
        let size = theirs.mem_size().and_then(|size| size.bytes_size()).map(usize::from);
        if size != Some(ours.memory_size().size()) {
            return Some(format!("{:?}: {:?} and {size:?} bytes of memory", ours.code(), ours.memory_size()));
        }
        let gs = ours.segment_prefix() == iced_x86::Register::GS;
        let theirs_gs = (0..theirs.operand_count())
            .any(|operand| theirs.segment_override_for_op(operand) == Some(Segment::GS));
        if gs != theirs_gs {
            return Some(format!("{:?}: GS {gs} and {theirs_gs}", ours.code()));
        }
    }
    None
}

#[test]
fn two_decoders_agree_about_compiled_code() {
    let mut differences = BTreeMap::new();
    let mut count = 0;
    for module in compiled() {
        let code = &module.image.code;
        let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
        while decoder.can_decode() {
            let bytes = &code[decoder.position()..];
            let instruction = decoder.decode();
            count += 1;
            if let Some(text) = difference(bytes, &instruction) {
                differences.insert(text, bytes[..instruction.len()].to_vec());
            }
        }
    }
    differences.retain(|text, _| !is_known(text));
    assert!(count > 1000, "{count}");
    assert!(differences.is_empty(), "{differences:#02x?}");
}

/// All one-byte and two-byte opcodes, and those of the longer maps, with usual prefixes and operands.
fn opcodes() -> impl Iterator<Item = Vec<u8>> {
    let prefixes =
        ["", "66", "f2", "f3", "48", "65", "66 65", "65 48", "f2 48", "f3 48", "44", "41", "65 f3 43", "67"];
    let maps = ["", "0f", "0f 38", "0f 3a"];
    let vex = (0..4u8).flat_map(|pp| [0x78u8, 0xf8, 0x7c, 0xfc, 0x70].map(|middle| middle | pp));
    let vex = vex.flat_map(|last| [1u8, 2, 3].map(|map| vec![0xc4, 0xe0 | map, last]));
    let legacy =
        prefixes.into_iter().flat_map(move |prefix| maps.map(|map| [hex(prefix), hex(map)].concat()));
    let starts: Vec<Vec<u8>> =
        legacy.chain(vex.clone()).chain(vex.map(|vex| [vec![0x65], vex].concat())).collect();
    starts.into_iter().flat_map(|start| {
        (0..=255u8).flat_map(move |opcode| {
            let start = start.clone();
            // Registers, a base, a base with a displacement, an index, RIP, and each extension of an opcode.
            let operands = (0..8u8).flat_map(|extension| {
                [0xc1u8, 0x01, 0x41, 0x84, 0x05].map(|operands| operands | extension << 3)
            });
            operands.map(move |operands| {
                let tail = [0xcb, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x08];
                [&start[..], &[opcode, operands], &tail].concat()
            })
        })
    })
}

#[test]
fn two_decoders_agree_about_all_opcodes() {
    let mut differences: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut mnemonics = std::collections::BTreeSet::new();
    for bytes in opcodes() {
        if let Some(instruction) = accepted(&bytes) {
            mnemonics.insert(format!("{:?}", instruction.mnemonic()));
            if let Some(text) = difference(&bytes, &instruction) {
                differences.entry(text).or_insert_with(|| bytes[..instruction.len()].to_vec());
            }
        }
    }
    differences.retain(|text, _| !is_known(text));
    assert!(differences.is_empty(), "{differences:#02x?}");
    assert!(mnemonics.len() > 500, "{}", mnemonics.len());
}

/// Mistakes of the second decoder, by the start of their description. Most are the size of a memory operand: it says 16
/// bytes for every operand of these instructions, and 8 for bit tests. The manuals agree with the first decoder.
const KNOWN: &[&str] = &[
    "Bt_rm32_imm8: UInt32",
    "Btc_rm32_imm8: UInt32",
    "Btr_rm32_imm8: UInt32",
    "Bts_rm32_imm8: UInt32",
    "Cvtdq2pd_xmm_xmmm64: Packed64",
    "Movd_xmm_rm32: (\"movd\", \"movq\")",
    "VEX_Vcmpsd_xmm_xmm_xmmm64_imm8: Float64",
    "VEX_Vcmpss_xmm_xmm_xmmm32_imm8: Float32",
    "VEX_Vcvtdq2pd_xmm_xmmm64: Packed64",
    "VEX_Vinsertps_xmm_xmm_xmmm32_imm8: Float32",
    "VEX_Vmovlps_m64_xmm: Packed64",
    "VEX_Vpermilpd_ymm_ymmm256_imm8: Packed256",
    "VEX_Vpermilps_ymm_ymmm256_imm8: Packed256",
    "VEX_Vpmovsx",
    "VEX_Vpmovzx",
    "VEX_Vpshufd_ymm_ymmm256_imm8: Packed256",
    "VEX_Vpshufhw_ymm_ymmm256_imm8: Packed256",
    "VEX_Vpshuflw_ymm_ymmm256_imm8: Packed256",
    "VEX_Vroundpd_ymm_ymmm256_imm8: Packed256",
    "VEX_Vroundps_ymm_ymmm256_imm8: Packed256",
    "VEX_Vroundsd_xmm_xmm_xmmm64_imm8: Float64",
    "VEX_Vroundss_xmm_xmm_xmmm32_imm8: Float32",
    // With a bit that the instruction ignores.
    "VEX_Vpextrb_r64m8_xmm_imm8: invalid opcode",
    "VEX_Vpextrw_r64m16_xmm_imm8: invalid opcode",
];

fn is_known(text: &str) -> bool {
    KNOWN.iter().any(|known| text.starts_with(known))
}

proptest! {
    #[test]
    fn two_decoders_agree_about_random_bytes(bytes in prop::collection::vec(any::<u8>(), 15)) {
        if let Some(instruction) = accepted(&bytes) {
            let found = difference(&bytes, &instruction);
            prop_assert!(found.as_ref().is_none_or(|text| is_known(text)), "{found:?}");
        }
    }
}
