//! Memory of whole runs: it must not grow with the capture.

use crate::table::{Table, yes_or_no};
use crate::{BenchError, looped, place, run};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How often a run is looked at.
const EVERY: Duration = Duration::from_micros(500);
/// The promise, in bytes.
const MOST: u64 = 200_000_000;

/// Peaks of a process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    /// RssAnon + RssShmem.
    held: u64,
    /// RssFile: pages of the capture, which the kernel takes back when it needs them.
    file: u64,
}

/// Peak memory of all modules over a trace, ten times the trace, ten times the trace compressed, and a large capture.
///
/// # Errors
/// Where `weir` is not there or fails, or a capture cannot be made.
pub fn table(trace: &Path, big: &Path, modules: &[String]) -> Result<String, BenchError> {
    let tenfold = tenfold(trace)?;
    let compressed = compressed(&tenfold)?;
    let mut table =
        Table::new(&["capture", "bytes", "RssAnon + RssShmem, MB", "RssFile, MB", "under 200 MB"]);
    for (name, capture) in
        [("the trace", trace), ("10 times", &tenfold), ("10 times, gzip", &compressed), ("large", big)]
    {
        let mut command = run::weir(capture)?;
        command.args(modules.iter().flat_map(|module| ["-m", module]));
        let peak = peak(&mut command)?;
        let megabytes = |bytes: u64| format!("{}.{}", bytes / 1_000_000, bytes / 100_000 % 10);
        table.row([
            name.to_owned(),
            std::fs::metadata(capture).map_or(0, |meta| meta.len()).to_string(),
            megabytes(peak.held),
            megabytes(peak.file),
            yes_or_no(peak.held <= MOST),
        ]);
    }
    Ok(format!("Peaks of all eight modules with --jobs 1, looked at every {EVERY:?}.\n\n{table}"))
}

fn tenfold(trace: &Path) -> Result<PathBuf, BenchError> {
    let to = place::scratch().join(format!("tenfold-{}", name_of(trace)));
    let packets = crate::packets::Packets::read(trace, usize::MAX)?;
    looped::make_if_missing(trace, &to, 10 * crate::packets::packets_of(packets.batches()))?;
    Ok(to)
}

fn compressed(capture: &Path) -> Result<PathBuf, BenchError> {
    let to = place::scratch().join(format!("{}.gz", name_of(capture)));
    if to.is_file() {
        return Ok(to);
    }
    let part = to.with_extension(format!("{}.part", std::process::id()));
    let write = || {
        let file = std::io::BufWriter::new(std::fs::File::create(&part)?);
        let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        std::io::copy(&mut std::fs::File::open(capture)?, &mut encoder)?;
        encoder.finish()?.flush()?;
        std::fs::rename(&part, &to)
    };
    write().map_err(BenchError::file(&to))?;
    Ok(to)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn peak(command: &mut Command) -> Result<Peak, BenchError> {
    let shown = format!("{command:?}");
    let failed = |source| BenchError::Program { program: shown.clone(), source };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak = Peak::default();
    let ended = loop {
        if let Ok(text) = std::fs::read_to_string(&status) {
            peak.held = peak.held.max(bytes(&text, "RssAnon:") + bytes(&text, "RssShmem:"));
            peak.file = peak.file.max(bytes(&text, "RssFile:"));
        }
        if let Some(ended) = child.try_wait().map_err(failed)? {
            break ended;
        }
        std::thread::sleep(EVERY);
    };
    if ended.success() {
        Ok(peak)
    } else {
        Err(BenchError::Failed { command: shown, said: ended.to_string() })
    }
}

/// A field of /proc/PID/status, which is in KiB.
pub(crate) fn bytes(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_status_of_a_process() {
        let status = "Name:\tx\nRssAnon:\t    1234 kB\nRssFile:\t       1 kB\nRssShmem:\t       2 kB\n";
        assert_eq!((bytes(status, "RssAnon:"), bytes(status, "RssShmem:")), (1234 * 1024, 2048));
        assert_eq!(bytes(status, "VmSwap:"), 0);
    }
}
