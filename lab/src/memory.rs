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
/// The promised limit in MB.
const MEGABYTES_MAX: f64 = 200.0;

/// The table of the peak memory of all modules over four captures: a trace, the trace repeated ten times, the same
/// compressed, and a large capture.
pub fn table(trace: &Path, big: &Path, modules: &[String]) -> Result<String, LabError> {
    let packets = packets_of(Packets::read(trace, usize::MAX)?.batches());
    let tenfold = looped::make_in_scratch(trace, "tenfold", 10 * packets)?;
    let compressed = compressed(&tenfold)?;
    let mut table = Table::new("capture | bytes | RssAnon + RssShmem, MB | RssFile, MB | under 200 MB");
    for (name, capture) in
        [("the trace", trace), ("10 times", &tenfold), ("10 times, gzip", &compressed), ("large", big)]
    {
        let mut command = run::weir_run(capture)?;
        command.args(modules.iter().flat_map(|module| ["-m", module]));
        let (own, file) = peak(&mut command)?;
        let bytes = std::fs::metadata(capture).map_or(0, |meta| meta.len());
        table.row(format_args!(
            "{name} | {bytes} | {own:.1} | {file:.1} | {}",
            yes_or_no(own <= MEGABYTES_MAX)
        ));
    }
    Ok(format!("Peaks of all eight modules with --jobs 1, sampled every {INTERVAL:?}.\n\n{table}"))
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

/// The peaks of a process in MB: its own memory, and pages of the capture, which the kernel can reclaim.
fn peak(command: &mut Command) -> Result<(f64, f64), LabError> {
    const MEGABYTES_PER_MEBIBYTE: f64 = 1.048_576;
    let description = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().context(&description)?;
    let status = format!("/proc/{}/status", child.id());
    let (mut own, mut file) = (0.0f64, 0.0f64);
    loop {
        if let Ok(text) = std::fs::read_to_string(&status) {
            own = own
                .max((mebibytes(&text, "RssAnon:") + mebibytes(&text, "RssShmem:")) * MEGABYTES_PER_MEBIBYTE);
            file = file.max(mebibytes(&text, "RssFile:") * MEGABYTES_PER_MEBIBYTE);
        }
        match child.try_wait().context(&description)? {
            Some(ended) if ended.success() => return Ok((own, file)),
            Some(ended) => return Err(LabError::failed(description, ended.to_string())),
            None => std::thread::sleep(INTERVAL),
        }
    }
}

/// The value of a field in the text of /proc/PID/status, converted from KiB to MiB.
pub(crate) fn mebibytes(status: &str, field: &str) -> f64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
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
