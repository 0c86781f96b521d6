//! Forms of instructions that are not allowed, whatever their operands hold.

use iced_x86::code_asm::*;
use weir_verify::{Rule, VerifyLimits, verify};

use crate::support::*;

/// Asserts that each instruction, before a `ret`, breaks the rule, even if the code may use all features.
#[track_caller]
fn assert_each_breaks(rule: Rule, instructions: &[(&str, &str)]) {
    for (name, bytes) in instructions {
        let mut code = hex(bytes);
        code.push(0xc3);
        let rejections = rejections(image(&code), &limits_v3());
        let found = rejections.first().map(|rejection| (rejection.offset, rejection.rule));
        assert_eq!(found, Some((0, rule)), "{name}");
    }
}

#[test]
fn system_calls_are_forbidden() {
    assert_each_breaks(
        Rule::Forbidden,
        &[
            ("syscall", "0f 05"),
            ("sysenter", "0f 34"),
            ("sysret", "0f 07"),
            ("sysexit", "0f 35"),
            ("int 0x80", "cd 80"),
            ("int1", "f1"),
            ("iretq", "48 cf"),
            ("vmcall", "0f 01 c1"),
            ("vmmcall", "0f 01 d9"),
            ("encls", "0f 01 cf"),
            ("enclu", "0f 01 d7"),
            ("senduipi rax", "f3 0f c7 f0"),
        ],
    );
}

#[test]
fn a_system_call_in_place_of_a_call_is_forbidden() {
    // An experimental verifier took `syscall` for a call, because both change RCX.
    let code = code!(sub(rsp, 8); syscall(); add(rsp, 8); ret());
    assert_eq!(rules(&code), [Rule::Forbidden]);
}

#[test]
fn privileged_instructions_are_forbidden() {
    assert_each_breaks(
        Rule::Forbidden,
        &[
            ("hlt", "f4"),
            ("in al, dx", "ec"),
            ("out dx, al", "ee"),
            ("cli", "fa"),
            ("sti", "fb"),
            ("wrmsr", "0f 30"),
            ("rdmsr", "0f 32"),
            ("swapgs", "0f 01 f8"),
            ("lgdt [rax]", "0f 01 10"),
            ("sgdt [rsp]", "0f 01 04 24"),
            ("str ax", "66 0f 00 c8"),
            ("verr ax", "0f 00 e0"),
            ("smsw ax", "66 0f 01 e0"),
            ("clts", "0f 06"),
            ("invd", "0f 08"),
            ("wbinvd", "0f 09"),
            ("invpcid rcx, [rax]", "66 0f 38 82 08"),
            ("rsm", "0f aa"),
            ("xrstors [rax]", "0f c7 18"),
        ],
    );
}

#[test]
fn control_and_debug_registers_are_no_operands() {
    assert_each_breaks(
        Rule::Operand,
        &[
            ("mov cr3, rax", "0f 22 d8"),
            ("mov rax, cr0", "0f 20 c0"),
            ("mov cr8, rax", "44 0f 22 c0"),
            ("mov dr7, rax", "0f 23 f8"),
        ],
    );
}

#[test]
fn segment_registers_are_no_operands() {
    assert_each_breaks(
        Rule::Operand,
        &[
            ("mov fs, eax", "8e e0"),
            ("mov eax, ds", "8c d8"),
            ("mov gs, [rax]", "8e 28"),
            ("push fs", "0f a0"),
            ("pop gs", "0f a9"),
        ],
    );
    assert_each_breaks(
        Rule::Forbidden,
        &[
            ("lfs eax, [rax]", "0f b4 00"),
            ("wrfsbase rax", "f3 48 0f ae d0"),
            ("wrgsbase rax", "f3 48 0f ae d8"),
            ("rdgsbase rax", "f3 48 0f ae c8"),
        ],
    );
}

#[test]
fn protection_keys_and_extended_state_are_forbidden() {
    assert_each_breaks(
        Rule::Forbidden,
        &[
            ("wrpkru", "0f 01 ef"),
            ("rdpkru", "0f 01 ee"),
            ("xsetbv", "0f 01 d1"),
            ("xgetbv", "0f 01 d0"),
            ("xsave [rsp]", "0f ae 24 24"),
            ("xrstor [rsp]", "0f ae 2c 24"),
            ("fxsave [rsp]", "0f ae 04 24"),
            ("fxrstor [rsp]", "0f ae 0c 24"),
        ],
    );
}

#[test]
fn the_control_words_of_floating_point_are_forbidden() {
    assert_each_breaks(
        Rule::Forbidden,
        &[
            ("ldmxcsr [rsp]", "0f ae 14 24"),
            ("stmxcsr [rsp]", "0f ae 1c 24"),
            ("vldmxcsr [rsp]", "c5 f8 ae 14 24"),
            ("fldcw [rsp]", "d9 2c 24"),
            ("fld1", "d9 e8"),
            ("fninit", "db e3"),
            ("emms", "0f 77"),
        ],
    );
}

#[test]
fn mmx_registers_are_no_operands() {
    for (name, bytes) in [
        ("movq mm1, mm0", "0f 6f c8"),
        ("paddb mm1, mm0", "0f fc c8"),
        ("movq mm0, gs:[rax]", "65 0f 6f 00"),
        ("pmovmskb eax, mm0", "0f d7 c0"),
        ("pinsrw mm0, eax, 0", "0f c4 c0 00"),
        ("cvtpi2ps xmm0, mm0", "0f 2a c0"),
        ("cvtpi2ps xmm0, gs:[rax]", "65 0f 2a 00"),
        ("movdq2q mm0, xmm0", "f2 0f d6 c0"),
        ("maskmovq mm1, mm0", "0f f7 c8"),
    ] {
        let mut code = hex(bytes);
        code.push(0xc3);
        let rules = rules(&code);
        // MMX is a CPU feature of its own.
        assert!(matches!(rules[..], [Rule::Forbidden | Rule::Feature | Rule::Operand]), "{name}: {rules:?}");
    }
}

#[test]
fn the_flags_register_is_not_loaded_or_stored() {
    assert_each_breaks(
        Rule::Forbidden,
        &[
            ("std", "fd"),
            ("cld", "fc"),
            ("pushf", "9c"),
            ("popf", "9d"),
            ("sahf", "9e"),
            ("lahf", "9f"),
            ("stac", "0f 01 cb"),
        ],
    );
}

#[test]
fn string_instructions_are_forbidden() {
    assert_each_breaks(
        Rule::Forbidden,
        &[
            ("movsb", "a4"),
            ("stosq", "48 ab"),
            ("lodsb", "ac"),
            ("scasb", "ae"),
            ("insb", "6c"),
            ("outsb", "6e"),
            ("xlatb", "d7"),
            ("rep movsb", "f3 a4"),
            ("rep stosq", "f3 48 ab"),
            ("repne scasb", "f2 ae"),
            ("rep movsq", "f3 48 a5"),
        ],
    );
}

#[test]
fn string_instructions_with_the_name_of_a_vector_instruction_are_refused() {
    assert_each_breaks(Rule::Operand, &[("movsd", "a5"), ("cmpsd", "a7")]);
    assert_each_breaks(
        Rule::Prefix,
        &[("gs movsd", "65 a5"), ("rep movsd", "f3 a5"), ("repne cmpsd", "f2 a7")],
    );
}

#[test]
fn instructions_that_read_clocks_counters_and_random_numbers_are_forbidden() {
    assert_each_breaks(
        Rule::Forbidden,
        &[
            ("rdtsc", "0f 31"),
            ("rdtscp", "0f 01 f9"),
            ("rdpmc", "0f 33"),
            ("cpuid", "0f a2"),
            ("rdrand rax", "48 0f c7 f0"),
            ("rdseed rax", "48 0f c7 f8"),
            ("rdpid rax", "f3 0f c7 f8"),
            ("pause", "f3 90"),
            ("monitor", "0f 01 c8"),
            ("mwait", "0f 01 c9"),
            ("umwait eax", "f2 0f ae f0"),
            ("tpause eax", "66 0f ae f0"),
            ("serialize", "0f 01 e8"),
        ],
    );
}

#[test]
fn transactions_and_shadow_stacks_are_forbidden() {
    assert_each_breaks(
        Rule::Forbidden,
        &[
            ("xbegin", "c7 f8 00 00 00 00"),
            ("xend", "0f 01 d5"),
            ("xabort 1", "c6 f8 01"),
            ("incssp rax", "f3 48 0f ae e8"),
            ("rdssp rax", "f3 48 0f 1e c8"),
            ("wruss [rcx], rax", "66 48 0f 38 f5 01"),
            ("endbr64", "f3 0f 1e fa"),
        ],
    );
}

#[test]
fn atomic_instructions_are_refused() {
    assert_each_breaks(
        Rule::Forbidden,
        &[
            ("cmpxchg gs:[rax], ecx", "65 0f b1 08"),
            ("lock cmpxchg gs:[rax], ecx", "65 f0 0f b1 08"),
            ("cmpxchg8b gs:[rax]", "65 0f c7 08"),
            ("cmpxchg16b gs:[rax]", "65 48 0f c7 08"),
            ("xadd gs:[rax], ecx", "65 0f c1 08"),
            ("mfence", "0f ae f0"),
            ("clflush gs:[rax]", "65 0f ae 38"),
        ],
    );
    assert_each_breaks(
        Rule::Operand,
        &[("xchg gs:[0], ecx", "65 87 0c 25 00 00 00 00"), ("xchg [rsp], rcx", "48 87 0c 24")],
    );
}

#[test]
fn lock_and_repeat_prefixes_are_refused() {
    assert_each_breaks(
        Rule::Prefix,
        &[
            ("lock add gs:[0], 1", "65 f0 83 04 25 00 00 00 00 01"),
            ("rep add eax, eax", "f3 01 c0"),
            ("repne add eax, eax", "f2 01 c0"),
            ("xacquire lock add gs:[0], 1", "f2 65 f0 83 04 25 00 00 00 00 01"),
            ("xrelease mov gs:[0], eax", "f3 65 89 04 25 00 00 00 00"),
            ("rep ret", "f3 c3"),
            ("bnd ret", "f2 c3"),
            ("bnd jmp", "f2 eb 00"),
        ],
    );
}

#[test]
fn unusual_prefixes_are_refused() {
    assert_each_breaks(
        Rule::Prefix,
        &[
            ("66 ret", "66 c3"),
            ("66 jmp", "66 e9 00 00 00 00"),
            ("66 jne", "66 0f 85 00 00 00 00"),
            ("hinted jne", "2e 75 00"),
            ("hinted je", "3e 74 00"),
            ("66 66 add", "66 66 01 c0"),
            ("gs gs mov", "65 65 8b 04 25 00 00 00 00"),
            ("fs gs mov", "64 65 8b 04 25 00 00 00 00"),
            ("gs without memory", "65 01 c0"),
            ("gs lea", "65 48 8d 04 08"),
            ("rex before 66", "48 66 01 c0"),
            ("rex before gs", "48 65 8b 04 25 00 00 00 00"),
            ("two rex", "48 40 01 c0"),
            ("notrack", "3e 01 c0"),
            ("66 and f3", "66 f3 0f b8 c0"),
            ("66 push", "66 50"),
            ("66 pop", "66 58"),
            ("66 push imm", "66 6a 01"),
            ("gs nop", "65 0f 1f 00"),
        ],
    );
}

#[test]
fn a_prefix_that_makes_an_instruction_undefined_is_refused() {
    for bytes in ["f0 90", "f0 01 c0", "66 c5 f8 58 c0", "f3 c5 f8 58 c0", "48 c5 f8 58 c0", "f0 c5 f8 58 c0"]
    {
        let mut code = hex(bytes);
        code.push(0xc3);
        let first = rejections(image(&code), &limits_v3())[0];
        assert_eq!(
            (first.offset, matches!(first.rule, Rule::Undecodable | Rule::Prefix)),
            (0, true),
            "{bytes}"
        );
    }
}

#[test]
fn a_vector_length_without_an_operand_of_that_length_is_refused() {
    assert_each_breaks(
        Rule::Prefix,
        &[
            ("vaddss xmm0, xmm0, xmm0", "c5 fe 58 c0"),
            ("vmovss gs:[0], xmm0", "65 c5 fe 11 04 25 00 00 00 00"),
            ("vcvtsi2sd xmm0, xmm0, eax", "c4 e1 7f 2a c0"),
            ("vucomisd xmm0, xmm0", "c5 fd 2e c0"),
        ],
    );
    assert_each_breaks(Rule::Forbidden, &[("vzeroall", "c5 fc 77")]);
    for bytes in ["c5 fc 58 c0 c3", "c5 fd 5a 04 24 c3", "c5 fd d7 c0 c3", "c4 e3 7d 19 c0 01 c3"] {
        let found = rejections(image(&hex(bytes)), &limits_v3());
        assert!(
            found.iter().all(|found| matches!(found.rule, Rule::OutsideFrame { .. })),
            "{bytes}: {found:?}"
        );
    }
}

#[test]
fn the_32_bit_address_size_is_refused_where_the_address_counts() {
    assert_each_breaks(
        Rule::Prefix,
        &[
            ("mov ecx, [esp]", "67 8b 0c 24"),
            ("mov ecx, [eax]", "67 8b 08"),
            ("lea rax, [eax + ecx]", "67 48 8d 04 08"),
            ("lea eax, [eax + 4]", "67 8d 40 04"),
            ("lea eax, gs:[eax + 4]", "65 67 8d 40 04"),
            ("lea rax, [eip]", "67 48 8d 05 00 00 00 00"),
            ("push [eax]", "67 ff 30"),
            ("push gs:[eax]", "65 67 ff 30"),
            // Without a register.
            ("mov eax, gs:[0]", "65 67 8b 04 25 00 00 00 00"),
            (
                "mov eax, gs:[0x11223344], by an opcode whose length the prefix changes",
                "65 67 a1 44 33 22 11",
            ),
            ("mov gs:[0x11223344], al", "65 67 a2 44 33 22 11"),
            ("mov ecx, gs:[rax], a prefix without effect", "65 67 48 8b 0c 25 00 00 00 00"),
            ("mov eax, gs:[eip]", "65 67 8b 05 00 00 00 00"),
        ],
    );
}

#[test]
fn a_32_bit_sum_relative_to_gs_is_in_the_memory() {
    for (what, bytes) in [
        ("mov ecx, gs:[eax]", "65 67 8b 08"),
        ("mov ecx, gs:[eax - 8]", "65 67 8b 48 f8"),
        ("mov ecx, gs:[eax + 0x7fffffff]", "65 67 8b 88 ff ff ff 7f"),
        ("mov gs:[edi + esi*8 - 1], r9b", "65 67 44 88 4c f7 ff"),
        ("mov rcx, gs:[r8d*4 + 0x10]", "65 67 4a 8b 0c 85 10 00 00 00"),
        ("movups xmm0, gs:[eax]", "65 67 0f 10 00"),
        ("movups gs:[r10d + r11d], xmm15", "65 67 47 0f 11 3c 1a"),
        ("add dword ptr gs:[eax], ecx", "65 67 01 08"),
    ] {
        let code = [hex(bytes), vec![0xc3]].concat();
        let verdict = verify(image(&code), &limits());
        assert!(verdict.is_ok(), "{what}: {verdict:?}");
    }
    // The whole sum is taken modulo 2^32, so the guard has to cover the access itself alone.
    let no_guard = VerifyLimits { guard_bytes: 3, ..limits() };
    let code = hex("65 67 8b 48 f8 c3");
    assert!(verify(image(&code), &no_guard).is_ok());
    let no_guard = VerifyLimits { guard_bytes: 2, ..limits() };
    let found = rejections(image(&code), &no_guard);
    assert!(matches!(found[0].rule, Rule::OutsideRegion { .. }), "{found:?}");
}

#[test]
fn only_gs_is_allowed_as_segment() {
    assert_each_breaks(
        Rule::Prefix,
        &[
            ("mov eax, fs:[rax]", "64 8b 00"),
            ("mov eax, fs:[0]", "64 8b 04 25 00 00 00 00"),
            ("mov eax, ds:[rax]", "3e 8b 00"),
            ("mov eax, ss:[rsp]", "36 8b 04 24"),
            ("mov eax, es:[rax]", "26 8b 00"),
            ("mov eax, cs:[rax]", "2e 8b 00"),
        ],
    );
}

#[test]
fn a_bit_test_in_memory_with_a_number_from_a_register_is_refused() {
    // The bit may be 2^60 bytes from the operand, so that an experimental verifier let code write anywhere.
    assert_each_breaks(
        Rule::Operand,
        &[
            ("bt gs:[0], ecx", "65 0f a3 0c 25 00 00 00 00"),
            ("bts gs:[0], ecx", "65 0f ab 0c 25 00 00 00 00"),
            ("btr gs:[0], rcx", "65 48 0f b3 0c 25 00 00 00 00"),
            ("btc [rsp], rcx", "48 0f bb 0c 24"),
        ],
    );
    accept(&code!(bts(ecx, eax); btr(rcx, 63); bt(dword_ptr(0).gs(), 31); bts(qword_ptr(8).gs(), 5); ret()));
}

#[test]
fn vector_instructions_that_choose_their_accesses_are_forbidden() {
    assert_each_breaks(
        Rule::Forbidden,
        &[
            ("maskmovdqu xmm1, xmm0", "66 0f f7 c8"),
            ("vmaskmovps gs:[rax], xmm1, xmm0", "65 c4 e2 71 2e 00"),
            ("vpmaskmovd xmm0, xmm1, gs:[rax]", "65 c4 e2 71 8c 00"),
            ("vpgatherdd", "65 c4 e2 79 90 14 88"),
            ("vgatherdps", "65 c4 e2 79 92 14 88"),
            ("movnti gs:[rax], eax", "65 0f c3 00"),
            ("movntdq gs:[rax], xmm0", "65 66 0f e7 00"),
            ("movntps gs:[rax], xmm0", "65 0f 2b 00"),
            ("movntdqa xmm0, gs:[rax]", "65 66 0f 38 2a 00"),
            ("prefetcht0 gs:[rax]", "65 0f 18 08"),
            ("movdiri gs:[rcx], eax", "65 0f 38 f9 01"),
            ("movdir64b rcx, [rax]", "66 0f 38 f8 08"),
        ],
    );
}

#[test]
fn instructions_outside_the_list_are_forbidden() {
    assert_each_breaks(
        Rule::Forbidden,
        &[
            ("pcmpestri xmm1, xmm0, 0", "66 0f 3a 61 c8 00"),
            ("pcmpistrm xmm1, xmm0, 0", "66 0f 3a 62 c8 00"),
            ("crc32 eax, ecx", "f2 0f 38 f1 c1"),
            ("adcx eax, ecx", "66 0f 38 f6 c1"),
            ("aesenc xmm1, xmm0", "66 0f 38 dc c8"),
            ("vfmadd213ps xmm2, xmm1, xmm0", "c4 e2 71 a8 d0"),
            ("kmovw k1, eax", "c5 f8 92 c8"),
            ("vpermil2ps", "c4 e3 61 48 e2 10"),
            ("loop", "e2 fe"),
            ("jrcxz", "e3 fe"),
            ("ud0 eax, eax", "0f ff c0"),
            ("reserved nop", "0f 1c 00"),
            ("salc", "0f 0d 00"),
            ("enter 16, 0", "c8 10 00 00"),
            ("leave", "c9"),
            ("retf", "cb"),
        ],
    );
}

#[test]
fn evex_instructions_are_refused() {
    for bytes in ["62 f1 74 48 58 d0", "62 b1 74 08 58 d0", "62 f1 7c 08 10 04 24"] {
        let mut code = hex(bytes);
        code.push(0xc3);
        let rules: Vec<_> = rejections(image(&code), &limits_v3()).iter().map(|found| found.rule).collect();
        assert_eq!(rules, [Rule::Feature], "{bytes}");
    }
}

#[test]
fn a_16_bit_movsxd_is_refused() {
    assert_each_breaks(
        Rule::Operand,
        &[("movsxd ax, cx", "66 63 c1"), ("movsxd ax, gs:[rax]", "65 66 63 00")],
    );
}

#[test]
fn pushes_and_pops_have_64_bits() {
    assert_each_breaks(Rule::Operand, &[("pop [rsp]", "8f 04 24"), ("pop gs:[rax]", "65 8f 00")]);
}

#[test]
fn features_beyond_the_level_are_refused() {
    let needs_v3 = [
        ("vaddps xmm0, xmm0, xmm0", "c5 f8 58 c0"),
        ("vpaddd ymm0, ymm0, ymm0", "c5 fd fe c0"),
        ("lzcnt eax, eax", "f3 0f bd c0"),
        ("andn eax, eax, eax", "c4 e2 78 f2 c0"),
        ("shlx eax, eax, eax", "c4 e2 79 f7 c0"),
        ("mulx eax, ecx, eax", "c4 e2 73 f6 c0"),
        ("movbe eax, gs:[0]", "65 0f 38 f0 04 25 00 00 00 00"),
        ("vzeroupper", "c5 f8 77"),
    ];
    for (name, bytes) in needs_v3 {
        let mut code = hex(bytes);
        code.push(0xc3);
        assert_eq!(rules(&code), [Rule::Feature], "{name}");
        assert_eq!(rejections(image(&code), &limits_v3()), [], "{name}");
    }
}

#[test]
fn bytes_that_are_no_instruction_are_refused() {
    for bytes in
        ["06", "0f 0b 0f", "c5 f8", "62", "48", "66 66 66 66 66 66 66 66 66 66 66 66 66 66 66 90", ""]
    {
        let mut code = hex("90");
        code.extend(hex(bytes));
        let rules = rules(&code);
        if bytes.is_empty() {
            assert_eq!(rules, [Rule::FallsThrough]);
        } else {
            assert_eq!(rules, [Rule::Undecodable], "{bytes}");
        }
    }
}

#[test]
fn traps_and_padding_are_accepted() {
    // `ud1l 5(%eax), %eax` is clang's `llvm.ubsantrap`: its operand is not accessed.
    accept(&hex("67 0f b9 40 05"));
    accept(&hex("0f 0b"));
    let padding =
        "0f 1f 00 0f 1f 44 00 00 66 0f 1f 44 00 00 66 66 2e 0f 1f 84 00 00 00 00 00 66 90 90 c3 cc cc";
    accept(&hex(padding));
}
