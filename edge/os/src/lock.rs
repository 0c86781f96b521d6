//! Locks on files, which keep a second process from writing what a first one writes.

use std::fs::{File, TryLockError};
use std::io;
use std::thread::sleep;
use std::time::Duration;

/// How often an exclusive lock is tried before it is refused. A process that looks for a holder has the lock for some microseconds.
const TRIES: u32 = 40;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// A file with a lock on it. Dropping it releases the lock at once, even where a program that is just being started has the file open, too:
/// closing alone leaves the lock to that copy until the program runs.
#[derive(Debug)]
pub struct Locked(File);

impl Locked {
    /// Locks a file for this process. Returns `None` where another process holds a lock.
    ///
    /// # Errors
    /// The system or the file system refuses locks.
    pub fn exclusive(file: File) -> io::Result<Option<Self>> {
        for tried in 1..=TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Self(file))),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if tried < TRIES => sleep(BETWEEN_TRIES),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        Ok(None)
    }

    /// Returns true where another process holds an exclusive lock on a file. Changes nothing.
    ///
    /// # Errors
    /// As [`Self::exclusive`].
    pub fn is_held(file: File) -> io::Result<bool> {
        match file.try_lock_shared() {
            Ok(()) => {
                drop(Self(file));
                Ok(false)
            }
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// The file, which stays locked.
    pub fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // The system releases the lock at the latest when the last copy is closed.
        _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_holder_though_a_copy_of_the_file_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let open = || File::create(dir.path().join("lock")).unwrap();
        let held = Locked::exclusive(open()).unwrap().unwrap();
        // As a process has it between fork and exec.
        let copy = held.file().try_clone().unwrap();
        assert!(Locked::exclusive(open()).unwrap().is_none());
        assert!(Locked::is_held(open()).unwrap());
        drop(held);
        assert!(!Locked::is_held(open()).unwrap());
        assert!(Locked::exclusive(open()).unwrap().is_some());
        drop(copy);
    }

    #[test]
    fn a_look_at_the_lock_keeps_no_process_from_taking_it() {
        let dir = tempfile::tempdir().unwrap();
        let open = || File::create(dir.path().join("lock")).unwrap();
        let looks = open();
        looks.lock_shared().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(BETWEEN_TRIES);
                drop(looks);
            });
            // On a machine that is busy with other things, it may take several times as long.
            assert!((0..300).any(|_| Locked::exclusive(open()).unwrap().is_some()));
        });
    }
}
