//! Locks on files, by which only one process at a time writes a file.

use std::fs::{File, TryLockError};
use std::io;
use std::thread::sleep;
use std::time::Duration;

/// The most attempts at an exclusive lock. One attempt can fail although no process writes the file, because a check for a
/// lock ([`Locked::is_held`]) itself holds a lock for some microseconds.
const ATTEMPTS: u32 = 40;
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(5);

/// A locked file. Dropping this value releases the lock at once.
///
/// Closing the file alone would release the lock only when the last copy of the open file is closed. Between fork and exec
/// a child process has such a copy.
#[derive(Debug)]
pub struct Locked(File);

impl Locked {
    /// Locks a file for this process. Returns `None` if another process holds a lock.
    ///
    /// # Errors
    /// The system or the file system refuses locks.
    pub fn exclusive(file: File) -> io::Result<Option<Self>> {
        for attempt in 1..=ATTEMPTS {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Self(file))),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if attempt < ATTEMPTS => sleep(ATTEMPT_INTERVAL),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        Ok(None)
    }

    /// Returns true if another process holds an exclusive lock on a file. Does not change that lock.
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

    /// Returns the file, which stays locked.
    pub fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // On an error the system releases the lock when the last copy of the open file is closed.
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
        // A child process has such a copy between fork and exec.
        let copy = held.file().try_clone().unwrap();
        assert!(Locked::exclusive(open()).unwrap().is_none());
        assert!(Locked::is_held(open()).unwrap());
        drop(held);
        assert!(!Locked::is_held(open()).unwrap());
        assert!(Locked::exclusive(open()).unwrap().is_some());
        drop(copy);
    }

    #[test]
    fn checking_a_lock_does_not_prevent_taking_it() {
        let dir = tempfile::tempdir().unwrap();
        let open = || File::create(dir.path().join("lock")).unwrap();
        let checking = open();
        checking.lock_shared().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(ATTEMPT_INTERVAL);
                drop(checking);
            });
            // On a busy machine, the other thread may hold the lock for several times as long.
            assert!((0..300).any(|_| Locked::exclusive(open()).unwrap().is_some()));
        });
    }
}
