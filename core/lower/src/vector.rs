//! Instructions on vectors of 128 bits.
//!
//! The name of an instruction says its shape and its operation: `I16x8AddSatS` adds eight lanes of 16 bits with signed
//! saturation. Most instructions are therefore lowered by their names.

use crate::LowerError;
use crate::function::{FunctionLowering, StackOperand};
use crate::module::{Constant, invalid};
use std::fmt;
use wasmparser::{MemArg, Operator, ValType};

use ValType::{F32, F64, I32, I64, V128};

/// The division of a vector into lanes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    lanes: u32,
    bits: u32,
    is_float: bool,
}

const I8X16: Shape = Shape::integers(16, 8);
const I16X8: Shape = Shape::integers(8, 16);
const I32X4: Shape = Shape::integers(4, 32);
const I64X2: Shape = Shape::integers(2, 64);
const F32X4: Shape = Shape { lanes: 4, bits: 32, is_float: true };
const F64X2: Shape = Shape { lanes: 2, bits: 64, is_float: true };

impl Shape {
    const fn integers(lanes: u32, bits: u32) -> Self {
        Self { lanes, bits, is_float: false }
    }

    /// Returns the shape at the beginning of an instruction's name, and the rest of the name.
    fn split(name: &str) -> Option<(Self, &str)> {
        let shapes = [
            ("I8x16", I8X16),
            ("I16x8", I16X8),
            ("I32x4", I32X4),
            ("I64x2", I64X2),
            ("F32x4", F32X4),
            ("F64x2", F64X2),
        ];
        shapes.iter().find_map(|(prefix, shape)| Some((*shape, name.strip_prefix(prefix)?)))
    }

    /// The LLVM type of a lane.
    fn lane(self) -> &'static str {
        match (self.bits, self.is_float) {
            (8, _) => "i8",
            (16, _) => "i16",
            (32, false) => "i32",
            (32, true) => "float",
            (_, false) => "i64",
            (_, true) => "double",
        }
    }

    /// The WebAssembly type of a lane on the operand stack.
    fn scalar(self) -> ValType {
        match (self.bits, self.is_float) {
            (64, false) => I64,
            (_, false) => I32,
            (32, true) => F32,
            (_, true) => F64,
        }
    }

    /// The suffix of the names of intrinsics.
    fn suffix(self) -> String {
        format!("v{}{}{}", self.lanes, if self.is_float { 'f' } else { 'i' }, self.bits)
    }

    /// The shape with lanes of half the width.
    fn narrow(self) -> Self {
        Self { lanes: self.lanes * 2, bits: self.bits / 2, ..self }
    }

    /// The type with as many lanes of one bit.
    fn mask(self) -> String {
        format!("<{} x i1>", self.lanes)
    }
}

/// The LLVM type.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} x {}>", self.lanes, self.lane())
    }
}

/// The extension for an instruction whose name ends so.
fn extension(sign: &str) -> &'static str {
    if sign.ends_with('U') { "zext" } else { "sext" }
}

impl FunctionLowering<'_, '_> {
    /// Lowers an instruction on vectors. Returns false if the instruction is not one of these.
    pub(crate) fn vector(&mut self, operator: &Operator<'_>) -> Result<bool, LowerError> {
        let text = format!("{operator:?}");
        let name = text.split([' ', '{', '(']).next().unwrap_or_default();
        match operator {
            Operator::V128Const { value } => {
                self.push(StackOperand::Constant(Constant::V128(*value.bytes())))
            }
            Operator::V128And => self.bitwise("and")?,
            Operator::V128Or => self.bitwise("or")?,
            Operator::V128Xor => self.bitwise("xor")?,
            Operator::V128Not => self.complement()?,
            Operator::V128AndNot => {
                self.complement()?;
                self.bitwise("and")?;
            }
            Operator::V128Bitselect => {
                let (mask, b, a) = (self.pop()?, self.pop()?, self.pop()?);
                // b ^ ((a ^ b) & mask)
                let different = self.define(V128, format_args!("xor <2 x i64> {a}, {b}"));
                let chosen = self.define(V128, format_args!("and <2 x i64> {different}, {mask}"));
                self.push_new(V128, format_args!("xor <2 x i64> {chosen}, {b}"));
            }
            Operator::V128AnyTrue => {
                let value = self.pop()?;
                let whole = self.temporary(format_args!("bitcast <2 x i64> {value} to i128"));
                let result = self.temporary(format_args!("icmp ne i128 %v{whole}, 0"));
                self.push_new(I32, format_args!("zext i1 %v{result} to i32"));
            }
            Operator::I8x16Shuffle { lanes } => {
                let (b, a) = (self.lanes(I8X16)?, self.lanes(I8X16)?);
                let lanes: Vec<String> = lanes.iter().map(|lane| format!("i32 {lane}")).collect();
                let mask = lanes.join(", ");
                self.push_lanes(
                    I8X16,
                    format_args!("shufflevector {I8X16} %v{a}, {I8X16} %v{b}, <16 x i32> <{mask}>"),
                );
            }
            Operator::I8x16Swizzle => {
                let (index, a) = (self.lanes(I8X16)?, self.lanes(I8X16)?);
                // `pshufb` gives 0 for an index of 128 or more. The sum of 112 and an index of 16 or more is such an index.
                let add = "112";
                let mask = vec![format!("i8 {add}"); 16].join(", ");
                let index = self.temporary(format_args!(
                    "call {I8X16} @llvm.uadd.sat.v16i8({I8X16} %v{index}, {I8X16} <{mask}>)"
                ));
                self.push_lanes(
                    I8X16,
                    format_args!(
                        "call {I8X16} @llvm.x86.ssse3.pshuf.b.128({I8X16} %v{a}, {I8X16} %v{index})"
                    ),
                );
            }
            Operator::V128Load8x8S { memarg } => self.load_extended(memarg, I16X8, "sext")?,
            Operator::V128Load8x8U { memarg } => self.load_extended(memarg, I16X8, "zext")?,
            Operator::V128Load16x4S { memarg } => self.load_extended(memarg, I32X4, "sext")?,
            Operator::V128Load16x4U { memarg } => self.load_extended(memarg, I32X4, "zext")?,
            Operator::V128Load32x2S { memarg } => self.load_extended(memarg, I64X2, "sext")?,
            Operator::V128Load32x2U { memarg } => self.load_extended(memarg, I64X2, "zext")?,
            Operator::V128Load8Splat { memarg } => self.load_splat(memarg, I8X16)?,
            Operator::V128Load16Splat { memarg } => self.load_splat(memarg, I16X8)?,
            Operator::V128Load32Splat { memarg } => self.load_splat(memarg, I32X4)?,
            Operator::V128Load64Splat { memarg } => self.load_splat(memarg, I64X2)?,
            Operator::V128Load32Zero { memarg } => self.load_zero(memarg, I32X4)?,
            Operator::V128Load64Zero { memarg } => self.load_zero(memarg, I64X2)?,
            Operator::V128Load8Lane { memarg, lane } => self.load_lane(memarg, I8X16, *lane)?,
            Operator::V128Load16Lane { memarg, lane } => self.load_lane(memarg, I16X8, *lane)?,
            Operator::V128Load32Lane { memarg, lane } => self.load_lane(memarg, I32X4, *lane)?,
            Operator::V128Load64Lane { memarg, lane } => self.load_lane(memarg, I64X2, *lane)?,
            Operator::V128Store8Lane { memarg, lane } => self.store_lane(memarg, I8X16, *lane)?,
            Operator::V128Store16Lane { memarg, lane } => self.store_lane(memarg, I16X8, *lane)?,
            Operator::V128Store32Lane { memarg, lane } => self.store_lane(memarg, I32X4, *lane)?,
            Operator::V128Store64Lane { memarg, lane } => self.store_lane(memarg, I64X2, *lane)?,
            Operator::I8x16ExtractLaneS { lane } | Operator::I8x16ExtractLaneU { lane } => {
                self.extract(I8X16, *lane, name)?;
            }
            Operator::I16x8ExtractLaneS { lane } | Operator::I16x8ExtractLaneU { lane } => {
                self.extract(I16X8, *lane, name)?;
            }
            Operator::I32x4ExtractLane { lane } => self.extract(I32X4, *lane, name)?,
            Operator::I64x2ExtractLane { lane } => self.extract(I64X2, *lane, name)?,
            Operator::F32x4ExtractLane { lane } => self.extract(F32X4, *lane, name)?,
            Operator::F64x2ExtractLane { lane } => self.extract(F64X2, *lane, name)?,
            Operator::I8x16ReplaceLane { lane } => self.replace(I8X16, *lane)?,
            Operator::I16x8ReplaceLane { lane } => self.replace(I16X8, *lane)?,
            Operator::I32x4ReplaceLane { lane } => self.replace(I32X4, *lane)?,
            Operator::I64x2ReplaceLane { lane } => self.replace(I64X2, *lane)?,
            Operator::F32x4ReplaceLane { lane } => self.replace(F32X4, *lane)?,
            Operator::F64x2ReplaceLane { lane } => self.replace(F64X2, *lane)?,
            _ => {
                let Some((shape, operation)) = Shape::split(name) else { return Ok(false) };
                return match shape.is_float {
                    true => self.float_lanes(shape, operation),
                    false => self.integer_lanes(shape, operation),
                };
            }
        }
        Ok(true)
    }

    /// Pops a vector. Returns the number of its value with lanes of this shape.
    fn lanes(&mut self, shape: Shape) -> Result<u32, LowerError> {
        let value = self.pop()?;
        Ok(self.temporary(format_args!("bitcast <2 x i64> {value} to {shape}")))
    }

    /// Writes an instruction whose result has lanes of this shape, and pushes the vector.
    fn push_lanes(&mut self, shape: Shape, instruction: impl fmt::Display) {
        let value = self.temporary(instruction);
        self.push_new(V128, format_args!("bitcast {shape} %v{value} to <2 x i64>"));
    }

    fn bitwise(&mut self, instruction: &str) -> Result<(), LowerError> {
        let (b, a) = (self.pop()?, self.pop()?);
        self.push_new(V128, format_args!("{instruction} <2 x i64> {a}, {b}"));
        Ok(())
    }

    fn complement(&mut self) -> Result<(), LowerError> {
        let value = self.pop()?;
        self.push_new(V128, format_args!("xor <2 x i64> {value}, <i64 -1, i64 -1>"));
        Ok(())
    }

    /// As [`Self::lanes`]. Floats are behind a fence, as those of `pop_fenced`.
    fn fenced_lanes(&mut self, shape: Shape) -> Result<u32, LowerError> {
        let value = self.lanes(shape)?;
        if !shape.is_float {
            return Ok(value);
        }
        let suffix = shape.suffix();
        Ok(self.temporary(format_args!("call {shape} @llvm.arithmetic.fence.{suffix}({shape} %v{value})")))
    }

    fn binary(&mut self, shape: Shape, instruction: &str) -> Result<(), LowerError> {
        let (b, a) = (self.fenced_lanes(shape)?, self.fenced_lanes(shape)?);
        self.push_lanes(shape, format_args!("{instruction} {shape} %v{a}, %v{b}"));
        Ok(())
    }

    fn compare(&mut self, shape: Shape, comparison: &str) -> Result<(), LowerError> {
        let (b, a) = (self.lanes(shape)?, self.lanes(shape)?);
        let result = self.temporary(format_args!("{comparison} {shape} %v{a}, %v{b}"));
        let integers = Shape { is_float: false, ..shape };
        self.push_lanes(integers, format_args!("sext {} %v{result} to {integers}", shape.mask()));
        Ok(())
    }

    /// Calls an intrinsic with one vector.
    fn intrinsic1(&mut self, shape: Shape, name: &str) -> Result<(), LowerError> {
        let (a, suffix) = (self.lanes(shape)?, shape.suffix());
        let flag = if name == "abs" { ", i1 false" } else { "" };
        self.push_lanes(shape, format_args!("call {shape} @llvm.{name}.{suffix}({shape} %v{a}{flag})"));
        Ok(())
    }

    /// Calls an intrinsic with two vectors.
    fn intrinsic2(&mut self, shape: Shape, name: &str) -> Result<(), LowerError> {
        let (b, a, suffix) = (self.lanes(shape)?, self.lanes(shape)?, shape.suffix());
        self.push_lanes(
            shape,
            format_args!("call {shape} @llvm.{name}.{suffix}({shape} %v{a}, {shape} %v{b})"),
        );
        Ok(())
    }

    /// Calls an intrinsic of x86 with two vectors.
    fn x86(&mut self, from: Shape, to: Shape, name: &str) -> Result<(), LowerError> {
        let (b, a) = (self.lanes(from)?, self.lanes(from)?);
        self.push_lanes(to, format_args!("call {to} @llvm.x86.{name}({from} %v{a}, {from} %v{b})"));
        Ok(())
    }

    /// Returns the number of a vector whose lanes are all this value of LLVM type `shape.lane()`.
    fn splat_of(&mut self, shape: Shape, value: impl fmt::Display) -> u32 {
        let lane = shape.lane();
        let first = self.temporary(format_args!("insertelement {shape} poison, {lane} {value}, i32 0"));
        self.temporary(format_args!(
            "shufflevector {shape} %v{first}, {shape} poison, <{} x i32> zeroinitializer",
            shape.lanes
        ))
    }

    /// Pops a scalar. Returns it as a lane.
    fn pop_lane(&mut self, shape: Shape) -> Result<String, LowerError> {
        let value = self.pop()?;
        Ok(match shape.bits {
            8 | 16 => format!("%v{}", self.temporary(format_args!("trunc i32 {value} to {}", shape.lane()))),
            _ => value.to_string(),
        })
    }

    fn extract(&mut self, shape: Shape, lane: u8, name: &str) -> Result<(), LowerError> {
        let (vector, ty) = (self.lanes(shape)?, shape.scalar());
        let value = self.temporary(format_args!("extractelement {shape} %v{vector}, i32 {lane}"));
        if shape.bits < 32 {
            self.push_new(ty, format_args!("{} {} %v{value} to i32", extension(name), shape.lane()));
        } else {
            self.push(StackOperand::Value(value, ty));
        }
        Ok(())
    }

    fn replace(&mut self, shape: Shape, lane: u8) -> Result<(), LowerError> {
        let value = self.pop_lane(shape)?;
        let vector = self.lanes(shape)?;
        let ty = shape.lane();
        self.push_lanes(shape, format_args!("insertelement {shape} %v{vector}, {ty} {value}, i32 {lane}"));
        Ok(())
    }

    /// Writes a selection of `count` lanes, from `first` on, each `step` lanes after the one before.
    fn select_lanes(&mut self, shape: Shape, vector: u32, first: u32, step: usize) -> u32 {
        let count = shape.lanes / 2;
        let lanes: Vec<_> = (first..shape.lanes)
            .step_by(step)
            .take(count as usize)
            .map(|lane| format!("i32 {lane}"))
            .collect();
        self.temporary(format_args!(
            "shufflevector {shape} %v{vector}, {shape} poison, <{count} x i32> <{}>",
            lanes.join(", ")
        ))
    }

    /// Writes an extension of half of a vector's lanes to the shape `to`. Returns the number of the result.
    fn extend_half(&mut self, to: Shape, vector: u32, first: u32, step: usize, extension: &str) -> u32 {
        let from = to.narrow();
        let half = self.select_lanes(from, vector, first, step);
        self.temporary(format_args!("{extension} <{} x {}> %v{half} to {to}", to.lanes, from.lane()))
    }

    fn integer_lanes(&mut self, shape: Shape, operation: &str) -> Result<bool, LowerError> {
        match operation {
            "Splat" => {
                let value = self.pop_lane(shape)?;
                let vector = self.splat_of(shape, value);
                self.push_new(V128, format_args!("bitcast {shape} %v{vector} to <2 x i64>"));
            }
            "Eq" => self.compare(shape, "icmp eq")?,
            "Ne" => self.compare(shape, "icmp ne")?,
            "LtS" => self.compare(shape, "icmp slt")?,
            "LtU" => self.compare(shape, "icmp ult")?,
            "GtS" => self.compare(shape, "icmp sgt")?,
            "GtU" => self.compare(shape, "icmp ugt")?,
            "LeS" => self.compare(shape, "icmp sle")?,
            "LeU" => self.compare(shape, "icmp ule")?,
            "GeS" => self.compare(shape, "icmp sge")?,
            "GeU" => self.compare(shape, "icmp uge")?,
            "Abs" => self.intrinsic1(shape, "abs")?,
            "Popcnt" => self.intrinsic1(shape, "ctpop")?,
            "Neg" => {
                let a = self.lanes(shape)?;
                self.push_lanes(shape, format_args!("sub {shape} zeroinitializer, %v{a}"));
            }
            "AllTrue" => {
                let a = self.lanes(shape)?;
                let set = self.temporary(format_args!("icmp ne {shape} %v{a}, zeroinitializer"));
                let bits =
                    self.temporary(format_args!("bitcast {} %v{set} to i{}", shape.mask(), shape.lanes));
                let all = self.temporary(format_args!("icmp eq i{} %v{bits}, -1", shape.lanes));
                self.push_new(I32, format_args!("zext i1 %v{all} to i32"));
            }
            "Bitmask" => {
                let a = self.lanes(shape)?;
                let signs = self.temporary(format_args!("icmp slt {shape} %v{a}, zeroinitializer"));
                let bits =
                    self.temporary(format_args!("bitcast {} %v{signs} to i{}", shape.mask(), shape.lanes));
                self.push_new(I32, format_args!("zext i{} %v{bits} to i32", shape.lanes));
            }
            "Shl" => self.shift(shape, "shl")?,
            "ShrS" => self.shift(shape, "ashr")?,
            "ShrU" => self.shift(shape, "lshr")?,
            "Add" => self.binary(shape, "add")?,
            "Sub" => self.binary(shape, "sub")?,
            "Mul" => self.binary(shape, "mul")?,
            "AddSatS" => self.intrinsic2(shape, "sadd.sat")?,
            "AddSatU" => self.intrinsic2(shape, "uadd.sat")?,
            "SubSatS" => self.intrinsic2(shape, "ssub.sat")?,
            "SubSatU" => self.intrinsic2(shape, "usub.sat")?,
            "MinS" => self.intrinsic2(shape, "smin")?,
            "MinU" => self.intrinsic2(shape, "umin")?,
            "MaxS" => self.intrinsic2(shape, "smax")?,
            "MaxU" => self.intrinsic2(shape, "umax")?,
            "AvgrU" => self.average(shape)?,
            "NarrowI16x8S" => self.x86(I16X8, I8X16, "sse2.packsswb.128")?,
            "NarrowI16x8U" => self.x86(I16X8, I8X16, "sse2.packuswb.128")?,
            "NarrowI32x4S" => self.x86(I32X4, I16X8, "sse2.packssdw.128")?,
            "NarrowI32x4U" => self.x86(I32X4, I16X8, "sse41.packusdw")?,
            "DotI16x8S" => self.x86(I16X8, I32X4, "sse2.pmadd.wd")?,
            "Q15MulrSatS" => {
                self.x86(I16X8, I16X8, "ssse3.pmul.hr.sw.128")?;
                // Only the product of -1 and -1 is too large. The processor gives the least number, and the greatest is meant.
                let product = self.lanes(I16X8)?;
                let least = ["i16 -32768"; 8].join(", ");
                let overflows = self.temporary(format_args!("icmp eq {I16X8} %v{product}, <{least}>"));
                let mask = self.temporary(format_args!("sext <8 x i1> %v{overflows} to {I16X8}"));
                self.push_lanes(I16X8, format_args!("xor {I16X8} %v{product}, %v{mask}"));
            }
            "TruncSatF32x4S" => self.saturate(F32X4, "fptosi")?,
            "TruncSatF32x4U" => self.saturate(F32X4, "fptoui")?,
            "TruncSatF64x2SZero" => self.saturate(F64X2, "fptosi")?,
            "TruncSatF64x2UZero" => self.saturate(F64X2, "fptoui")?,
            _ => return self.widening(shape, operation),
        }
        Ok(true)
    }

    /// Lowers an instruction whose results are wider than its operands.
    fn widening(&mut self, shape: Shape, operation: &str) -> Result<bool, LowerError> {
        let extension = extension(operation);
        let is_high = operation.contains("High");
        let first = if is_high { shape.lanes } else { 0 };
        if operation.starts_with("ExtAddPairwise") {
            let a = self.lanes(shape.narrow())?;
            let even = self.extend_half(shape, a, 0, 2, extension);
            let odd = self.extend_half(shape, a, 1, 2, extension);
            self.push_lanes(shape, format_args!("add {shape} %v{even}, %v{odd}"));
        } else if operation.starts_with("ExtMul") {
            let (b, a) = (self.lanes(shape.narrow())?, self.lanes(shape.narrow())?);
            let a = self.extend_half(shape, a, first, 1, extension);
            let b = self.extend_half(shape, b, first, 1, extension);
            self.push_lanes(shape, format_args!("mul {shape} %v{a}, %v{b}"));
        } else if operation.starts_with("Extend") {
            let a = self.lanes(shape.narrow())?;
            let a = self.extend_half(shape, a, first, 1, extension);
            self.push_new(V128, format_args!("bitcast {shape} %v{a} to <2 x i64>"));
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn shift(&mut self, shape: Shape, instruction: &str) -> Result<(), LowerError> {
        let distance = self.pop()?;
        let distance = self.define(I32, format_args!("and i32 {distance}, {}", shape.bits - 1));
        let distance = match shape.bits {
            32 => distance.to_string(),
            64 => format!("%v{}", self.temporary(format_args!("zext i32 {distance} to i64"))),
            _ => format!("%v{}", self.temporary(format_args!("trunc i32 {distance} to {}", shape.lane()))),
        };
        let distances = self.splat_of(shape, distance);
        let a = self.lanes(shape)?;
        self.push_lanes(shape, format_args!("{instruction} {shape} %v{a}, %v{distances}"));
        Ok(())
    }

    /// Writes an average that is rounded up, which LLVM recognises.
    fn average(&mut self, shape: Shape) -> Result<(), LowerError> {
        let (b, a) = (self.lanes(shape)?, self.lanes(shape)?);
        let (lanes, bits) = (shape.lanes, shape.bits * 2);
        let wide = format!("<{lanes} x i{bits}>");
        let a = self.temporary(format_args!("zext {shape} %v{a} to {wide}"));
        let b = self.temporary(format_args!("zext {shape} %v{b} to {wide}"));
        let sum = self.temporary(format_args!("add {wide} %v{a}, %v{b}"));
        let ones = vec![format!("i{bits} 1"); lanes as usize].join(", ");
        let sum = self.temporary(format_args!("add {wide} %v{sum}, <{ones}>"));
        let half = self.temporary(format_args!("lshr {wide} %v{sum}, <{ones}>"));
        self.push_lanes(shape, format_args!("trunc {wide} %v{half} to {shape}"));
        Ok(())
    }

    /// Writes a conversion of floats to integers of 32 bits. Lanes without a float are 0.
    fn saturate(&mut self, from: Shape, name: &str) -> Result<(), LowerError> {
        let (a, lanes) = (self.lanes(from)?, from.lanes);
        let call =
            format!("call <{lanes} x i32> @llvm.{name}.sat.v{lanes}i32.{}({from} %v{a})", from.suffix());
        if lanes == 4 {
            self.push_lanes(I32X4, call);
        } else {
            let low = self.temporary(call);
            self.push_lanes(I32X4, with_zeros("i32", low));
        }
        Ok(())
    }

    fn float_lanes(&mut self, shape: Shape, operation: &str) -> Result<bool, LowerError> {
        match operation {
            "Splat" => {
                let value = self.pop_lane(shape)?;
                let vector = self.splat_of(shape, value);
                self.push_new(V128, format_args!("bitcast {shape} %v{vector} to <2 x i64>"));
            }
            "Eq" => self.compare(shape, "fcmp oeq")?,
            "Ne" => self.compare(shape, "fcmp une")?,
            "Lt" => self.compare(shape, "fcmp olt")?,
            "Gt" => self.compare(shape, "fcmp ogt")?,
            "Le" => self.compare(shape, "fcmp ole")?,
            "Ge" => self.compare(shape, "fcmp oge")?,
            "Add" => self.binary(shape, "fadd")?,
            "Sub" => self.binary(shape, "fsub")?,
            "Mul" => self.binary(shape, "fmul")?,
            "Div" => self.binary(shape, "fdiv")?,
            "Min" => self.extreme(shape, "minimum")?,
            "Max" => self.extreme(shape, "maximum")?,
            "PMin" => self.pseudo(shape, true)?,
            "PMax" => self.pseudo(shape, false)?,
            "Abs" => self.intrinsic1(shape, "fabs")?,
            "Sqrt" => self.intrinsic1(shape, "sqrt")?,
            "Ceil" => self.intrinsic1(shape, "ceil")?,
            "Floor" => self.intrinsic1(shape, "floor")?,
            "Trunc" => self.intrinsic1(shape, "trunc")?,
            "Nearest" => self.intrinsic1(shape, "roundeven")?,
            "Neg" => {
                let a = self.lanes(shape)?;
                self.push_lanes(shape, format_args!("fneg {shape} %v{a}"));
            }
            "ConvertI32x4S" => self.convert(I32X4, F32X4, "sitofp")?,
            "ConvertI32x4U" => self.convert(I32X4, F32X4, "uitofp")?,
            "ConvertLowI32x4S" => self.convert_low(I32X4, "sitofp")?,
            "ConvertLowI32x4U" => self.convert_low(I32X4, "uitofp")?,
            "PromoteLowF32x4" => self.convert_low(F32X4, "fpext")?,
            "DemoteF64x2Zero" => {
                let a = self.fenced_lanes(F64X2)?;
                let low = self.temporary(format_args!("fptrunc {F64X2} %v{a} to <2 x float>"));
                self.push_lanes(F32X4, with_zeros("float", low));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Writes a minimum or maximum. A NaN becomes a quiet one.
    fn extreme(&mut self, shape: Shape, name: &str) -> Result<(), LowerError> {
        let (b, a, suffix) = (self.fenced_lanes(shape)?, self.fenced_lanes(shape)?, shape.suffix());
        let extreme =
            self.temporary(format_args!("call {shape} @llvm.{name}.{suffix}({shape} %v{a}, {shape} %v{b})"));
        let sum = self.temporary(format_args!("fadd {shape} %v{a}, %v{b}"));
        let is_nan = self.temporary(format_args!("fcmp uno {shape} %v{a}, %v{b}"));
        self.push_lanes(
            shape,
            format_args!("select {} %v{is_nan}, {shape} %v{sum}, {shape} %v{extreme}", shape.mask()),
        );
        Ok(())
    }

    /// Writes the minimum or maximum of C: the second operand if it is less or greater, and else the first.
    fn pseudo(&mut self, shape: Shape, is_minimum: bool) -> Result<(), LowerError> {
        let (b, a) = (self.lanes(shape)?, self.lanes(shape)?);
        let (less, more) = if is_minimum { (b, a) } else { (a, b) };
        let second = self.temporary(format_args!("fcmp olt {shape} %v{less}, %v{more}"));
        self.push_lanes(
            shape,
            format_args!("select {} %v{second}, {shape} %v{b}, {shape} %v{a}", shape.mask()),
        );
        Ok(())
    }

    fn convert(&mut self, from: Shape, to: Shape, instruction: &str) -> Result<(), LowerError> {
        let a = self.lanes(from)?;
        self.push_lanes(to, format_args!("{instruction} {from} %v{a} to {to}"));
        Ok(())
    }

    fn convert_low(&mut self, from: Shape, instruction: &str) -> Result<(), LowerError> {
        let a = self.lanes(from)?;
        let low = self.select_lanes(from, a, 0, 1);
        self.push_lanes(F64X2, format_args!("{instruction} <2 x {}> %v{low} to {F64X2}", from.lane()));
        Ok(())
    }

    fn load_extended(&mut self, memarg: &MemArg, to: Shape, extension: &str) -> Result<(), LowerError> {
        let half = format!("<{} x {}>", to.lanes, to.narrow().lane());
        let value = self.load_as(memarg, &half)?;
        self.push_lanes(to, format_args!("{extension} {half} %v{value} to {to}"));
        Ok(())
    }

    fn load_splat(&mut self, memarg: &MemArg, shape: Shape) -> Result<(), LowerError> {
        let value = self.load_as(memarg, shape.lane())?;
        let vector = self.splat_of(shape, format_args!("%v{value}"));
        self.push_new(V128, format_args!("bitcast {shape} %v{vector} to <2 x i64>"));
        Ok(())
    }

    fn load_zero(&mut self, memarg: &MemArg, shape: Shape) -> Result<(), LowerError> {
        let (value, lane) = (self.load_as(memarg, shape.lane())?, shape.lane());
        self.push_lanes(
            shape,
            format_args!("insertelement {shape} zeroinitializer, {lane} %v{value}, i32 0"),
        );
        Ok(())
    }

    fn load_lane(&mut self, memarg: &MemArg, shape: Shape, lane: u8) -> Result<(), LowerError> {
        let vector = self.lanes(shape)?;
        let (value, ty) = (self.load_as(memarg, shape.lane())?, shape.lane());
        self.push_lanes(shape, format_args!("insertelement {shape} %v{vector}, {ty} %v{value}, i32 {lane}"));
        Ok(())
    }

    fn store_lane(&mut self, memarg: &MemArg, shape: Shape, lane: u8) -> Result<(), LowerError> {
        if u32::from(lane) >= shape.lanes {
            return Err(invalid());
        }
        let vector = self.lanes(shape)?;
        let value = self.temporary(format_args!("extractelement {shape} %v{vector}, i32 {lane}"));
        self.store_as(memarg, shape.lane(), format_args!("%v{value}"))
    }
}

/// Returns the instruction that appends two lanes of 0 to a vector of two lanes.
fn with_zeros(lane: &str, low: u32) -> String {
    format!(
        "shufflevector <2 x {lane}> %v{low}, <2 x {lane}> zeroinitializer, <4 x i32> <i32 0, i32 1, i32 2, i32 3>"
    )
}

/// Writes the declarations of the intrinsics on vectors.
pub(crate) fn declarations(text: &mut impl fmt::Write) -> fmt::Result {
    for shape in [I8X16, I16X8, I32X4, I64X2] {
        let suffix = shape.suffix();
        writeln!(text, "declare {shape} @llvm.abs.{suffix}({shape}, i1 immarg)")?;
        writeln!(text, "declare {shape} @llvm.ctpop.{suffix}({shape})")?;
        for name in ["sadd.sat", "uadd.sat", "ssub.sat", "usub.sat", "smin", "umin", "smax", "umax"] {
            writeln!(text, "declare {shape} @llvm.{name}.{suffix}({shape}, {shape})")?;
        }
    }
    for shape in [F32X4, F64X2] {
        let (suffix, lanes) = (shape.suffix(), shape.lanes);
        for name in ["fabs", "sqrt", "ceil", "floor", "trunc", "roundeven", "arithmetic.fence"] {
            writeln!(text, "declare {shape} @llvm.{name}.{suffix}({shape})")?;
        }
        for name in ["minimum", "maximum"] {
            writeln!(text, "declare {shape} @llvm.{name}.{suffix}({shape}, {shape})")?;
        }
        for name in ["fptosi", "fptoui"] {
            writeln!(text, "declare <{lanes} x i32> @llvm.{name}.sat.v{lanes}i32.{suffix}({shape})")?;
        }
    }
    let x86 = [
        (I8X16, "ssse3.pshuf.b.128", I8X16),
        (I8X16, "sse2.packsswb.128", I16X8),
        (I8X16, "sse2.packuswb.128", I16X8),
        (I16X8, "sse2.packssdw.128", I32X4),
        (I16X8, "sse41.packusdw", I32X4),
        (I32X4, "sse2.pmadd.wd", I16X8),
        (I16X8, "ssse3.pmul.hr.sw.128", I16X8),
    ];
    x86.iter()
        .try_for_each(|(to, name, from)| writeln!(text, "declare {to} @llvm.x86.{name}({from}, {from})"))
}
