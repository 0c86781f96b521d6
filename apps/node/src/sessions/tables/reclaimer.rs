//! Memory of table versions that no module sees any more.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use weir_sandbox::TableVersion;

/// Length in bytes up to which a version is freed by its last reader, on the reader's thread.
const SHORT_BYTES_MAX: u32 = 128 << 10;

/// Frees long versions on a thread of its own. Freeing takes up to milliseconds, which a core thread must not spend on a
/// version that another session made.
#[derive(Debug, Default)]
pub(super) struct TableReclaimer(OnceLock<Option<Sender<Arc<TableVersion>>>>);

impl TableReclaimer {
    /// Gives up a reference to a version. The version is freed with its last reference: a long version on the reclaimer's
    /// thread, if that could be started.
    pub(super) fn take(&self, version: Arc<TableVersion>) {
        if version.len() <= SHORT_BYTES_MAX {
            return;
        }
        if let Some(old) = self.0.get_or_init(open) {
            // Fails only if the thread has ended; the version is then dropped on the calling thread.
            _ = old.send(version);
        }
    }
}

/// Starts the thread, which ends with the last sender.
fn open() -> Option<Sender<Arc<TableVersion>>> {
    let (old, waiting) = channel();
    let thread = std::thread::Builder::new().name("weir-tables".to_owned());
    thread.spawn(move || waiting.iter().for_each(drop)).ok()?;
    Some(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_versions_are_freed_whatever_their_length() {
        let reclaimer = TableReclaimer::default();
        for len in [0, SHORT_BYTES_MAX, SHORT_BYTES_MAX + 1, 1 << 20] {
            let version = Arc::new(TableVersion::new(1, &vec![1; len as usize]).unwrap());
            let known = Arc::downgrade(&version);
            reclaimer.take(version);
            while known.strong_count() > 0 {
                std::thread::yield_now();
            }
        }
        assert!(reclaimer.0.get().is_some_and(Option::is_some));
        // Another module still sees the version.
        let version = Arc::new(TableVersion::new(2, &vec![1; 1 << 20]).unwrap());
        reclaimer.take(Arc::clone(&version));
        assert_eq!(version.len(), 1 << 20);
    }
}
