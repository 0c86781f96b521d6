//! The usage of a session: one table of counters, from which ledger lines, tables of usage, metrics and status follow.

use super::{ByteSeconds, DropCause, DropCounts, LedgerColumn, LostUnit, wire};
use serde::{Deserialize, Serialize};
use weir_units::{Bytes, Nanos};

/// A counter of [`Usage`]: its names, unit and meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageCounter {
    /// The field in a line of the ledger: `cpu_ns`.
    pub field: &'static str,
    /// The column in a table of usage (`weir ledger`).
    pub column: LedgerColumn,
    /// The name of the metric family, without prefix and unit: `billed`.
    pub metric: &'static str,
    /// The unit of the metric family: `seconds`; empty for plain numbers. The counter itself counts times in
    /// nanoseconds.
    pub metric_unit: &'static str,
    /// The meaning, in one line.
    pub help: &'static str,
}

/// A type that a counter of [`Usage`] can have, with its value as a number of whole units.
trait Amount {
    fn whole(&self) -> u64;
    fn whole_mut(&mut self) -> &mut u64;
}

impl Amount for u64 {
    fn whole(&self) -> u64 {
        *self
    }

    fn whole_mut(&mut self) -> &mut u64 {
        self
    }
}

impl Amount for Nanos {
    fn whole(&self) -> u64 {
        self.0
    }

    fn whole_mut(&mut self) -> &mut u64 {
        &mut self.0
    }
}

impl Amount for Bytes {
    fn whole(&self) -> u64 {
        self.0
    }

    fn whole_mut(&mut self) -> &mut u64 {
        &mut self.0
    }
}

/// Defines [`Usage`] and its counters. Each has a field, a type and seven literals, in this order: the field in a line
/// of the ledger; the key, title and unit of the column; the name and unit of the metric family; the meaning. The
/// counters above `--` stand before memory in each line of the ledger, and the counters below it after memory.
macro_rules! counters {
    (@group $name:ident: $($field:literal, $key:literal, $title:literal, $unit:literal, $metric:literal, $metric_unit:literal, $help:literal;)+) => {
        const $name: &[UsageCounter] = &[$(UsageCounter {
            field: $field,
            column: LedgerColumn { key: $key, title: $title, unit: $unit },
            metric: $metric,
            metric_unit: $metric_unit,
            help: $help,
        },)+];
    };
    (
        $($(#[$first_attribute:meta])* $first:ident: $first_type:ty = [$($first_text:literal),+];)+
        --
        $($(#[$last_attribute:meta])* $last:ident: $last_type:ty = [$($last_text:literal),+];)+
    ) => {
        /// The usage of one session in one interval. Counters count in whole units, and saturate. So the sum of several
        /// usages does not depend on their order or grouping.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Usage {
            $($(#[$first_attribute])* pub $first: $first_type,)+
            /// Reserved memory x time. A session is also charged for reserved memory that it does not use, because no
            /// other session can use it ("The Price of Safety", section VI).
            #[serde(flatten)]
            pub memory: ByteSeconds,
            $($(#[$last_attribute])* pub $last: $last_type,)+
            /// Losses, by cause.
            #[serde(skip_serializing_if = "DropCounts::is_empty")]
            pub drops: DropCounts,
        }

        counters!(@group BEFORE_MEMORY: $($($first_text),+;)+);
        counters!(@group AFTER_MEMORY: $($($last_text),+;)+);

        impl Usage {
            /// Returns the values of all counters except memory and losses, in the order of [`Usage::counters`].
            fn values(&self) -> impl Iterator<Item = u64> {
                [$(self.$first.whole(),)+ $(self.$last.whole(),)+].into_iter()
            }

            fn values_mut(&mut self) -> impl Iterator<Item = &mut u64> {
                [$(self.$first.whole_mut(),)+ $(self.$last.whole_mut(),)+].into_iter()
            }
        }
    };
}

counters! {
    /// Processor time of all work for the session: receiving and demultiplexing its packets, running its modules,
    /// encoding and writing its records. The holder is charged for it.
    #[serde(rename = "cpu_ns", with = "wire::nanos", skip_serializing_if = "is_no_time")]
    cpu: Nanos = ["cpu_ns", "cpu_s", "CPU time", "s", "billed", "seconds",
        "Processor time of all work for the session, as its bill has it"];
    /// The part of the processor time for analysing and compiling modules and filters.
    #[serde(rename = "compile_ns", with = "wire::nanos", skip_serializing_if = "is_no_time")]
    compile: Nanos = ["compile_ns", "compile_s", "of it compiling", "s", "compile", "seconds",
        "Of the billed time, on analysing and compiling modules and filters"];
    /// The part of the processor time for receiving and demultiplexing packets.
    #[serde(rename = "receive_ns", with = "wire::nanos", skip_serializing_if = "is_no_time")]
    receive: Nanos = ["receive_ns", "receive_s", "of it receiving", "s", "receive", "seconds",
        "Of the billed time, on receiving and demultiplexing packets"];
    /// Time in which the session had work while the hypervisor or the kernel gave its core to other work. The holder is
    /// not charged for it.
    #[serde(rename = "stolen_ns", with = "wire::nanos", skip_serializing_if = "is_no_time")]
    stolen: Nanos = ["stolen_ns", "stolen_s", "stolen (not billed)", "s", "stolen", "seconds",
        "Time in which the session had work and others outside of the node had its core; not billed"];
    /// Packets of the session's channels that reached a module, or went on without one.
    #[serde(skip_serializing_if = "wire::is_zero")]
    packets_in: u64 = ["packets_in", "packets_in", "in", "packets", "received", "packets",
        "Packets that reached a module, or went on without one"];
    /// Captured bytes of the packets in `packets_in`.
    #[serde(with = "wire::bytes", skip_serializing_if = "is_no_bytes")]
    bytes_in: Bytes = ["bytes_in", "bytes_in", "in", "B", "received", "bytes",
        "Captured bytes of the packets that reached a module, or went on without one"];
    /// Packets that the session sent and that left on a link.
    #[serde(skip_serializing_if = "wire::is_zero")]
    packets_out: u64 = ["packets_out", "packets_out", "out", "packets", "sent", "packets",
        "Packets that the session sent, and that left on a link"];
    /// Bytes of the packets in `packets_out`.
    #[serde(with = "wire::bytes", skip_serializing_if = "is_no_bytes")]
    bytes_out: Bytes = ["bytes_out", "bytes_out", "out", "B", "sent", "bytes",
        "Bytes of the packets that the session sent, and that left on a link"];
    --
    /// Records that the session's modules emitted, whether written or lost.
    #[serde(skip_serializing_if = "wire::is_zero")]
    records_emitted: u64 = ["records_emitted", "records_emitted", "emitted", "records", "emitted", "records",
        "Records that its modules emitted"];
    /// Records that were written.
    #[serde(skip_serializing_if = "wire::is_zero")]
    records_written: u64 = ["records_written", "records_written", "written", "records", "written", "records",
        "Records that were written"];
    /// Bytes of the accepted records, as the modules emitted them.
    #[serde(with = "wire::bytes", skip_serializing_if = "is_no_bytes")]
    record_bytes: Bytes = ["record_bytes", "record_bytes", "of records", "B", "recorded", "bytes",
        "Bytes of the records that were taken, as its modules emitted them"];
    /// Record files that were deleted because the session reached its limit of stored bytes.
    #[serde(skip_serializing_if = "wire::is_zero")]
    record_files_deleted: u64 = ["record_files_deleted", "record_files_deleted", "deleted", "files", "deleted", "files",
        "Record files that were deleted for newer ones"];
    /// Bytes of the record files in `record_files_deleted`.
    #[serde(with = "wire::bytes", skip_serializing_if = "is_no_bytes")]
    record_bytes_deleted: Bytes = ["record_bytes_deleted", "record_bytes_deleted", "deleted", "B", "deleted", "bytes",
        "Bytes of the record files that were deleted for newer ones"];
    /// Bytes of stored record files that the node sent to the session's owner or to a holder with a share of it.
    #[serde(with = "wire::bytes", skip_serializing_if = "is_no_bytes")]
    record_bytes_fetched: Bytes = ["record_bytes_fetched", "record_bytes_fetched", "fetched", "B", "fetched", "bytes",
        "Bytes of stored record files that were sent to clients"];
    /// Faults: calls that trapped, or were aborted at a limit of fuel or time.
    #[serde(skip_serializing_if = "wire::is_zero")]
    faults: u64 = ["faults", "faults", "faults", "", "faults", "",
        "Calls of its modules that trapped, or were aborted at a limit of fuel or time"];
    /// Strikes: calls that were aborted at a limit of fuel or time, and calls of a supervised module that were completed
    /// beyond the limit. 64 calls within the limit cancel a strike of a completed call.
    #[serde(skip_serializing_if = "wire::is_zero")]
    strikes: u64 = ["strikes", "strikes", "strikes", "", "strikes", "",
        "Calls of its modules that were aborted at a limit of fuel or time, or completed beyond it if supervised"];
    /// Periods in which the session had work all the time and did not get its slice.
    #[serde(skip_serializing_if = "wire::is_zero")]
    periods_missed: u64 = ["periods_missed", "periods_missed", "missed", "periods", "missed", "periods",
        "Periods in which it had work all the time and did not get its slice"];
    /// Requests that were refused: reservations, modules, rights.
    #[serde(skip_serializing_if = "wire::is_zero")]
    refusals: u64 = ["refusals", "refusals", "refusals", "", "refusals", "", "Requests that were refused"];
}

impl Usage {
    /// Returns the definitions of all counters except memory and losses.
    pub fn counters() -> impl Iterator<Item = &'static UsageCounter> {
        BEFORE_MEMORY.iter().chain(AFTER_MEMORY)
    }

    /// Returns all counters except memory and losses, with their values: nanoseconds, bytes or plain numbers.
    pub fn counts(&self) -> impl Iterator<Item = (&'static UsageCounter, u64)> {
        Self::counters().zip(self.values())
    }

    /// Returns all counters except memory and losses, with their values, in two groups: the counters before and the
    /// counters after memory in a table of usage.
    pub(super) fn groups(&self) -> [Vec<(&'static UsageCounter, u64)>; 2] {
        let mut first: Vec<_> = self.counts().collect();
        let last = first.split_off(BEFORE_MEMORY.len());
        [first, last]
    }

    /// Returns the columns of a table of usage: the first group of counters, memory, the second group, and losses.
    pub(super) fn columns() -> Vec<LedgerColumn> {
        let memory = LedgerColumn { key: "memory_mib_h", title: "memory", unit: "MiB·h" };
        let lost = LedgerColumn { key: "records_lost", title: "lost", unit: LostUnit::Record.unit() };
        let dropped =
            LedgerColumn { key: "packets_dropped", title: "dropped", unit: LostUnit::Packet.unit() };
        let columns_of = |counters: &'static [UsageCounter]| counters.iter().map(|counter| counter.column);
        let mut columns: Vec<LedgerColumn> = columns_of(BEFORE_MEMORY).collect();
        columns.push(memory);
        columns.extend(columns_of(AFTER_MEMORY));
        columns.extend([lost, dropped]);
        let cause = |cause: &DropCause| LedgerColumn {
            key: cause.name(),
            title: cause.name(),
            unit: cause.lost_unit().unit(),
        };
        columns.extend(DropCause::ALL.iter().map(cause));
        columns
    }

    /// Adds the usage of another interval or session.
    pub fn merge(&mut self, other: &Usage) {
        for (sum, added) in self.values_mut().zip(other.values()) {
            *sum = sum.saturating_add(added);
        }
        self.memory = self.memory.saturating_add(other.memory);
        self.drops.merge(&other.drops);
    }

    /// Returns the growth since `before`, without memory; zero for a counter that has not grown.
    #[must_use]
    pub fn since(&self, before: &Usage) -> Usage {
        let drops = self.drops.since(&before.drops);
        let mut grown = Usage { memory: ByteSeconds::default(), drops, ..self.clone() };
        for (grown, before) in grown.values_mut().zip(before.values()) {
            *grown = grown.saturating_sub(before);
        }
        grown
    }

    /// Raises each counter, memory included, to at least its value in `before`. So reported counters never fall.
    pub fn raise_to(&mut self, before: &Usage) {
        let shortfall = before.since(self);
        self.merge(&shortfall);
        self.memory = self.memory.max(before.memory);
    }

    /// Returns the number of records that were lost, for all causes together.
    pub fn records_lost(&self) -> u64 {
        self.drops.total(LostUnit::Record)
    }

    /// Returns true if nothing but memory was used.
    pub fn is_idle(&self) -> bool {
        *self == Usage { memory: self.memory, ..Usage::default() }
    }

    /// Returns true if nothing was used.
    pub fn is_empty(&self) -> bool {
        *self == Usage::default()
    }
}

impl<'a> std::iter::Sum<&'a Usage> for Usage {
    fn sum<I: Iterator<Item = &'a Usage>>(usages: I) -> Self {
        usages.fold(Usage::default(), |mut sum, usage| {
            sum.merge(usage);
            sum
        })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_no_time(time: &Nanos) -> bool {
    time.0 == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_no_bytes(amount: &Bytes) -> bool {
    amount.0 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A usage in which each counter has another value.
    fn numbered(by: u64) -> Usage {
        let mut usage = Usage { memory: ByteSeconds::held_for(Bytes(by), Nanos(7)), ..Usage::default() };
        (1..).zip(usage.values_mut()).for_each(|(n, value)| *value = n * by);
        usage.drops.add(DropCause::QueueFull, by);
        usage
    }

    #[test]
    fn each_counter_has_one_name_in_lines_in_tables_and_in_metrics() {
        let usage = numbered(1);
        let line = serde_json::to_value(&usage).unwrap();
        for (n, (counter, value)) in (1_u64..).zip(usage.counts()) {
            assert_eq!(value, n);
            assert_eq!(line[counter.field], n, "{}", counter.field);
        }
        assert_eq!(serde_json::from_value::<Usage>(line).unwrap(), usage);
        let columns: BTreeSet<_> = Usage::columns().iter().map(|column| column.key).collect();
        assert_eq!(columns.len(), Usage::columns().len());
        let metrics: BTreeSet<_> =
            Usage::counters().map(|counter| (counter.metric, counter.metric_unit)).collect();
        assert_eq!(metrics.len(), Usage::counters().count());
    }

    #[test]
    fn usage_is_added_and_subtracted_counter_by_counter() {
        let (mut sum, seven) = (numbered(3), numbered(7));
        sum.merge(&seven);
        assert_eq!(sum.since(&numbered(3)), Usage { memory: ByteSeconds::default(), ..numbered(7) });
        assert_eq!(numbered(3).since(&seven), Usage::default());
        let mut raised = numbered(3);
        raised.raise_to(&seven);
        assert_eq!(raised, seven);
        raised.raise_to(&numbered(2));
        assert_eq!(raised, seven);
    }
}
