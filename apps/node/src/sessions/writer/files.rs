//! The open record files of a module, in the format of its session.

use crate::control::record_format::RecordFormat;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_admission::{DeclaredStream, Manifest, Name};
use weir_datapath::clock::wall_clock;
use weir_export_files::{ExportError, ExportFiles, ExportFormat, ExportStream, FileNames};
use weir_os::private::{self, NamedOutput};
use weir_records::{Durability, ModuleFiles, RecordsError};
use weir_session::Record;

/// The reason why record files cannot be created or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordFilesError {
    /// A Parquet file.
    #[error(transparent)]
    Parquet(#[from] RecordsError),
    /// A file in the format of another tool.
    #[error(transparent)]
    Export(#[from] ExportError),
}

impl RecordFilesError {
    /// Returns true if the disk or its quota was full.
    pub(super) fn is_disk_full(&self) -> bool {
        match self {
            Self::Parquet(error) => error.is_disk_full(),
            Self::Export(error) => error.is_disk_full(),
        }
    }
}

/// The open files of a module.
#[derive(Debug)]
pub(super) enum ModuleRecordFiles {
    Parquet(ModuleFiles),
    Export {
        files: ExportFiles,
        /// For each stream, true if the format can have its rows.
        has_place: Vec<bool>,
    },
}

/// The result of a module's files.
#[derive(Debug)]
pub(super) struct EndedFiles {
    /// Number of rows in all files together.
    pub(super) kept: u64,
    /// True if all files are complete.
    pub(super) is_whole: bool,
    /// Number of times that are too late for the format.
    pub(super) late: u64,
    /// Number of texts that were cut for the format.
    pub(super) cut: u64,
    /// At most one error for each file.
    pub(super) errors: Vec<RecordFilesError>,
}

impl ModuleRecordFiles {
    /// Creates the files of a module in `folder`/`label`.
    ///
    /// # Errors
    ///
    /// A file cannot be created.
    pub(super) fn create(
        format: RecordFormat,
        folder: &Path,
        (label, module): (&str, &Name),
        manifest: &Manifest,
    ) -> Result<Self, RecordFilesError> {
        match format.export_format() {
            None => {
                Ok(Self::Parquet(ModuleFiles::create(Some(folder), label, manifest, Durability::Seconds)?))
            }
            Some(format) => Self::create_export(format, folder, (label, module), manifest),
        }
    }

    fn create_export(
        format: ExportFormat,
        folder: &Path,
        (label, module): (&str, &Name),
        manifest: &Manifest,
    ) -> Result<Self, RecordFilesError> {
        let failed = |path: PathBuf, source: io::Error| RecordsError::Folder { path, source };
        private::make_named_folder(folder).map_err(|error| failed(folder.to_owned(), error))?;
        let opened =
            private::make_inside(folder, label).map_err(|error| failed(folder.join(label), error.into()))?;
        let opened = Arc::new(opened);
        let stream = |(index, declared): (usize, &'_ DeclaredStream)| {
            u16::try_from(index).ok().map(|index| (index, declared.clone()))
        };
        let declared: Vec<(u16, DeclaredStream)> =
            manifest.streams.iter().enumerate().filter_map(stream).collect();
        let streams: Vec<ExportStream<'_>> = declared
            .iter()
            .map(|(index, declared)| ExportStream {
                module: 0,
                label: module.as_str(),
                index: *index,
                declared,
            })
            .collect();
        let has_place = streams.iter().map(|stream| ExportFiles::can_have(format, stream)).collect();
        let files = ExportFiles::create(format, FileNames::OfModule, &streams, |name| {
            let output = NamedOutput::create_in(&opened, name).map_err(ExportError::from)?;
            output.ok_or_else(|| ExportError::Busy(opened.path().join(name)))
        })?;
        Ok(Self::Export { files, has_place })
    }

    /// Appends a row. Returns false if the format cannot have rows of this stream.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn write(&mut self, record: &Record<'_>) -> Result<bool, RecordFilesError> {
        match self {
            Self::Parquet(files) => files.write(record)?,
            Self::Export { has_place, .. }
                if !has_place.get(usize::from(record.stream)).is_some_and(|has| *has) =>
            {
                return Ok(false);
            }
            Self::Export { files, .. } => files.write(0, record, wall_clock())?,
        }
        Ok(true)
    }

    /// Writes the rows so far to the disk, so that they survive a crash of the process.
    ///
    /// # Errors
    ///
    /// The first error. The other files are written anyway.
    pub(super) fn flush(&mut self) -> Result<(), RecordFilesError> {
        match self {
            Self::Parquet(files) => Ok(files.flush()?),
            Self::Export { files, .. } => Ok(files.flush(wall_clock())?),
        }
    }

    /// Returns true if the files have so many row groups that new ones should be begun.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::Parquet(files) => files.is_full(),
            Self::Export { .. } => false,
        }
    }

    /// Completes every file.
    pub(super) fn end(self) -> EndedFiles {
        match self {
            Self::Parquet(files) => {
                let ended = files.end();
                let is_complete =
                    |path: &Path| path.extension().is_some_and(|extension| extension == "parquet");
                EndedFiles {
                    kept: ended.kept,
                    is_whole: ended
                        .streams
                        .iter()
                        .all(|stream| stream.path.as_deref().is_some_and(is_complete)),
                    late: ended.streams.iter().map(|stream| stream.late).sum(),
                    cut: 0,
                    errors: ended.errors.into_iter().map(RecordFilesError::from).collect(),
                }
            }
            Self::Export { files, .. } => {
                let ended = files.end(true, wall_clock());
                let is_part = |path: &Path| path.extension().is_some_and(|extension| extension == "part");
                EndedFiles {
                    kept: ended.rows,
                    is_whole: !ended.streams.iter().any(|stream| is_part(&stream.path)),
                    late: 0,
                    cut: ended.cut,
                    errors: ended.errors.into_iter().map(RecordFilesError::from).collect(),
                }
            }
        }
    }
}
