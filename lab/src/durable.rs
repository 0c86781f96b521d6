//! The cost of records that survive a crash: the time to write records with and without the write-ahead log. A table of
//! the part `live` of the benchmark.

use crate::error::{Context, LabError};
use crate::statistics::{Action, Sample, measure_values_in_turn, processor_time};
use crate::table::Table;
use std::path::Path;
use std::time::Instant;
use weir_records::{Durability, ModuleFiles, RecordsError};
use {
    weir_admission::Manifest,
    weir_session::{Record, RecordOrder},
};

/// The number of rows of each file.
const ROWS: u32 = 400_000;
/// Rows per second. The rows of a second are flushed to the log together.
const RATES: [u32; 3] = [100_000, 10_000, 1_000];
/// The manifest of a module with a typical flow record.
const MANIFEST: &str = "name = 'flows'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n[[stream]]\nname = 'rows'\n\
    field = [{ name = 'time', type = 'timestamp' }, { name = 'source', type = 'ip' }, { name = 'destination', type = 'ip' }, \
    { name = 'bytes', type = 'u64' }, { name = 'packets', type = 'u64' }, { name = 'port', type = 'u16' }]\n";

/// The table of the cost per row, with and without the log.
pub fn table(rounds: usize) -> Result<String, LabError> {
    let manifest = Manifest::parse(MANIFEST.as_bytes()).context("the manifest of flow records")?;
    let dir = tempfile::tempdir().context("making a folder")?;
    let mut table = Table::new(
        "rows a second | without a log, ns a row | with a log, ns a row | processor time, ratio | quartiles | wall-clock time, ratio",
    );
    for rate in RATES {
        let (dir, manifest) = (dir.path(), &manifest);
        let without_and_with_log = [Durability::AtEnd, Durability::Seconds];
        let mut actions = without_and_with_log.map(|durability| -> Action<'_, (f64, f64)> {
            Box::new(move || write(dir, manifest, durability, rate).context("writing records"))
        });
        let values = measure_values_in_turn(rounds, &mut actions)?;
        let sample =
            |index: usize, time: fn(&(f64, f64)) -> f64| values[index].iter().map(time).collect::<Sample>();
        let (without, with) =
            (sample(0, |(processor, _)| *processor), sample(1, |(processor, _)| *processor));
        let wall = sample(1, |(_, wall)| *wall).ratio_to(&sample(0, |(_, wall)| *wall)).median();
        table.row(format_args!(
            "{rate} | {:.0} | {:.0} | {} | {wall:.2}",
            without.median(),
            with.median(),
            with.ratio_to(&without).cells(2)
        ));
    }
    Ok(format!(
        "The cost of the write-ahead log of records: {ROWS} rows of six fields to one file, flushed to the log once for each second's rows, medians of {rounds} rounds in turn.\n\n{table}"
    ))
}

/// Writes a file of records. Returns the processor time and the wall-clock time in nanoseconds per row.
fn write(
    dir: &Path,
    manifest: &Manifest,
    durability: Durability,
    rate: u32,
) -> Result<(f64, f64), RecordsError> {
    let begin = Instant::now();
    let mut written = Ok(());
    let work = || {
        let mut files = ModuleFiles::create(Some(dir), "flows", manifest, durability)?;
        for n in 0..ROWS {
            files.write(&Record { order: RecordOrder::packet(0), stream: 0, row: &row(n), tail: &[] })?;
            if n % rate == rate - 1 {
                files.flush()?;
            }
        }
        files.finish().map(drop)
    };
    let processor = processor_time(|| written = work());
    let nanos_per_row = |seconds: f64| seconds * 1e9 / f64::from(ROWS);
    written.map(|()| (nanos_per_row(processor.as_secs_f64()), nanos_per_row(begin.elapsed().as_secs_f64())))
}

/// The row with number `n`: a flow between two of ten thousand hosts, with a pseudorandom size.
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
