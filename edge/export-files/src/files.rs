//! The files of several streams in one format.

use crate::file::ExportFile;
use crate::{ExportError, ExportFormat, ExportStream};
use std::path::PathBuf;
use weir_exports::RowKind;
use weir_exports::ipfix::IpfixMessages;
use weir_os::private::NamedOutput;
use weir_session::Record;
use weir_units::{Bytes, Timestamp};

/// The characters of a file's own name before a number.
const OWN_NAME_MAX: usize = 44;

/// The names of files for streams that Zeek has no log for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileNames {
    /// `MODULE_STREAM`, in a folder for several modules.
    OfRun,
    /// `STREAM`, in a folder for one module. All names are [names](weir_admission::Name) then.
    OfModule,
}

/// The files of streams in one format. In Zeek's and the IPFIX format they are named after the kinds of their rows, such
/// as `conn.log`; a second stream of a kind has a file of its own.
#[derive(Debug)]
pub struct ExportFiles {
    files: Vec<ExportFile>,
    streams: Vec<ExportedStream>,
}

/// A stream with its file.
#[derive(Debug)]
struct ExportedStream {
    module: usize,
    index: u16,
    /// The index of the file, and that of the stream in it.
    file: (usize, usize),
    rows: u64,
}

/// The rows of a stream in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedRows {
    /// The index of the module.
    pub module: usize,
    /// The index of the stream in the module's manifest.
    pub index: u16,
    /// The rows of the stream. If the file could not be written to its end, the rows of all its streams in the file.
    pub rows: u64,
    /// The file. Its name ends with `.part` if it is not complete.
    pub path: PathBuf,
}

/// The result of files.
#[derive(Debug, Default)]
pub struct ExportOutcome {
    /// The streams.
    pub streams: Vec<ExportedRows>,
    /// The rows in all files.
    pub rows: u64,
    /// The texts that were cut, because a message of IPFIX has no room for them.
    pub cut: u64,
    /// The errors, at most one for each file. Earlier errors were returned before.
    pub errors: Vec<ExportError>,
}

impl ExportFiles {
    /// Returns true if a format can have the rows of a stream. IPFIX has no elements for rows without addresses and ports.
    pub fn can_have(format: ExportFormat, stream: &ExportStream<'_>) -> bool {
        format != ExportFormat::Ipfix || IpfixMessages::can_export(stream.declared)
    }

    /// Begins files for the streams that the format [can have](Self::can_have). `open` opens the output for a file of this name.
    ///
    /// # Errors
    /// The first error of `open`.
    pub fn create<E>(
        format: ExportFormat,
        names: FileNames,
        streams: &[ExportStream<'_>],
        mut open: impl FnMut(&str) -> Result<NamedOutput, E>,
    ) -> Result<Self, E> {
        let mut plans: Vec<(String, Vec<ExportStream<'_>>)> = Vec::new();
        let mut exported = Vec::new();
        for stream in streams.iter().filter(|stream| Self::can_have(format, stream)) {
            let name = match format {
                ExportFormat::Eve => "eve".to_owned(),
                ExportFormat::Zeek | ExportFormat::Ipfix => log_name(format, names, stream, &plans),
            };
            let known = plans.iter().position(|(known, _)| *known == name);
            let file = known.unwrap_or_else(|| {
                plans.push((name, Vec::new()));
                plans.len() - 1
            });
            let Some((_, members)) = plans.get_mut(file) else { continue };
            exported.push(ExportedStream {
                module: stream.module,
                index: stream.index,
                file: (file, members.len()),
                rows: 0,
            });
            members.push(*stream);
        }
        let extension = format.extension();
        let file = |(name, streams): &(String, Vec<ExportStream<'_>>)| {
            open(&format!("{name}.{extension}")).map(|output| ExportFile::new(format, name, streams, output))
        };
        Ok(Self { files: plans.iter().map(file).collect::<Result<_, E>>()?, streams: exported })
    }

    /// Appends a row to the file of its stream. Rows of other streams are ignored.
    ///
    /// # Errors
    /// The file cannot be written. The error is returned once; later rows of the file are lost.
    pub fn write(&mut self, module: usize, record: &Record<'_>, now: Timestamp) -> Result<(), ExportError> {
        let found =
            self.streams.iter_mut().find(|stream| stream.module == module && stream.index == record.stream);
        let Some(stream) = found else { return Ok(()) };
        stream.rows += 1;
        let (file, in_file) = stream.file;
        self.files.get_mut(file).map_or(Ok(()), |file| file.push(in_file, record, now))
    }

    /// Writes all rows so far to the files.
    ///
    /// # Errors
    /// The first error. The other files are written anyway.
    pub fn flush(&mut self, now: Timestamp) -> Result<(), ExportError> {
        let errors: Vec<ExportError> =
            self.files.iter_mut().filter_map(|file| file.flush(now).err()).collect();
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Returns the rows so far.
    pub fn rows(&self) -> u64 {
        self.streams.iter().map(|stream| stream.rows).sum()
    }

    /// Returns the bytes of all files.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.files.iter().map(ExportFile::bytes).fold(0, u64::saturating_add))
    }

    /// Ends every file. Complete files get their names.
    pub fn end(self, is_complete: bool, now: Timestamp) -> ExportOutcome {
        let mut outcome = ExportOutcome::default();
        let mut ended = Vec::new();
        for file in self.files {
            let file = file.end(is_complete, now);
            outcome.rows = outcome.rows.saturating_add(file.rows);
            outcome.cut = outcome.cut.saturating_add(file.cut);
            outcome.errors.extend(file.error);
            ended.push((file.rows, file.path));
        }
        for stream in self.streams {
            if let Some((rows, path)) = ended.get(stream.file.0) {
                outcome.streams.push(ExportedRows {
                    module: stream.module,
                    index: stream.index,
                    rows: stream.rows.min(*rows),
                    path: path.clone(),
                });
            }
        }
        outcome
    }
}

/// Returns the name of a stream's file: that of Zeek's log for its rows, or one of its own if Zeek has none, or another stream
/// has it. Only the findings of several modules share a log.
fn log_name(
    format: ExportFormat,
    names: FileNames,
    stream: &ExportStream<'_>,
    plans: &[(String, Vec<ExportStream<'_>>)],
) -> String {
    let of_log = |name: &str| plans.iter().find(|(known, _)| known == name).map(|(_, streams)| streams);
    let kind = RowKind::of(stream.declared);
    if let Some(name) = kind.zeek_log() {
        let are_findings =
            |streams: &Vec<ExportStream<'_>>| streams.iter().all(|other| RowKind::of(other.declared) == kind);
        let is_shared = kind == RowKind::Finding && format == ExportFormat::Zeek;
        if of_log(name).is_none_or(|streams| is_shared && are_findings(streams)) {
            return name.to_owned();
        }
    }
    let own = match names {
        FileNames::OfRun => format!("{}_{}", stream.label, stream.declared.name),
        FileNames::OfModule => stream.declared.name.to_string(),
    };
    let stem: String = own.chars().take(OWN_NAME_MAX).collect();
    let numbered = (2..).map(|number| format!("{stem}_{number}"));
    std::iter::once(own).chain(numbered).find(|name| of_log(name).is_none()).unwrap_or_default()
}
