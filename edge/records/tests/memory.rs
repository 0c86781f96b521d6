//! The memory that the record files of a module take, as an allocator counts it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_records::{Durability, ModuleFiles, memory};
use {
    weir_admission::Manifest,
    weir_session::{Record, RecordOrder},
};

/// The bytes that are allocated.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// The highest value of [`LIVE`] since it was last reset.
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: each call is passed to the system's allocator, which fulfils the contract; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, and the system's allocator made `memory`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The memory that a thread takes while it ends a row group, as the documentation of [`memory`] states it, and that of a
/// batch.
const ENCODING_MAX: usize = 16 << 20;

/// A manifest with these streams of fields of one type.
fn manifest(streams: usize, fields: usize, ty: &str) -> Manifest {
    let mut text = "name='m'\nversion='1'\nabi=2\nlicense='MIT'\nsummary='s'\n".to_owned();
    for stream in 0..streams {
        text += &format!("[[stream]]\nname='s{stream}'\nfield=[");
        (0..fields).for_each(|field| text += &format!("{{name='f{field}',type='{ty}'}},"));
        text += "]\n";
    }
    Manifest::parse(text.as_bytes()).unwrap()
}

/// Fills a row with values that never repeat, so that they compress badly.
fn fill(row: &mut [u8], state: &mut u64) {
    for bytes in row.chunks_mut(8) {
        *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        bytes.copy_from_slice(&state.to_be_bytes()[..bytes.len()]);
    }
}

/// One test, because others would count for the same allocator.
#[test]
fn the_files_of_a_module_take_no_more_memory_than_stated() {
    // Narrow and wide streams, few and the most that a manifest can have.
    for (streams, fields, ty) in
        [(1, 1, "u64"), (1, 7, "u64"), (3, 12, "ip"), (1, 64, "u64"), (32, 1, "u64"), (32, 64, "u64")]
    {
        let what = format!("{streams} streams of {fields} fields of type {ty}");
        let manifest = manifest(streams, fields, ty);
        let stated = usize::try_from(memory(&manifest).0).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let before = LIVE.load(Ordering::Relaxed);
        let mut files = ModuleFiles::create(Some(dir.path()), "m", &manifest, Durability::Seconds).unwrap();
        let mut row = vec![0; manifest.streams[0].row_bytes()];
        let (mut state, mut written, mut highest) = (1, 0u64, 0);
        // Until the files are full; narrow streams are not after these rows.
        while !files.is_full() && written < 1_000_000 {
            for stream in 0..streams {
                fill(&mut row, &mut state);
                let stream = u16::try_from(stream).unwrap();
                PEAK.store(0, Ordering::Relaxed);
                files.write(&Record { order: RecordOrder::packet(0), stream, row: &row, tail: &[] }).unwrap();
                written += 1;
                let peak = PEAK.load(Ordering::Relaxed).saturating_sub(before);
                assert!(peak <= stated + ENCODING_MAX, "{what}: {peak} bytes while a row is written");
                highest = highest.max(LIVE.load(Ordering::Relaxed) - before);
            }
        }
        assert!(files.is_full() || fields < 64, "{what}: {written} rows");
        assert!(highest <= stated, "{what}: {highest} bytes, {stated} are stated");
        // The bound is no excuse for a session that could have more modules.
        assert!(highest >= stated / 8, "{what}: {highest} bytes, {stated} are stated");
        let rows: u64 = files.finish().unwrap().iter().map(|stream| stream.rows).sum();
        assert_eq!(rows, written, "{what}");
    }
    assert_eq!(memory(&manifest(0, 0, "u64")).0, 0, "a module without streams takes none");

    let manual = include_str!("../../../docs/reference/NODE.md").replace('\n', " ");
    let [usual, widest] =
        [(1, 22), (32, 64)].map(|(streams, fields)| memory(&manifest(streams, fields, "u64")));
    let stated = format!("22 fields takes {usual}, one with 32 streams of 64 fields {widest}");
    assert!(manual.contains(&stated), "{stated}");
}
