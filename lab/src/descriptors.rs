//! Descriptors of other sizes: what a module costs where the descriptors of a batch lie further apart.
//!
//! A module that takes one packet at a time does not know how far apart they lie; the loop over the batch does. So one module runs over the same packets with
//! descriptors of several sizes, in a loop that is made here. A module that takes batches itself has the size in its code, and one that patches or
//! keeps packets is refused at other addresses: neither is measured.

use crate::contest::{Contestant, Effort, Entry, contest};
use crate::module::{Class, Module};
use crate::packets::{Packets, Tick, ticks};
use crate::sandboxed::Sandboxed;
use crate::table::Table;
use crate::{BenchError, reference};
use std::path::Path;
use weir_abi::{DESCRIPTOR_BYTES, DESCRIPTORS_BASE};
use weir_sandbox::{Batch, Control, Engine, Options, Patch};
use weir_session::{Entry as EntryPoint, Records, Tier};
use weir_units::Timestamp;

/// Bytes of a descriptor without the fields about tunnels, streams and graphs: what the others are compared with.
const LEAST: usize = 64;
/// Bytes of a descriptor that are measured.
const SIZES: [usize; 4] = [LEAST, 80, 96, 128];

/// A module over descriptors of some size.
struct Spread {
    module: Sandboxed,
    size: u32,
}

impl Contestant for Spread {
    fn run(&mut self, batch: Batch) -> u64 {
        let usual = u32::try_from(DESCRIPTOR_BYTES).unwrap_or(u32::MAX);
        let offset = (batch.descriptors - DESCRIPTORS_BASE) / usual * self.size;
        self.module.run(Batch { descriptors: DESCRIPTORS_BASE + offset, ..batch })
    }

    fn tick(&mut self, tick: Tick) {
        self.module.tick(tick);
    }

    fn stop(&mut self, now: Timestamp) {
        self.module.stop(now);
    }

    fn begin_block(&mut self) {
        self.module.begin_block();
    }

    fn take_frames(&mut self, empty: Records) -> Records {
        self.module.take_frames(empty)
    }

    fn take_published(&mut self) -> Vec<(u32, Vec<u8>)> {
        self.module.take_published()
    }

    fn take_records(&mut self, empty: Records) -> Records {
        self.module.take_records(empty)
    }

    fn take_patches(&mut self) -> Vec<Patch> {
        self.module.take_patches()
    }

    fn fault(&self) -> Option<String> {
        self.module.fault()
    }
}

/// The time of each header module over the first `most` packets of a trace with descriptors of each size, and how much longer it takes over those that
/// are kept than over the least.
///
/// # Errors
/// Where a module does not run, or does something else over other descriptors.
pub fn table(modules: &[Module], trace: &Path, most: usize, effort: Effort) -> Result<Table, BenchError> {
    let engine = Engine::new(Options { control: Control::As(Tier::Proved), ..Options::default() }, None)?;
    let spread: Vec<Packets> =
        SIZES.iter().map(|size| Packets::read_spread(trace, most, *size)).collect::<Result<_, _>>()?;
    let batches = spread.first().map_or(&[][..], Packets::batches);
    let mut head = vec!["module".to_owned()];
    head.extend(SIZES.iter().map(|size| format!("{size} bytes, ns")));
    let kept = SIZES.iter().position(|size| *size == DESCRIPTOR_BYTES);
    head.push(format!("{DESCRIPTOR_BYTES} less {LEAST} bytes, ns (quartiles)"));
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
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
            let wasm =
                reference::with_batch(&module.wasm, facts, size).map_err(|error| BenchError::Variant {
                    module: module.name.clone(),
                    how: format!("{size} bytes"),
                    said: error.to_string(),
                })?;
            let sandboxed = Sandboxed::start(&engine, &Module { wasm, ..module.clone() }, packets)?;
            let build = Spread { module: sandboxed, size: u32::try_from(size).unwrap_or(u32::MAX) };
            entries.push(Entry::new(format!("{size} bytes"), module, packets, Box::new(build)));
        }
        let ticks = ticks(batches, admitted.tick());
        contest(&module.name, &mut entries, batches, &ticks, effort)?;
        let mut row = vec![module.name.clone()];
        row.extend(entries.iter().map(|entry| format!("{:.2}", entry.nanos.median())));
        let least = entries.first().map(|entry| &entry.nanos);
        let more = least.zip(kept.and_then(|kept| entries.get(kept))).map(|(least, kept)| {
            let q = kept.nanos.minus(least).quartiles();
            format!("**{:+.2}** ({:+.2} to {:+.2})", q.median, q.lower, q.upper)
        });
        row.push(more.unwrap_or_default());
        table.row(row);
    }
    Ok(table)
}
