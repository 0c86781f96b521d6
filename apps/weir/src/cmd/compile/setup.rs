//! `weir compile --setup`: what a module can reach in its sandbox, and what it cannot.
//!
//! This is the environment setup code of OKE (Open Kernel Environment): a positive part, and a negative part.

use super::facts::CompiledModuleFacts;
use crate::cmd::check::paint::{Paint, TextStyle, wrapped};
use std::io::{self, Write};
use weir_abi::entry::ENTRY_POINTS;
use weir_abi::host::{HOST_FUNCTIONS, RequiredRight};
use weir_sandbox::ModuleFunction;
use weir_units::{Bytes, escaped};

/// The indent of the text after a heading.
const INDENT: usize = 18;

/// Prints both parts.
pub(super) fn print(out: &mut impl Write, facts: &CompiledModuleFacts<'_>, paint: Paint) -> io::Result<()> {
    let admitted = facts.admitted;
    let (info, profile) = (admitted.info(), admitted.profile());
    let line = |name: &str, items: &[String], none: &str| {
        let text = if items.is_empty() { none.to_owned() } else { items.join(", ") };
        wrapped(&format!("  {name:<width$}", width = INDENT - 2), INDENT, &text)
    };
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let functions = |select: &dyn Fn(&'static str) -> bool| {
        let names = HOST_FUNCTIONS.iter().map(|function| function.name).filter(|name| select(name));
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    writeln!(out, "\n{}", paint.paint(TextStyle::Strong, "The module reaches"))?;
    writeln!(out, "{}", line("host functions:", &named(&info.imports), "none"))?;
    let entries = ENTRY_POINTS.iter().filter(|entry| info.entries.has(entry.entry));
    let entries: Vec<String> = entries.map(|entry| entry.name.to_owned()).collect();
    writeln!(out, "{}", line("called by weir:", &entries, "nothing"))?;
    let added = facts.code().into_iter().flat_map(|code| &code.functions);
    let mut added: Vec<String> = added
        .filter_map(|function| match &function.function {
            ModuleFunction::Loader(purpose) => Some(escaped(purpose)),
            ModuleFunction::Own(_) => None,
        })
        .collect();
    added.sort();
    added.dedup();
    writeln!(out, "{}", line("added by weir:", &added, "nothing"))?;
    let memory = [format!(
        "{} of its own; packets, descriptors and granted tables, which it can only read",
        Bytes(admitted.memory().0)
    )];
    writeln!(out, "{}", line("memory:", &memory, ""))?;
    let has_right = |right: RequiredRight| {
        let functions = HOST_FUNCTIONS.iter().filter(|function| function.right == right);
        functions.into_iter().any(|function| info.imports.contains(&function.name))
    };
    writeln!(out, "\n{}", paint.paint(TextStyle::Strong, "The module does not reach"))?;
    let unused = functions(&|name| profile.imports.contains(&name) && !info.imports.contains(&name));
    writeln!(out, "{}", line("host functions:", &unused, "none that the profile allows"))?;
    let forbidden = functions(&|name| !profile.imports.contains(&name));
    writeln!(out, "{}", line("not in profile:", &forbidden, "no function"))?;
    let locked: Vec<String> = (!profile.writes).iter().map(|field| field.name().to_owned()).collect();
    writeln!(out, "{}", line("not writable:", &locked, "no field by the profile"))?;
    let fields = if has_right(RequiredRight::Write) {
        "fields of packets outside the write rights of its session; all fields that the session's view hides"
    } else {
        "any field of a packet for writing; all fields that the session's view hides for reading"
    };
    writeln!(out, "{}", line("fields:", &[fields.to_owned()], ""))?;
    let instructions = match facts.code() {
        Some(_) => {
            "instructions outside the verifier's list: system calls, input and output, segments, indirect jumps and calls"
        }
        None => "instructions that Cranelift does not make of WebAssembly",
    };
    writeln!(out, "{}", line("instructions:", &[instructions.to_owned()], ""))?;
    let rest = "other modules, weir's memory, files, sockets, threads and the clock of the machine";
    writeln!(out, "{}", line("the rest:", &[rest.to_owned()], ""))
}
