//! Errors of an interface's forwarding plan, and the lost packets of its channels.

use std::sync::atomic::{AtomicU64, Ordering};
use weir_datapath::plan::ChannelPlanCounters;
use weir_demux::{JoinError, ProgramError};
use weir_ledger::DropCause;
use weir_netio::CaptureFilterError;
use weir_units::Nanos;

/// Error of a forwarding plan. The request that adds or changes a channel is to blame.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The filter is invalid.
    #[error(transparent)]
    Filter(#[from] CaptureFilterError),
    /// The conjunction of a channel's filters is too large.
    #[error("the filter cannot be used: {0}")]
    Program(#[from] ProgramError),
    /// The filters on views of an interface execute too many instructions. They are executed one by one, so their sum is
    /// limited.
    #[error(
        "filters on views would execute {instructions} instructions for a packet of this interface, and {limit} is the most: use a \
         simpler filter"
    )]
    Screens {
        /// Instructions of all such filters together.
        instructions: usize,
        /// The limit.
        limit: usize,
    },
    /// One party, all sessions under one grant of the operator, has the maximum number of channels of an interface.
    #[error(
        "all sessions under one grant have at most {0} channels of an interface together: close one, or use one channel for several filters"
    )]
    Crowded(usize),
    /// The request has used up its CPU time for compilation.
    #[error(
        "the filters of this request take more than {0} of processor time to compile: use fewer or simpler filters in one request"
    )]
    Budget(Nanos),
    /// A filter was not compiled for this request, because its text or link type has changed since.
    #[error("the filter was not compiled, because the node has changed meanwhile: make the request again")]
    Another,
    /// The filters of an interface are too many, or too large together.
    #[error("the filters of this interface cannot be joined: {0}")]
    Join(#[from] JoinError),
}

/// Returns the lost packets of a channel by cause, as the ledger names them.
pub(crate) fn drops(counters: &ChannelPlanCounters) -> [(DropCause, u64); 8] {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    [
        (DropCause::QueueFull, get(&counters.queue_full)),
        (DropCause::Lagged, get(&counters.lagged)),
        (DropCause::NoMemory, get(&counters.no_memory)),
        (DropCause::Shed, get(&counters.shed)),
        (DropCause::ReaderEnded, get(&counters.ended)),
        (DropCause::Closed, get(&counters.closed)),
        (DropCause::BadChecksum, counters.bad_checksums()),
        (DropCause::Reassembly, counters.reassembly.lost()),
    ]
}
