//! The instructions of functions, decoded for the analysis.

use crate::analyse::Malformed;
use crate::cost::is_vector;
use crate::range::BitWidth;
use crate::{CostTable, ParsedModule};
use std::rc::Rc;
use wasmparser::{BlockType, FuncType, FunctionBody, Operator, ValType};

/// The decoded instructions of a function.
#[derive(Debug)]
pub(crate) struct FunctionCode<'a> {
    /// The widths of the parameters and the other locals.
    pub(crate) locals: Vec<BitWidth>,
    pub(crate) results: Vec<BitWidth>,
    pub(crate) operators: Vec<Operator<'a>>,
    /// For each instruction, its offset in the module's bytes.
    pub(crate) offsets: Vec<u32>,
    /// For each instruction, the fuel of one execution.
    pub(crate) costs: Vec<u32>,
    /// For each `block`, `loop`, `if` and `else`, the index of the matching `end`.
    pub(crate) ends: Vec<u32>,
    /// For each `if`, the index of its `else`, or of its `end` if it has no `else`.
    pub(crate) elses: Vec<u32>,
    /// The bytes of the function's stack frame without operands, as the analysis counts them.
    pub(crate) frame_bytes: u64,
    /// The bytes that each operand takes in the stack frame: those of the function's largest operand.
    pub(crate) operand_bytes: u64,
}

/// The bytes of each stack frame besides locals and operands: return address, saved registers, arguments of a call.
const FRAME_BYTES: u64 = 96;

/// The width in which values of a type are tracked.
pub(crate) fn width_of(ty: ValType) -> BitWidth {
    match ty {
        ValType::I32 => BitWidth::W32,
        ValType::I64 => BitWidth::W64,
        _ => BitWidth::Other,
    }
}

impl ParsedModule {
    /// The widths of a block's parameters and results.
    pub(crate) fn block_signature(&self, ty: BlockType) -> (Vec<BitWidth>, Vec<BitWidth>) {
        match ty {
            BlockType::Empty => (Vec::new(), Vec::new()),
            BlockType::Type(ty) => (Vec::new(), vec![width_of(ty)]),
            BlockType::FuncType(index) => self.type_at(index).map_or((Vec::new(), Vec::new()), |ty| {
                let widths = |types: &[ValType]| types.iter().copied().map(width_of).collect();
                (widths(ty.params()), widths(ty.results()))
            }),
        }
    }

    /// The offset of a function's first instruction; 0 for an imported function.
    pub(crate) fn body_offset(&self, function: u32) -> u32 {
        let reader = self.body(function).and_then(|body| body.get_operators_reader().ok());
        reader.and_then(|reader| u32::try_from(reader.original_position()).ok()).unwrap_or(0)
    }
}

/// The instructions of a module's functions, decoded on first use.
#[derive(Debug)]
pub(crate) struct Bodies<'a> {
    module: &'a ParsedModule,
    decoded: Vec<Option<Rc<FunctionCode<'a>>>>,
    /// The number of instructions decoded so far.
    pub(crate) instructions_read: usize,
    /// True if a type or a global of the module uses vectors.
    has_vectors: bool,
}

impl<'a> Bodies<'a> {
    pub(crate) fn new(module: &'a ParsedModule) -> Self {
        let kinds = module.types.iter().filter_map(|(_, ty)| ty.as_ref());
        let mut kinds = kinds.flat_map(|ty| ty.params().iter().chain(ty.results()));
        let has_vectors =
            kinds.any(|ty| *ty == ValType::V128) || module.globals.iter().any(|global| global.is_vector);
        Self { module, decoded: vec![None; module.bodies().len()], instructions_read: 0, has_vectors }
    }

    /// The instructions of a function of the module. `None` for an imported function, and for a function with more than
    /// `most` instructions that was not decoded before.
    pub(crate) fn code(
        &mut self,
        function: u32,
        costs: &CostTable,
        most: usize,
    ) -> Result<Option<Rc<FunctionCode<'a>>>, Malformed> {
        let Some((index, body)) = self.module.defined_index(function).zip(self.module.body(function)) else {
            return Ok(None);
        };
        if let Some(Some(code)) = self.decoded.get(index) {
            return Ok(Some(Rc::clone(code)));
        }
        let code = decode(&body, self.module.type_of(function), costs, self.has_vectors, most)?;
        let Some(code) = code.map(Rc::new) else { return Ok(None) };
        self.instructions_read += code.operators.len();
        if let Some(decoded) = self.decoded.get_mut(index) {
            *decoded = Some(Rc::clone(&code));
        }
        Ok(Some(code))
    }
}

/// Decodes a function; `None` if it has more than `most` instructions.
fn decode<'a>(
    body: &FunctionBody<'a>,
    ty: Option<&FuncType>,
    costs: &CostTable,
    mut has_vectors: bool,
    most: usize,
) -> Result<Option<FunctionCode<'a>>, wasmparser::BinaryReaderError> {
    let mut locals: Vec<BitWidth> =
        ty.map_or(Vec::new(), |ty| ty.params().iter().copied().map(width_of).collect());
    let bytes = |ty: &ValType| if *ty == ValType::V128 { 16u64 } else { 8 };
    let wide_params = ty.map_or(0, |ty| ty.params().iter().filter(|ty| **ty == ValType::V128).count());
    let mut frame = FRAME_BYTES + 8 * wide_params as u64;
    for declared in body.get_locals_reader()? {
        let (count, ty) = declared?;
        has_vectors |= ty == ValType::V128;
        frame += u64::from(count) * bytes(&ty);
        locals.extend((0..count).map(|_| width_of(ty)));
    }
    let mut code = FunctionCode {
        frame_bytes: frame + 8 * locals.len() as u64,
        locals,
        results: ty.map_or(Vec::new(), |ty| ty.results().iter().copied().map(width_of).collect()),
        operators: Vec::new(),
        offsets: Vec::new(),
        costs: Vec::new(),
        ends: Vec::new(),
        elses: Vec::new(),
        operand_bytes: 8,
    };
    let mut open_blocks: Vec<usize> = Vec::new();
    let mut reader = body.get_operators_reader()?;
    while !reader.eof() {
        let (operator, offset) = reader.read_with_offset()?;
        let index = code.operators.len();
        if index >= most {
            return Ok(None);
        }
        let here = u32::try_from(index).unwrap_or(u32::MAX);
        code.ends.push(here);
        code.elses.push(here);
        match operator {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => open_blocks.push(index),
            Operator::Else => {
                if let Some(begin) = open_blocks.last() {
                    code.elses[*begin] = here;
                }
            }
            Operator::End => {
                if let Some(begin) = open_blocks.pop() {
                    code.ends[begin] = here;
                    if code.elses[begin] == u32::try_from(begin).unwrap_or(u32::MAX) {
                        code.elses[begin] = here;
                    } else {
                        let middle = code.elses[begin] as usize;
                        code.ends[middle] = here;
                    }
                }
            }
            _ => {}
        }
        has_vectors |= is_vector(&operator);
        code.costs.push(costs.operator(&operator));
        code.offsets.push(u32::try_from(offset).unwrap_or(u32::MAX));
        code.operators.push(operator);
    }
    code.operand_bytes = if has_vectors { 16 } else { 8 };
    Ok(Some(code))
}
