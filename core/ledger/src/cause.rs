//! Causes of loss. Every packet, record or message of a session that is not delivered is counted under one cause. One
//! cause, `frame-limit`, counts packets that were delivered to a module and could not be kept.
//!
//! Packets that the kernel drops before weir reads them belong to no session: they are counted for the interface. Ticks
//! are not lost: a late tick tells the module the number of periods that have passed. A call that a full service refuses
//! returns the error to its caller, and counts among the session's refused calls.

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// The unit in which a cause counts losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LostUnit {
    /// Packets, received or to be sent.
    Packet,
    /// Records that a module emitted.
    Record,
    /// Calls of a service, and their answers.
    Message,
}

impl LostUnit {
    /// Returns the plural name, as a unit.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Packet => "packets",
            Self::Record => "records",
            Self::Message => "messages",
        }
    }
}

/// Defines the causes: for each the name in ledgers and tables, the unit, and the meaning.
macro_rules! causes {
    ($($(#[doc = $doc:literal])+ $cause:ident = $name:literal, $unit:ident;)+) => {
        /// The cause of a loss. Each loss is counted under exactly one cause, for the session that lost it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DropCause {
            $($(#[doc = $doc])+ $cause,)+
        }

        impl DropCause {
            /// All causes, in the order of their definitions.
            pub const ALL: &'static [DropCause] = &[$(Self::$cause,)+];

            /// Returns the name that ledgers, tables and metrics use.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$cause => $name,)+
                }
            }

            /// Returns the unit in which the cause counts.
            pub const fn lost_unit(self) -> LostUnit {
                match self {
                    $(Self::$cause => LostUnit::$unit,)+
                }
            }
        }
    };
}

causes! {
    /// Not sent: the interface was down or gone.
    InterfaceDown = "interface-down", Packet;
    /// The channel's queue was full.
    QueueFull = "queue-full", Packet;
    /// The module that reads the queue was further behind than allowed, and its policy for this is to lose packets.
    Lagged = "lagged", Packet;
    /// The module that reads the queue was further behind than allowed, and was ended by its policy for this. The packet
    /// was still in the queue.
    ReaderEnded = "reader-ended", Packet;
    /// The packet was in a queue when the session was closed or the module was unloaded.
    Closed = "closed", Packet;
    /// The core was overloaded: sessions without a reservation lose packets in the order of their shed priority.
    Shed = "shed", Packet;
    /// There was no memory for the packet: the memory for packets or the session's reservation was used up.
    NoMemory = "no-memory", Packet;
    /// The packet was delivered but not kept, because the session's modules keep as many packets as the session may.
    FrameLimit = "frame-limit", Packet;
    /// The packet is a fragment of a datagram that was never completed.
    Reassembly = "reassembly", Packet;
    /// The packet has a wrong checksum, and the channel asked for validation.
    BadChecksum = "bad-checksum", Packet;
    /// The module trapped while it handled the packet.
    ModuleFault = "module-fault", Packet;
    /// The call for the packet was aborted without a trap: it reached its limit, the memory of its packets was needed
    /// for newer packets, or the module was stopped.
    OverLimit = "over-limit", Packet;
    /// The module's verdict was to drop the packet. This is no fault; the cause accounts for the packet.
    Verdict = "verdict", Packet;
    /// Not sent: the session has no right to send this packet, or to send on this interface.
    Refused = "refused", Packet;
    /// Not sent: the packet is longer than the interface takes.
    TooLong = "too-long", Packet;
    /// Not sent: the queue of the link was full, for instance because the channel exceeded its cap for long.
    LinkQueueFull = "link-queue-full", Packet;
    /// Not sent: the kernel or the device refused the packet.
    SendFailed = "send-failed", Packet;
    /// The call emitted more records than are allowed for a packet, or for a call.
    RecordLimit = "record-limit", Record;
    /// The session emitted more records per second than it may.
    RecordRate = "record-rate", Record;
    /// The session emitted more bytes of records per second than it may.
    RecordBytes = "record-bytes", Record;
    /// The call that emitted the record was lost, so the record was removed.
    RecordOfLostCall = "record-of-lost-call", Record;
    /// The disk or its quota was full.
    DiskFull = "disk-full", Record;
    /// The file could not be written for another reason than a full disk, or the records thread was too far behind.
    WriteFailed = "write-failed", Record;
    /// A service did not answer by the caller's deadline.
    Deadline = "deadline", Message;
    /// The service was closed before it answered.
    ServiceGone = "service-gone", Message;
}

impl fmt::Display for DropCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Losses, counted by cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropCounts([u64; DropCause::ALL.len()]);

impl DropCounts {
    /// Returns the losses under a cause.
    pub fn get(&self, cause: DropCause) -> u64 {
        self.0.get(cause as usize).copied().unwrap_or(0)
    }

    /// Counts losses; the counter saturates.
    pub fn add(&mut self, cause: DropCause, count: u64) {
        if let Some(counter) = self.0.get_mut(cause as usize) {
            *counter = counter.saturating_add(count);
        }
    }

    /// Returns the causes that have losses, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (DropCause, u64)> + '_ {
        DropCause::ALL.iter().copied().zip(self.0).filter(|(_, count)| *count > 0)
    }

    /// Returns the sum over all causes that count in this unit.
    pub fn total(&self, unit: LostUnit) -> u64 {
        self.iter()
            .filter(|(cause, _)| cause.lost_unit() == unit)
            .fold(0, |sum: u64, (_, count)| sum.saturating_add(count))
    }

    /// Returns true if nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|count| *count == 0)
    }

    /// Adds the counters of `other`.
    pub fn merge(&mut self, other: &DropCounts) {
        for (sum, added) in self.0.iter_mut().zip(&other.0) {
            *sum = sum.saturating_add(*added);
        }
    }

    /// Returns the growth since `before`; zero for a counter that has not grown.
    #[must_use]
    pub fn since(&self, before: &DropCounts) -> DropCounts {
        let mut added = DropCounts::default();
        for ((added, now), before) in added.0.iter_mut().zip(&self.0).zip(&before.0) {
            *added = now.saturating_sub(*before);
        }
        added
    }
}

impl Serialize for DropCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (cause, count) in self.iter() {
            map.serialize_entry(cause.name(), &count)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for DropCounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut drops = DropCounts::default();
        for (name, count) in BTreeMap::<String, u64>::deserialize(deserializer)? {
            let cause = DropCause::ALL.iter().find(|cause| cause.name() == name);
            drops.add(*cause.ok_or_else(|| D::Error::custom("no cause of that name"))?, count);
        }
        Ok(drops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_a_counter_and_a_name_of_its_own() {
        let mut drops = DropCounts::default();
        for (n, cause) in (1..).zip(DropCause::ALL) {
            drops.add(*cause, n);
        }
        assert_eq!(drops.iter().map(|(_, n)| n).collect::<Vec<_>>(), (1..=25).collect::<Vec<u64>>());
        let names: std::collections::BTreeSet<_> = DropCause::ALL.iter().map(|cause| cause.name()).collect();
        assert_eq!(names.len(), DropCause::ALL.len());
        assert!(names.iter().all(|name| weir_admission::Name::new(name).is_ok()));
        assert_eq!(drops.total(LostUnit::Record), 18 + 19 + 20 + 21 + 22 + 23);
    }
}
