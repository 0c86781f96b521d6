//! What a session used.

use super::{ByteSeconds, Drops, Thing, wire};
use serde::{Deserialize, Serialize};
use weir_units::{Bytes, Nanos};

/// What one session used in one interval. Adding up intervals in any order and grouping gives the same: all is counted in whole units, and
/// a counter that reaches its largest value stays there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Processor time of all work that was done for the session: receiving and demultiplexing its packets, running its modules, encoding and
    /// writing its records. This is billed.
    #[serde(rename = "cpu_ns", with = "wire::nanos", skip_serializing_if = "is_no_time")]
    pub cpu: Nanos,
    /// Of that, on analysing and compiling its modules and filters.
    #[serde(rename = "compile_ns", with = "wire::nanos", skip_serializing_if = "is_no_time")]
    pub compile: Nanos,
    /// Time that passed while the session's work was on a core, and that the hypervisor or the kernel gave to somebody else. Not billed.
    #[serde(rename = "stolen_ns", with = "wire::nanos", skip_serializing_if = "is_no_time")]
    pub stolen: Nanos,
    /// Packets that the session's channels received, and that reached a module or a reader.
    #[serde(skip_serializing_if = "wire::is_zero")]
    pub packets_in: u64,
    /// Their bytes, as captured.
    #[serde(with = "wire::bytes", skip_serializing_if = "is_no_bytes")]
    pub bytes_in: Bytes,
    /// Packets that the session sent, and that left on a link.
    #[serde(skip_serializing_if = "wire::is_zero")]
    pub packets_out: u64,
    /// Their bytes.
    #[serde(with = "wire::bytes", skip_serializing_if = "is_no_bytes")]
    pub bytes_out: Bytes,
    /// Memory that was reserved, x how long: what a session keeps from others, whether it uses it or not ("The Price of Safety", section VI).
    #[serde(flatten)]
    pub memory: ByteSeconds,
    /// Records that the session's modules emitted, whatever became of them.
    #[serde(skip_serializing_if = "wire::is_zero")]
    pub records_emitted: u64,
    /// Records that were written.
    #[serde(skip_serializing_if = "wire::is_zero")]
    pub records_written: u64,
    /// Calls that trapped.
    #[serde(skip_serializing_if = "wire::is_zero")]
    pub faults: u64,
    /// Calls that were over their limit.
    #[serde(skip_serializing_if = "wire::is_zero")]
    pub strikes: u64,
    /// Requests that were refused: reservations, modules, rights.
    #[serde(skip_serializing_if = "wire::is_zero")]
    pub refusals: u64,
    /// What was not delivered, and why.
    #[serde(skip_serializing_if = "Drops::is_empty")]
    pub drops: Drops,
}

impl Usage {
    /// Adds another interval or another session.
    pub fn merge(&mut self, other: &Usage) {
        // Taken apart, so that no counter can be forgotten.
        let Usage {
            cpu,
            compile,
            stolen,
            packets_in,
            bytes_in,
            packets_out,
            bytes_out,
            memory,
            records_emitted,
            records_written,
            faults,
            strikes,
            refusals,
            drops,
        } = other;
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.cpu.0, cpu.0);
        add(&mut self.compile.0, compile.0);
        add(&mut self.stolen.0, stolen.0);
        add(&mut self.packets_in, *packets_in);
        add(&mut self.bytes_in.0, bytes_in.0);
        add(&mut self.packets_out, *packets_out);
        add(&mut self.bytes_out.0, bytes_out.0);
        self.memory = self.memory.saturating_add(*memory);
        add(&mut self.records_emitted, *records_emitted);
        add(&mut self.records_written, *records_written);
        add(&mut self.faults, *faults);
        add(&mut self.strikes, *strikes);
        add(&mut self.refusals, *refusals);
        self.drops.merge(drops);
    }

    /// Records that were emitted and not written, for whatever cause.
    pub fn records_lost(&self) -> u64 {
        self.drops.of(Thing::Record)
    }

    /// Whether nothing was used but memory.
    pub fn is_idle(&self) -> bool {
        *self == Usage { memory: self.memory, ..Usage::default() }
    }

    /// Whether nothing was used.
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
