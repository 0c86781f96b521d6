//! Release of the memory of table versions that no module reads any more.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use weir_sandbox::TableVersion;

/// Maximum length in bytes of a version that its last reader frees on the reader's own thread.
const SHORT_BYTES_MAX: u32 = 128 << 10;

/// Frees long versions on a thread of its own. Freeing takes up to a few milliseconds, which a core thread must not
/// spend on the version of another session.
#[derive(Debug, Default)]
pub(super) struct TableReclaimer(OnceLock<Option<Sender<Arc<TableVersion>>>>);

impl TableReclaimer {
    /// Drops a reference to a version. The last reference frees the version. A long version is dropped on the
    /// reclaimer's thread, if the thread could be started.
    pub(super) fn release(&self, version: Arc<TableVersion>) {
        if version.len() <= SHORT_BYTES_MAX {
            return;
        }
        if let Some(sender) = self.0.get_or_init(start_thread) {
            // Fails only if the thread has ended; the version is then dropped on the calling thread.
            _ = sender.send(version);
        }
    }
}

/// Starts the thread. It ends when the last sender is dropped.
fn start_thread() -> Option<Sender<Arc<TableVersion>>> {
    let (sender, versions) = channel();
    let thread = std::thread::Builder::new().name("weir-tables".to_owned());
    thread.spawn(move || versions.iter().for_each(drop)).ok()?;
    Some(sender)
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
            reclaimer.release(version);
            while known.strong_count() > 0 {
                std::thread::yield_now();
            }
        }
        assert!(reclaimer.0.get().is_some_and(Option::is_some));
        // Another module still sees the version.
        let version = Arc::new(TableVersion::new(2, &vec![1; 1 << 20]).unwrap());
        reclaimer.release(Arc::clone(&version));
        assert_eq!(version.len(), 1 << 20);
    }
}
