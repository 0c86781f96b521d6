//! The time from start to first packet: whole runs over a capture of one packet. The part `start` of the benchmark.

use crate::error::LabError;
use crate::native::run_measured;
use crate::statistics::{Action, measure_in_turn};
use crate::table::{Table, yes_or_no};
use crate::{paths, run};
use std::path::{Path, PathBuf};

/// The promised limit in milliseconds.
const MILLIS_MAX: f64 = 50.0;

/// The table of the time of runs over one packet: one module and all, with compiled modules in the cache and without.
pub fn table(modules: &[String], rounds: usize) -> Result<String, LabError> {
    let folder = tempfile::tempdir().map_err(LabError::file(&std::env::temp_dir()))?;
    let capture = one_packet(folder.path())?;
    let one = ["syn-flood".to_owned()];
    let cases: Vec<(&str, &[String], bool, &str)> = [("syn-flood", &one[..]), ("all eight", modules)]
        .into_iter()
        .flat_map(|(name, chosen)| {
            // With `llvm` a run waits for verified code: objects in the cache are verified again.
            [(true, "cranelift"), (true, "llvm"), (false, "cranelift")]
                .map(|(is_cached, back_end)| (name, chosen, is_cached, back_end))
        })
        .collect();
    let mut actions: Vec<Action<'_>> = Vec::new();
    for (name, chosen, is_cached, back_end) in cases.iter().copied() {
        let cache = folder.path().join(format!("{name} {is_cached} {back_end}"));
        let capture = &capture;
        actions.push(Box::new(move || {
            if !is_cached {
                // Fails in the first round, because the folder does not exist yet.
                let _ = std::fs::remove_dir_all(&cache);
            }
            std::fs::create_dir_all(&cache).map_err(LabError::file(&cache))?;
            let mut command = run::weir_run(capture, 1)?;
            command.args(["--back-end", back_end]);
            command.args(chosen.iter().flat_map(|module| ["-m", module])).env("XDG_CACHE_HOME", &cache);
            Ok(run_measured(&mut command)?.wall.as_secs_f64() * 1e3)
        }));
    }
    let mut table = Table::new("modules | back end | compiled before | ms | quartiles | under 50 ms");
    for ((name, _, is_cached, back_end), sample) in cases.iter().zip(measure_in_turn(rounds, &mut actions)?) {
        let kept = if *is_cached { yes_or_no(sample.median() <= MILLIS_MAX) } else { "no promise" };
        table.row(format_args!(
            "{name} | {back_end} | {} | {} | {kept}",
            yes_or_no(*is_cached),
            sample.cells(1)
        ));
    }
    Ok(format!(
        "From before `weir run` is executed to after it has ended, over a capture of one packet: an upper bound. Medians of {rounds} runs.\n\n{table}"
    ))
}

/// Makes a capture with only the first packet of the sample capture. Returns its path.
fn one_packet(folder: &Path) -> Result<PathBuf, LabError> {
    let sample = paths::sample();
    let mut bytes = std::fs::read(&sample).map_err(LabError::file(&sample))?;
    // 24 bytes of file header, 16 of record header, whose third word is the packet's length. The sample is little-endian.
    let len = bytes.get(32..36).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    bytes.truncate(24 + 16 + usize::try_from(len).unwrap_or(0));
    let capture = folder.join("one.pcap");
    std::fs::write(&capture, bytes).map_err(LabError::file(&capture))?;
    Ok(capture)
}
