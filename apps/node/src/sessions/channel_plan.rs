//! The plans of interfaces, as a session sees them: why a channel finds no place in one, and what its channels have lost.

use std::sync::atomic::{AtomicU64, Ordering};
use weir_datapath::plan::ChannelPlanCounters;
use weir_demux::{JoinError, ProgramError};
use weir_ledger::DropCause;
use weir_netio::CaptureFilterError;
use weir_units::Nanos;

/// Why an interface's channels cannot be. To blame is whoever asked for the last one.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The expression is wrong.
    #[error(transparent)]
    Filter(#[from] CaptureFilterError),
    /// All that have to match are too much together.
    #[error("the filter cannot be used: {0}")]
    Program(#[from] ProgramError),
    /// Filters that look at what is shown are executed one by one.
    #[error(
        "filters that look at what a view shows of packets would execute {instructions} instructions for a packet of this interface, and {limit} is the most; a \
         simpler one would do"
    )]
    Screens {
        /// Of all of them together.
        instructions: usize,
        /// The most.
        limit: usize,
    },
    /// One party has as many channels as it may.
    #[error(
        "all who have their right from one grant have {0} channels of an interface together at most: close one, or have one channel for several filters"
    )]
    Crowded(usize),
    /// The request has used up its processor time for compiling.
    #[error(
        "all that this request has to have compiled takes more than {0} of processor time, and was given up; ask for less in one request"
    )]
    Budget(Nanos),
    /// Compiled was another filter, or for packets of another kind.
    #[error("the filter was not compiled, as something has changed meanwhile; ask again")]
    Another,
    /// There are too many, or they are too large together.
    #[error("the filters of this interface cannot be joined: {0}")]
    Join(#[from] JoinError),
}

/// Each cause for which packets of a channel were lost with its count, as the ledger names them.
pub(crate) fn drops(tally: &ChannelPlanCounters) -> [(DropCause, u64); 8] {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    [
        (DropCause::QueueFull, get(&tally.queue_full)),
        (DropCause::Lagged, get(&tally.lagged)),
        (DropCause::NoMemory, get(&tally.no_memory)),
        (DropCause::Shed, get(&tally.shed)),
        (DropCause::ReaderEnded, get(&tally.ended)),
        (DropCause::Closed, get(&tally.closed)),
        (DropCause::BadChecksum, tally.bad_checksums()),
        (DropCause::Reassembly, tally.reassembly.lost()),
    ]
}
