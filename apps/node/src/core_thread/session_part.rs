//! The parts of a session that its tasks use, as traits, so that a core thread knows nothing of sessions.

use std::fmt::Debug;
use weir_ledger::Usage;
use weir_sandbox::Instance;
use weir_session::Records;

/// The tables that a module reads.
pub(crate) trait TableUpdates: Debug + Send {
    /// Applies new versions and grants to the sandbox, between two calls.
    fn refresh(&mut self, instance: &mut Instance);
}

/// The limits of a session's records.
pub(crate) trait RecordLimits: Debug + Send + Sync {
    /// Removes the last records, from the first one that exceeds a limit on. Returns the usage of the other records, and
    /// the drops.
    fn enforce(&self, records: &mut Records) -> Usage;
}
