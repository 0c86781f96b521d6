//! The record files of one module in a run, which a run on an interface can rotate.

use crate::output::rotation::RotationLimit;
use std::path::{Path, PathBuf};
use std::time::Instant;
use weir_admission::Manifest;
use weir_records::{
    Durability, FileOutcome, ModuleFiles, RecordSource, RecordsError, Recovered, StreamRows, next_number,
};
use weir_session::Record;
use weir_units::Bytes;

/// The record files of one module.
#[derive(Debug)]
pub struct RecordFiles {
    dir: Option<PathBuf>,
    label: String,
    manifest: Manifest,
    facts: Vec<(&'static str, String)>,
    durability: Durability,
    limit: Option<RotationLimit>,
    is_parquet: bool,
    /// The number of the present files, if they are rotated.
    number: u64,
    files: ModuleFiles,
    /// Streams of files that are complete.
    complete: Vec<StreamRows>,
    since: Instant,
    /// Rows and frames in the present files of the module.
    items: u64,
    /// Their bytes.
    bytes: u64,
}

impl RecordFiles {
    /// Creates the files of a module with this label in `dir`/`label`; if they are rotated, in `dir`/`label`-N, where N is higher than that
    /// of all earlier files. `facts` are metadata of each file. Returns the files of a crashed run as well, which are complete now. Without
    /// `is_parquet`, rows are only counted: their files are in another format.
    pub fn create(
        dir: Option<&Path>,
        (label, manifest): (&str, &Manifest),
        facts: Vec<(&'static str, String)>,
        durability: Durability,
        (limit, is_parquet): (Option<RotationLimit>, bool),
    ) -> Result<Self, RecordsError> {
        let number = dir.filter(|_| limit.is_some()).map_or(0, |dir| next_number(dir, label));
        let name = folder_name(label, limit.map(|_| number));
        let source = RecordSource { label: &name, manifest, facts: &facts };
        let files = ModuleFiles::create_from(dir.filter(|_| is_parquet), &source, durability)?;
        Ok(Self {
            dir: dir.map(Path::to_owned),
            label: label.to_owned(),
            manifest: manifest.clone(),
            facts,
            durability,
            limit,
            is_parquet,
            number,
            files,
            complete: Vec::new(),
            since: Instant::now(),
            items: 0,
            bytes: 0,
        })
    }

    /// Returns the completed files of a crashed run.
    pub fn recovered(&self) -> &[Recovered] {
        self.files.recovered()
    }

    /// Returns the name of the folder of the present files.
    pub fn folder(&self) -> String {
        folder_name(&self.label, self.limit.map(|_| self.number))
    }

    /// Returns the folder of `--out`.
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// Appends a record to its stream.
    pub fn write(&mut self, record: &Record<'_>) -> Result<(), RecordsError> {
        self.count(record);
        self.files.write(record)
    }

    /// Sets metadata of a stream's present file, which was among the facts at its creation.
    pub fn set_fact(&mut self, stream: u16, key: &str, value: &str) {
        self.files.set_fact(stream, key, value);
    }

    /// Counts a row, or a frame in a capture in the folder of these files, for the limit of the files.
    pub fn count(&mut self, record: &Record<'_>) {
        self.items += 1;
        self.bytes = self.bytes.saturating_add((record.row.len() + record.tail.len()) as u64);
    }

    /// Writes rows to the logs, so that they survive a crash.
    pub fn flush(&mut self) -> Result<(), RecordsError> {
        self.files.flush()
    }

    /// Returns true if the files have reached their limit.
    pub fn is_full(&self) -> bool {
        // Files without rows and frames stay, so that a quiet interface does not fill the disk with empty files.
        self.items > 0
            && self.dir.is_some()
            && self.limit.is_some_and(|limit| limit.is_reached(self.since.elapsed(), Bytes(self.bytes)))
    }

    /// Completes the files, and begins new ones in the next folder.
    pub fn rotate(&mut self) -> Result<(), RecordsError> {
        let number = self.number.saturating_add(1);
        let label = folder_name(&self.label, Some(number));
        let source = RecordSource { label: &label, manifest: &self.manifest, facts: &self.facts };
        let dir = self.dir.as_deref().filter(|_| self.is_parquet);
        let next = ModuleFiles::create_from(dir, &source, self.durability)?;
        let full = std::mem::replace(&mut self.files, next);
        (self.number, self.since, self.items, self.bytes) = (number, Instant::now(), 0, 0);
        let FileOutcome { streams, errors, .. } = full.end();
        self.complete.extend(streams);
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Ends every file. The files of a complete run get their names.
    pub fn end(self, is_complete: bool) -> (Vec<StreamRows>, Vec<RecordsError>) {
        let FileOutcome { streams, errors, .. } =
            if is_complete { self.files.end() } else { self.files.keep() };
        (self.complete.into_iter().chain(streams).collect(), errors)
    }
}

/// Returns the name of the folder of a module's files, which have a number if they are rotated.
fn folder_name(label: &str, number: Option<u64>) -> String {
    number.map_or_else(|| label.to_owned(), |number| format!("{label}-{number}"))
}
