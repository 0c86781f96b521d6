//! Shared tables: named bytes that the operator or one module publishes, and modules of other sessions can read.
//!
//! A table is a sequence of immutable versions. A module reads one complete version, which is mapped in a window of its
//! address space. A new version is mapped between two calls, so modules need no locks.

use crate::run::fault::FaultKind;
use crate::run::guest_memory::with_bytes;
use crate::run::host::HostState;
use crate::run::instance::Instance;
use crate::run::space::{Area, map_areas};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, OnceLock};
use weir_abi::host::HostFunction;
use weir_abi::{TABLES_BASE, TABLES_MAX, code, limit, table};
use weir_admission::TableAccess;
use weir_os::memory::memory_file;
use weir_units::Bytes;

const HEADER: usize = table::HEADER_BYTES as usize;

/// One version of a table: a sealed memory file, which begins with the header that modules read.
#[derive(Debug)]
pub struct TableVersion {
    file: File,
    number: u64,
    len: u32,
}

/// Publishes a module's tables. The arguments come from the untrusted module.
pub trait TablePublisher: std::fmt::Debug + Send + Sync {
    /// Makes these bytes the next version of a table, given by its index in the module's manifest. The host has checked that
    /// the bytes are not more than the manifest declares. Returns 0, or an error [`code`](weir_abi::code).
    fn publish(&self, table: u32, bytes: &[u8]) -> i32;
}

impl TableVersion {
    /// Creates a version with this number from these bytes. To modules, number 0 means that there is no table.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for more than [`limit::TABLE_BYTES`]; the system's error if memory or
    /// descriptors are exhausted.
    pub fn new(number: u64, bytes: &[u8]) -> io::Result<Self> {
        let len = u32::try_from(bytes.len()).ok().filter(|len| *len <= limit::TABLE_BYTES);
        let len = len.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut header = [0; HEADER];
        header[table::VERSION..][..size_of::<u64>()].copy_from_slice(&number.to_le_bytes());
        header[table::LEN..][..size_of::<u32>()].copy_from_slice(&len.to_le_bytes());
        let mut file = memory_file(c"weir-table")?;
        file.write_all(&header)?;
        file.write_all(bytes)?;
        // Not F_SEAL_WRITE, because older kernels refuse read-only shared mappings of a file that has this seal. As no
        // writable mapping exists now, F_SEAL_FUTURE_WRITE prevents all writing as well.
        let seals = libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
        // SAFETY: fcntl with integer arguments touches no memory.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { file, number, len })
    }

    /// Returns the version's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the length of the table in bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the most memory that a version of `len` bytes takes.
    pub fn memory_of(len: u32) -> Bytes {
        Bytes(table::window(len).into())
    }

    fn area(&self) -> Area<'_> {
        Area { fd: self.file.as_fd(), offset: 0, len: HEADER + self.len as usize, is_fixed: false }
    }
}

/// Returns the version that modules read if no table has been published.
fn absent_version() -> io::Result<&'static TableVersion> {
    static ABSENT: OnceLock<TableVersion> = OnceLock::new();
    if let Some(absent) = ABSENT.get() {
        return Ok(absent);
    }
    let absent = TableVersion::new(0, &[])?;
    Ok(ABSENT.get_or_init(|| absent))
}

impl Instance {
    /// Maps a version of a table for the module. `index` is the table's index in the manifest. With `None`, the module reads
    /// that there is no table.
    ///
    /// Returns false if the version is longer than the manifest declares. The module then also reads that there is no table.
    ///
    /// # Errors
    /// A call [is suspended](Self::is_suspended), or the system refuses the mapping. If the system refuses it, the module
    /// cannot read the window at all.
    pub fn map_table(&mut self, index: usize, version: Option<&TableVersion>) -> io::Result<bool> {
        if self.base.is_null() {
            return Ok(true);
        }
        self.check_not_suspended()?;
        let (base, Some(host)) = (self.base, self.host_mut()) else { return Ok(true) };
        let Some((bytes, window)) =
            host.admitted.manifest().tables.get(index).and_then(|table| Some((table.bytes, table.window()?)))
        else {
            return Ok(true);
        };
        let window_bytes = table::window(bytes);
        if window < TABLES_BASE
            || u64::from(window - TABLES_BASE) + u64::from(window_bytes) > TABLES_MAX.into()
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let fits = version.is_none_or(|version| version.len <= bytes);
        let mapped_version = match version {
            Some(version) if fits => version,
            _ => absent_version()?,
        };
        if host.tables.len() <= index {
            host.tables.resize(index + 1, 0..0);
        }
        let mapped = &mut host.tables[index];
        // SAFETY: `base` is this instance's live space; by the check above the window lies in the area of tables. It
        // overlaps no other table's window, because the manifest places them one after the other. No slice of the mapping
        // is in use: only calls lend slices, and by `&mut self` no call is in progress.
        unsafe { map_areas(base, window, window_bytes, &[mapped_version.area()], mapped)? };
        Ok(fits)
    }

    /// Maps the tables that exist when the module starts. For a declared table that does not exist yet, maps a header that
    /// states this.
    pub(crate) fn map_initial_tables(&mut self, tables: &[Option<Arc<TableVersion>>]) -> io::Result<()> {
        let declared = self.host().map_or(0, |host| host.admitted.manifest().tables.len());
        for index in 0..declared {
            self.map_table(index, tables.get(index).and_then(Option::as_deref))?;
        }
        Ok(())
    }
}

/// The host function `publish`. The published version is complete, so it remains if the call is aborted later.
pub(crate) fn publish(host: &mut HostState, index: u32, (bytes, len): (u32, u32)) -> Result<i32, FaultKind> {
    let declared = host.admitted.manifest().tables.get(index as usize);
    let Some(bytes_max) =
        declared.filter(|table| table.access == TableAccess::Publish).map(|table| table.bytes)
    else {
        return Ok(code::UNKNOWN);
    };
    if len > bytes_max {
        return Ok(code::RANGE);
    }
    with_bytes(host, HostFunction::Publish, bytes, len, |bytes, host| {
        host.publisher.as_ref().map_or(code::DENIED, |publisher| publisher.publish(index, bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_version_cannot_be_changed_and_its_header_describes_it() {
        let version = TableVersion::new(7, b"abc").unwrap();
        assert_eq!((version.number(), version.len(), version.is_empty()), (7, 3, false));
        assert!(version.file.write_at(b"x", 64).is_err());
        assert!(version.file.set_len(10).is_err() && version.file.set_len(100).is_err());
        let mut all = [0; 67];
        version.file.read_exact_at(&mut all, 0).unwrap();
        assert_eq!((all[0], all[8], &all[64..]), (7, 3, &b"abc"[..]));
        assert!(all[1..8].iter().chain(&all[9..64]).all(|byte| *byte == 0));
    }

    #[test]
    fn a_version_that_is_too_long_is_refused() {
        let bytes = vec![0; limit::TABLE_BYTES as usize + 1];
        assert_eq!(TableVersion::new(1, &bytes).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(TableVersion::memory_of(1), Bytes(65_536));
    }
}
