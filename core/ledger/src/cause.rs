//! Why something was not delivered: every loss has a named counter.

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// What a cause of loss counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LostUnit {
    /// Packets, in or out.
    Packet,
    /// Rows that a module emitted.
    Record,
    /// Calls of a service, and their answers.
    Message,
    /// Ticks and alarms.
    Event,
}

impl LostUnit {
    /// In the plural, as a unit.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Packet => "packets",
            Self::Record => "records",
            Self::Message => "messages",
            Self::Event => "events",
        }
    }
}

/// The causes, once: their names in ledgers and tables, what they count, and what they mean.
macro_rules! causes {
    ($($(#[doc = $doc:literal])+ $cause:ident = $name:literal, $thing:ident;)+) => {
        /// Why something was not delivered. Each loss is counted under exactly one cause, for the session that lost it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DropCause {
            $($(#[doc = $doc])+ $cause,)+
        }

        impl DropCause {
            /// All causes, in the order in which they are written.
            pub const ALL: &'static [DropCause] = &[$(Self::$cause,)+];

            /// As ledgers, tables and metrics name it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$cause => $name,)+
                }
            }

            /// What it counts.
            pub const fn thing(self) -> LostUnit {
                match self {
                    $(Self::$cause => LostUnit::$thing,)+
                }
            }
        }
    };
}

causes! {
    /// The kernel or the device dropped the packet before it could be read: the receive ring was full.
    Kernel = "kernel", Packet;
    /// The interface was down or gone.
    InterfaceDown = "interface-down", Packet;
    /// The channel's queue was full.
    QueueFull = "queue-full", Packet;
    /// The reader lagged further behind the head than its allowance, and by policy lost packets.
    Lagged = "lagged", Packet;
    /// The reader lagged, and by policy was ended: what was still in its queue.
    ReaderEnded = "reader-ended", Packet;
    /// Left in a queue of a session or module that was closed or unloaded.
    Closed = "closed", Packet;
    /// Not handled under overload: modules are shed in the order of their priority.
    Shed = "shed", Packet;
    /// There was no memory for it: no free frame, or the session's reservation was used up.
    NoMemory = "no-memory", Packet;
    /// A packet could not be kept: the module already holds as many frames as it may.
    FrameLimit = "frame-limit", Packet;
    /// A fragment whose packet never became whole.
    Reassembly = "reassembly", Packet;
    /// A wrong checksum, where the channel asked for validation.
    BadChecksum = "bad-checksum", Packet;
    /// The module handled it and trapped.
    ModuleFault = "module-fault", Packet;
    /// The call was over its limit and was abandoned.
    OverLimit = "over-limit", Packet;
    /// The module itself said so. Not a loss to complain of, but where the packet went.
    Verdict = "verdict", Packet;
    /// Not sent: the session has no right to send such a packet, or to send there.
    Refused = "refused", Packet;
    /// Not sent: longer than the interface takes.
    TooLong = "too-long", Packet;
    /// Not sent: the queue of the link was full.
    LinkQueueFull = "link-queue-full", Packet;
    /// Not sent: over the cap of the channel's share of the link.
    Cap = "cap", Packet;
    /// Not sent: the kernel or the device refused it.
    SendFailed = "send-failed", Packet;
    /// More records than the packet or the call may emit.
    RecordLimit = "record-limit", Record;
    /// More records than the session may have taken in a second.
    RecordRate = "record-rate", Record;
    /// More bytes of records than the session may have taken in a second.
    RecordBytes = "record-bytes", Record;
    /// Emitted by a call that was then lost, and taken back with it.
    RecordOfLostCall = "record-of-lost-call", Record;
    /// The disk was full.
    DiskFull = "disk-full", Record;
    /// The file could not be written, for another reason than a full disk.
    WriteFailed = "write-failed", Record;
    /// A service's queue was full.
    ServiceQueueFull = "service-queue-full", Message;
    /// A service did not answer by the caller's deadline.
    Deadline = "deadline", Message;
    /// The service was closed before it answered.
    ServiceGone = "service-gone", Message;
    /// A tick or an alarm was due, and the one before it had not been handled.
    TickMissed = "tick-missed", Event;
}

impl fmt::Display for DropCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How much was lost, by cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropCounts([u64; DropCause::ALL.len()]);

impl DropCounts {
    /// What was lost for this cause.
    pub fn get(&self, cause: DropCause) -> u64 {
        self.0.get(cause as usize).copied().unwrap_or(0)
    }

    /// Counts losses; the counter stops at its largest value.
    pub fn add(&mut self, cause: DropCause, count: u64) {
        if let Some(counter) = self.0.get_mut(cause as usize) {
            *counter = counter.saturating_add(count);
        }
    }

    /// All causes for which something was lost.
    pub fn iter(&self) -> impl Iterator<Item = (DropCause, u64)> + '_ {
        DropCause::ALL.iter().copied().zip(self.0).filter(|(_, count)| *count > 0)
    }

    /// The sum over all causes that count the same thing.
    pub fn of(&self, thing: LostUnit) -> u64 {
        self.iter()
            .filter(|(cause, _)| cause.thing() == thing)
            .fold(0, |sum: u64, (_, count)| sum.saturating_add(count))
    }

    /// Whether nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|count| *count == 0)
    }

    /// Adds the other's counters.
    pub fn merge(&mut self, other: &DropCounts) {
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            *sum = sum.saturating_add(*more);
        }
    }

    /// What was added to `before`; nothing for a counter that is not higher than it was.
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
        assert_eq!(drops.iter().map(|(_, n)| n).collect::<Vec<_>>(), (1..=29).collect::<Vec<u64>>());
        let names: std::collections::BTreeSet<_> = DropCause::ALL.iter().map(|cause| cause.name()).collect();
        assert_eq!(names.len(), DropCause::ALL.len());
        assert!(names.iter().all(|name| weir_admission::Name::new(name).is_ok()));
        assert_eq!(drops.of(LostUnit::Record), 20 + 21 + 22 + 23 + 24 + 25);
    }
}
