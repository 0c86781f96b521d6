//! The sections of a module that its functions refer to.

use crate::thunk::{GUEST_THUNKS, GuestThunk, Thunk};
use crate::{LowerError, Unsupported};
use std::collections::BTreeMap;
use wasmparser::{
    BinaryReaderError, ConstExpr, ElementItems, ElementKind, ExternalKind, FuncType, FunctionBody, Name,
    Operator, Parser, Payload, TableInit, TypeRef, ValType,
};

/// A module that is lowered.
pub(crate) struct LoweredModule<'a> {
    pub(crate) types: Vec<FuncType>,
    /// The types of all functions, imported ones first.
    pub(crate) function_types: Vec<u32>,
    pub(crate) imports: Vec<ImportedFunction>,
    pub(crate) globals: Vec<GlobalVariable>,
    /// The places of the mutable globals, and the bytes that they take below the memory.
    pub(crate) globals_bytes: u32,
    /// The functions in the table's elements; `None` for an element without a function.
    table: Vec<Option<u32>>,
    /// The elements of the table by the types of their functions: element and function.
    table_by_type: BTreeMap<FuncType, Vec<(usize, u32)>>,
    pub(crate) bodies: Vec<FunctionBody<'a>>,
    pub(crate) exports: Vec<(String, u32)>,
    /// The exported globals.
    pub(crate) global_exports: Vec<(String, u32)>,
    pub(crate) names: BTreeMap<u32, String>,
    /// The hints of each function: offset in its body, and whether the branch is likely to be taken.
    pub(crate) hints: BTreeMap<u32, Vec<(u32, bool)>>,
}

/// An imported function.
pub(crate) struct ImportedFunction {
    pub(crate) module: String,
    pub(crate) name: String,
}

/// A global variable.
#[derive(Clone, Copy)]
pub(crate) struct GlobalVariable {
    pub(crate) ty: ValType,
    pub(crate) place: GlobalPlace,
}

/// The place of a global variable's value.
#[derive(Clone, Copy)]
pub(crate) enum GlobalPlace {
    /// The value never changes.
    Constant(Constant),
    /// The value is this number of bytes below the memory, where it begins with this value.
    Below(u32, Constant),
}

/// The value of a constant expression, as its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constant {
    /// An i32.
    I32(i32),
    /// An i64.
    I64(i64),
    /// The bits of an f32.
    F32(u32),
    /// The bits of an f64.
    F64(u64),
    /// The bytes of a v128, in the order of memory.
    V128([u8; 16]),
}

/// The most elements of a table whose calls are lowered to comparisons.
const TABLE_ELEMENTS_MAX: u64 = 4096;

impl<'a> LoweredModule<'a> {
    /// Reads a module that has been validated.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, LowerError> {
        let mut module = Self {
            types: Vec::new(),
            function_types: Vec::new(),
            imports: Vec::new(),
            globals: Vec::new(),
            globals_bytes: 0,
            table: Vec::new(),
            table_by_type: BTreeMap::new(),
            bodies: Vec::new(),
            exports: Vec::new(),
            global_exports: Vec::new(),
            names: BTreeMap::new(),
            hints: BTreeMap::new(),
        };
        for payload in Parser::new(0).parse_all(bytes) {
            module.read_section(payload?)?;
        }
        for (element, function) in module.table.iter().enumerate() {
            let Some(function) = *function else { continue };
            let ty = module.function_type(function)?.clone();
            module.table_by_type.entry(ty).or_default().push((element, function));
        }
        Ok(module)
    }

    fn read_section(&mut self, payload: Payload<'a>) -> Result<(), LowerError> {
        match payload {
            Payload::TypeSection(types) => {
                for ty in types.into_iter_err_on_gc_types() {
                    self.types.push(ty?);
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import?;
                    let TypeRef::Func(ty) = import.ty else {
                        return Err(Unsupported::Section("an import that is not a function").into());
                    };
                    self.function_types.push(ty);
                    self.imports
                        .push(ImportedFunction { module: import.module.into(), name: import.name.into() });
                }
            }
            Payload::FunctionSection(functions) => {
                for ty in functions {
                    self.function_types.push(ty?);
                }
            }
            Payload::TableSection(tables) => {
                for table in tables {
                    let table = table?;
                    let has_nulls = matches!(table.init, TableInit::RefNull);
                    if !self.table.is_empty() || !has_nulls || !table.ty.element_type.is_func_ref() {
                        return Err(Unsupported::Section("a second table, or one with other elements").into());
                    }
                    if table.ty.initial > TABLE_ELEMENTS_MAX {
                        return Err(Unsupported::Section("a table with more than 4,096 elements").into());
                    }
                    self.table = vec![None; usize::try_from(table.ty.initial).unwrap_or(0)];
                }
            }
            Payload::GlobalSection(globals) => {
                for global in globals {
                    let global = global?;
                    self.add_global(global.ty.content_type, global.ty.mutable, &global.init_expr)?;
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports {
                    let export = export?;
                    let exports = match export.kind {
                        ExternalKind::Func => &mut self.exports,
                        ExternalKind::Global => &mut self.global_exports,
                        _ => continue,
                    };
                    exports.push((export.name.into(), export.index));
                }
            }
            Payload::StartSection { .. } => return Err(Unsupported::Section("a start section").into()),
            Payload::ElementSection(elements) => {
                for element in elements {
                    self.read_element(element?)?;
                }
            }
            Payload::CodeSectionEntry(body) => self.bodies.push(body),
            Payload::CustomSection(section) => match section.as_known() {
                wasmparser::KnownCustom::Name(names) => {
                    for name in names.into_iter().flatten() {
                        if let Name::Function(functions) = name {
                            let named = functions.into_iter().flatten();
                            self.names.extend(named.map(|naming| (naming.index, naming.name.to_owned())));
                        }
                    }
                }
                wasmparser::KnownCustom::BranchHints(functions) => {
                    for function in functions.into_iter().flatten() {
                        let hints = function.hints.into_iter().flatten();
                        self.hints.insert(function.func, hints.map(|h| (h.func_offset, h.taken)).collect());
                    }
                }
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn add_global(&mut self, ty: ValType, is_mutable: bool, value: &ConstExpr<'_>) -> Result<(), LowerError> {
        let value = self.constant(value)?;
        let place = if is_mutable {
            // A place that its size divides: for v128 16 bytes, for all others 8.
            let (size, align) = if ty == ValType::V128 { (16, 16) } else { (8, 8) };
            self.globals_bytes = (self.globals_bytes + size).next_multiple_of(align);
            GlobalPlace::Below(self.globals_bytes, value)
        } else {
            GlobalPlace::Constant(value)
        };
        self.globals.push(GlobalVariable { ty, place });
        Ok(())
    }

    /// Evaluates a constant expression of one instruction.
    fn constant(&self, expression: &ConstExpr<'_>) -> Result<Constant, LowerError> {
        let mut operators = expression.get_operators_reader();
        let value = match operators.read()? {
            Operator::I32Const { value } => Constant::I32(value),
            Operator::I64Const { value } => Constant::I64(value),
            Operator::F32Const { value } => Constant::F32(value.bits()),
            Operator::F64Const { value } => Constant::F64(value.bits()),
            Operator::V128Const { value } => Constant::V128(*value.bytes()),
            Operator::GlobalGet { global_index } => match self.globals.get(global_index as usize) {
                Some(GlobalVariable { place: GlobalPlace::Constant(value), .. }) => *value,
                _ => return Err(Unsupported::Section("a constant expression with a global").into()),
            },
            _ => return Err(Unsupported::Section("a constant expression with a reference").into()),
        };
        match operators.read()? {
            Operator::End => Ok(value),
            _ => Err(Unsupported::Section("a constant expression of several instructions").into()),
        }
    }

    fn read_element(&mut self, element: wasmparser::Element<'a>) -> Result<(), LowerError> {
        let ElementKind::Active { table_index, offset_expr } = element.kind else {
            // A passive segment has an effect only with instructions that change tables, which are not lowered. A declared
            // one has none.
            return Ok(());
        };
        let unsupported = || LowerError::from(Unsupported::Section("an element segment with expressions"));
        let (Constant::I32(offset), ElementItems::Functions(functions)) =
            (self.constant(&offset_expr)?, element.items)
        else {
            return Err(unsupported());
        };
        if table_index.unwrap_or(0) != 0 {
            return Err(unsupported());
        }
        for (at, function) in (offset.cast_unsigned() as usize..).zip(functions) {
            // A segment that does not fit makes the instantiation trap.
            let place = self.table.get_mut(at).ok_or_else(unsupported)?;
            *place = Some(function?);
        }
        Ok(())
    }

    pub(crate) fn imported(&self) -> u32 {
        u32::try_from(self.imports.len()).unwrap_or(u32::MAX)
    }

    /// Returns the type of a function.
    pub(crate) fn function_type(&self, function: u32) -> Result<&FuncType, LowerError> {
        let ty = self.function_types.get(function as usize).ok_or_else(invalid)?;
        self.types.get(*ty as usize).ok_or_else(invalid)
    }

    /// Returns the elements of the table whose functions have this type: element and function.
    pub(crate) fn table_functions(&self, ty: &FuncType) -> &[(usize, u32)] {
        self.table_by_type.get(ty).map_or(&[], Vec::as_slice)
    }

    /// Returns the thunks: the host functions that the module imports, and those that replace instructions.
    pub(crate) fn thunks(&self) -> Vec<Thunk> {
        let imports = (0..self.imported()).map(Thunk::Import);
        imports.chain(GUEST_THUNKS.iter().map(|definition| Thunk::Guest(definition.thunk))).collect()
    }

    /// Returns the number of the thunk that replaces an instruction.
    pub(crate) fn guest_thunk(&self, thunk: GuestThunk) -> u32 {
        self.imported() + thunk as u32
    }
}

/// The error for a module that is not valid. Modules are validated before they are lowered.
pub(crate) fn invalid() -> LowerError {
    LowerError::Invalid("an index is out of range".into())
}

impl From<BinaryReaderError> for LowerError {
    fn from(error: BinaryReaderError) -> Self {
        Self::Invalid(error.to_string())
    }
}
