//! Errors of an interface's forwarding plan, by which received packets are distributed to channels; and the counts of
//! packets that a channel has lost.

use std::sync::atomic::{AtomicU64, Ordering};
use weir_datapath::plan::ChannelPlanCounters;
use weir_demux::{JoinError, ProgramError};
use weir_ledger::DropCause;
use weir_netio::CaptureFilterError;
use weir_units::Nanos;

/// Error of a forwarding plan: a channel that a request adds or changes cannot be part of the plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The filter is invalid.
    #[error(transparent)]
    Filter(#[from] CaptureFilterError),
    /// The conjunction of a channel's filters is too large.
    #[error("the filters of the channel together cannot be used: {0}")]
    Program(#[from] ProgramError),
    /// The filters on views of an interface execute too many instructions together. Unlike filters on original
    /// packets, they are executed one after another, so the sum of their instructions is limited.
    #[error(
        "filters on views would execute {instructions} instructions for a packet of this interface, and {limit} is the most: use a \
         simpler filter"
    )]
    ViewFiltersTooLong {
        /// Instructions of all filters on views of the interface together.
        instructions: usize,
        /// The limit.
        limit: usize,
    },
    /// A party already has the maximum number of channels of an interface. A party is all holders with the same first
    /// identifier in their delegation chains.
    #[error(
        "all sessions under one grant together can have at most {0} channels of an interface: close a session, or use one channel for several filters"
    )]
    PartyChannels(usize),
    /// The request has used up its CPU time for compilation.
    #[error(
        "the filters of this request take more than {0} of processor time to compile: use fewer or simpler filters in one request"
    )]
    Budget(Nanos),
    /// A filter or view was not compiled for this request, because the session or the interface changed after the
    /// filters to compile were collected.
    #[error("the filter was not compiled, because the node has changed meanwhile: make the request again")]
    NotCompiled,
    /// The interface has too many channels, or their filters are too large together.
    #[error("the filters of this interface cannot be joined: {0}")]
    Join(#[from] JoinError),
}

/// Returns the number of packets that a channel has lost, for each drop cause.
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
