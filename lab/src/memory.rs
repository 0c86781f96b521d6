//! The memory of whole runs, which must not grow with the capture. The part `memory` of the benchmark.

use crate::error::{Context, LabError};
use crate::packets::{Packets, packets_of};
use crate::table::{Table, yes_or_no};
use crate::{looped, run};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The sampling interval.
const INTERVAL: Duration = Duration::from_micros(500);
/// The promised limit of a process's own memory in MB.
const MEGABYTES_MAX: f64 = 200.0;
/// The promised limit of all resident memory, with the mapped pages of the capture, in MB: 512 MiB.
pub(crate) const RESIDENT_MEGABYTES_MAX: f64 = 536.870_912;

/// The table of the peak memory of all modules over four captures, with one thread and with two: a trace, the trace
/// repeated ten times, the same compressed, and a large capture.
pub fn table(trace: &Path, big: &Path, modules: &[String]) -> Result<String, LabError> {
    let packets = packets_of(Packets::read(trace, usize::MAX)?.batches());
    let tenfold = looped::make_in_scratch(trace, "tenfold", 10 * packets)?;
    let compressed = compressed(&tenfold)?;
    let mut table = Table::new(
        "capture | bytes | --jobs | RssAnon + RssShmem, MB | RssFile, MB | own under 200 MB | all under 537 MB",
    );
    for (name, capture) in
        [("the trace", trace), ("10 times", &tenfold), ("10 times, gzip", &compressed), ("large", big)]
    {
        let bytes = std::fs::metadata(capture).map_or(0, |meta| meta.len());
        for jobs in [1, 2] {
            let mut command = run::weir_run(capture, jobs)?;
            command.args(modules.iter().flat_map(|module| ["-m", module]));
            let Peak { own, file, all } = peak(&mut command)?;
            table.row(format_args!(
                "{name} | {bytes} | {jobs} | {own:.1} | {file:.1} | {} | {}",
                yes_or_no(own <= MEGABYTES_MAX),
                yes_or_no(all <= RESIDENT_MEGABYTES_MAX)
            ));
        }
    }
    Ok(format!(
        "Peaks of all eight modules, sampled every {INTERVAL:?}. The modules' own memory counts.\n\n{table}"
    ))
}

/// The path of the capture compressed with gzip, which is made if it does not exist.
fn compressed(capture: &Path) -> Result<PathBuf, LabError> {
    let to = PathBuf::from(format!("{}.gz", capture.display()));
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
    write().map_err(LabError::file(&to))?;
    Ok(to)
}

/// The peaks of a process in MB.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peak {
    /// The process's own memory.
    pub(crate) own: f64,
    /// Pages of the capture, which the kernel can reclaim.
    file: f64,
    /// Both together.
    pub(crate) all: f64,
}

/// Runs a command and returns the peaks of its memory.
pub(crate) fn peak(command: &mut Command) -> Result<Peak, LabError> {
    const MEGABYTES_PER_MEBIBYTE: f64 = 1.048_576;
    let description = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().context(&description)?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak = Peak::default();
    loop {
        if let Ok(text) = std::fs::read_to_string(&status) {
            let field = |name| mebibytes(&text, name) * MEGABYTES_PER_MEBIBYTE;
            let (own, file) = (field("RssAnon:") + field("RssShmem:"), field("RssFile:"));
            peak = Peak { own: peak.own.max(own), file: peak.file.max(file), all: peak.all.max(own + file) };
        }
        match child.try_wait().context(&description)? {
            Some(ended) if ended.success() => return Ok(peak),
            Some(ended) => return Err(LabError::failed(description, ended.to_string())),
            None => std::thread::sleep(INTERVAL),
        }
    }
}

/// The value of a field in the text of /proc/PID/status, converted from KiB to MiB; 0 if the text lacks the field.
pub(crate) fn mebibytes(status: &str, field: &str) -> f64 {
    mebibytes_of(status, field).unwrap_or(0.0)
}

/// The value of a field in the text of /proc/PID/status or smaps_rollup, converted from KiB to MiB; `None` if the text lacks
/// the field.
pub(crate) fn mebibytes_of(text: &str, field: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(field))?;
    Some(rest.trim().strip_suffix(" kB")?.parse::<f64>().ok()? / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_status_of_a_process() {
        let status = "Name:\tx\nRssAnon:\t    1234 kB\nRssFile:\t       1 kB\nRssShmem:\t       2 kB\n";
        let fields = ["RssAnon:", "RssShmem:", "VmSwap:"].map(|field| mebibytes(status, field) * 1024.0);
        assert_eq!(fields, [1234.0, 2.0, 0.0]);
    }
}
