//! Measures the rows per second written to a file, in the shape of the module rtt: `cargo run --release -p
//! weir-records --example speed`.

use std::time::Instant;
use weir_records::{Durability, ModuleFiles};
use {
    weir_admission::Manifest,
    weir_session::{Record, RecordOrder},
};

const ROWS: u64 = 4_000_000;
const FIELDS: &[(&str, &str)] = &[
    ("time", "timestamp"),
    ("client", "ip"),
    ("client_port", "u16"),
    ("server", "ip"),
    ("server_port", "u16"),
    ("rtt", "duration"),
    ("syns", "u16"),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut text =
        "name='rtt'\nversion='1'\nabi=2\nlicense='MIT'\nsummary='s'\n[[stream]]\nname='rtts'\n".to_owned();
    for (name, ty) in FIELDS {
        text += &format!("[[stream.field]]\nname='{name}'\ntype='{ty}'\n");
    }
    let manifest = Manifest::parse(text.as_bytes())?;
    let stream = &manifest.streams[0];
    let dir = tempfile::tempdir()?;
    let mut files = ModuleFiles::create(Some(dir.path()), "rtt", &manifest, Durability::AtEnd)?;
    let mut row = vec![0; stream.row_bytes()];
    let begin = Instant::now();
    for n in 0..ROWS {
        let noise = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut put = |field: usize, skip: usize, bytes: &[u8]| {
            let at = stream.fields[field].offset + skip;
            row[at..at + bytes.len()].copy_from_slice(bytes);
        };
        put(0, 0, &(1_700_000_000_000_000_000 + n * 1_000).to_le_bytes());
        // Clients anywhere, servers of one network: ::ffff:a.b.c.d.
        put(1, 10, &[0xff, 0xff]);
        put(1, 12, &noise.to_be_bytes()[..4]);
        put(2, 0, &noise.to_be_bytes()[4..6]);
        put(3, 10, &[0xff, 0xff, 10, 0, 0]);
        put(3, 15, &noise.to_be_bytes()[..1]);
        put(5, 0, &(noise >> 40).to_le_bytes());
        files.write(&Record { order: RecordOrder::packet(0), stream: 0, row: &row, tail: &[] })?;
    }
    let path = files.finish()?.remove(0).path.ok_or("no file")?;
    let seconds = begin.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    let rate = ROWS as f64 / seconds / 1e6;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("");
    println!("{rate:.2} M rows/s, {} bytes; {peak}", std::fs::metadata(path)?.len());
    Ok(())
}
