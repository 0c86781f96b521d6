//! The record files of one module in a run, which a run on an interface can rotate.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_admission::Manifest;
use weir_records::{Durability, ModuleFiles, RecordSource, RecordsError, Recovered, StreamRows, next_number};
use weir_session::Record;
use weir_units::{Bytes, Nanos};

/// The age or size at which record files are completed and new ones begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationLimit {
    /// The age of the files.
    Time(Nanos),
    /// The bytes of the rows in the files of a module, before compression.
    Size(Bytes),
}

impl std::str::FromStr for RotationLimit {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text.parse::<Nanos>(), text.parse::<Bytes>()) {
            (Ok(time), _) if time.0 >= Nanos::SECOND.0 => Ok(Self::Time(time)),
            (Err(_), Ok(size)) if size.0 >= 1 << 20 => Ok(Self::Size(size)),
            _ => Err("write a time of at least 1s, such as 1h, or a size of at least 1MiB, such as 1GiB"),
        }
    }
}

/// The record files of one module.
#[derive(Debug)]
pub struct RecordFiles {
    dir: Option<PathBuf>,
    label: String,
    manifest: Manifest,
    facts: Vec<(&'static str, String)>,
    durability: Durability,
    limit: Option<RotationLimit>,
    /// The number of the present files, if they are rotated.
    number: u64,
    files: ModuleFiles,
    /// Streams of files that are complete.
    complete: Vec<StreamRows>,
    since: Instant,
    rows: u64,
    bytes: u64,
}

impl RecordFiles {
    /// Creates the files of a module with this label in `dir`/`label`; if they are rotated, in `dir`/`label`-N, where N is higher than that
    /// of all earlier files. `facts` are metadata of each file. Returns the files of a crashed run as well, which are complete now.
    pub fn create(
        dir: Option<&Path>,
        (label, manifest): (&str, &Manifest),
        facts: Vec<(&'static str, String)>,
        durability: Durability,
        limit: Option<RotationLimit>,
    ) -> Result<Self, RecordsError> {
        let number = dir.filter(|_| limit.is_some()).map_or(0, |dir| next_number(dir, label));
        let name = if limit.is_some() { format!("{label}-{number}") } else { label.to_owned() };
        let source = RecordSource { label: &name, manifest, facts: &facts };
        let files = ModuleFiles::create_from(dir, &source, durability)?;
        Ok(Self {
            dir: dir.map(Path::to_owned),
            label: label.to_owned(),
            manifest: manifest.clone(),
            facts,
            durability,
            limit,
            number,
            files,
            complete: Vec::new(),
            since: Instant::now(),
            rows: 0,
            bytes: 0,
        })
    }

    /// Returns the completed files of a crashed run.
    pub fn recovered(&self) -> &[Recovered] {
        self.files.recovered()
    }

    /// Appends a record to its stream.
    pub fn write(&mut self, record: &Record<'_>) -> Result<(), RecordsError> {
        self.rows += 1;
        self.bytes += (record.row.len() + record.tail.len()) as u64;
        self.files.write(record)
    }

    /// Sets metadata of a stream's present file, which was among the facts at its creation.
    pub fn set_fact(&mut self, stream: u16, key: &str, value: &str) {
        self.files.set_fact(stream, key, value);
    }

    /// Writes rows to the logs, so that they survive a crash, and rotates the files if it is time.
    pub fn flush(&mut self) -> Result<(), RecordsError> {
        self.files.flush()?;
        let is_due = match self.limit {
            None => false,
            Some(RotationLimit::Time(time)) => self.since.elapsed() >= Duration::from_nanos(time.0),
            Some(RotationLimit::Size(size)) => self.bytes >= size.0,
        };
        // Files without rows stay, so that a quiet interface does not fill the disk with empty files.
        if is_due && self.rows > 0 && self.dir.is_some() { self.rotate() } else { Ok(()) }
    }

    fn rotate(&mut self) -> Result<(), RecordsError> {
        let number = self.number + 1;
        let label = format!("{}-{number}", self.label);
        let source = RecordSource { label: &label, manifest: &self.manifest, facts: &self.facts };
        let next = ModuleFiles::create_from(self.dir.as_deref(), &source, self.durability)?;
        let full = std::mem::replace(&mut self.files, next);
        (self.number, self.since, self.rows, self.bytes) = (number, Instant::now(), 0, 0);
        self.complete.extend(full.finish()?);
        Ok(())
    }

    /// Returns the rows so far. The present files have no paths.
    pub fn so_far(&self) -> Vec<StreamRows> {
        self.complete.iter().cloned().chain(self.files.so_far()).collect()
    }

    /// Ends every file after a failed run. The present files keep their `.part` names.
    pub fn keep(self) -> Vec<StreamRows> {
        self.complete.into_iter().chain(self.files.keep()).collect()
    }

    /// Completes every file and gives it its name.
    pub fn finish(self) -> Result<Vec<StreamRows>, RecordsError> {
        Ok(self.complete.into_iter().chain(self.files.finish()?).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_time_or_a_size() {
        let limit = |text: &str| text.parse::<RotationLimit>();
        assert_eq!(limit("1h"), Ok(RotationLimit::Time(Nanos(3_600 * Nanos::SECOND.0))));
        assert_eq!(limit("10s"), Ok(RotationLimit::Time(Nanos(10 * Nanos::SECOND.0))));
        assert_eq!(limit("1GiB"), Ok(RotationLimit::Size(Bytes(1 << 30))));
        for text in ["", "1ms", "10", "1KiB", "daily", "0s"] {
            assert!(limit(text).is_err(), "{text}");
        }
    }
}
