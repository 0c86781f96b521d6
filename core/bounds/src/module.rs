//! A module as the analysis reads it.

use crate::Costs;
use crate::analyse::Malformed;
use crate::cost::is_vector;
use crate::range::Width;
use std::rc::Rc;
use wasmparser::{
    BlockType, CompositeInnerType, ElementItems, ExternalKind, FuncType, FunctionBody, KnownCustom, Name,
    Operator, Parser, Payload, TypeRef, ValType,
};
use weir_abi::entry::{ENTRY_POINTS, EntryPoint};
use weir_abi::host::HostFunction;

/// A module.
#[derive(Debug, Default)]
pub(crate) struct Module<'a> {
    types: Vec<Option<FuncType>>,
    /// Type of each function, the imported ones first.
    functions: Vec<u32>,
    /// Names of the imported functions.
    pub(crate) imports: Vec<Option<HostFunction>>,
    bodies: Vec<FunctionBody<'a>>,
    decoded: Vec<Option<Rc<Code<'a>>>>,
    /// Instructions that were read so far.
    pub(crate) instructions_read: usize,
    pub(crate) globals: Vec<Global>,
    pub(crate) entries: Vec<(EntryPoint, u32)>,
    /// Functions that an indirect call can reach.
    pub(crate) referenced: Vec<u32>,
    /// The global that LLVM keeps its shadow stack's pointer in.
    pub(crate) stack_pointer: Option<u32>,
    /// Whether functions, blocks or globals hand vectors around.
    has_vectors: bool,
}

/// A global.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Global {
    pub(crate) width: Width,
    pub(crate) mutable: bool,
    /// Its value, if it is an integer that never changes.
    pub(crate) constant: Option<i64>,
}

/// A function's instructions.
#[derive(Debug)]
pub(crate) struct Code<'a> {
    pub(crate) locals: Vec<Width>,
    pub(crate) results: Vec<Width>,
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

pub(crate) fn width_of(ty: ValType) -> Width {
    match ty {
        ValType::I32 => Width::W32,
        ValType::I64 => Width::W64,
        _ => Width::Other,
    }
}

fn malformed(error: &wasmparser::BinaryReaderError) -> Malformed {
    Malformed { offset: error.offset(), reason: error.message().to_owned() }
}

impl<'a> Module<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut module = Self::default();
        module.read(bytes).map_err(|error| malformed(&error))?;
        module.decoded = module.bodies.iter().map(|_| None).collect();
        if module.stack_pointer.is_none() {
            let mut candidates = (0..)
                .zip(&module.globals)
                .filter(|(_, g)| g.mutable && g.width == Width::W32)
                .map(|(i, _)| i);
            module.stack_pointer = candidates.next().filter(|_| candidates.next().is_none());
        }
        Ok(module)
    }

    fn read(&mut self, bytes: &'a [u8]) -> Result<(), wasmparser::BinaryReaderError> {
        let mut exports = Vec::new();
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::TypeSection(reader) => {
                    for group in reader {
                        for ty in group?.into_types() {
                            let ty = match ty.composite_type.inner {
                                CompositeInnerType::Func(ty) => Some(ty),
                                _ => None,
                            };
                            let mut kinds = ty.iter().flat_map(|ty| ty.params().iter().chain(ty.results()));
                            self.has_vectors |= kinds.any(|ty| *ty == ValType::V128);
                            self.types.push(ty);
                        }
                    }
                }
                Payload::ImportSection(reader) => {
                    for import in reader.into_imports() {
                        let import = import?;
                        if let TypeRef::Func(ty) = import.ty {
                            self.functions.push(ty);
                            self.imports.push(HostFunction::named(import.name));
                        }
                    }
                }
                Payload::FunctionSection(reader) => {
                    for ty in reader {
                        self.functions.push(ty?);
                    }
                }
                Payload::GlobalSection(reader) => {
                    for global in reader {
                        let global = global?;
                        let constant = match global.init_expr.get_operators_reader().read()? {
                            Operator::I32Const { value } => Some(value.into()),
                            Operator::I64Const { value } => Some(value),
                            // From there it can be put into a table.
                            Operator::RefFunc { function_index } => {
                                self.referenced.push(function_index);
                                None
                            }
                            _ => None,
                        };
                        self.has_vectors |= global.ty.content_type == ValType::V128;
                        self.globals.push(Global {
                            width: width_of(global.ty.content_type),
                            mutable: global.ty.mutable,
                            constant: constant.filter(|_| !global.ty.mutable),
                        });
                    }
                }
                Payload::ExportSection(reader) => {
                    for export in reader {
                        let export = export?;
                        exports.push((export.name, export.kind, export.index));
                    }
                }
                Payload::StartSection { func, .. } => self.entries.push((EntryPoint::Begin, func)),
                Payload::ElementSection(reader) => {
                    for element in reader {
                        match element?.items {
                            ElementItems::Functions(items) => {
                                for item in items {
                                    self.referenced.push(item?);
                                }
                            }
                            ElementItems::Expressions(_, items) => {
                                for item in items {
                                    if let Operator::RefFunc { function_index } =
                                        item?.get_operators_reader().read()?
                                    {
                                        self.referenced.push(function_index);
                                    }
                                }
                            }
                        }
                    }
                }
                Payload::CodeSectionEntry(body) => self.bodies.push(body),
                Payload::CustomSection(reader) => {
                    if let KnownCustom::Name(names) = reader.as_known() {
                        for section in names.into_iter().flatten() {
                            if let Name::Global(map) = section {
                                self.stack_pointer = map
                                    .into_iter()
                                    .flatten()
                                    .find(|n| n.name == weir_abi::export::STACK_POINTER)
                                    .map(|n| n.index);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        for known in &ENTRY_POINTS {
            let is_it = |(name, kind, _): &&(&str, ExternalKind, u32)| {
                *kind == ExternalKind::Func && EntryPoint::named(name) == Some(known.entry)
            };
            self.entries.extend(exports.iter().find(is_it).map(|(.., index)| (known.entry, *index)));
        }
        let by_name = exports.iter().find(|(name, kind, _)| {
            *kind == ExternalKind::Global && *name == weir_abi::export::STACK_POINTER
        });
        self.stack_pointer = by_name.map(|(.., index)| *index).or(self.stack_pointer).filter(|index| {
            self.globals.get(*index as usize).is_some_and(|g| g.mutable && g.width == Width::W32)
        });
        // `ref.func` in code can also name a function, but the validator wants it in an element segment, an export, or a global's first value.
        self.referenced.extend(exports.iter().filter(|(_, k, _)| *k == ExternalKind::Func).map(|(.., i)| *i));
        self.referenced.sort_unstable();
        self.referenced.dedup();
        Ok(())
    }

    /// The type of a function.
    pub(crate) fn type_of(&self, function: u32) -> Option<&FuncType> {
        self.types.get(*self.functions.get(function as usize)? as usize)?.as_ref()
    }

    pub(crate) fn type_at(&self, index: u32) -> Option<&FuncType> {
        self.types.get(index as usize)?.as_ref()
    }

    /// Parameters and results of a block.
    pub(crate) fn block(&self, ty: BlockType) -> (Vec<Width>, Vec<Width>) {
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
        let body =
            (function as usize).checked_sub(self.imports.len()).and_then(|index| self.bodies.get(index));
        let reader = body.and_then(|body| body.get_operators_reader().ok());
        reader.and_then(|reader| u32::try_from(reader.original_position()).ok()).unwrap_or(0)
    }

    /// The instructions of a function of the module's own; nothing where they are more than `most` and were not read before.
    pub(crate) fn code(
        &mut self,
        function: u32,
        costs: &Costs,
        most: usize,
    ) -> Result<Option<Rc<Code<'a>>>, Malformed> {
        let Some(index) = (function as usize).checked_sub(self.imports.len()) else { return Ok(None) };
        let Some(body) = self.bodies.get(index) else { return Ok(None) };
        if let Some(Some(code)) = self.decoded.get(index) {
            return Ok(Some(Rc::clone(code)));
        }
        let ty = self.type_of(function).cloned();
        let code =
            decode(body, ty.as_ref(), costs, self.has_vectors, most).map_err(|error| malformed(&error))?;
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
    costs: &Costs,
    mut has_vectors: bool,
    most: usize,
) -> Result<Option<Code<'a>>, wasmparser::BinaryReaderError> {
    let mut locals: Vec<Width> =
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
    let mut code = Code {
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
