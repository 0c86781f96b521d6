//! Instructions that compute with numbers.

use crate::LowerError;
use crate::function::{FunctionLowering, StackOperand, ir_type};
use crate::module::Constant;
use crate::trap::TrapCode;
use std::fmt::Display;
use wasmparser::{Operator, ValType};

use ValType::{F32, F64, I32, I64};

/// A way to lower an instruction that computes.
enum Numeric {
    /// One instruction of LLVM with two operands of a type, such as `add i32`.
    Binary(&'static str, ValType),
    /// A shift, whose distance is taken modulo the width.
    Shift(&'static str, ValType),
    /// A rotation, by the intrinsic of this name.
    Rotate(&'static str, ValType),
    /// A comparison of two operands of a type, which results in an i32.
    Compare(&'static str, ValType),
    /// A call of an intrinsic with one operand.
    Intrinsic(&'static str, ValType),
    /// A call of an intrinsic with two operands.
    Intrinsic2(&'static str, ValType),
    /// A call of an intrinsic for the minimum or maximum, which returns a NaN as it is.
    Extreme(&'static str, ValType),
    /// A call of an intrinsic with one operand and the argument `i1 false`.
    CountZeros(&'static str, ValType),
    /// One conversion of LLVM.
    Convert(&'static str, ValType, ValType),
    /// A conversion of the lowest bits, of an LLVM type, to the whole width.
    ExtendLow(&'static str, ValType),
    /// A division: instruction, type, and whether it is signed.
    Divide(&'static str, ValType, bool),
    /// A conversion of a float to an integer, which traps if there is no result.
    Truncate(&'static str, ValType, ValType),
    /// A conversion of a float to an integer by an intrinsic, which always has a result.
    Saturate(&'static str, ValType, ValType),
}

/// Returns the way to lower an instruction; `None` if it is not in this file.
fn numeric(operator: &Operator<'_>) -> Option<Numeric> {
    use Numeric::{
        Binary, Compare, Convert, CountZeros, Divide, ExtendLow, Extreme, Intrinsic, Intrinsic2, Rotate,
        Saturate, Shift, Truncate,
    };
    Some(match operator {
        Operator::I32Add => Binary("add", I32),
        Operator::I32Sub => Binary("sub", I32),
        Operator::I32Mul => Binary("mul", I32),
        Operator::I32And => Binary("and", I32),
        Operator::I32Or => Binary("or", I32),
        Operator::I32Xor => Binary("xor", I32),
        Operator::I64Add => Binary("add", I64),
        Operator::I64Sub => Binary("sub", I64),
        Operator::I64Mul => Binary("mul", I64),
        Operator::I64And => Binary("and", I64),
        Operator::I64Or => Binary("or", I64),
        Operator::I64Xor => Binary("xor", I64),
        Operator::F32Add => Binary("fadd", F32),
        Operator::F32Sub => Binary("fsub", F32),
        Operator::F32Mul => Binary("fmul", F32),
        Operator::F32Div => Binary("fdiv", F32),
        Operator::F64Add => Binary("fadd", F64),
        Operator::F64Sub => Binary("fsub", F64),
        Operator::F64Mul => Binary("fmul", F64),
        Operator::F64Div => Binary("fdiv", F64),
        Operator::I32Shl => Shift("shl", I32),
        Operator::I32ShrS => Shift("ashr", I32),
        Operator::I32ShrU => Shift("lshr", I32),
        Operator::I64Shl => Shift("shl", I64),
        Operator::I64ShrS => Shift("ashr", I64),
        Operator::I64ShrU => Shift("lshr", I64),
        Operator::I32Rotl => Rotate("llvm.fshl.i32", I32),
        Operator::I32Rotr => Rotate("llvm.fshr.i32", I32),
        Operator::I64Rotl => Rotate("llvm.fshl.i64", I64),
        Operator::I64Rotr => Rotate("llvm.fshr.i64", I64),
        Operator::I32Eq => Compare("icmp eq", I32),
        Operator::I32Ne => Compare("icmp ne", I32),
        Operator::I32LtS => Compare("icmp slt", I32),
        Operator::I32LtU => Compare("icmp ult", I32),
        Operator::I32GtS => Compare("icmp sgt", I32),
        Operator::I32GtU => Compare("icmp ugt", I32),
        Operator::I32LeS => Compare("icmp sle", I32),
        Operator::I32LeU => Compare("icmp ule", I32),
        Operator::I32GeS => Compare("icmp sge", I32),
        Operator::I32GeU => Compare("icmp uge", I32),
        Operator::I64Eq => Compare("icmp eq", I64),
        Operator::I64Ne => Compare("icmp ne", I64),
        Operator::I64LtS => Compare("icmp slt", I64),
        Operator::I64LtU => Compare("icmp ult", I64),
        Operator::I64GtS => Compare("icmp sgt", I64),
        Operator::I64GtU => Compare("icmp ugt", I64),
        Operator::I64LeS => Compare("icmp sle", I64),
        Operator::I64LeU => Compare("icmp ule", I64),
        Operator::I64GeS => Compare("icmp sge", I64),
        Operator::I64GeU => Compare("icmp uge", I64),
        Operator::F32Eq => Compare("fcmp oeq", F32),
        Operator::F32Ne => Compare("fcmp une", F32),
        Operator::F32Lt => Compare("fcmp olt", F32),
        Operator::F32Gt => Compare("fcmp ogt", F32),
        Operator::F32Le => Compare("fcmp ole", F32),
        Operator::F32Ge => Compare("fcmp oge", F32),
        Operator::F64Eq => Compare("fcmp oeq", F64),
        Operator::F64Ne => Compare("fcmp une", F64),
        Operator::F64Lt => Compare("fcmp olt", F64),
        Operator::F64Gt => Compare("fcmp ogt", F64),
        Operator::F64Le => Compare("fcmp ole", F64),
        Operator::F64Ge => Compare("fcmp oge", F64),
        Operator::I32Clz => CountZeros("llvm.ctlz.i32", I32),
        Operator::I32Ctz => CountZeros("llvm.cttz.i32", I32),
        Operator::I64Clz => CountZeros("llvm.ctlz.i64", I64),
        Operator::I64Ctz => CountZeros("llvm.cttz.i64", I64),
        Operator::I32Popcnt => Intrinsic("llvm.ctpop.i32", I32),
        Operator::I64Popcnt => Intrinsic("llvm.ctpop.i64", I64),
        Operator::F32Abs => Intrinsic("llvm.fabs.f32", F32),
        Operator::F32Ceil => Intrinsic("llvm.ceil.f32", F32),
        Operator::F32Floor => Intrinsic("llvm.floor.f32", F32),
        Operator::F32Trunc => Intrinsic("llvm.trunc.f32", F32),
        Operator::F32Nearest => Intrinsic("llvm.roundeven.f32", F32),
        Operator::F32Sqrt => Intrinsic("llvm.sqrt.f32", F32),
        Operator::F64Abs => Intrinsic("llvm.fabs.f64", F64),
        Operator::F64Ceil => Intrinsic("llvm.ceil.f64", F64),
        Operator::F64Floor => Intrinsic("llvm.floor.f64", F64),
        Operator::F64Trunc => Intrinsic("llvm.trunc.f64", F64),
        Operator::F64Nearest => Intrinsic("llvm.roundeven.f64", F64),
        Operator::F64Sqrt => Intrinsic("llvm.sqrt.f64", F64),
        Operator::F32Min => Extreme("llvm.minimum.f32", F32),
        Operator::F32Max => Extreme("llvm.maximum.f32", F32),
        Operator::F32Copysign => Intrinsic2("llvm.copysign.f32", F32),
        Operator::F64Min => Extreme("llvm.minimum.f64", F64),
        Operator::F64Max => Extreme("llvm.maximum.f64", F64),
        Operator::F64Copysign => Intrinsic2("llvm.copysign.f64", F64),
        Operator::I32WrapI64 => Convert("trunc", I64, I32),
        Operator::I64ExtendI32S => Convert("sext", I32, I64),
        Operator::I64ExtendI32U => Convert("zext", I32, I64),
        Operator::I32ReinterpretF32 => Convert("bitcast", F32, I32),
        Operator::F32ReinterpretI32 => Convert("bitcast", I32, F32),
        Operator::I64ReinterpretF64 => Convert("bitcast", F64, I64),
        Operator::F64ReinterpretI64 => Convert("bitcast", I64, F64),
        Operator::F32ConvertI32S => Convert("sitofp", I32, F32),
        Operator::F32ConvertI32U => Convert("uitofp", I32, F32),
        Operator::F32ConvertI64S => Convert("sitofp", I64, F32),
        Operator::F32ConvertI64U => Convert("uitofp", I64, F32),
        Operator::F64ConvertI32S => Convert("sitofp", I32, F64),
        Operator::F64ConvertI32U => Convert("uitofp", I32, F64),
        Operator::F64ConvertI64S => Convert("sitofp", I64, F64),
        Operator::F64ConvertI64U => Convert("uitofp", I64, F64),
        Operator::F32DemoteF64 => Convert("fptrunc", F64, F32),
        Operator::F64PromoteF32 => Convert("fpext", F32, F64),
        Operator::I32Extend8S => ExtendLow("i8", I32),
        Operator::I32Extend16S => ExtendLow("i16", I32),
        Operator::I64Extend8S => ExtendLow("i8", I64),
        Operator::I64Extend16S => ExtendLow("i16", I64),
        Operator::I64Extend32S => ExtendLow("i32", I64),
        Operator::I32DivS => Divide("sdiv", I32, true),
        Operator::I32DivU => Divide("udiv", I32, false),
        Operator::I32RemS => Divide("srem", I32, true),
        Operator::I32RemU => Divide("urem", I32, false),
        Operator::I64DivS => Divide("sdiv", I64, true),
        Operator::I64DivU => Divide("udiv", I64, false),
        Operator::I64RemS => Divide("srem", I64, true),
        Operator::I64RemU => Divide("urem", I64, false),
        Operator::I32TruncF32S => Truncate("fptosi", F32, I32),
        Operator::I32TruncF32U => Truncate("fptoui", F32, I32),
        Operator::I32TruncF64S => Truncate("fptosi", F64, I32),
        Operator::I32TruncF64U => Truncate("fptoui", F64, I32),
        Operator::I64TruncF32S => Truncate("fptosi", F32, I64),
        Operator::I64TruncF32U => Truncate("fptoui", F32, I64),
        Operator::I64TruncF64S => Truncate("fptosi", F64, I64),
        Operator::I64TruncF64U => Truncate("fptoui", F64, I64),
        Operator::I32TruncSatF32S => Saturate("llvm.fptosi.sat.i32.f32", F32, I32),
        Operator::I32TruncSatF32U => Saturate("llvm.fptoui.sat.i32.f32", F32, I32),
        Operator::I32TruncSatF64S => Saturate("llvm.fptosi.sat.i32.f64", F64, I32),
        Operator::I32TruncSatF64U => Saturate("llvm.fptoui.sat.i32.f64", F64, I32),
        Operator::I64TruncSatF32S => Saturate("llvm.fptosi.sat.i64.f32", F32, I64),
        Operator::I64TruncSatF32U => Saturate("llvm.fptoui.sat.i64.f32", F32, I64),
        Operator::I64TruncSatF64S => Saturate("llvm.fptosi.sat.i64.f64", F64, I64),
        Operator::I64TruncSatF64U => Saturate("llvm.fptoui.sat.i64.f64", F64, I64),
        _ => return None,
    })
}

/// The least and the first too large number whose conversion to an integer has a result, and whether the least one itself is
/// excluded. All numbers are exact in the type of the float.
const fn truncation_range(instruction: &str, from: ValType, to: ValType) -> (f64, f64, bool) {
    let is_signed = instruction.as_bytes()[4] == b's';
    match (is_signed, to, from) {
        // In f64 there are numbers between the least i32 and the next integer below it, and they are rounded up to it.
        (true, I32, F64) => (-2_147_483_649.0, 2_147_483_648.0, true),
        (true, I32, _) => (-2_147_483_648.0, 2_147_483_648.0, false),
        (true, _, _) => (-9_223_372_036_854_775_808.0, 9_223_372_036_854_775_808.0, false),
        (false, I32, _) => (-1.0, 4_294_967_296.0, true),
        (false, _, _) => (-1.0, 18_446_744_073_709_551_616.0, true),
    }
}

/// Returns the literal of a float of this type, whose value is exact.
fn float(value: f64, ty: ValType) -> StackOperand {
    #[expect(clippy::cast_possible_truncation, reason = "powers of two and -1 are exact")]
    StackOperand::Constant(match ty {
        F32 => Constant::F32((value as f32).to_bits()),
        _ => Constant::F64(value.to_bits()),
    })
}

impl FunctionLowering<'_, '_> {
    /// Lowers an instruction that computes. Returns false if the instruction is not one of these.
    pub(crate) fn numeric(&mut self, operator: &Operator<'_>) -> Result<bool, LowerError> {
        match operator {
            Operator::I32Const { value } => self.push(StackOperand::Constant(Constant::I32(*value))),
            Operator::I64Const { value } => self.push(StackOperand::Constant(Constant::I64(*value))),
            Operator::F32Const { value } => self.push(StackOperand::Constant(Constant::F32(value.bits()))),
            Operator::F64Const { value } => self.push(StackOperand::Constant(Constant::F64(value.bits()))),
            Operator::I32Eqz => self.is_zero("i32")?,
            Operator::I64Eqz => self.is_zero("i64")?,
            Operator::F32Neg => self.negate(F32)?,
            Operator::F64Neg => self.negate(F64)?,
            _ => match numeric(operator) {
                Some(numeric) => self.compute(&numeric)?,
                None => return Ok(false),
            },
        }
        Ok(true)
    }

    fn is_zero(&mut self, ty: &str) -> Result<(), LowerError> {
        let value = self.pop()?;
        let is_zero = self.temporary(format_args!("icmp eq {ty} {value}, 0"));
        self.push_new(I32, format_args!("zext i1 %v{is_zero} to i32"));
        Ok(())
    }

    fn negate(&mut self, ty: ValType) -> Result<(), LowerError> {
        let value = self.pop()?;
        self.push_new(ty, format_args!("fneg {} {value}", ir_type(ty)?));
        Ok(())
    }

    fn compute(&mut self, numeric: &Numeric) -> Result<(), LowerError> {
        match *numeric {
            Numeric::Binary(instruction, ty) => {
                let (b, a) = (self.pop_fenced()?, self.pop_fenced()?);
                self.push_new(ty, format_args!("{instruction} {} {a}, {b}", ir_type(ty)?));
            }
            Numeric::Shift(instruction, ty) => {
                let (distance, a) = (self.pop()?, self.pop()?);
                let (name, mask) = (ir_type(ty)?, if ty == I32 { 31 } else { 63 });
                let distance = self.define(ty, format_args!("and {name} {distance}, {mask}"));
                self.push_new(ty, format_args!("{instruction} {name} {a}, {distance}"));
            }
            Numeric::Rotate(intrinsic, ty) => {
                let (distance, a) = (self.pop()?, self.pop()?);
                let name = ir_type(ty)?;
                self.push_new(
                    ty,
                    format_args!("call {name} @{intrinsic}({name} {a}, {name} {a}, {name} {distance})"),
                );
            }
            Numeric::Compare(comparison, ty) => {
                let (b, a) = (self.pop()?, self.pop()?);
                let result = self.temporary(format_args!("{comparison} {} {a}, {b}", ir_type(ty)?));
                self.push_new(I32, format_args!("zext i1 %v{result} to i32"));
            }
            Numeric::Intrinsic(intrinsic, ty) => {
                let (value, name) = (self.pop()?, ir_type(ty)?);
                self.push_new(ty, format_args!("call {name} @{intrinsic}({name} {value})"));
            }
            Numeric::Intrinsic2(intrinsic, ty) => {
                let (b, a, name) = (self.pop()?, self.pop()?, ir_type(ty)?);
                self.push_new(ty, format_args!("call {name} @{intrinsic}({name} {a}, {name} {b})"));
            }
            Numeric::Extreme(intrinsic, ty) => {
                let (b, a, name) = (self.pop_fenced()?, self.pop_fenced()?, ir_type(ty)?);
                let extreme =
                    self.temporary(format_args!("call {name} @{intrinsic}({name} {a}, {name} {b})"));
                // The sum of a NaN and a number is a quiet NaN.
                let sum = self.temporary(format_args!("fadd {name} {a}, {b}"));
                let is_nan = self.temporary(format_args!("fcmp uno {name} {a}, {b}"));
                self.push_new(ty, format_args!("select i1 %v{is_nan}, {name} %v{sum}, {name} %v{extreme}"));
            }
            Numeric::CountZeros(intrinsic, ty) => {
                let (value, name) = (self.pop()?, ir_type(ty)?);
                self.push_new(ty, format_args!("call {name} @{intrinsic}({name} {value}, i1 false)"));
            }
            Numeric::Convert(instruction, from, to) => {
                let value = if instruction == "fptrunc" { self.pop_fenced()? } else { self.pop()? };
                self.push_new(
                    to,
                    format_args!("{instruction} {} {value} to {}", ir_type(from)?, ir_type(to)?),
                );
            }
            Numeric::ExtendLow(low, ty) => {
                let (value, name) = (self.pop()?, ir_type(ty)?);
                let part = self.temporary(format_args!("trunc {name} {value} to {low}"));
                self.push_new(ty, format_args!("sext {low} %v{part} to {name}"));
            }
            Numeric::Divide(instruction, ty, is_signed) => self.divide(instruction, ty, is_signed)?,
            Numeric::Truncate(instruction, from, to) => self.truncate(instruction, from, to)?,
            Numeric::Saturate(intrinsic, from, to) => {
                let value = self.pop()?;
                self.push_new(
                    to,
                    format_args!("call {} @{intrinsic}({} {value})", ir_type(to)?, ir_type(from)?),
                );
            }
        }
        Ok(())
    }

    /// Pops an operand of an instruction that must make a quiet NaN of a signalling one. LLVM may leave such an instruction out
    /// if it sees that the value stays the same, as that of `x * 1` or of a conversion to f64 and back. Behind a fence, LLVM
    /// knows nothing about a value.
    fn pop_fenced(&mut self) -> Result<StackOperand, LowerError> {
        let value = self.pop()?;
        let suffix = match value.ty() {
            F32 => "f32",
            F64 => "f64",
            _ => return Ok(value),
        };
        let ty = value.ty();
        let name = ir_type(ty)?;
        Ok(self.define(ty, format_args!("call {name} @llvm.arithmetic.fence.{suffix}({name} {value})")))
    }

    fn divide(&mut self, instruction: &str, ty: ValType, is_signed: bool) -> Result<(), LowerError> {
        let (mut b, a, name) = (self.pop()?, self.pop()?, ir_type(ty)?);
        let is_zero = self.temporary(format_args!("icmp eq {name} {b}, 0"));
        self.trap_if(is_zero, TrapCode::Arithmetic);
        if is_signed {
            let is_minus_one = self.temporary(format_args!("icmp eq {name} {b}, -1"));
            if instruction == "srem" {
                // The remainder by -1 is 0, as is that by 1. With -1, LLVM leaves the remainder of the least number open.
                b = self.define(ty, format_args!("select i1 %v{is_minus_one}, {name} 1, {name} {b}"));
            } else {
                let least = if ty == I32 { i64::from(i32::MIN) } else { i64::MIN };
                let is_least = self.temporary(format_args!("icmp eq {name} {a}, {least}"));
                let overflows = self.temporary(format_args!("and i1 %v{is_minus_one}, %v{is_least}"));
                self.trap_if(overflows, TrapCode::Arithmetic);
            }
        }
        self.push_new(ty, format_args!("{instruction} {name} {a}, {b}"));
        Ok(())
    }

    fn truncate(&mut self, instruction: &str, from: ValType, to: ValType) -> Result<(), LowerError> {
        let (value, name) = (self.pop()?, ir_type(from)?);
        let (least, beyond, is_least_excluded) = truncation_range(instruction, from, to);
        let (least, beyond) = (float(least, from), float(beyond, from));
        // Both comparisons are true for NaN.
        let too_small = if is_least_excluded { "ule" } else { "ult" };
        let too_small = self.temporary(format_args!("fcmp {too_small} {name} {value}, {least}"));
        self.trap_if(too_small, TrapCode::Arithmetic);
        let too_large = self.temporary(format_args!("fcmp uge {name} {value}, {beyond}"));
        self.trap_if(too_large, TrapCode::Arithmetic);
        self.push_new(to, format_args!("{instruction} {name} {value} to {}", ir_type(to)?));
        Ok(())
    }
}

/// Writes the declarations of all intrinsics.
pub(crate) fn declarations(text: &mut impl std::fmt::Write) -> std::fmt::Result {
    let mut declare = |result: &str, name: &dyn Display, parameters: &str| {
        writeln!(text, "declare {result} @{name}({parameters})")
    };
    for ty in ["i32", "i64"] {
        declare(ty, &format_args!("llvm.fshl.{ty}"), &format!("{ty}, {ty}, {ty}"))?;
        declare(ty, &format_args!("llvm.fshr.{ty}"), &format!("{ty}, {ty}, {ty}"))?;
        declare(ty, &format_args!("llvm.ctlz.{ty}"), &format!("{ty}, i1"))?;
        declare(ty, &format_args!("llvm.cttz.{ty}"), &format!("{ty}, i1"))?;
        declare(ty, &format_args!("llvm.ctpop.{ty}"), ty)?;
    }
    for (ty, suffix) in [("float", "f32"), ("double", "f64")] {
        for name in ["fabs", "ceil", "floor", "trunc", "roundeven", "sqrt", "arithmetic.fence"] {
            declare(ty, &format_args!("llvm.{name}.{suffix}"), ty)?;
        }
        for name in ["minimum", "maximum", "copysign"] {
            declare(ty, &format_args!("llvm.{name}.{suffix}"), &format!("{ty}, {ty}"))?;
        }
        for to in ["i32", "i64"] {
            declare(to, &format_args!("llvm.fptosi.sat.{to}.{suffix}"), ty)?;
            declare(to, &format_args!("llvm.fptoui.sat.{to}.{suffix}"), ty)?;
        }
    }
    declare("void", &"llvm.ubsantrap", "i8 immarg")
}
