//! Where versions go that nobody is to see any more.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use weir_sandbox::TableVersion;

/// Longer ones are freed elsewhere, in bytes.
const LONG: u32 = 128 << 10;

/// Frees what nobody sees any more on a thread of its own, where it is long: that takes up to milliseconds, in which a core would have nothing else of its
/// modules done, and whoever has seen it last has not made it.
#[derive(Debug, Default)]
pub(super) struct TableReclaimer(OnceLock<Option<Sender<Arc<TableVersion>>>>);

impl TableReclaimer {
    /// Lets go of a version. Where there is no other thread, here.
    pub(super) fn take(&self, version: Arc<TableVersion>) {
        if version.len() <= LONG {
            return;
        }
        if let Some(old) = self.0.get_or_init(open) {
            // Only a thread that is gone does not take it, and then it is dropped.
            _ = old.send(version);
        }
    }
}

/// Starts the thread, which ends when nobody can give it anything any more.
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
    fn what_is_let_go_of_is_freed_whatever_its_length() {
        let attic = TableReclaimer::default();
        for len in [0, LONG, LONG + 1, 1 << 20] {
            let version = Arc::new(TableVersion::new(1, &vec![1; len as usize]).unwrap());
            let known = Arc::downgrade(&version);
            attic.take(version);
            while known.strong_count() > 0 {
                std::thread::yield_now();
            }
        }
        assert!(attic.0.get().is_some_and(Option::is_some));
        // Somebody else still sees it.
        let version = Arc::new(TableVersion::new(2, &vec![1; 1 << 20]).unwrap());
        attic.take(Arc::clone(&version));
        assert_eq!(version.len(), 1 << 20);
    }
}
