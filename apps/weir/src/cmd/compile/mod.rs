//! `weir compile`: compiles a module with LLVM, verifies the machine code, and explains it.

mod bundle;
mod charges;
mod facts;
mod flow;
mod json;
mod listing;
mod loops;
mod reason;
mod recompile;
mod setup;
mod summary;
#[cfg(test)]
mod tests;

use crate::Failure;
use crate::calibrated_profile::calibrated_profile;
use crate::cli::CompileArgs;
use crate::cmd::check::paint::Paint;
use crate::cmd::check::source::Sources;
use crate::module_arg::ModuleArg;
use facts::{CompiledModuleFacts, FunctionFilter};
use std::io::{self, Write};
use std::path::PathBuf;
use weir_bounds::Lines;
use weir_sandbox::{Cache, CompileLimits, Engine, EngineOptions, LlvmUse, LoadError};
use weir_units::{Escape as _, escaped};

/// The errors of `weir compile`.
#[derive(Debug, thiserror::Error)]
pub enum CompileCommandError {
    /// The module cannot be rewritten, or the engine does not start.
    #[error("{}: {error}", name.escaped())]
    Load {
        /// The module's name on the command line.
        name: String,
        /// The cause.
        error: LoadError,
    },
    /// No function has the name.
    #[error("the module has no function `{}`{}", escaped(name), similar_names(similar))]
    UnknownFunction {
        /// The name on the command line.
        name: String,
        /// The most similar names, best first.
        similar: Vec<String>,
    },
    /// There is no verified object file.
    #[error("{} is not written: {reason}", path.escaped())]
    NoObject {
        /// The file of `--output` or `--object`.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The bundle or object file cannot be written.
    #[error("{}: {source}", path.escaped())]
    Write {
        /// The file of `--output` or `--object`.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A bundle, or a file of the compiler, cannot be read.
    #[error("{}: {source}", path.escaped())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The bundle or its compilation record cannot be used, or cannot be made.
    #[error("{0}")]
    Record(String),
}

impl CompileCommandError {
    /// Returns true if the command line is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::UnknownFunction { .. })
    }
}

/// Returns the names of functions that the user may have meant.
fn similar_names(similar: &[String]) -> String {
    let names: Vec<String> = similar.iter().map(|name| format!("`{}`", escaped(name))).collect();
    if names.is_empty() { String::new() } else { format!("; similar names are {}", names.join(", ")) }
}

/// Compiles a module with LLVM, and prints a summary or an explanation of the machine code. A module that cannot run in such
/// code is no error: the output states the reason.
pub fn compile(out: &mut impl Write, args: &CompileArgs) -> Result<(), Failure> {
    let name = args.module.as_deref().unwrap_or_default();
    let options = EngineOptions {
        compile_in_child: Some(CompileLimits::default()),
        llvm: LlvmUse::AtLoad,
        ..EngineOptions::default()
    };
    // A compilation record states what the compiler has made now, so it never rests on a file in the user's cache. Without a
    // cache the module is compiled each time.
    let needs_new_compilation = args.output.is_some() || args.check.is_some();
    let cache = if args.no_cache || needs_new_compilation { None } else { Cache::of_user().ok() };
    let engine = Engine::new(options, cache)
        .map_err(|error| CompileCommandError::Load { name: name.to_owned(), error })?;
    if let Some(path) = &args.check {
        return recompile::check_bundle(out, args, path, &engine);
    }
    let spec = ModuleArg::parse(name)?;
    if let Some(path) = &args.output {
        return bundle::write_bundle(out, args, &spec, path, &engine);
    }
    let profile = calibrated_profile(args.profile.as_deref())?;
    let admitted = spec.admit(&profile)?;
    let failed = |error| CompileCommandError::Load { name: spec.name.clone(), error };
    let explanation = engine.explain_llvm(&admitted).map_err(failed)?;
    let lines = Lines::new(admitted.module());
    let facts = CompiledModuleFacts::new(&admitted, &explanation, &lines);
    let filter = match &args.explain {
        None => None,
        Some(None) => Some(FunctionFilter::all()),
        Some(Some(name)) => Some(facts.find(name)?),
    };
    if let Some(path) = &args.object {
        let object = facts
            .verified_object()
            .map_err(|reason| CompileCommandError::NoObject { path: path.clone(), reason })?;
        std::fs::write(path, object)
            .map_err(|source| CompileCommandError::Write { path: path.clone(), source })?;
    }
    if args.json {
        json::print(out, &facts, filter.as_ref())?;
        return Ok(());
    }
    let paint = Paint::for_stdout();
    summary::print(out, &facts, args.object.as_deref(), paint)?;
    // The setup is the module's environment: what the module can reach, and what it cannot.
    if args.setup {
        setup::print(out, &facts, paint)?;
    }
    if let Some(filter) = &filter {
        listing::print(out, &facts, filter, &Sources::locate(&spec), paint)?;
    }
    Ok(())
}
