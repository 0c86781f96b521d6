//! Descriptors of other sizes: the cost of a module where the descriptors of a batch lie further apart.
//!
//! A module that takes one packet at a time does not depend on the distance, but the loop over the batch does. So one module runs over the same packets
//! with descriptors of several sizes, in a loop that is made here. Modules that take batches have the size in their code, and modules that patch or keep
//! packets are refused at other addresses: neither are measured.

use crate::contest::{Effort, Entry, contest};
use crate::error::{Doing, LabError};
use crate::module::{Class, Module};
use crate::packets::{Packets, ticks};
use crate::sandboxed::Sandboxed;
use crate::table::Table;
use crate::{place, reference};
use std::fmt::Write as _;
use std::path::Path;
use weir_abi::DESCRIPTOR_BYTES;
use weir_admission::{EntryKind as EntryPoint, Tier};
use weir_netio::BLOCK_PACKETS;
use weir_sandbox::{Control, Engine, EngineOptions};

/// Bytes of a descriptor without the fields about tunnels, streams and graphs, the base of the comparison.
const LEAST: usize = 64;
/// The measured sizes.
const SIZES: [usize; 4] = [LEAST, 80, 96, 128];

/// The time of each header module over packets of a trace with descriptors of each size, and the time over the descriptors of weir less the time over
/// the least.
pub fn tables(modules: &[Module], trace: &Path, cached: usize, rounds: usize) -> Result<String, LabError> {
    let mut text = String::new();
    for (title, most, effort) in [
        (
            format!("{BLOCK_PACKETS} packets again and again, as a block"),
            BLOCK_PACKETS,
            Effort::cached(rounds),
        ),
        (format!("{cached} packets again and again"), cached, Effort::cached(rounds)),
        ("the whole trace".to_owned(), usize::MAX, Effort::streamed(rounds)),
    ] {
        let (table, rounds) = (table(modules, trace, most, effort)?, effort.rounds);
        _ = writeln!(
            text,
            "`{}`: {title}; medians of {rounds} rounds.

{table}",
            place::shown(trace)
        );
    }
    Ok(text)
}

fn table(modules: &[Module], trace: &Path, most: usize, effort: Effort) -> Result<Table, LabError> {
    let engine =
        Engine::new(EngineOptions { control: Control::As(Tier::Proved), ..EngineOptions::default() }, None)?;
    let spread: Vec<Packets> =
        SIZES.iter().map(|size| Packets::read_spread(trace, most, *size)).collect::<Result<_, _>>()?;
    let batches = spread.first().map_or(&[][..], Packets::batches);
    let kept = SIZES.iter().position(|size| *size == DESCRIPTOR_BYTES);
    let sizes = SIZES.map(|size| format!("{size} bytes, ns")).join(" | ");
    let head = format!("module | {sizes} | {DESCRIPTOR_BYTES} less {LEAST} bytes, ns (quartiles)");
    let mut table = Table::new(head);
    for module in modules.iter().filter(|module| matches!(module.class, Class::Header | Class::Empty)) {
        let admitted = module.admit()?;
        let facts = admitted.facts();
        if facts.entry() != EntryPoint::Packet
            || facts.imports.iter().any(|name| ["patch", "keep"].contains(name))
        {
            continue;
        }
        let mut entries = Vec::new();
        for (size, packets) in SIZES.into_iter().zip(&spread) {
            let wasm = reference::with_batch(&module.wasm, facts, size).doing(&module.name)?;
            let build = Sandboxed::start(&engine, &Module { wasm, ..module.clone() }, packets)?;
            let build = Box::new(build.with_descriptors_of(size));
            entries.push(Entry::new(format!("{size} bytes"), module, packets, build));
        }
        let ticks = ticks(batches, admitted.tick());
        contest(&module.name, &mut entries, batches, &ticks, effort)?;
        let least = entries.first().map(|entry| &entry.nanos);
        let more = least.zip(kept.and_then(|kept| entries.get(kept))).map(|(least, kept)| {
            let q = kept.nanos.minus(least).quartiles();
            format!("**{:+.2}** ({:+.2} to {:+.2})", q.median, q.lower, q.upper)
        });
        let each: Vec<String> = entries.iter().map(|entry| format!("{:.2}", entry.nanos.median())).collect();
        table.row(format_args!("{} | {} | {}", module.name, each.join(" | "), more.unwrap_or_default()));
    }
    Ok(table)
}
