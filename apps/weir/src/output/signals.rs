//! Signals that end a run in an orderly way.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The signals that end a run: Ctrl-C, the stop of a service manager, and the loss of the terminal.
pub const ENDING: [i32; 3] =
    [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP];

/// The state of signals in this run.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// Set by the first signal.
    pub interrupted: Arc<AtomicBool>,
    are_caught: bool,
}

impl Signals {
    /// Catches the signals that end a run: the first sets [`interrupted`](Self::interrupted), the second ends the process at once.
    /// Signals that were ignored when the process began stay ignored, as nohup(1) expects.
    ///
    /// # Errors
    /// The system refuses.
    pub fn catch(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.are_caught, true) {
            return Ok(());
        }
        for signal in ENDING.into_iter().filter(|signal| !weir_os::is_ignored(*signal)) {
            // The order matters: the first signal finds the flag not yet set.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&self.interrupted))?;
            signal_hook::flag::register(signal, Arc::clone(&self.interrupted))?;
        }
        Ok(())
    }
}
