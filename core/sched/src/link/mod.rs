//! The packet scheduler of a link: it decides which channel sends the next packet, and when. A *channel* here is an
//! output channel: a session's share of the link.
//!
//! Each packet is sent by one of two schedulers, for reserved or for excess traffic.
//!
//! *Reserved* traffic is scheduled by VirtualClock (Zhang, "VirtualClock: a new traffic control algorithm for packet
//! switching networks", SIGCOMM 1990). Piglet, the link scheduler of SQoSH, gives a flow such a clock by a period and a
//! limit (SQoSH, 6.2; Price of Safety, IV).
//!
//! - Each channel with a reservation has a virtual clock. It advances by length / reserved rate with each packet that
//!   the reservation sends.
//! - The *head* is the first packet of a channel's queue. Its virtual start is the clock, and its virtual finish is
//!   start + length / rate.
//! - When a packet comes to an empty queue, a clock that is behind real time is set to real time, as Zhang's auxVC is.
//!   So an idle channel saves no credit.
//! - A head *conforms*, which means that it may be sent, from its virtual start on. It conforms earlier if its virtual
//!   finish is at most one period away, so up to one period's guaranteed bytes are sent at once. This allows the bursts
//!   of Piglet's period, as the tolerance of the Generic Cell Rate Algorithm does (ITU-T I.371).
//! - Of the conforming heads, the one with the earliest virtual finish is sent.
//!
//! *Excess* traffic is sent when no head conforms. Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) shares
//! it by weight among best-effort channels and reserved channels with a weight. Excess traffic has a virtual time of
//! its own and does not advance the virtual clocks. This mends the known fault of VirtualClock: in the original, the
//! clock of a channel that used idle bandwidth runs ahead of real time. When other channels return, this channel gets
//! nothing until real time has caught up. H-FSC separates its real-time and link-sharing criteria in the same way
//! (Stoica, Zhang and Ng, SIGCOMM 1997).
//!
//! The following bounds hold if the reserved rates add up to at most the link's rate, and if the caller calls
//! [`LinkScheduler::next`] whenever a decision asks for it. A late call moves each bound by its lateness.
//!
//! - **Delay.** A packet of a reserved channel has left by its virtual finish + (longest frame / link rate), whatever
//!   other channels send. Reserved traffic is scheduled by earliest deadline first, and waits for at most one packet
//!   that is being sent. A reserved channel with a weight may also send as excess while no head conforms. This does not
//!   advance its clock. If it empties the queue, a clock that is behind real time is set to real time when the next
//!   packet arrives.
//! - **Rate.** In any interval in which a reserved channel always has packets, it *begins* to send at least rate x
//!   interval less one longest frame and its lead. The lead is the number of bytes that the reservation has sent early
//!   when the interval begins: at most its limit, or one packet of the channel if that is longer. Excess traffic adds
//!   nothing to the lead.
//! - **Cap.** [`Cap`] states the bound of a capped channel. The cap takes precedence over the reservation.
//! - **No idling.** The link is not idle while a packet waits that is allowed by its channel's cap, and by its
//!   reservation or weight.
//! - **Fairness.** While two channels a and b with weights both have packets, their excess traffic fulfils the bound of
//!   start-time fair queueing: `|bytes_a / weight_a - bytes_b / weight_b| <= longest_a / weight_a + longest_b /
//!   weight_b`, where `longest` is the channel's longest packet.
//!
//! A change of terms takes effect at once and never moves the bounds of other channels. A channel whose rate is
//! lowered, or which is closed, may have a clock ahead of real time. Until real time has caught up with the clock,
//! admission keeps the released rate reserved: it *holds* the rate. [`ChannelRefused::OverReserved`] states how much is
//! held and how long. If a channel's rate is raised, its clock stays ahead by the same number of bytes. The link's rate
//! can change, too ([`LinkScheduler::set_rate`]), as long as the reservations fit. The bounds then hold with the lowest
//! rate of the interval.
//!
//! A decision takes O(log n) amortised in the number of channels, since each head moves between four heaps at most
//! twice. No memory is allocated per packet; a queue's capacity grows to the most packets that it ever held.

mod admission;
mod channel;
mod clock;
mod config;
mod counters;
mod scheduler;
pub mod trace;

pub use admission::{ChannelRefused, LinkConfigError, RateRefused};
pub use config::{
    CHANNELS_MAX, Cap, ChannelTerms, FRAME_MAX, Framing, LinkReservation, LinkSchedulerConfig, Pacing,
    QUEUE_PACKETS_MAX, QueueLimit,
};
pub use counters::{ChannelCounters, Delays, LinkDropCause, Volume};
pub use scheduler::{ChannelId, ClosedChannel, Dropped, LinkClass, LinkDecision, LinkScheduler};
