//! What it costs that records survive a crash: writing them with and without the write-ahead log.

use crate::BenchError;
use crate::statistics::Sample;
use crate::table::Table;
use std::path::Path;
use std::time::Instant;
use weir_records::{Durability, ModuleFiles, RecordsError};
use weir_sandbox::thread_time;
use weir_session::{Manifest, Order, Record};

/// Rows of each file.
const ROWS: u32 = 400_000;
/// Rows that come in a second, and are brought to the log together.
const RATES: [u32; 3] = [100_000, 10_000, 1_000];
/// A row of a usual flow record.
const MANIFEST: &str = "name = 'flows'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n[[stream]]\nname = 'rows'\n\
    [[stream.field]]\nname = 'time'\ntype = 'timestamp'\n\
    [[stream.field]]\nname = 'source'\ntype = 'ip'\n\
    [[stream.field]]\nname = 'destination'\ntype = 'ip'\n\
    [[stream.field]]\nname = 'bytes'\ntype = 'u64'\n\
    [[stream.field]]\nname = 'packets'\ntype = 'u64'\n\
    [[stream.field]]\nname = 'port'\ntype = 'u16'\n";

/// Processor time and wall-clock time of one file, in ns a row.
struct Cost {
    processor: f64,
    wall: f64,
}

/// The table of costs.
///
/// # Errors
/// Records cannot be written to the folder for temporary files.
pub fn table(rounds: usize) -> Result<String, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::Failed {
        command: "bench live".to_owned(),
        said: error.to_string(),
    };
    let manifest = Manifest::parse(MANIFEST.as_bytes()).map_err(|error| failed(&error))?;
    let dir = tempfile::tempdir().map_err(|error| failed(&error))?;
    let mut table = Table::new(&[
        "rows a second",
        "without a log, ns a row",
        "with a log, ns a row",
        "processor time, ratio",
        "quartiles",
        "wall-clock time, ratio",
    ]);
    for rate in RATES {
        let (mut without, mut with) = (Sample::default(), Sample::default());
        let (mut without_wall, mut with_wall) = (Sample::default(), Sample::default());
        for round in 0..rounds.max(1) {
            let mut durabilities = [Durability::AtEnd, Durability::Seconds];
            // Neither is always the first.
            if round % 2 == 1 {
                durabilities.reverse();
            }
            for durability in durabilities {
                let cost = write(dir.path(), &manifest, durability, rate).map_err(|error| failed(&error))?;
                let (processor, wall) = match durability {
                    Durability::AtEnd => (&mut without, &mut without_wall),
                    Durability::Seconds => (&mut with, &mut with_wall),
                };
                processor.push(cost.processor);
                wall.push(cost.wall);
            }
        }
        let ratio = with.over(&without);
        table.row([
            rate.to_string(),
            format!("{:.0}", without.median()),
            format!("{:.0}", with.median()),
            format!("{:.2}", ratio.median()),
            ratio.quartiles().spread(2),
            format!("{:.2}", with_wall.over(&without_wall).median()),
        ]);
    }
    Ok(format!(
        "What the write-ahead log of records costs: {ROWS} rows of six fields to one file, flushed to the log once for each second's rows, medians of {rounds} rounds in turn.\n\n{table}"
    ))
}

fn write(dir: &Path, manifest: &Manifest, durability: Durability, rate: u32) -> Result<Cost, RecordsError> {
    let mut files = ModuleFiles::create(Some(dir), "flows", manifest, durability)?;
    let (begin, at) = (thread_time(), Instant::now());
    for n in 0..ROWS {
        files.write(&Record { order: Order::packet(0), stream: 0, row: &row(n), tail: &[] })?;
        if n % rate == rate - 1 {
            files.flush()?;
        }
    }
    files.finish()?;
    let (processor, wall) = (thread_time().0.saturating_sub(begin.0), at.elapsed());
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let processor = processor as f64 / f64::from(ROWS);
    Ok(Cost { processor, wall: wall.as_secs_f64() * 1e9 / f64::from(ROWS) })
}

/// Flows of ten thousand hosts; their sizes do not repeat.
fn row(n: u32) -> Vec<u8> {
    let address =
        |host: u32| [&[0; 10][..], &[0xff, 0xff], &(0x0a00_0000 + host % 10_000).to_be_bytes()].concat();
    let noise = n.wrapping_mul(0x9e37_79b9);
    let mut row = Vec::with_capacity(58);
    row.extend((1_700_000_000_000_000_000 + u64::from(n) * 10_000).to_le_bytes());
    row.extend(address(n));
    row.extend(address(noise));
    row.extend(u64::from(noise >> 8).to_le_bytes());
    row.extend(u64::from(noise >> 20).to_le_bytes());
    row.extend((443 + u16::try_from(n % 7).unwrap_or(0)).to_le_bytes());
    row
}
