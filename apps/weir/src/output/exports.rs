//! Rows in the formats of other tools: files in the folder of `--out`, which can be rotated, and an IPFIX collector.

use crate::output::out_folder::OutFolderError;
use crate::output::rotation::{RotatedNames, RotationLimit};
use crate::output::row_args::RowArgs;
use crate::output::rows::{StreamArgError, chosen_streams};
use std::path::{Path, PathBuf};
use std::time::Instant;
use weir_admission::{DeclaredStream, Manifest, Name};
use weir_datapath::clock::wall_clock;
use weir_export_files::{
    CollectorAddress, CollectorError, CollectorTotals, ExportError, ExportFiles, ExportFormat, ExportOutcome,
    ExportStream, ExportedRows, FileNames, IpfixCollector,
};
use weir_os::private::NamedOutput;
use weir_records::StreamRows;
use weir_session::Record;
use weir_units::Timestamp;

/// The most names that are tried for a rotated file, while other runs take them.
const NAMES_MAX: usize = 1000;

/// Errors of rows in the formats of other tools.
#[derive(Debug, thiserror::Error)]
pub enum ExportsError {
    /// A format that is only in files, without a folder for them.
    #[error("--format {0} writes files: add --out DIR")]
    NeedsFolder(&'static str),
    /// IPFIX without a destination.
    #[error(
        "--format ipfix writes files or sends to a collector: add --out DIR, or --collector udp://HOST:PORT"
    )]
    NeedsDestination,
    /// No stream for a collector.
    #[error(
        "--collector sends the rows of flows, and no module here has such a stream: add -m flows, or name other streams with --stream"
    )]
    NoFlows,
    /// No stream that IPFIX can have.
    #[error(
        "no stream here has fields whose semantics are elements of IPFIX, such as addresses and ports: add a module such as flows, or take another format"
    )]
    NoElements,
    /// A stream of `--stream` cannot be exported.
    #[error(transparent)]
    Stream(#[from] StreamArgError),
    /// The folder has results of an earlier run.
    #[error(transparent)]
    Out(#[from] OutFolderError),
    /// A file cannot be written.
    #[error("{0} (the folder is that of --out)")]
    File(#[from] ExportError),
    /// The collector is not reached.
    #[error("--collector {0}")]
    Collector(#[from] CollectorError),
}

impl ExportsError {
    /// Returns true if the command line is wrong.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::NeedsFolder(_)
            | Self::NeedsDestination
            | Self::NoFlows
            | Self::NoElements
            | Self::Stream(_) => true,
            Self::Out(_) | Self::File(_) | Self::Collector(_) => false,
        }
    }

    /// Returns the file that is the cause, if one is.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(error) => Some(error.path()),
            _ => None,
        }
    }
}

/// Checks that rows in the chosen format have a destination.
///
/// # Errors
/// They have none.
pub fn check(args: &RowArgs, out: Option<&Path>) -> Result<(), ExportsError> {
    match args.export_format(true) {
        Some(ExportFormat::Zeek) if out.is_none() => Err(ExportsError::NeedsFolder("zeek")),
        Some(ExportFormat::Ipfix) if out.is_none() && args.collector.is_none() => {
            Err(ExportsError::NeedsDestination)
        }
        _ => Ok(()),
    }
}

/// The destinations of a run's rows in the formats of other tools.
#[derive(Debug, Default)]
pub struct ExportOutputs {
    files: Option<RotatedFiles>,
    collector: Option<IpfixCollector>,
    /// The rows and texts in files that are complete.
    complete: ExportOutcome,
}

/// The present files.
#[derive(Debug)]
struct RotatedFiles {
    dir: PathBuf,
    format: ExportFormat,
    streams: Vec<OwnedStream>,
    limit: Option<RotationLimit>,
    files: ExportFiles,
    since: Instant,
}

/// A stream whose rows are exported.
#[derive(Debug)]
struct OwnedStream {
    module: usize,
    label: String,
    index: u16,
    declared: DeclaredStream,
}

impl OwnedStream {
    fn borrowed(&self) -> ExportStream<'_> {
        ExportStream { module: self.module, label: &self.label, index: self.index, declared: &self.declared }
    }
}

/// The result of exports.
#[derive(Debug)]
pub struct EndedExports {
    /// The rows of each stream in each file.
    pub streams: Vec<ExportedRows>,
    /// Texts in files that were cut.
    pub cut: u64,
    /// The errors of files.
    pub errors: Vec<ExportError>,
    /// The collector.
    pub collector: Option<(CollectorAddress, CollectorTotals)>,
}

impl ExportOutputs {
    /// Begins the files in `out`, and connects to the collector, as the arguments say. The folder `out` must exist.
    ///
    /// # Errors
    /// A file cannot be created or has a name of an earlier result, the collector is not reached, or there is nothing to
    /// export.
    pub fn open(
        args: &RowArgs,
        out: Option<&Path>,
        limit: Option<RotationLimit>,
        modules: &[(String, &Manifest)],
    ) -> Result<Self, ExportsError> {
        let chosen = chosen_streams(args, modules)?;
        let mut streams = Vec::new();
        for (module, (label, manifest)) in modules.iter().enumerate() {
            for (index, declared) in manifest.streams.iter().enumerate() {
                let is_chosen = chosen.as_ref().is_none_or(|chosen| chosen.contains(&(module, index)));
                if let (true, Ok(index)) = (is_chosen, u16::try_from(index)) {
                    streams.push(OwnedStream {
                        module,
                        label: label.clone(),
                        index,
                        declared: declared.clone(),
                    });
                }
            }
        }
        // The collector comes first: files would stay if it is not reached.
        let collector = match &args.collector {
            Some(address) => Some(connect(address, &streams, chosen.is_some())?),
            None => None,
        };
        let files = match args.export_format(out.is_some()).zip(out) {
            Some((format, dir)) => Some(RotatedFiles::begin(dir, format, streams, limit)?),
            None => None,
        };
        Ok(Self { files, collector, complete: ExportOutcome::default() })
    }

    /// Adds a record of the module with this index. `now` is the time of files' headers.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn push(&mut self, module: usize, record: &Record<'_>, now: Timestamp) -> Result<(), ExportsError> {
        if let Some(collector) = &mut self.collector {
            collector.push(module, record, wall_clock());
        }
        if let Some(files) = &mut self.files {
            files.files.write(module, record, now)?;
        }
        Ok(())
    }

    /// Writes and sends the rows so far, and begins new files if the present ones have reached their limit.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn flush(&mut self, now: Timestamp) -> Result<(), ExportsError> {
        if let Some(collector) = &mut self.collector {
            collector.flush(wall_clock());
        }
        let Some(files) = &mut self.files else { return Ok(()) };
        files.files.flush(now)?;
        if !files.is_full() {
            return Ok(());
        }
        let ended = files.rotate()?.end(true, now);
        self.complete.streams.extend(ended.streams);
        self.complete.cut += ended.cut;
        ended.errors.into_iter().next().map_or(Ok(()), |error| Err(error.into()))
    }

    /// Ends all files and the session with the collector. The files of a complete run get their names.
    pub fn end(self, is_complete: bool, now: Timestamp) -> EndedExports {
        let ExportOutcome { mut streams, mut cut, mut errors, .. } = self.complete;
        if let Some(files) = self.files {
            let ended = files.files.end(is_complete, now);
            streams.extend(ended.streams);
            cut += ended.cut;
            errors.extend(ended.errors);
        }
        let collector = self.collector.map(|collector| {
            let address = collector.address().clone();
            (address, collector.finish(wall_clock()))
        });
        EndedExports { streams, cut, errors, collector }
    }
}

impl EndedExports {
    /// Returns the streams of a module with their files. `counted` are all rows of its streams, which keep their number
    /// where no file has them.
    pub fn streams_of(
        &self,
        module: usize,
        manifest: &Manifest,
        counted: Vec<StreamRows>,
    ) -> Vec<StreamRows> {
        if self.streams.is_empty() {
            return counted;
        }
        let all = |name: &Name| {
            counted.iter().filter(|counted| counted.name == *name).map(|counted| counted.rows).sum()
        };
        let mut streams = Vec::new();
        for (index, declared) in manifest.streams.iter().enumerate() {
            let name = &declared.name;
            let is_of_stream =
                |rows: &&ExportedRows| rows.module == module && usize::from(rows.index) == index;
            let in_files = self.streams.iter().filter(is_of_stream).map(|exported| StreamRows {
                name: name.clone(),
                rows: exported.rows,
                late: 0,
                path: Some(exported.path.clone()),
            });
            let before = streams.len();
            streams.extend(in_files);
            if streams.len() == before {
                streams.push(StreamRows { name: name.clone(), rows: all(name), late: 0, path: None });
            }
        }
        streams
    }
}

fn connect(
    address: &CollectorAddress,
    streams: &[OwnedStream],
    are_chosen: bool,
) -> Result<IpfixCollector, ExportsError> {
    let all: Vec<ExportStream<'_>> = streams.iter().map(OwnedStream::borrowed).collect();
    let mut sent = if are_chosen { all } else { IpfixCollector::default_streams(&all) };
    if sent.is_empty() {
        return Err(ExportsError::NoFlows);
    }
    sent.retain(|stream| ExportFiles::can_have(ExportFormat::Ipfix, stream));
    if sent.is_empty() {
        return Err(ExportsError::NoElements);
    }
    Ok(IpfixCollector::connect(address, &sent, wall_clock())?)
}

impl RotatedFiles {
    fn begin(
        dir: &Path,
        format: ExportFormat,
        streams: Vec<OwnedStream>,
        limit: Option<RotationLimit>,
    ) -> Result<Self, ExportsError> {
        if !streams.iter().any(|stream| ExportFiles::can_have(format, &stream.borrowed())) {
            return Err(ExportsError::NoElements);
        }
        let files = open(dir, format, &streams, limit)?;
        Ok(Self { dir: dir.to_owned(), format, streams, limit, files, since: Instant::now() })
    }

    /// Returns true if the files have reached their limit.
    fn is_full(&self) -> bool {
        // Files without rows stay, so that a quiet interface does not fill the disk with empty files.
        self.files.rows() > 0
            && self.limit.is_some_and(|limit| limit.is_reached(self.since.elapsed(), self.files.bytes()))
    }

    /// Begins the next files, and returns the present ones.
    fn rotate(&mut self) -> Result<ExportFiles, ExportsError> {
        let next = open(&self.dir, self.format, &self.streams, self.limit)?;
        self.since = Instant::now();
        Ok(std::mem::replace(&mut self.files, next))
    }
}

/// Opens the files. Rotated ones have a number and a time in their names, as captures have.
fn open(
    dir: &Path,
    format: ExportFormat,
    streams: &[OwnedStream],
    limit: Option<RotationLimit>,
) -> Result<ExportFiles, ExportsError> {
    let streams: Vec<ExportStream<'_>> = streams.iter().map(OwnedStream::borrowed).collect();
    ExportFiles::create(format, FileNames::OfRun, &streams, |name| {
        let path = dir.join(name);
        if limit.is_some() {
            return open_next(&path);
        }
        if path.symlink_metadata().is_ok() {
            return Err(OutFolderError::HasResults { folder: dir.to_owned(), found: path }.into());
        }
        let output = NamedOutput::create(&path).map_err(ExportError::from)?;
        output.ok_or_else(|| ExportError::Busy(path).into())
    })
}

/// Opens the next rotated file, under a name that no file has, and that no other run is writing.
fn open_next(base: &Path) -> Result<NamedOutput, ExportsError> {
    let mut names = RotatedNames::new(base);
    let mut tries = 0;
    loop {
        tries += 1;
        let path = names.next(wall_clock());
        if path.symlink_metadata().is_ok() && tries < NAMES_MAX {
            continue;
        }
        match NamedOutput::create(&path).map_err(ExportError::from)? {
            Some(output) => return Ok(output),
            None if tries < NAMES_MAX => {}
            None => return Err(ExportError::Busy(path).into()),
        }
    }
}
