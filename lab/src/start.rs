//! From start to first packet: the time of whole runs over a capture of one packet.

use crate::native::run_measured;
use crate::statistics::Sample;
use crate::table::{Table, yes_or_no};
use crate::{BenchError, place, run};
use std::path::{Path, PathBuf};

/// In ms.
const PROMISE: f64 = 50.0;

/// Time of runs over one packet with one module and with all, where compiled modules are kept from the run before, and where they are not.
///
/// # Errors
/// Where `weir` is not there or fails.
pub fn table(modules: &[String], rounds: usize) -> Result<String, BenchError> {
    let folder = tempfile::tempdir().map_err(BenchError::file(&std::env::temp_dir()))?;
    let capture = one_packet(folder.path())?;
    let mut table = Table::new(&["modules", "compiled before", "ms", "quartiles", "under 50 ms"]);
    for (name, chosen) in [("syn-flood", &["syn-flood".to_owned()][..]), ("all eight", modules)] {
        for warm in [true, false] {
            let mut sample = Sample::default();
            let cache = folder.path().join(name);
            for round in 0..=rounds {
                if !warm {
                    // What is not there need not be removed.
                    let _ = std::fs::remove_dir_all(&cache);
                }
                std::fs::create_dir_all(&cache).map_err(BenchError::file(&cache))?;
                let mut command = run::weir(&capture)?;
                command.args(chosen.iter().flat_map(|module| ["-m", module])).env("XDG_CACHE_HOME", &cache);
                let usage = run_measured(&mut command)?;
                if round > 0 {
                    sample.push(usage.wall.as_secs_f64() * 1e3);
                }
            }
            let q = sample.quartiles();
            let kept = match (warm, q.median <= PROMISE) {
                (false, _) => "no promise",
                (true, true) => "yes",
                (true, false) => "no",
            };
            table.row([
                name.to_owned(),
                yes_or_no(warm),
                format!("{:.1}", q.median),
                q.spread(1),
                kept.to_owned(),
            ]);
        }
    }
    Ok(format!(
        "From before `weir run` is executed to after it has ended, over a capture of one packet: an upper bound. Medians of {rounds} runs.\n\n{table}"
    ))
}

/// The sample's first packet, as a capture.
fn one_packet(folder: &Path) -> Result<PathBuf, BenchError> {
    let sample = place::sample();
    let mut bytes = std::fs::read(&sample).map_err(BenchError::file(&sample))?;
    // 24 bytes of file header, 16 of record header, whose third word is the packet's length. The sample is little-endian.
    let len = bytes.get(32..36).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    bytes.truncate(24 + 16 + usize::try_from(len).unwrap_or(0));
    let capture = folder.join("one.pcap");
    std::fs::write(&capture, bytes).map_err(BenchError::file(&capture))?;
    Ok(capture)
}
