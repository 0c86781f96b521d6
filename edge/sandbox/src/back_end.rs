//! The two compilers of modules, and the change of a loaded module from the code of one to that of the other.

use crate::engine::{Engine, LoadError, LoadedModule, ModuleCode, rewritten};
use crate::given_object::ObjectRefusal;
use crate::load::clang::LlvmCompiler;
use crate::load::compile::CompileError;
use crate::load::native::NativeModule;
use crate::run::fault::{CallFault, display_name};
use crate::run::source_lines::SourceLines;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use weir_admission::Admitted;
use weir_bounds::SourceLine;
use weir_os::ProcessorBudget;

/// The compiler of the code in which a module runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackEnd {
    /// Cranelift, whose code is trusted.
    Cranelift,
    /// LLVM: clang 19, whose code is verified before it runs.
    Llvm,
}

impl fmt::Display for BackEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cranelift => "Cranelift",
            Self::Llvm => "LLVM",
        })
    }
}

/// The reason why a machine cannot run verified code.
pub(crate) const UNSUPPORTED: &str = "this machine is not x86-64 with the instructions FSGSBASE";

/// The reason why an engine has no verified code if it must not use LLVM.
pub(crate) const NEVER: &str = "it runs without LLVM";

/// The reason why withdrawn code is not used.
pub(crate) const WITHDRAWN: &str = "the key that vouched for its machine code is not trusted any more";

/// An engine's use of LLVM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LlvmUse {
    /// All modules run in Cranelift's code.
    #[default]
    Never,
    /// A module starts in Cranelift's code. It moves to verified code of LLVM between two batches, when there is such code:
    /// at its start if the cache has the code, otherwise after [`Engine::compile_with_llvm`]. Records are the same in both.
    Later,
    /// Modules run in verified code of LLVM from their start. A module without such code runs in that of Cranelift.
    AtLoad,
}

/// The verified machine code of a module, once it has been compiled, or the reason why there is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct NativeSlot(Arc<SlotContents>);

#[derive(Debug, Default)]
struct SlotContents {
    code: OnceLock<Result<Arc<NativeModule>, String>>,
    /// True if the code must not run any more, because its compiler is not trusted any more.
    is_withdrawn: AtomicBool,
}

impl NativeSlot {
    /// Returns a slot in which there never will be code.
    pub(crate) fn without_code(why: impl Into<String>) -> Self {
        Self::filled(Err(why.into()))
    }

    /// Returns a slot with the code of an object file of this rewritten module, if the code can be verified.
    pub(crate) fn from_object(rewritten: &[u8], object: Vec<u8>) -> Self {
        let code = NativeModule::compile(rewritten, |_| Ok(object.clone()));
        Self::filled(code.map(Arc::new).map_err(|error| error.to_string()))
    }

    /// Returns a slot that is filled.
    pub(crate) fn filled(code: Result<Arc<NativeModule>, String>) -> Self {
        Self(Arc::new(SlotContents { code: OnceLock::from(code), ..SlotContents::default() }))
    }

    /// Fills the slot. If it is filled already, it stays as it is.
    pub(crate) fn fill(&self, code: Result<Arc<NativeModule>, String>) {
        _ = self.0.code.set(code);
    }

    /// Returns true if it is known whether there is code.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        self.0.code.get().is_some()
    }

    /// Withdraws the code for ever: instances leave it before their next call.
    pub(crate) fn withdraw(&self) {
        self.0.is_withdrawn.store(true, Ordering::Relaxed);
    }

    /// Returns true if the code was withdrawn.
    #[inline]
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.0.is_withdrawn.load(Ordering::Relaxed)
    }

    /// Returns the code, if there is any yet.
    pub(crate) fn code(&self) -> Option<&Arc<NativeModule>> {
        self.0.code.get().filter(|_| !self.is_withdrawn())?.as_ref().ok()
    }

    /// Returns the error for a module without any other code, if there is no code here; `None` if there is.
    pub(crate) fn refusal(&self, admitted: &Admitted) -> Option<LoadError> {
        let why = self.why_none()?;
        Some(if self.is_withdrawn() {
            ObjectRefusal::Withdrawn.into()
        } else {
            LoadError::not_verified(admitted, why)
        })
    }

    /// Returns the reason why there is no code; `None` if there is.
    pub(crate) fn why_none(&self) -> Option<&str> {
        match self.0.code.get() {
            _ if self.is_withdrawn() => Some(WITHDRAWN),
            None => Some("LLVM has not compiled it yet"),
            Some(code) => code.as_ref().err().map(String::as_str),
        }
    }
}

/// The means to withdraw the verified code of a module from all of its instances.
#[derive(Clone, Debug)]
pub struct CodeWithdrawal(NativeSlot);

impl CodeWithdrawal {
    /// Withdraws the code for ever, because its compiler is not trusted any more. Before their next call, instances move to
    /// Cranelift's code, or end if there is none.
    pub fn withdraw(&self) {
        self.0.withdraw();
    }

    /// Returns true if the code was withdrawn.
    pub fn is_withdrawn(&self) -> bool {
        self.0.is_withdrawn()
    }
}

impl ModuleCode {
    /// Returns the admitted module.
    pub fn admitted(&self) -> &Admitted {
        &self.admitted
    }

    /// Returns the means to withdraw the verified code, if it is that of an object file of others.
    pub fn withdrawal(&self) -> Option<CodeWithdrawal> {
        self.is_given.then(|| CodeWithdrawal(self.compiled.native.clone()))
    }

    /// Returns true if there is other code beside the verified code, to which instances move after a withdrawal.
    pub fn has_other_code(&self) -> bool {
        self.compiled.code.is_some()
    }
}

/// An object file of LLVM, which has not been verified.
pub(crate) struct ObjectFile {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_from_cache: bool,
}

impl Engine {
    /// Compiles a loaded module with LLVM, and verifies the code. Running instances of the module move to that code between two
    /// batches. Does nothing if there is such code already, or is known to be none. If the budget orders the end of the
    /// compilation, the module still waits for LLVM. Charges `budget` for the processor time of
    /// the compiler. A failure is no error: the module stays in Cranelift's code, and [`LoadedModule::why_not_llvm`] returns
    /// the reason.
    pub fn compile_with_llvm(&self, module: &LoadedModule, budget: &mut dyn ProcessorBudget) {
        if !module.native.is_filled()
            && let Some(code) = self.native_code(&module.rewritten, true, budget)
        {
            module.native.fill(code);
        }
    }

    /// Returns the reason why no module runs in verified code of LLVM; `None` if modules can.
    pub fn why_not_llvm(&self) -> Option<&str> {
        match self.clang() {
            _ if !weir_native::is_supported() => Some(UNSUPPORTED),
            Ok(_) => None,
            Err(why) => Some(why),
        }
    }

    /// Returns the slot for the machine code of a module, filled as the engine's options say.
    pub(crate) fn native_slot(&self, rewritten: &[u8], budget: &mut dyn ProcessorBudget) -> NativeSlot {
        let slot = NativeSlot::default();
        let code = match self.options().llvm {
            LlvmUse::Never => Some(Err(NEVER.to_owned())),
            LlvmUse::Later => self.native_code(rewritten, false, budget),
            LlvmUse::AtLoad => self.native_code(rewritten, true, budget),
        };
        if let Some(code) = code {
            slot.fill(code);
        }
        slot
    }

    /// Returns a slot with the verified code of a rewritten module, which is compiled now if it is not in the cache.
    ///
    /// # Errors
    /// [`LoadError::NotVerified`] if there is no such code; [`LoadError::Compile`] if the budget has ended the compilation.
    pub(crate) fn verified_code(
        &self,
        admitted: &Admitted,
        rewritten: &[u8],
        budget: &mut dyn ProcessorBudget,
    ) -> Result<NativeSlot, LoadError> {
        if self.options().llvm == LlvmUse::Never {
            return Err(LoadError::not_verified(admitted, NEVER));
        }
        match self.native_code(rewritten, true, budget) {
            None => Err(LoadError::Compile(CompileError::Preempted)),
            Some(Err(why)) => Err(LoadError::not_verified(admitted, &why)),
            Some(code) => Ok(NativeSlot::filled(code)),
        }
    }

    /// Returns the verified code of a rewritten module, from an object file in the cache or from the compiler, or the reason
    /// why there is none. Returns `None` if that stays open: the code is not in the cache, and `may_compile` is false or the
    /// budget has ended the compilation.
    fn native_code(
        &self,
        rewritten: &[u8],
        may_compile: bool,
        budget: &mut dyn ProcessorBudget,
    ) -> Option<Result<Arc<NativeModule>, String>> {
        if !weir_native::is_supported() {
            return Some(Err(UNSUPPORTED.to_owned()));
        }
        let clang = match self.clang() {
            Ok(clang) => clang,
            Err(why) => return Some(Err(why.clone())),
        };
        let compiled = NativeModule::compile(rewritten, |ir| {
            self.object(clang, ir, may_compile, budget).map(|object| object.bytes)
        });
        match compiled {
            Err(CompileError::Preempted) => None,
            compiled => Some(compiled.map(Arc::new).map_err(|error| error.to_string())),
        }
    }

    /// Returns the object file of a text from the cache or from the compiler. If `may_compile` is false and the cache has none,
    /// the error is [`CompileError::Preempted`].
    pub(crate) fn object(
        &self,
        clang: &LlvmCompiler,
        ir: &str,
        may_compile: bool,
        budget: &mut dyn ProcessorBudget,
    ) -> Result<ObjectFile, CompileError> {
        let key = clang.cache_key(ir);
        if let Some(bytes) = self.cache().and_then(|cache| cache.read(&key)) {
            return Ok(ObjectFile { bytes, is_from_cache: true });
        }
        if !may_compile {
            return Err(CompileError::Preempted);
        }
        let confined = self.options().compile_in_child;
        let limits = confined.unwrap_or_default();
        let bytes = clang.compile(ir, confined.is_some(), limits, budget)?;
        if let Some(cache) = self.cache() {
            // Without an entry the module is compiled again at its next start.
            _ = cache.write(&key, &bytes);
        }
        Ok(ObjectFile { bytes, is_from_cache: false })
    }
}

/// A function in a module's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeSymbol {
    /// The addresses of the code.
    pub addresses: Range<usize>,
    /// The name, or the index if there is none, with the back end.
    pub name: String,
}

impl LoadedModule {
    /// Returns the compiler of the code in which new instances of the module run.
    pub fn back_end(&self) -> BackEnd {
        if self.native.code().is_some() { BackEnd::Llvm } else { BackEnd::Cranelift }
    }

    /// Returns the reason why the module does not run in verified code of LLVM; `None` if it does.
    pub fn why_not_llvm(&self) -> Option<&str> {
        self.native.why_none()
    }

    /// Returns the functions in the module's code of all back ends, for profilers.
    pub fn symbols(&self) -> Vec<CodeSymbol> {
        let symbol = |index: u32, name: Option<&str>, addresses: Range<usize>, back_end: BackEnd| {
            let name = display_name(index, name, self.indices);
            CodeSymbol { addresses, name: format!("{name} [{back_end}]") }
        };
        let native = self.native.code().into_iter().flat_map(|code| code.symbols());
        let native = native.map(|(index, name, addresses)| symbol(index, name, addresses, BackEnd::Llvm));
        let cranelift = self.code_map.symbols();
        let cranelift = cranelift
            .map(|(index, name, addresses)| symbol(index, name.as_deref(), addresses, BackEnd::Cranelift));
        cranelift.chain(native).collect()
    }

    /// Reads the lines of the author's source, so that messages about faults of instances that are started from now on have
    /// them. The module is rewritten again for that.
    pub fn read_source_lines(&self) {
        self.source_lines();
    }

    fn source_lines(&self) -> &SourceLines {
        self.lines.get_or_init(|| match rewritten(&self.admitted, self.checks) {
            Ok((rewritten, _)) => SourceLines::new(&rewritten, self.admitted.module()),
            Err(_) => SourceLines::default(),
        })
    }

    /// Returns the line of the author's source for a fault, if the fault has a place and the module has such lines. Reads the
    /// lines, if that has not been done.
    pub fn source_line(&self, fault: &CallFault) -> Option<SourceLine> {
        self.source_lines().line(fault.offset?)
    }

    /// Returns true if the module waits for [`Engine::compile_with_llvm`].
    pub fn waits_for_llvm(&self) -> bool {
        !self.native.is_filled()
    }
}

impl fmt::Debug for LoadedModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedModule").field("back_end", &self.back_end()).finish_non_exhaustive()
    }
}
