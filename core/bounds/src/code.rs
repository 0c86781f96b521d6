//! The instructions of functions, as the analysis reads them.

use crate::analyse::Malformed;
use crate::cost::is_vector;
use crate::range::BitWidth;
use crate::{CostTable, ParsedModule};
use std::rc::Rc;
use wasmparser::{BlockType, FuncType, FunctionBody, Operator, ValType};

/// A function's instructions.
#[derive(Debug)]
pub(crate) struct FunctionCode<'a> {
    pub(crate) locals: Vec<BitWidth>,
    pub(crate) results: Vec<BitWidth>,
    pub(crate) operators: Vec<Operator<'a>>,
    pub(crate) offsets: Vec<u32>,
    pub(crate) costs: Vec<u32>,
    /// For `block`, `loop`, `if`: index of the matching `end`; for `if`, `else`: of the matching `else` or `end`.
    pub(crate) ends: Vec<u32>,
    /// For `if`: index of its `else`, or of its `end`.
    pub(crate) elses: Vec<u32>,
    /// Bytes of its frame, as the analysis counts them.
    pub(crate) frame: u64,
    /// Bytes of each of its operands: of the largest that there can be.
    pub(crate) operand: u64,
}

/// What is counted for each frame beside locals and operands: return address, saved registers, the call's arguments.
const FRAME_BYTES: u64 = 96;

pub(crate) fn width_of(ty: ValType) -> BitWidth {
    match ty {
        ValType::I32 => BitWidth::W32,
        ValType::I64 => BitWidth::W64,
        _ => BitWidth::Other,
    }
}

impl ParsedModule {
    /// Parameters and results of a block.
    pub(crate) fn block(&self, ty: BlockType) -> (Vec<BitWidth>, Vec<BitWidth>) {
        match ty {
            BlockType::Empty => (Vec::new(), Vec::new()),
            BlockType::Type(ty) => (Vec::new(), vec![width_of(ty)]),
            BlockType::FuncType(index) => self.type_at(index).map_or((Vec::new(), Vec::new()), |ty| {
                let widths = |types: &[ValType]| types.iter().copied().map(width_of).collect();
                (widths(ty.params()), widths(ty.results()))
            }),
        }
    }

    /// The offset of a function's first instruction; 0 for one that is not the module's own.
    pub(crate) fn offset(&self, function: u32) -> u32 {
        let reader = self.body(function).and_then(|body| body.get_operators_reader().ok());
        reader.and_then(|reader| u32::try_from(reader.original_position()).ok()).unwrap_or(0)
    }
}

/// The instructions of a module's functions, each read when it is first asked for.
#[derive(Debug)]
pub(crate) struct Bodies<'a> {
    module: &'a ParsedModule,
    decoded: Vec<Option<Rc<FunctionCode<'a>>>>,
    /// Instructions that were read so far.
    pub(crate) instructions_read: usize,
    /// Whether functions, blocks or globals hand vectors around.
    has_vectors: bool,
}

impl<'a> Bodies<'a> {
    pub(crate) fn of(module: &'a ParsedModule) -> Self {
        let kinds = module.types.iter().filter_map(|(_, ty)| ty.as_ref());
        let mut kinds = kinds.flat_map(|ty| ty.params().iter().chain(ty.results()));
        let has_vectors =
            kinds.any(|ty| *ty == ValType::V128) || module.globals.iter().any(|global| global.is_vector);
        Self { module, decoded: vec![None; module.bodies().len()], instructions_read: 0, has_vectors }
    }

    /// The instructions of a function of the module's own; nothing where they are more than `most` and were not read before.
    pub(crate) fn code(
        &mut self,
        function: u32,
        costs: &CostTable,
        most: usize,
    ) -> Result<Option<Rc<FunctionCode<'a>>>, Malformed> {
        let Some((index, body)) = self.module.own(function).zip(self.module.body(function)) else {
            return Ok(None);
        };
        if let Some(Some(code)) = self.decoded.get(index) {
            return Ok(Some(Rc::clone(code)));
        }
        let code = decode(&body, self.module.type_of(function), costs, self.has_vectors, most)?;
        let Some(code) = code.map(Rc::new) else { return Ok(None) };
        self.instructions_read += code.operators.len();
        if let Some(place) = self.decoded.get_mut(index) {
            *place = Some(Rc::clone(&code));
        }
        Ok(Some(code))
    }
}

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
        frame: frame + 8 * locals.len() as u64,
        locals,
        results: ty.map_or(Vec::new(), |ty| ty.results().iter().copied().map(width_of).collect()),
        operators: Vec::new(),
        offsets: Vec::new(),
        costs: Vec::new(),
        ends: Vec::new(),
        elses: Vec::new(),
        operand: 8,
    };
    let mut open: Vec<usize> = Vec::new();
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
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => open.push(index),
            Operator::Else => {
                if let Some(begin) = open.last() {
                    code.elses[*begin] = here;
                }
            }
            Operator::End => {
                if let Some(begin) = open.pop() {
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
    code.operand = if has_vectors { 16 } else { 8 };
    Ok(Some(code))
}
