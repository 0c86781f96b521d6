//! Named tables: bytes that others share with a module, and that it shares with others.
//!
//! A table is a sequence of versions, each of which nobody changes any more. A module sees one of them, whole, in a window of its address space, and is
//! shown another one between two calls: there is nothing to lock, and nothing that one who fails could leave locked.

use crate::run::fault::FaultKind;
use crate::run::guest::with_bytes;
use crate::run::host::HostState;
use crate::run::instance::Instance;
use crate::run::space::{Area, map_area};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, OnceLock};
use wasmtime::Caller;
use weir_abi::host::HostFunction;
use weir_abi::{TABLES_BASE, TABLES_MAX, code, limit, table};
use weir_admission::TableAccess;
use weir_os::memory::memory_file;
use weir_units::Bytes;

const HEADER: usize = table::HEADER_BYTES as usize;

/// One version of a table: a memory file that nobody can change, with the header in front that modules read.
#[derive(Debug)]
pub struct TableVersion {
    file: File,
    number: u64,
    len: u32,
}

/// Takes what a module publishes. All that it is given is what a module said.
pub trait TablePublisher: std::fmt::Debug + Send + Sync {
    /// These bytes are the next version of a table, by its place in the module's manifest; no more than that says. 0, or a [`code`](weir_abi::code).
    fn publish(&self, table: u32, bytes: &[u8]) -> i32;
}

impl TableVersion {
    /// A copy of these bytes, as the version with this number, which is 0 only for a table that is not there.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for more than [`limit::TABLE_BYTES`]; what the system says where it has no memory or no descriptor left.
    pub fn new(number: u64, bytes: &[u8]) -> io::Result<Self> {
        let len = u32::try_from(bytes.len()).ok().filter(|len| *len <= limit::TABLE_BYTES);
        let len = len.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut header = [0; HEADER];
        header[table::VERSION..][..size_of::<u64>()].copy_from_slice(&number.to_le_bytes());
        header[table::LEN..][..size_of::<u32>()].copy_from_slice(&len.to_le_bytes());
        let mut file = memory_file(c"weir-table")?;
        file.write_all(&header)?;
        file.write_all(bytes)?;
        // Of what is sealed for all writing, older kernels refuse mappings for reading, too. Nobody has mapped it for writing before.
        let seals = libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
        // SAFETY: fcntl with integer arguments touches no memory.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { file, number, len })
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How many bytes the table has.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory that a version of so many bytes takes, at most.
    pub fn memory_of(len: u32) -> Bytes {
        Bytes(table::window(len).into())
    }

    fn area(&self) -> Area<'_> {
        Area { fd: self.file.as_fd(), offset: 0, len: HEADER + self.len as usize }
    }
}

/// What modules see of a table that is not there.
fn nothing() -> io::Result<&'static TableVersion> {
    static NOTHING: OnceLock<TableVersion> = OnceLock::new();
    if let Some(nothing) = NOTHING.get() {
        return Ok(nothing);
    }
    let nothing = TableVersion::new(0, &[])?;
    Ok(NOTHING.get_or_init(|| nothing))
}

impl Instance {
    /// Shows the module this version of a table, by its place in the manifest, or nothing, in place of what it saw there. Says whether it has room for
    /// it: where it has declared less, it sees nothing. Not while a call [is suspended](Self::is_suspended).
    ///
    /// # Errors
    /// The system refuses to map it: then nothing is to be read there, not even that it is empty.
    pub fn show_table(&mut self, place: usize, version: Option<&TableVersion>) -> io::Result<bool> {
        if self.base.is_null() {
            return Ok(true);
        }
        self.is_at_rest()?;
        let (base, Some(host)) = (self.base, self.host_mut()) else { return Ok(true) };
        let Some((bytes, window)) =
            host.admitted.manifest().tables.get(place).and_then(|it| Some((it.bytes, it.window()?)))
        else {
            return Ok(true);
        };
        let room = table::window(bytes);
        if window < TABLES_BASE || u64::from(window - TABLES_BASE) + u64::from(room) > TABLES_MAX.into() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let fits = version.is_none_or(|version| version.len <= bytes);
        let shown = match version {
            Some(version) if fits => version,
            _ => nothing()?,
        };
        if host.tables.len() <= place {
            host.tables.resize(place + 1, 0..0);
        }
        let mapped = &mut host.tables[place];
        // SAFETY: `base` is this instance's live space; the window lies in it where tables are, by the check above, and no other table's does, because the
        // manifest puts them one behind the other; `&mut self` says that no call is under way that could have lent out a slice.
        unsafe { map_area(base, window, room, shown.area(), mapped)? };
        Ok(fits)
    }

    /// Shows the tables that are there when the module begins. Each declared one has a window from then on, if only an empty one.
    pub(crate) fn show_first(&mut self, tables: &[Option<Arc<TableVersion>>]) -> io::Result<()> {
        let declared = self.host().map_or(0, |host| host.admitted.manifest().tables.len());
        for place in 0..declared {
            self.show_table(place, tables.get(place).and_then(Option::as_deref))?;
        }
        Ok(())
    }
}

/// The host function `publish`. It is not taken back with a call that is lost: it is whole, whatever the module does next.
pub(crate) fn publish(
    caller: &mut Caller<'_, HostState>,
    place: u32,
    (bytes, len): (u32, u32),
) -> Result<i32, FaultKind> {
    let declared = caller.data().admitted.manifest().tables.get(place as usize);
    let Some(most) = declared.filter(|table| table.access == TableAccess::Publish).map(|table| table.bytes)
    else {
        return Ok(code::UNKNOWN);
    };
    if len > most {
        return Ok(code::RANGE);
    }
    with_bytes(caller, HostFunction::Publish, bytes, len, |bytes, host| {
        host.press.as_ref().map_or(code::DENIED, |press| press.publish(place, bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn nobody_changes_a_version_and_its_header_says_what_it_is() {
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
