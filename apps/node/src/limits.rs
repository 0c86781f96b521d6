//! What all modules of a session have together, beside processor time and memory.

use crate::spec::SessionSpec;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_sandbox::WriteRights;
use weir_session::{KeptPackets, RecordRate, Records, StillKept};
use weir_units::Nanos;
use weir_wire::WriteFields;

/// What a session is held to, and how often it was. Its modules are on several cores, and share this.
#[derive(Debug)]
pub(crate) struct Limits {
    began: Instant,
    records: Mutex<RecordRate>,
    /// Records beyond the rate.
    over_rate: AtomicU64,
    /// The packets that they keep,
    pub(crate) kept: Arc<KeptPackets>,
    /// and what they may write of others.
    pub(crate) writes: Arc<WriteRights>,
}

/// What a session is held to, for whoever looks. Counters only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsShot {
    /// Records that are taken in a second at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records_per_second: Option<u64>,
    /// Records that were not taken because of that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub records_over_rate: u64,
    /// Packets that are kept at once at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_packets: Option<u64>,
    /// Packets that are kept now.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kept_now: u64,
    /// Times that a packet was not kept because of that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub keeping_refused: u64,
    /// Fields of packets that may be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<WriteFields>,
    /// Patches that were refused because of another one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub writes_refused: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl LimitsShot {
    /// Whether there is nothing to tell.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Limits {
    /// Those of a session.
    pub(crate) fn of(spec: &SessionSpec) -> Self {
        Self {
            began: Instant::now(),
            records: Mutex::new(RecordRate::new(spec.records_per_second, Nanos(0))),
            over_rate: AtomicU64::new(0),
            kept: KeptPackets::new(spec.kept_packets),
            writes: Arc::new(WriteRights::new(spec.writes.unwrap_or(WriteFields::ALL))),
        }
    }

    /// From now on no more are kept than the session as it was, and as it is to be, may keep.
    ///
    /// # Errors
    ///
    /// More are kept.
    pub(crate) fn narrow(&self, was: &SessionSpec, is_to_be: &SessionSpec) -> Result<(), StillKept> {
        let least = [was.kept_packets, is_to_be.kept_packets].into_iter().flatten().min();
        self.kept.change(least)
    }

    /// From now on they are those of the session as it is now, for which they were [narrowed](Self::narrow) where it may keep less.
    pub(crate) fn become_those_of(&self, spec: &SessionSpec) {
        let now = self.now();
        self.records().change(spec.records_per_second, now);
        // That many or fewer were allowed, so no more are kept.
        _ = self.kept.change(spec.kept_packets);
        self.writes.change(spec.writes.unwrap_or(WriteFields::ALL));
    }

    /// Leaves of these records those that may be taken now, the first ones. Says how many are left out.
    pub(crate) fn hold(&self, records: &mut Records) -> u64 {
        let emitted = records.len();
        let now = self.now();
        let taken = self.records().take(emitted as u64, now);
        let taken = usize::try_from(taken).unwrap_or(usize::MAX).min(emitted);
        records.truncate(taken);
        let over = (emitted - taken) as u64;
        self.over_rate.fetch_add(over, Ordering::Relaxed);
        over
    }

    pub(crate) fn shot(&self) -> LimitsShot {
        let (kept, writes) = (self.kept.state(), self.writes.fields());
        LimitsShot {
            records_per_second: self.records().per_second(),
            records_over_rate: self.over_rate.load(Ordering::Relaxed),
            kept_packets: kept.most,
            kept_now: kept.kept,
            keeping_refused: kept.refused,
            writes: (writes != WriteFields::ALL).then_some(writes),
            writes_refused: self.writes.refused(),
        }
    }

    fn records(&self) -> MutexGuard<'_, RecordRate> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
