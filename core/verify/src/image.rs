//! Code images, before and after verification.

use std::ops::Range;

use crate::rule::{Rejection, Rejections, Rule};

/// The alignment of the constants behind the code: a page, so that constants are not executable.
pub const CONSTANTS_ALIGNMENT: u32 = 4096;

/// The distance between two thunks. Thunk `k` is at image address `-THUNK_BYTES * (k + 1)`.
pub const THUNK_BYTES: u32 = 16;

/// The instruction `int3`, which fills gaps. The verifier accepts it where no path leads.
pub const PADDING: u8 = 0xcc;

/// Machine code of a module, as the untrusted compiler returns it. Its displacements are resolved in image coordinates:
/// the code begins at 0, the constants at the next multiple of [`CONSTANTS_ALIGNMENT`], and thunks lie below 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeImage {
    /// The instructions of all functions.
    pub code: Vec<u8>,
    /// Read-only data.
    pub constants: Vec<u8>,
    /// The functions, sorted by offset. Each extends to the next one or to the end of the code.
    pub functions: Vec<ImageFunction>,
}

/// A function of a code image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageFunction {
    /// The offset of its first instruction.
    pub offset: u32,
    /// The size in bytes of the arguments on the stack that its callers pass, a multiple of 8.
    pub stack_arguments: u32,
}

/// The CPU features that code may use. Each level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CpuFeatures {
    /// The level x86-64-v2: up to SSE4.2 and POPCNT.
    #[default]
    Baseline,
    /// BMI1, BMI2, LZCNT and MOVBE, besides the baseline.
    BitManipulation,
    /// AVX, AVX2, BMI1, BMI2, LZCNT and MOVBE of level x86-64-v3, besides the baseline.
    V3,
}

impl CpuFeatures {
    /// Returns the name of the level of the x86-64 psABI that code with these features needs.
    pub const fn level(self) -> &'static str {
        match self {
            Self::Baseline => "x86-64-v2",
            Self::BitManipulation | Self::V3 => "x86-64-v3",
        }
    }

    /// Returns the features for a level's name. Code for level 3 does not use AVX.
    pub fn of_level(name: &str) -> Option<Self> {
        [Self::Baseline, Self::BitManipulation].into_iter().find(|features| features.level() == name)
    }
}

/// The environment in which verified code runs, and limits of its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyLimits {
    /// For each granted thunk, the size in bytes of its stack arguments, a multiple of 8.
    pub thunks: Vec<u32>,
    /// The bytes below the base of the linear memory that belong to the module.
    pub globals_bytes: u32,
    /// The bytes behind the 4 GiB of the linear memory that belong to the module or are inaccessible.
    pub guard_bytes: u32,
    /// The largest frame in bytes, return addresses of its calls included. The inaccessible bytes below the stack must
    /// be at least eight more, so that no frame can step over them.
    pub frame_max: u32,
    /// The most bytes of code, and the most bytes of constants. Verification takes up to 60 bytes of memory for each
    /// byte of the largest function.
    pub code_max: u32,
    /// The most functions.
    pub functions_max: u32,
    /// The CPU features that the code may use.
    pub features: CpuFeatures,
}

/// A code image whose memory safety is proved. Only [`verify`](crate::verify()) creates one, and it cannot be changed.
#[derive(Debug)]
pub struct VerifiedCode {
    image: CodeImage,
    facts: Vec<FunctionFacts>,
}

/// Facts about a verified function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionFacts {
    /// The largest distance in bytes of the stack pointer from its value at entry, return addresses of calls included.
    pub frame_bytes: u32,
    /// The functions and thunks that it calls, sorted, each once.
    pub callees: Vec<Callee>,
    /// The most stack in bytes below the function's return address that it and its callees use. Thunks count no more
    /// than their return address. None if the function can reach a recursive call.
    pub stack_bound: Option<u64>,
}

/// The target of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Callee {
    /// A function of the image, by index.
    Function(u32),
    /// A granted thunk, by index.
    Thunk(u32),
}

impl VerifiedCode {
    pub(crate) fn new(image: CodeImage, facts: Vec<FunctionFacts>) -> Self {
        Self { image, facts }
    }

    /// Returns the verified instructions.
    #[must_use]
    pub fn code(&self) -> &[u8] {
        &self.image.code
    }

    /// Returns the constants that the code reads.
    #[must_use]
    pub fn constants(&self) -> &[u8] {
        &self.image.constants
    }

    /// Returns the image address of the constants.
    #[must_use]
    pub fn constants_start(&self) -> u64 {
        constants_start(self.image.code.len())
    }

    /// Returns the functions, sorted by offset.
    #[must_use]
    pub fn functions(&self) -> &[ImageFunction] {
        &self.image.functions
    }

    /// Returns the facts about each function, in the order of [`Self::functions`].
    #[must_use]
    pub fn facts(&self) -> &[FunctionFacts] {
        &self.facts
    }

    /// Returns the most stack in bytes that a call of any function uses, its return address included; None if a function
    /// is recursive.
    #[must_use]
    pub fn stack_bound(&self) -> Option<u64> {
        let each = self.facts.iter().map(|facts| facts.stack_bound);
        each.map(|bound| bound.map(|bytes| bytes + 8)).try_fold(0, |most, bound| Some(bound?.max(most)))
    }
}

fn constants_start(code_bytes: usize) -> u64 {
    (code_bytes as u64).next_multiple_of(CONSTANTS_ALIGNMENT.into())
}

/// The facts about an image that all functions share.
pub(crate) struct Surroundings<'a> {
    pub(crate) limits: &'a VerifyLimits,
    pub(crate) functions: &'a [ImageFunction],
    /// The image addresses of the constants.
    pub(crate) constants: Range<i64>,
}

impl<'a> Surroundings<'a> {
    /// Checks the sizes and the order of functions. No later step depends on more of the image than on one function and
    /// on these sizes.
    pub(crate) fn of(image: &'a CodeImage, limits: &'a VerifyLimits) -> Result<Self, Rejections> {
        let reject = |function: usize, offset: u32, rule| {
            let function = u32::try_from(function).unwrap_or(u32::MAX);
            Err(Rejections::new(Rejection { function, offset, rule }))
        };
        let bytes = image.code.len().max(image.constants.len()) as u64;
        if bytes > limits.code_max.into() {
            return reject(0, 0, Rule::ImageTooLarge { bytes, max: limits.code_max });
        }
        let functions = image.functions.len() as u64;
        if functions > limits.functions_max.into() {
            return reject(0, 0, Rule::TooManyFunctions { functions, max: limits.functions_max });
        }
        if image.functions.first().map_or(0, |function| function.offset) != 0
            || (image.functions.is_empty() && !image.code.is_empty())
        {
            return reject(0, 0, Rule::FunctionOrder);
        }
        let mut next = 0;
        for (index, function) in image.functions.iter().enumerate() {
            let offset = u64::from(function.offset);
            if offset < next || offset >= image.code.len() as u64 {
                return reject(index, function.offset, Rule::FunctionOrder);
            }
            if !function.stack_arguments.is_multiple_of(8) {
                let rule = Rule::StackArgumentSize { bytes: function.stack_arguments };
                return reject(index, function.offset, rule);
            }
            next = offset + 1;
        }
        if let Some(bytes) = limits.thunks.iter().find(|bytes| !bytes.is_multiple_of(8)) {
            return reject(0, 0, Rule::StackArgumentSize { bytes: *bytes });
        }
        let start = i64::try_from(constants_start(image.code.len())).unwrap_or(i64::MAX);
        let length = i64::try_from(image.constants.len()).unwrap_or(i64::MAX);
        Ok(Self { limits, functions: &image.functions, constants: start..start.saturating_add(length) })
    }

    /// Returns the callee at an image address, and the size of its stack arguments.
    pub(crate) fn callee(&self, address: i64) -> Option<(Callee, u32)> {
        if let Ok(offset) = u32::try_from(address) {
            let index = self.functions.binary_search_by_key(&offset, |function| function.offset).ok()?;
            let bytes = self.functions[index].stack_arguments;
            return Some((Callee::Function(u32::try_from(index).ok()?), bytes));
        }
        let distance = address.unsigned_abs();
        if address >= 0 || !distance.is_multiple_of(THUNK_BYTES.into()) {
            return None;
        }
        let index = u32::try_from(distance / u64::from(THUNK_BYTES) - 1).ok()?;
        let bytes = self.limits.thunks.get(usize::try_from(index).ok()?)?;
        Some((Callee::Thunk(index), *bytes))
    }
}
