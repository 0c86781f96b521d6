//! Named tables in C and Rust: reading, publishing, and the bound of a loop over a table.

use crate::toolchain::{has_c, has_rust, options, rust_options};
use std::sync::{Arc, Mutex};
use weir_admission::{Admitted, Tier};
use weir_author::{ModuleLanguage, build, new};
use weir_sandbox::{Engine, Instance, InstanceContext, TablePublisher, TableVersion};
use weir_units::Timestamp;

const MANIFEST: &str = "name = 'sums'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\ntick = '1s'\n\
    [[table]]\nname = 'sum'\naccess = 'publish'\nbytes = '16 B'\n\
    [[table]]\nname = 'unused'\naccess = 'read'\nbytes = '100 KiB'\n\
    [[table]]\nname = 'for'\naccess = 'read'\nbytes = '1 KiB'\n";

/// A module that publishes the sum of a table's 4-byte words, and the table's version, at each tick.
const C: &str = r#"#include "weir.h"
#include "module.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    (void)p;
    return WEIR_PASS;
}

WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    (void)now, (void)periods;
    const struct weir_table table = table_for();
    uint64_t sum = 0;
    for (uint32_t i = 0; i < table.len / 4; i++)
        sum += weir_le32(table.bytes + 4 * i);
    const uint64_t out[2] = { sum, table.version };
    if (publish_sum(out, sizeof out) != WEIR_OK)
        __builtin_trap();
}
"#;

const RUST: &str = r#"#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use module::table;
use weir_guest::{BoundedIterator, Packet, Verdict};

struct Sums;

impl Sums {
    fn packet(&mut self, _packet: &Packet) -> Verdict {
        Verdict::Pass
    }

    fn tick(&mut self, _now: u64, _periods: u64) {
        let sum: u64 = table::FOR.read(|bytes| {
            let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
            // Without `bounded`, the vectorised loop would have no bound that weir finds.
            words.bounded::<256>().map(u64::from).sum()
        });
        let mut out = [0; 16];
        out[..8].copy_from_slice(&sum.to_le_bytes());
        out[8..].copy_from_slice(&table::FOR.version().to_le_bytes());
        _ = table::SUM.publish(&out);
    }
}

weir_guest::module! {
    state: Sums = Sums;
    packet: Sums::packet;
    tick: Sums::tick;
}
"#;

#[derive(Debug, Default)]
struct Last(Mutex<Vec<u8>>);

impl TablePublisher for Last {
    fn publish(&self, table: u32, bytes: &[u8]) -> i32 {
        assert_eq!(table, 0);
        *self.0.lock().unwrap() = bytes.to_vec();
        weir_abi::code::OK
    }
}

#[test]
fn both_sdks_read_tables_within_a_bound_and_publish_tables() {
    let engine = Engine::new(weir_sandbox::EngineOptions::default(), None).unwrap();
    let rust = rust_options();
    for (lang, present, file, source, options) in [
        (ModuleLanguage::C, has_c(), "sums.c", C, options()),
        (ModuleLanguage::Rust, has_rust(), "src/lib.rs", RUST, rust),
    ] {
        if !present {
            continue;
        }
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("sums");
        new(&dir, lang).unwrap();
        std::fs::write(dir.join("weir.toml"), MANIFEST).unwrap();
        std::fs::write(dir.join(file), source).unwrap();
        let built = build(&dir, &options).unwrap();
        assert_eq!(built.messages, "");
        let admitted = Admitted::admit(std::fs::read(built.path).unwrap(), &[]).unwrap();
        assert_eq!(admitted.tier(), Tier::Proved, "{lang:?}: {:?}", admitted.reason_for_tier());
        let last = Arc::new(Last::default());
        let publisher: Arc<dyn TablePublisher> = Arc::clone(&last) as _;
        let context = InstanceContext { publisher: Some(publisher), ..InstanceContext::default() };
        let mut instance = Instance::start_with(&engine, &engine.load(admitted).unwrap(), context).unwrap();
        let tick = |instance: &mut Instance| {
            instance.tick(Timestamp(1_000_000_000), 1, 0);
            assert_eq!(instance.incidents(), [], "{lang:?}");
            let printed = std::mem::take(&mut *last.0.lock().unwrap());
            [0, 8].map(|at| u64::from_le_bytes(printed[at..at + 8].try_into().unwrap()))
        };
        assert_eq!(tick(&mut instance), [0, 0]);
        for (number, bytes) in [(1, &[200; 1024][..]), (2, b"\x01\x02\0\0\x03\0\0\0rest"), (9, b"")] {
            let version = TableVersion::new(number, bytes).unwrap();
            assert!(instance.map_table(2, Some(&version)).unwrap());
            let word = |word: &[u8]| u64::from(u32::from_le_bytes(word.try_into().unwrap()));
            let sum = bytes.chunks_exact(4).map(word).sum();
            assert_eq!(tick(&mut instance), [sum, number], "{lang:?}");
        }
        instance.map_table(2, None).unwrap();
        assert_eq!(tick(&mut instance), [0, 0]);
    }
}
