//! Shares of a link: who sends next on one port.
//!
//! Two schedulers stand one above the other, and each packet is sent by one of them:
//!
//! 1. *Reserved* traffic is scheduled by VirtualClock (Zhang, "VirtualClock: a new traffic control algorithm for packet switching
//!    networks", SIGCOMM 1990), which Piglet gives to a flow as a period and a limit (SQoSH, 6.2; Price of Safety, IV). A channel's clock
//!    advances by length / reserved rate with each packet that is sent *by the reservation*. The head of its queue starts where the clock
//!    stands and finishes at start + length / rate; when a packet comes to an empty queue the clock is set to max(auxVC, real time)
//!    (Zhang's auxVC: a channel that was idle has saved no credit). A head conforms from its start on, but up to a period's limit conforms
//!    at once, which is what Piglet's period says of burstiness (as the tolerance of the Generic Cell Rate Algorithm, ITU-T I.371). Of the
//!    heads that conform, the one that finishes first in virtual time is sent.
//! 2. *Excess* traffic gets the link when no head conforms: start-time fair queueing by weight (Goyal, Vin and Cheng, SIGCOMM 1996) over
//!    best-effort channels and those reserved ones that have a weight. It moves a clock of its own, not the virtual clock. That is what
//!    mends VirtualClock's known fault: in the original a channel that used idle bandwidth runs ahead of real time, and gets nothing when
//!    others return until real time has caught up. (H-FSC separates its real-time from its link-sharing criterion in the same way: Stoica,
//!    Zhang and Ng, SIGCOMM 1997.)
//!
//! With rates that add up to no more than the link's, and a caller that asks when it was told to (each bound moves by as much as it is
//! late):
//!
//! - A packet of a reserved channel has left by its finish in virtual time + (longest frame / link rate): no other channel, whatever it
//!   sends, moves that bound. (Earliest deadline first with one packet's blocking. It holds although queues are emptied by excess traffic
//!   too, as that happens only when no head has reached its start: what moves up starts later than that.)
//! - From any moment at which a reserved channel begins to have packets, until it has none, it has *begun* to send at least rate x time -
//!   one longest frame - what it is ahead of its clock at that moment. It is ahead only by what it was sent by its reservation at once and
//!   before its time: no more than its limit, or one packet of its own if that is longer. So over any interval within, at least rate x
//!   interval - one longest frame - that. What it was sent as excess never counts against it.
//! - A cap is a clock too: [`Cap`] states its bound. The cap comes before the reservation.
//! - The link is not idle while a packet waits that its channel's reservation or weight, and cap, allow.
//! - Two channels with weights that both have packets differ in their excess / weight by at most one longest packet / weight of each
//!   (start-time fair queueing's bound).
//!
//! A change takes effect at once, and never moves the bound of others: what a clock is ahead when its rate is lowered or its channel closed
//! is held by admission until real time has caught up with it ([`ChannelRefused::OverReserved`] says how much and how long); what it is ahead when
//! its rate is raised stays the same number of bytes. The link's own rate can change too ([`LinkScheduler::set_rate`]), but not to one at which what is
//! promised could not be kept; the bounds hold with the lowest rate that the link had meanwhile.
//!
//! A decision takes O(log n) in the number of channels, amortised: each head moves between four heaps at most twice. Nothing is allocated
//! per packet; a queue's room grows to the most that it ever held.

mod admission;
mod channel;
mod clock;
mod counters;
mod scheduler;
mod terms;
pub mod trace;

pub use admission::{ChannelRefused, LinkConfigError, RateRefused};
pub use counters::{ChannelCounters, Delays, LinkDropCause, Volume};
pub use scheduler::{ChannelId, ClosedChannel, Dropped, LinkClass, LinkDecision, LinkScheduler};
pub use terms::{
    CHANNELS_MAX, Cap, ChannelTerms, FRAME_MAX, Framing, LinkReservation, LinkSchedulerConfig, Pacing,
    QUEUE_PACKETS_MAX, QueueLimit,
};
