//! The capture of `-w`, which a run on an interface can rotate.

use crate::output::rotation::{RotatedNames, RotationLimit};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use weir_datapath::clock::wall_clock;
use weir_datapath::egress::{Egress, FileEgress};
use weir_netio::{Capture, PacketWriter, WriteError, WriteOutcome, WriteSummary};
use weir_os::private;

/// The most names that are tried for a rotated capture, while other runs take them.
const NAMES_MAX: usize = 1000;

/// The capture of `-w`: one file, or several files one after the other.
#[derive(Debug)]
pub struct CaptureFile {
    egress: Arc<FileEgress>,
    rotation: Option<(RotatedNames, RotationLimit)>,
    /// The time at which the present file was begun.
    since: Instant,
    /// The files that are complete.
    complete: Vec<WriteSummary>,
}

impl CaptureFile {
    /// Begins the capture. A pipe or a device is not rotated.
    pub fn create(
        path: &Path,
        input: Option<&Capture>,
        limit: Option<RotationLimit>,
    ) -> Result<Self, WriteError> {
        let mut rotation = limit.filter(|_| !is_in_place(path)).map(|limit| (RotatedNames::new(path), limit));
        let writer = match &mut rotation {
            Some((names, _)) => create_next(names)?,
            None => PacketWriter::create(path, input)?,
        };
        let egress = Arc::new(FileEgress::new(writer));
        Ok(Self { egress, rotation, since: Instant::now(), complete: Vec::new() })
    }

    /// Returns the egress that writes into the capture.
    pub fn egress(&self) -> Egress {
        Egress::File(Arc::clone(&self.egress))
    }

    /// Returns true if the files are rotated.
    pub fn is_rotated(&self) -> bool {
        self.rotation.is_some()
    }

    /// Returns the error that ended writing, and begins the next file if the present one has reached its limit.
    pub fn check(&mut self) -> Result<(), WriteError> {
        self.egress.check()?;
        let Some((names, limit)) = &mut self.rotation else { return Ok(()) };
        let (packets, size) = self.egress.so_far();
        // A file without packets stays, so that a quiet interface does not fill the disk with empty files.
        if packets == 0 || !limit.is_reached(self.since.elapsed(), size) {
            return Ok(());
        }
        let full = self.egress.replace(create_next(names)?);
        self.since = Instant::now();
        full.map_or(Ok(()), |full| {
            let WriteOutcome { summary, error } = full.end(true);
            self.complete.push(summary);
            error.map_or(Ok(()), Err)
        })
    }

    /// Writes gathered packets, so that they survive the end of this process, and then does the same as [`check`](Self::check).
    pub fn sync(&mut self) -> Result<(), WriteError> {
        self.egress.sync();
        self.check()
    }

    /// Ends the present file, which gets its name if the run was complete. Returns the totals of all files, and the error of the last
    /// one.
    pub fn end(mut self, is_complete: bool) -> (Vec<WriteSummary>, Option<WriteError>) {
        let Some(last) = self.egress.close() else { return (self.complete, None) };
        if last.so_far().0 == 0 && !self.complete.is_empty() {
            // Without packets, a file after others is of no use. Dropping it removes it.
            return (self.complete, None);
        }
        let WriteOutcome { summary, error } = last.end(is_complete);
        self.complete.push(summary);
        (self.complete, error)
    }
}

/// Returns true for standard output, a pipe or a device: outputs that are written in place.
pub fn is_in_place(path: &Path) -> bool {
    path.as_os_str() == "-"
        || private::is_open_file(path)
        || path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Begins the next file under a name that no file has, and that no other run is writing.
fn create_next(names: &mut RotatedNames) -> Result<PacketWriter, WriteError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let path = names.next(wall_clock());
        if path.symlink_metadata().is_ok() && tries < NAMES_MAX {
            continue;
        }
        match PacketWriter::create(&path, None) {
            Err(WriteError::Busy { .. }) if tries < NAMES_MAX => {}
            created => return created,
        }
    }
}
