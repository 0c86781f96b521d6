//! `weir check`: whether a module would be admitted.

use crate::spec::Spec;
use crate::terms::terms;
use crate::{Failure, modules};
use std::io::Write;
use std::time::Instant;
use weir_sandbox::{CompileLimits, Engine, LoadError, Options};
use weir_session::Entry;
use weir_units::{Bytes, Nanos};

/// Why a module is not fit to run.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It was admitted but cannot be compiled.
    #[error("{name}: {error}")]
    Load {
        /// The module as it was named.
        name: String,
        /// Why.
        error: LoadError,
    },
}

/// Admits and compiles a module, without running any of it, and says what it is.
pub fn check(out: &mut impl Write, text: &str) -> Result<(), Failure> {
    let spec = Spec::parse(text)?;
    let admitted = spec.admit(&terms(None)?)?;
    let failed = |error| CheckError::Load { name: spec.name.clone(), error };
    let engine =
        Engine::new(Options { compile_in_child: Some(CompileLimits::default()), ..Options::default() }, None)
            .map_err(failed)?;
    let (manifest, facts, size) =
        (admitted.manifest().clone(), admitted.facts().clone(), admitted.bytes().len());
    let values: Vec<String> = manifest
        .parameters
        .iter()
        .zip(admitted.values())
        .map(|(p, value)| format!("{}={value}", p.name))
        .collect();
    let begin = Instant::now();
    engine.load(admitted).map_err(failed)?;
    let compiled = Nanos(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));

    modules::describe(out, &manifest)?;
    let entry = match facts.entry {
        Entry::Packet => "weir_packet (one packet a call; weir adds the loop over a batch)",
        Entry::Batch => "weir_batch (64 packets a call)",
    };
    let optional = [
        (facts.has_initialize, "_initialize"),
        (facts.has_start, "weir_start"),
        (facts.has_tick, "weir_tick"),
        (facts.has_stop, "weir_stop"),
    ];
    let others: Vec<&str> = optional.into_iter().filter_map(|(there, name)| there.then_some(name)).collect();
    writeln!(out, "\nEntry point: {entry}")?;
    if !others.is_empty() {
        writeln!(out, "Also called: {}", others.join(", "))?;
    }
    writeln!(
        out,
        "Size: {}, {} functions; memory at the start: {}",
        Bytes(size as u64),
        facts.functions,
        facts.memory
    )?;
    if facts.stack_pointer.is_none() {
        writeln!(
            out,
            "No shadow stack pointer was found: if it keeps one, link with --export=__stack_pointer, so that weir can put it back after a lost call"
        )?;
    }
    if !values.is_empty() {
        writeln!(out, "Set: {}", values.join(" "))?;
    }
    writeln!(out, "Admitted; compiled in {compiled}")?;
    Ok(())
}
