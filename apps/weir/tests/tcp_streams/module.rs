//! A module that writes the events of all TCP streams, and the bytes of each direction that follow from its rows.

use crate::run::{module, weir};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use weir_abi::stream::{EVENT_BYTES, kind};

/// Appends each event and its bytes to a log in memory. Later packets and the stop write the log as rows, as far as their limits
/// allow: rows of the module `weir` limits are smaller than what one packet can complete.
const BODY: &str = r#"(module
    (import "weir" "emit" (func $emit (param i32 i32 i32) (result i32)))
    (memory (export "memory") 1024)
    (global $__stack_pointer (mut i32) (i32.const 4096))
    (global $next (mut i32) (i32.const 65536))
    (global $end (mut i32) (i32.const 65536))
    ;; Bytes of the next event that were written already.
    (global $written (mut i32) (i32.const 0))
    (func $write (param $bytes i32) (param $rows i32) (local $len i32)
        (loop $more
            (if (i32.ge_u (global.get $next) (global.get $end)) (then
                (global.set $next (i32.const 65536))
                (global.set $end (i32.const 65536))
                (return)))
            (local.set $len (i32.sub (i32.load offset=12 (global.get $next)) (global.get $written)))
            (if (i32.gt_u (local.get $len) (i32.const 3900)) (then (local.set $len (i32.const 3900))))
            (local.set $bytes (i32.sub (local.get $bytes) (i32.add (local.get $len) (i32.const 144))))
            (local.set $rows (i32.sub (local.get $rows) (i32.const 1)))
            (if (i32.or (i32.lt_s (local.get $bytes) (i32.const 0)) (i32.lt_s (local.get $rows) (i32.const 0)))
                (then (return)))
            (i32.store (i32.const 64) (global.get $next))
            (i32.store (i32.const 68) (i32.const 128))
            (i32.store (i32.const 72) (i32.add (i32.add (global.get $next) (i32.const 128)) (global.get $written)))
            (i32.store (i32.const 76) (local.get $len))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 16)))
            (global.set $written (i32.add (global.get $written) (local.get $len)))
            (if (i32.ge_u (global.get $written) (i32.load offset=12 (global.get $next))) (then
                (global.set $next (i32.add (i32.add (global.get $next) (i32.const 128)) (global.get $written)))
                (global.set $written (i32.const 0))))
            (br $more)))
    (func (export "weir_packet") (param i32) (result i32)
        (call $write (i32.const 16000) (i32.const 60))
        (i32.const 0))
    (func (export "weir_stream") (param $e i32) (result i32) (local $len i32)
        (local.set $len (i32.load offset=12 (local.get $e)))
        (memory.copy (global.get $end) (local.get $e) (i32.const 128))
        (global.set $end (i32.add (global.get $end) (i32.const 128)))
        (memory.copy (global.get $end) (i32.load offset=8 (local.get $e)) (local.get $len))
        (global.set $end (i32.add (global.get $end) (local.get $len)))
        (i32.const 0))
    (func (export "weir_stop") (param i64)
        (call $write (i32.const 8000000) (i32.const 65000))))"#;

const MANIFEST: &str = "name = 'events'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nmemory = '160 MiB'\n\
    layer = 'inner'\n\
    [[stream]]\nname = 'events'\n[[stream.field]]\nname = 'event'\ntype = 'bytes'\n[[stream.field]]\nname = 'data'\ntype = 'bytes'\n";

/// An event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: u8,
    pub from_server: bool,
    pub cause: u8,
    pub state: u8,
    pub stream: u32,
    pub offset: u64,
    pub missing: u64,
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub bytes: Vec<u8>,
}

/// A run of bytes of a direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run {
    Bytes(Vec<u8>),
    Missing(u64),
}

/// The runs of a direction; neighbours of the same kind are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Direction(pub Vec<Run>);

impl Direction {
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        match self.0.last_mut() {
            Some(Run::Bytes(run)) => run.extend_from_slice(bytes),
            _ if bytes.is_empty() => {}
            _ => self.0.push(Run::Bytes(bytes.to_vec())),
        }
    }

    pub fn push_missing(&mut self, missing: u64) {
        match self.0.last_mut() {
            Some(Run::Missing(run)) => *run += missing,
            _ => self.0.push(Run::Missing(missing)),
        }
    }

    /// All bytes, without those that are missing.
    pub fn bytes(&self) -> Vec<u8> {
        let bytes = |run: &Run| if let Run::Bytes(bytes) = run { bytes.clone() } else { Vec::new() };
        self.0.iter().flat_map(bytes).collect()
    }
}

/// A stream, as its events describe it.
#[derive(Clone, Debug)]
pub struct Stream {
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub directions: [Direction; 2],
    /// The cause of its end.
    pub cause: u8,
    pub state: u8,
}

/// Writes the module with these lines in its table `[tcp]`.
pub fn write(folder: &Path, tcp: &str) -> PathBuf {
    let path = folder.join("events.wasm");
    let manifest = format!("{MANIFEST}[tcp]\n{tcp}");
    std::fs::write(&path, module::assemble(BODY, Some(manifest.as_bytes()))).unwrap();
    path
}

/// Runs the module over a capture. Returns the events and the summary; `None` for a capture of a link type that weir does
/// not read.
pub fn events(capture: &Path, tcp: &str) -> Option<(Vec<Event>, Value)> {
    let folder = tempfile::tempdir().unwrap();
    let mut command = weir();
    command.args(["run", "--json", "-m"]).arg(write(folder.path(), tcp)).arg("-r").arg(capture);
    let output = command.arg("--out").arg(folder.path().join("out")).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let is_unread = stderr.contains("weir reads") || stderr.contains("it reads");
        assert!(is_unread, "{}: {stderr}", capture.display());
        return None;
    }
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let counts = ["faults", "dropped_records"].map(|name| &summary["modules"][0][name]);
    assert_eq!(counts, [0, 0], "{}: {summary}", capture.display());
    let rows = std::fs::File::open(folder.path().join("out/events/events.parquet")).unwrap();
    let mut events: Vec<Event> = Vec::new();
    let mut missing = 0;
    for row in SerializedFileReader::new(rows).unwrap().get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let fields: Vec<&[u8]> = row
            .get_column_iter()
            .filter_map(|(_, field)| if let Field::Bytes(bytes) = field { Some(bytes.data()) } else { None })
            .collect();
        let [event, data] = fields[..] else { panic!("{row:?}") };
        if missing == 0 {
            let (event, len) = parse(event);
            events.push(event);
            missing = len;
        }
        events.last_mut().unwrap().bytes.extend_from_slice(data);
        missing -= data.len();
    }
    assert_eq!(missing, 0, "{}", capture.display());
    Some((events, summary))
}

/// Reads the 128 bytes of an event. Returns it without its bytes, and their number.
fn parse(event: &[u8]) -> (Event, usize) {
    assert_eq!(event.len(), EVENT_BYTES);
    let word = |at: usize| u32::from_le_bytes(event[at..at + 4].try_into().unwrap());
    let long = |at: usize| u64::from_le_bytes(event[at..at + 8].try_into().unwrap());
    let end = |address: usize, port: usize| {
        let address = Ipv6Addr::from(<[u8; 16]>::try_from(&event[address..address + 16]).unwrap());
        let address = if event[89] == 4 { IpAddr::from(address).to_canonical() } else { address.into() };
        SocketAddr::new(address, u16::from_le_bytes(event[port..port + 2].try_into().unwrap()))
    };
    let parsed = Event {
        kind: event[84],
        from_server: event[85] != 0,
        cause: event[86],
        state: event[87],
        stream: word(20),
        offset: long(32),
        missing: word(16).into(),
        client: end(48, 80),
        server: end(64, 82),
        bytes: Vec::new(),
    };
    (parsed, word(12) as usize)
}

/// The streams of events, in the order of their beginnings. Asserts that the bytes of each direction have no unreported hole.
pub fn streams(events: &[Event]) -> Vec<Stream> {
    let mut streams: Vec<Stream> = Vec::new();
    let mut open: BTreeMap<u32, (usize, [u64; 2])> = BTreeMap::new();
    for event in events {
        if event.kind == kind::OPEN {
            let earlier = open.insert(event.stream, (streams.len(), [0; 2]));
            assert!(earlier.is_none(), "{event:?}");
            let (client, server) = (event.client, event.server);
            streams.push(Stream { client, server, directions: Default::default(), cause: 0, state: 0 });
            continue;
        }
        let (index, next) = open.get_mut(&event.stream).unwrap();
        let (stream, side) = (&mut streams[*index], usize::from(event.from_server));
        stream.state |= event.state;
        match event.kind {
            kind::BYTES | kind::GAP => {
                assert_eq!(event.offset, next[side], "{event:?}");
                next[side] += event.bytes.len() as u64;
                stream.directions[side].push_bytes(&event.bytes);
                if event.kind == kind::GAP {
                    next[side] += event.missing;
                    stream.directions[side].push_missing(event.missing);
                }
            }
            kind::END => {
                stream.cause = event.cause;
                open.remove(&event.stream);
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "{open:?}");
    streams
}
