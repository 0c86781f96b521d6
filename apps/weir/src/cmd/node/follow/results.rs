//! The files and the report of followed records, with the numbers of missed ones.

use super::FollowError;
use crate::cmd::node::args::FollowArgs;
use crate::output::exports::{ExportOutputs, ExportsError};
use crate::output::out_folder::OutFolder;
use crate::output::record_files::RecordFiles;
use crate::output::report_file::ReportFile;
use std::io::{self, Write};
use std::time::Instant;
use weir_admission::Name;
use weir_datapath::clock::wall_clock;
use weir_node::client::followed::{Followed, ModuleInSession};
use weir_node::control::protocol::FollowedStream;
use weir_records::{Durability, FLUSH, StreamRows};
use weir_report::{CaptureInfo, RunModuleInfo, RunReport, StreamInfo};
use weir_session::Record;
use weir_units::{Escape as _, Nanos};

/// The key of a file's metadata with the number of rows that are missing in it.
const MISSED_ROWS: &str = "weir.missed_rows";

/// The results of `weir follow` other than rows on standard output.
pub struct FollowResults {
    session: String,
    /// The lock of the folder of `--out`.
    _out: Option<OutFolder>,
    /// The record files of each module; without `--out`, they only count.
    files: Vec<RecordFiles>,
    /// The rows in the formats of other tools.
    exports: ExportOutputs,
    report: Option<(RunReport, ReportFile)>,
    /// Missed rows of each stream of each module.
    missed: Vec<Vec<u64>>,
    /// The part of `missed` that is in the metadata of the present files.
    missed_in_file: Vec<Vec<u64>>,
    has_files: bool,
    begin: Instant,
    flushed: Instant,
}

impl FollowResults {
    /// Opens the files of `--out` and `--report`.
    ///
    /// # Errors
    /// A file cannot be created, another run writes it, or the folder has results of an earlier run.
    pub fn open(args: &FollowArgs, followed: &Followed) -> Result<Self, FollowError> {
        let labels: Vec<String> = followed.modules.iter().map(|module| module.name.to_string()).collect();
        let out = args
            .out
            .as_deref()
            .map(|path| OutFolder::open(path, &labels, args.rotate.is_some()))
            .transpose()?;
        let report_file = args.report.as_deref().map(ReportFile::open).transpose()?;
        let session = args.session.to_string();
        let exports =
            ExportOutputs::open(&args.printing, args.out.as_deref(), args.rotate, &followed.labels())?;
        let is_parquet = args.printing.export_format(args.out.is_some()).is_none();
        let files = |module: &ModuleInSession| {
            let facts = vec![
                ("weir.module_digest", module.digest.to_string()),
                ("weir.node", followed.node.to_string()),
                ("weir.session", session.clone()),
                (MISSED_ROWS, "0".to_owned()),
            ];
            let named = (module.name.as_str(), &module.manifest);
            let files = RecordFiles::create(
                args.out.as_deref(),
                named,
                facts,
                Durability::Seconds,
                (args.rotate, is_parquet),
            )?;
            for found in files.recovered() {
                // A closed standard error must not end the run.
                let _ = writeln!(
                    io::stderr(),
                    "weir: {}: an earlier run ended without warning; its {} rows are in {}",
                    module.name,
                    found.rows,
                    found.path.escaped()
                );
            }
            Ok::<_, FollowError>(files)
        };
        let files = followed.modules.iter().map(files).collect::<Result<_, _>>()?;
        let report = report_file.map(|file| {
            let mut report = RunReport::new();
            for module in &followed.modules {
                report.add_module(module.name.as_str(), &module.manifest);
            }
            (report, file)
        });
        let missed: Vec<Vec<u64>> =
            followed.modules.iter().map(|module| vec![0; module.manifest.streams.len()]).collect();
        let missed_in_file = missed.clone();
        let (begin, has_files) = (Instant::now(), args.out.is_some());
        Ok(Self {
            session,
            _out: out,
            files,
            exports,
            report,
            missed,
            missed_in_file,
            has_files,
            begin,
            flushed: begin,
        })
    }

    /// Adds a record of the module with this index.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn push(&mut self, module: usize, record: &Record<'_>) -> Result<(), FollowError> {
        if let Some(files) = self.files.get_mut(module) {
            files.write(record)?;
        }
        self.exports.push(module, record, wall_clock())?;
        if let Some((report, _)) = &mut self.report {
            report.add_record(module, record);
        }
        Ok(())
    }

    /// Counts missed rows, also in the metadata of the stream's file.
    pub fn miss(&mut self, stream: FollowedStream, rows: u64) {
        let (module, index) = (usize::from(stream.module), usize::from(stream.stream));
        let counters = [&mut self.missed, &mut self.missed_in_file];
        let [Some(missed), Some(in_file)] =
            counters.map(|missed| missed.get_mut(module).and_then(|streams| streams.get_mut(index)))
        else {
            return;
        };
        *missed = missed.saturating_add(rows);
        *in_file = in_file.saturating_add(rows);
        if let Some(files) = self.files.get_mut(module) {
            files.set_fact(stream.stream, MISSED_ROWS, &in_file.to_string());
        }
    }

    /// Writes rows to the logs from time to time, so that they survive a crash.
    ///
    /// # Errors
    /// A log cannot be written.
    pub fn flush(&mut self) -> Result<(), FollowError> {
        if self.flushed.elapsed() >= FLUSH {
            self.flushed = Instant::now();
            self.files.iter_mut().try_for_each(RecordFiles::flush)?;
            self.rotate()?;
            self.exports.flush(wall_clock())?;
        }
        Ok(())
    }

    /// Completes the record files that have reached their limit, and begins new ones, which count their missed rows anew.
    fn rotate(&mut self) -> Result<(), FollowError> {
        for (files, missed) in self.files.iter_mut().zip(&mut self.missed_in_file) {
            if files.is_full() {
                files.rotate()?;
                missed.fill(0);
            }
        }
        Ok(())
    }

    /// Ends all files, and states their rows on standard error. They get their names only if the records are complete.
    ///
    /// # Errors
    /// The first error; the other files are ended anyway.
    pub fn finish(
        self,
        followed: &Followed,
        failure: Option<&FollowError>,
        is_complete: bool,
    ) -> Result<(), FollowError> {
        let mut failed: Option<FollowError> = None;
        let mut infos = Vec::new();
        let mut warnings: Vec<String> =
            failure.map(|error| format!("the records end here: {error}")).into_iter().collect();
        let mut exported = self.exports.end(is_complete, wall_clock());
        failed = failed.or(exported.errors.drain(..).next().map(|error| ExportsError::from(error).into()));
        if let Some((address, totals)) = &exported.collector {
            let _ = writeln!(io::stderr(), "weir: {address}: {} records sent", totals.sent);
            for warning in totals.warnings() {
                let _ = writeln!(io::stderr(), "weir: warning: {address}: {warning}");
            }
        }
        for (index, ((module, files), missed)) in
            followed.modules.iter().zip(self.files).zip(&self.missed).enumerate()
        {
            let (streams, errors) = files.end(is_complete);
            let streams = exported.streams_of(index, &module.manifest, streams);
            failed = failed.or(errors.into_iter().next().map(FollowError::from));
            let mut info = module_info(module, &streams);
            // Rotated files of one stream miss rows together.
            let mut missed: Vec<(&Name, u64)> = module
                .manifest
                .streams
                .iter()
                .map(|stream| &stream.name)
                .zip(missed.iter().copied())
                .collect();
            for stream in &streams {
                let missed = missed.iter_mut().find(|(name, _)| **name == stream.name);
                let missed = missed.map_or(0, |(_, rows)| std::mem::take(rows));
                let name = format!("{}.{}", module.name, stream.name);
                if missed > 0 {
                    let text =
                        format!("{missed} rows of {name} were missed, because the follower was too slow");
                    info.messages.push(text.clone());
                    warnings.push(text);
                }
                if self.has_files {
                    describe(&name, stream, missed);
                }
            }
            infos.push(info);
        }
        if let Some((report, file)) = self.report {
            let capture = CaptureInfo {
                name: format!("session {} of node {}", self.session, followed.node),
                warnings,
                elapsed: Nanos::from(self.begin.elapsed()),
                jobs: 1,
                ..CaptureInfo::default()
            };
            match file.write(&report.render(&capture, &infos)) {
                Ok(path) => _ = writeln!(io::stderr(), "weir: report: {}", path.escaped()),
                Err(error) => _ = failed.get_or_insert(error.into()),
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Prints the rows of a stream and the path of its file.
fn describe(name: &str, stream: &StreamRows, missed: u64) {
    let missed = if missed > 0 { format!(", {missed} missed") } else { String::new() };
    let path = stream.path.as_ref().map(|path| format!(": {}", path.escaped())).unwrap_or_default();
    // A closed standard error must not end the run.
    let _ = writeln!(io::stderr(), "weir: {name}: {} rows{missed}{path}", stream.rows);
    if stream.late > 0 {
        let _ = writeln!(
            io::stderr(),
            "weir: {name}: {} times are after 2262-04-11: the file contains the latest time of its format instead",
            stream.late
        );
    }
}

fn module_info(module: &ModuleInSession, streams: &[StreamRows]) -> RunModuleInfo {
    let stream = |stream: &StreamRows| StreamInfo {
        name: stream.name.to_string(),
        rows: stream.rows,
        path: stream.path.as_ref().map(|path| path.escaped().to_string()),
    };
    RunModuleInfo {
        label: module.name.to_string(),
        version: module.manifest.version.clone(),
        summary: module.manifest.summary.clone(),
        records: streams.iter().map(|stream| stream.rows).sum(),
        streams: streams.iter().map(stream).collect(),
        ..RunModuleInfo::default()
    }
}
