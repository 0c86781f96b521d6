//! The allow-list of instructions.

use iced_x86::{CpuidFeature, Mnemonic};

use crate::image::CpuFeatures;

/// The treatment of an instruction. Each instruction that is not [`InstructionClass::Forbidden`] touches, apart from its operands,
/// only registers that the decoder's tables list, the flags, and the stack for the classes that say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstructionClass {
    /// Not on the list.
    Forbidden,
    /// No effect; a memory operand is not accessed.
    Nop,
    /// `int3` between functions.
    Padding,
    /// Raises the exception for undefined opcodes; a memory operand is not accessed.
    Trap,
    Jump,
    Branch,
    Call,
    Return,
    Push,
    Pop,
    /// Computes an address; the memory operand is not accessed.
    Lea,
    /// Copies the source. A shorter source is zero-extended.
    Move,
    SignExtend,
    Add,
    /// Adds the carry, which is 0 or 1, too.
    AddWithCarry,
    Subtract,
    /// Subtracts the carry, which is 0 or 1, too.
    SubtractWithBorrow,
    Increment,
    Decrement,
    Negate,
    Not,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    ShiftRightSigned,
    /// A product: of the accumulator and one operand, of two operands, or of the second and third.
    Multiply,
    /// A full product or a division: writes RAX and RDX.
    Wide,
    /// A full product to two explicit operands.
    Mulx,
    Exchange,
    /// A bit of a register, or of memory if the number of the bit is an immediate.
    BitTest,
    /// Counts bits of an operand.
    Count,
    /// The position of a bit. If there is none, the destination is undefined.
    BitScan,
    ConditionalMove,
    Set,
    /// EAX becomes the sign-extended AX.
    Cwde,
    /// RAX becomes the sign-extended EAX.
    Cdqe,
    /// EDX becomes the sign of EAX.
    Cdq,
    /// Nothing is known about the result but its width.
    Opaque,
}

use InstructionClass as C;
use Mnemonic::*;

/// The allow-list. Names that a string instruction shares (`movsd`, `cmpsd`) are allowed for the vector instruction
/// only, because operands of string instructions are of no allowed kind.
pub(crate) const ALLOWED: &[(InstructionClass, &[Mnemonic])] = &[
    (C::Nop, &[Nop]),
    (C::Padding, &[Int3]),
    (C::Trap, &[Ud1, Ud2]),
    (C::Jump, &[Jmp]),
    (C::Branch, &[Ja, Jae, Jb, Jbe, Je, Jg, Jge, Jl, Jle, Jne, Jno, Jnp, Jns, Jo, Jp, Js]),
    (C::Call, &[Call]),
    (C::Return, &[Ret]),
    (C::Push, &[Push]),
    (C::Pop, &[Pop]),
    (C::Lea, &[Lea]),
    (C::Move, &[Mov, Movzx]),
    (C::SignExtend, &[Movsx, Movsxd]),
    (C::Add, &[Add]),
    (C::AddWithCarry, &[Adc]),
    (C::Subtract, &[Sub]),
    (C::SubtractWithBorrow, &[Sbb]),
    (C::Increment, &[Inc]),
    (C::Decrement, &[Dec]),
    (C::Negate, &[Neg]),
    (C::Not, &[Not]),
    (C::And, &[And]),
    (C::Or, &[Or]),
    (C::Xor, &[Xor]),
    (C::ShiftLeft, &[Shl, Shlx]),
    (C::ShiftRight, &[Shr, Shrx]),
    (C::ShiftRightSigned, &[Sar, Sarx]),
    (C::Multiply, &[Imul]),
    (C::Wide, &[Div, Idiv, Mul]),
    (C::Mulx, &[Mulx]),
    (C::Exchange, &[Xchg]),
    (C::BitTest, &[Bt, Btc, Btr, Bts]),
    (C::Count, &[Lzcnt, Popcnt]),
    (C::BitScan, &[Bsf, Bsr, Tzcnt]),
    (
        C::ConditionalMove,
        &[
            Cmova, Cmovae, Cmovb, Cmovbe, Cmove, Cmovg, Cmovge, Cmovl, Cmovle, Cmovne, Cmovno, Cmovnp,
            Cmovns, Cmovo, Cmovp, Cmovs,
        ],
    ),
    (
        C::Set,
        &[
            Seta, Setae, Setb, Setbe, Sete, Setg, Setge, Setl, Setle, Setne, Setno, Setnp, Setns, Seto, Setp,
            Sets,
        ],
    ),
    (C::Cwde, &[Cwde]),
    (C::Cdqe, &[Cdqe]),
    (C::Cdq, &[Cdq]),
    // Integers.
    (
        C::Opaque,
        &[
            Andn, Bextr, Blsi, Blsmsk, Blsr, Bswap, Bzhi, Cbw, Cmc, Cmp, Cqo, Cwd, Movbe, Pdep, Pext, Rcl,
            Rcr, Rol, Ror, Rorx, Shld, Shrd, Test,
        ],
    ),
    // Vectors: moves.
    (
        C::Opaque,
        &[
            Lddqu, Movapd, Movaps, Movd, Movddup, Movdqa, Movdqu, Movhlps, Movhpd, Movhps, Movlhps, Movlpd,
            Movlps, Movmskpd, Movmskps, Movq, Movsd, Movshdup, Movsldup, Movss, Movupd, Movups, Pmovmskb,
            Vlddqu, Vmovapd, Vmovaps, Vmovd, Vmovddup, Vmovdqa, Vmovdqu, Vmovhlps, Vmovhpd, Vmovhps,
            Vmovlhps, Vmovlpd, Vmovlps, Vmovmskpd, Vmovmskps, Vmovq, Vmovsd, Vmovshdup, Vmovsldup, Vmovss,
            Vmovupd, Vmovups, Vpmovmskb, Vzeroupper,
        ],
    ),
    // Vectors: floating point.
    (
        C::Opaque,
        &[
            Addpd, Addps, Addsd, Addss, Addsubpd, Addsubps, Andnpd, Andnps, Andpd, Andps, Cmppd, Cmpps,
            Cmpsd, Cmpss, Comisd, Comiss, Divpd, Divps, Divsd, Divss, Dppd, Dpps, Haddpd, Haddps, Hsubpd,
            Hsubps, Maxpd, Maxps, Maxsd, Maxss, Minpd, Minps, Minsd, Minss, Mulpd, Mulps, Mulsd, Mulss, Orpd,
            Orps, Roundpd, Roundps, Roundsd, Roundss, Sqrtpd, Sqrtps, Sqrtsd, Sqrtss, Subpd, Subps, Subsd,
            Subss, Ucomisd, Ucomiss, Xorpd, Xorps, Vaddpd, Vaddps, Vaddsd, Vaddss, Vaddsubpd, Vaddsubps,
            Vandnpd, Vandnps, Vandpd, Vandps, Vcmppd, Vcmpps, Vcmpsd, Vcmpss, Vcomisd, Vcomiss, Vdivpd,
            Vdivps, Vdivsd, Vdivss, Vdppd, Vdpps, Vhaddpd, Vhaddps, Vhsubpd, Vhsubps, Vmaxpd, Vmaxps, Vmaxsd,
            Vmaxss, Vminpd, Vminps, Vminsd, Vminss, Vmulpd, Vmulps, Vmulsd, Vmulss, Vorpd, Vorps, Vroundpd,
            Vroundps, Vroundsd, Vroundss, Vsqrtpd, Vsqrtps, Vsqrtsd, Vsqrtss, Vsubpd, Vsubps, Vsubsd, Vsubss,
            Vucomisd, Vucomiss, Vxorpd, Vxorps,
        ],
    ),
    // Vectors: conversions.
    (
        C::Opaque,
        &[
            Cvtdq2pd, Cvtdq2ps, Cvtpd2dq, Cvtpd2ps, Cvtps2dq, Cvtps2pd, Cvtsd2si, Cvtsd2ss, Cvtsi2sd,
            Cvtsi2ss, Cvtss2sd, Cvtss2si, Cvttpd2dq, Cvttps2dq, Cvttsd2si, Cvttss2si, Vcvtdq2pd, Vcvtdq2ps,
            Vcvtpd2dq, Vcvtpd2ps, Vcvtps2dq, Vcvtps2pd, Vcvtsd2si, Vcvtsd2ss, Vcvtsi2sd, Vcvtsi2ss,
            Vcvtss2sd, Vcvtss2si, Vcvttpd2dq, Vcvttps2dq, Vcvttsd2si, Vcvttss2si,
        ],
    ),
    // Vectors: integers.
    (
        C::Opaque,
        &[
            Mpsadbw,
            Pabsb,
            Pabsd,
            Pabsw,
            Paddb,
            Paddd,
            Paddq,
            Paddsb,
            Paddsw,
            Paddusb,
            Paddusw,
            Paddw,
            Pand,
            Pandn,
            Pavgb,
            Pavgw,
            Pcmpeqb,
            Pcmpeqd,
            Pcmpeqq,
            Pcmpeqw,
            Pcmpgtb,
            Pcmpgtd,
            Pcmpgtq,
            Pcmpgtw,
            Phaddd,
            Phaddsw,
            Phaddw,
            Phminposuw,
            Phsubd,
            Phsubsw,
            Phsubw,
            Pmaddubsw,
            Pmaddwd,
            Pmaxsb,
            Pmaxsd,
            Pmaxsw,
            Pmaxub,
            Pmaxud,
            Pmaxuw,
            Pminsb,
            Pminsd,
            Pminsw,
            Pminub,
            Pminud,
            Pminuw,
            Pmuldq,
            Pmulhrsw,
            Pmulhuw,
            Pmulhw,
            Pmulld,
            Pmullw,
            Pmuludq,
            Por,
            Psadbw,
            Psignb,
            Psignd,
            Psignw,
            Pslld,
            Pslldq,
            Psllq,
            Psllw,
            Psrad,
            Psraw,
            Psrld,
            Psrldq,
            Psrlq,
            Psrlw,
            Psubb,
            Psubd,
            Psubq,
            Psubsb,
            Psubsw,
            Psubusb,
            Psubusw,
            Psubw,
            Ptest,
            Pxor,
            Vmpsadbw,
            Vpabsb,
            Vpabsd,
            Vpabsw,
            Vpaddb,
            Vpaddd,
            Vpaddq,
            Vpaddsb,
            Vpaddsw,
            Vpaddusb,
            Vpaddusw,
            Vpaddw,
            Vpand,
            Vpandn,
            Vpavgb,
            Vpavgw,
            Vpcmpeqb,
            Vpcmpeqd,
            Vpcmpeqq,
            Vpcmpeqw,
            Vpcmpgtb,
            Vpcmpgtd,
            Vpcmpgtq,
            Vpcmpgtw,
            Vphaddd,
            Vphaddsw,
            Vphaddw,
            Vphminposuw,
            Vphsubd,
            Vphsubsw,
            Vphsubw,
            Vpmaddubsw,
            Vpmaddwd,
            Vpmaxsb,
            Vpmaxsd,
            Vpmaxsw,
            Vpmaxub,
            Vpmaxud,
            Vpmaxuw,
            Vpminsb,
            Vpminsd,
            Vpminsw,
            Vpminub,
            Vpminud,
            Vpminuw,
            Vpmuldq,
            Vpmulhrsw,
            Vpmulhuw,
            Vpmulhw,
            Vpmulld,
            Vpmullw,
            Vpmuludq,
            Vpor,
            Vpsadbw,
            Vpsignb,
            Vpsignd,
            Vpsignw,
            Vpslld,
            Vpslldq,
            Vpsllq,
            Vpsllvd,
            Vpsllvq,
            Vpsllw,
            Vpsrad,
            Vpsravd,
            Vpsraw,
            Vpsrld,
            Vpsrldq,
            Vpsrlq,
            Vpsrlvd,
            Vpsrlvq,
            Vpsrlw,
            Vpsubb,
            Vpsubd,
            Vpsubq,
            Vpsubsb,
            Vpsubsw,
            Vpsubusb,
            Vpsubusw,
            Vpsubw,
            Vptest,
            Vpxor,
            Vtestpd,
            Vtestps,
        ],
    ),
    // Vectors: shuffles, blends, and elements.
    (
        C::Opaque,
        &[
            Blendpd,
            Blendps,
            Blendvpd,
            Blendvps,
            Extractps,
            Insertps,
            Packssdw,
            Packsswb,
            Packusdw,
            Packuswb,
            Palignr,
            Pblendvb,
            Pblendw,
            Pextrb,
            Pextrd,
            Pextrq,
            Pextrw,
            Pinsrb,
            Pinsrd,
            Pinsrq,
            Pinsrw,
            Pmovsxbd,
            Pmovsxbq,
            Pmovsxbw,
            Pmovsxdq,
            Pmovsxwd,
            Pmovsxwq,
            Pmovzxbd,
            Pmovzxbq,
            Pmovzxbw,
            Pmovzxdq,
            Pmovzxwd,
            Pmovzxwq,
            Pshufb,
            Pshufd,
            Pshufhw,
            Pshuflw,
            Punpckhbw,
            Punpckhdq,
            Punpckhqdq,
            Punpckhwd,
            Punpcklbw,
            Punpckldq,
            Punpcklqdq,
            Punpcklwd,
            Shufpd,
            Shufps,
            Unpckhpd,
            Unpckhps,
            Unpcklpd,
            Unpcklps,
            Vblendpd,
            Vblendps,
            Vblendvpd,
            Vblendvps,
            Vbroadcastf128,
            Vbroadcasti128,
            Vbroadcastsd,
            Vbroadcastss,
            Vextractf128,
            Vextracti128,
            Vextractps,
            Vinsertf128,
            Vinserti128,
            Vinsertps,
            Vpackssdw,
            Vpacksswb,
            Vpackusdw,
            Vpackuswb,
            Vpalignr,
            Vpblendd,
            Vpblendvb,
            Vpblendw,
            Vpbroadcastb,
            Vpbroadcastd,
            Vpbroadcastq,
            Vpbroadcastw,
            Vperm2f128,
            Vperm2i128,
            Vpermd,
            Vpermilpd,
            Vpermilps,
            Vpermpd,
            Vpermps,
            Vpermq,
            Vpextrb,
            Vpextrd,
            Vpextrq,
            Vpextrw,
            Vpinsrb,
            Vpinsrd,
            Vpinsrq,
            Vpinsrw,
            Vpmovsxbd,
            Vpmovsxbq,
            Vpmovsxbw,
            Vpmovsxdq,
            Vpmovsxwd,
            Vpmovsxwq,
            Vpmovzxbd,
            Vpmovzxbq,
            Vpmovzxbw,
            Vpmovzxdq,
            Vpmovzxwd,
            Vpmovzxwq,
            Vpshufb,
            Vpshufd,
            Vpshufhw,
            Vpshuflw,
            Vpunpckhbw,
            Vpunpckhdq,
            Vpunpckhqdq,
            Vpunpckhwd,
            Vpunpcklbw,
            Vpunpckldq,
            Vpunpcklqdq,
            Vpunpcklwd,
            Vshufpd,
            Vshufps,
            Vunpckhpd,
            Vunpckhps,
            Vunpcklpd,
            Vunpcklps,
        ],
    ),
];

/// More than the decoder has mnemonics.
const MNEMONICS_MAX: usize = 2048;

static CLASSES: [InstructionClass; MNEMONICS_MAX] = classes();

const fn classes() -> [InstructionClass; MNEMONICS_MAX] {
    let mut classes = [InstructionClass::Forbidden; MNEMONICS_MAX];
    let mut row = 0;
    while row < ALLOWED.len() {
        let (class, mnemonics) = ALLOWED[row];
        let mut column = 0;
        while column < mnemonics.len() {
            let entry = &mut classes[mnemonics[column] as usize];
            assert!(matches!(*entry, InstructionClass::Forbidden), "a mnemonic is in the allow-list twice");
            *entry = class;
            column += 1;
        }
        row += 1;
    }
    classes
}

pub(crate) fn class(mnemonic: Mnemonic) -> InstructionClass {
    CLASSES.get(mnemonic as usize).copied().unwrap_or(InstructionClass::Forbidden)
}

/// Returns true if a CPU of this level has the feature.
pub(crate) fn has_feature(level: CpuFeatures, feature: CpuidFeature) -> bool {
    use CpuidFeature as F;
    match feature {
        F::INTEL8086
        | F::INTEL186
        | F::INTEL286
        | F::INTEL386
        | F::INTEL486
        | F::X64
        | F::CMOV
        | F::MULTIBYTENOP
        | F::SSE
        | F::SSE2
        | F::SSE3
        | F::SSSE3
        | F::SSE4_1
        | F::SSE4_2
        | F::POPCNT => true,
        F::BMI1 | F::BMI2 | F::LZCNT | F::MOVBE => level != CpuFeatures::Baseline,
        F::AVX | F::AVX2 => level == CpuFeatures::V3,
        _ => false,
    }
}
