//! `weir modules`: lists and describes modules.

use crate::Failure;
use crate::module_arg::{ModuleArg, ModuleArgError};
use crate::shipped;
use std::io::Write;
use weir_admission::{
    DeclaredTable, Manifest, ModuleKind, Parallel, SEMANTICS, TableAccess, TickPeriod, manifest_of,
};
use weir_units::Bytes;

/// Lists the semantics that a field can have.
pub fn show_semantics(out: &mut impl Write) -> std::io::Result<()> {
    let width = SEMANTICS.iter().map(|semantic| semantic.name.len()).max().unwrap_or(0);
    for semantic in SEMANTICS {
        writeln!(out, "{:width$}  {}", semantic.name, semantic.summary)?;
    }
    writeln!(
        out,
        "\ndocs/reference/MODULE.md has their types, and their names in ECS, Zeek, eve.json and IPFIX."
    )
}

/// Lists the shipped modules, or describes one module: a shipped one or a file.
pub fn show(out: &mut impl Write, name: Option<&str>) -> Result<(), Failure> {
    if let Some(name) = name {
        let spec = ModuleArg::parse(name)?;
        let (manifest, _) = manifest_of(&spec.bytes()?)
            .map_err(|refusal| ModuleArgError::Refused { name: name.to_owned(), refusal })?;
        describe(out, &manifest)?;
        return Ok(());
    }
    let width = shipped::ALL.iter().map(|shipped| shipped.name.len()).max().unwrap_or(0);
    for (purpose, heading) in shipped::Purpose::ALL {
        writeln!(out, "{heading}:")?;
        for shipped in shipped::ALL.iter().filter(|shipped| shipped.purpose == *purpose) {
            let refused = |refusal| ModuleArgError::Refused { name: shipped.name.to_owned(), refusal };
            let (manifest, _) = manifest_of(shipped.wasm).map_err(refused)?;
            let kind = kind(manifest.kind);
            let mark = if shipped.is_default() { '*' } else { ' ' };
            writeln!(out, "{mark} {:width$}  {kind:7}  {}", shipped.name, manifest.summary)?;
        }
        writeln!(out)?;
    }
    writeln!(
        out,
        "A monitor only observes, a filter changes or drops packets, an active module sends packets of its own.\n\
         `weir run` without -m runs the modules with a star. `weir modules NAME` shows parameters and streams."
    )?;
    Ok(())
}

fn kind(kind: ModuleKind) -> &'static str {
    match kind {
        ModuleKind::Monitor => "monitor",
        ModuleKind::Filter => "filter",
        ModuleKind::Active => "active",
    }
}

/// Describes a module's access to a table, with its maximum length.
pub fn describe_access(table: &DeclaredTable) -> String {
    let does = match table.access {
        TableAccess::Read { .. } => "reads",
        TableAccess::Publish => "publishes",
    };
    format!("{does} at most {}", Bytes(table.bytes.into()))
}

/// Prints a manifest.
pub fn describe(out: &mut impl Write, manifest: &Manifest) -> std::io::Result<()> {
    writeln!(out, "{} {}: {}", manifest.name, manifest.version, manifest.summary)?;
    let tick = match manifest.tick {
        None => String::new(),
        Some(TickPeriod::Every(period)) => format!(", tick every {period} of packet time"),
        Some(TickPeriod::Parameter(index)) => manifest
            .parameters
            .get(index)
            .map_or(String::new(), |p| format!(", tick every `{}` of packet time", p.name)),
    };
    let parallel = if manifest.parallel == Parallel::Flow { ", parallel by flow" } else { "" };
    writeln!(
        out,
        "{}, licence {}, at most {} of memory{parallel}{tick}",
        kind(manifest.kind),
        manifest.license,
        manifest.memory
    )?;
    if !manifest.parameters.is_empty() {
        writeln!(out, "\nParameters:")?;
    }
    for p in &manifest.parameters {
        let unit = if p.unit.is_empty() { String::new() } else { format!(", {}", p.unit) };
        let range = match (&p.min, &p.max) {
            (None, None) if p.values.is_empty() => String::new(),
            (None, None) => format!(": {}", p.values_as_text()),
            (Some(min), None) => format!(", from {min}"),
            (None, Some(max)) => format!(", up to {max}"),
            (Some(min), Some(max)) => format!(", {min} to {max}"),
        };
        let default =
            p.default.as_ref().map_or("must be given".to_owned(), |value| format!("default {value}"));
        writeln!(out, "  {} ({}{unit}{range}; {default})\n      {}", p.name, p.ty.name(), p.summary)?;
    }
    if !manifest.outputs.is_empty() {
        writeln!(out, "\nOutputs:")?;
    }
    for output in &manifest.outputs {
        writeln!(out, "  {}: {}", output.name, output.summary)?;
    }
    if !manifest.tables.is_empty() {
        writeln!(out, "\nTables:")?;
    }
    for table in &manifest.tables {
        writeln!(out, "  {} ({})  {}", table.name, describe_access(table), table.summary)?;
    }
    if !manifest.streams.is_empty() {
        writeln!(out, "\nStreams:")?;
    }
    for stream in &manifest.streams {
        writeln!(out, "  {}: {}", stream.name, stream.summary)?;
        for field in &stream.fields {
            let unit = if field.unit.is_empty() { String::new() } else { format!(", {}", field.unit) };
            let null = if field.presence.is_some() { ", or null" } else { "" };
            writeln!(out, "      {} ({}{unit}{null})  {}", field.name, field.ty.name(), field.summary)?;
        }
    }
    Ok(())
}
