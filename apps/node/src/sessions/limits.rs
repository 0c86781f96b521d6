//! The limits on resources other than CPU time and memory that all modules of a session share, such as records and
//! kept packets.

use crate::control::authority::SessionOwner;
use crate::control::spec::SessionSpec;
use crate::control::status::{LimitUsage, LimitsStatus};
use crate::core_thread::session_part::RecordLimits;
use crate::sync::{OrderedMutex, rank};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use weir_ledger::{DropCause, Usage};
use weir_sandbox::WriteRights;
use weir_session::{KeptPackets, Record, RecordRate, Records, StillKept};
use weir_trust::grant::{Amounts, Resource};
use weir_units::{Bytes, Nanos};
use weir_wire::WriteFields;

/// A rate limit for the records of a session.
struct RateLimit {
    resource: Resource,
    /// Drop cause of records beyond the limit.
    cause: DropCause,
    /// Amount that one record takes of the limit.
    size: fn(&Record<'_>) -> u64,
    /// True if a session starts with the credit of one second, unless its credential limits the resource. Under a
    /// credential's limit a session starts without credit, because otherwise new sessions would give additional
    /// credit.
    may_begin_full: bool,
}

const RATES: &[RateLimit] = &[
    RateLimit {
        resource: Resource::Records,
        cause: DropCause::RecordRate,
        size: |_| 1,
        may_begin_full: false,
    },
    RateLimit {
        resource: Resource::RecordBytes,
        cause: DropCause::RecordBytes,
        // The bytes before compression, as the module emitted them.
        size: |record| (record.row.len() + record.tail.len()) as u64,
        may_begin_full: true,
    },
];

/// The limits of a session and their use. The session's modules share them, on several cores.
#[derive(Debug)]
pub(crate) struct SessionLimits {
    began: Instant,
    state: OrderedMutex<State, { rank::INDEPENDENT }>,
    /// Limit on the packets that the session's modules keep.
    pub(crate) kept: Arc<KeptPackets>,
    /// The fields of packets that the session's modules may write.
    pub(crate) writes: Arc<WriteRights>,
}

/// The present limits, and their use so far.
#[derive(Debug)]
struct State {
    /// The present limits.
    limits: Amounts,
    /// Credits of the record rates, in the order of [`RATES`].
    rates: Vec<RecordRate>,
    /// Use of each limit, which the code that enforces the limit reports.
    use_by_resource: BTreeMap<Resource, LimitUsage>,
    /// Usage that is counted for all modules of the session together.
    used: Usage,
}

/// Returns the limits of a session: the stated limits, and the defaults for other resources.
fn effective_limits(spec: &SessionSpec) -> Amounts {
    Resource::limits().filter_map(|(resource, _)| Some((resource, spec.limit(resource)?))).collect()
}

impl SessionLimits {
    /// Creates the limits of a session. `owner` is `None` for a session of the operator.
    pub(crate) fn new(spec: &SessionSpec, owner: Option<&SessionOwner>) -> Self {
        let is_granted = |resource| {
            owner.is_some_and(|owner| {
                let SessionOwner { credential, .. } = owner;
                let ceilings = [&credential.grant().ceilings, &credential.limit().ceilings];
                ceilings.iter().any(|ceilings| ceilings.get(resource).is_some())
            })
        };
        let rates = RATES.iter().map(|limit| {
            let (most, begin) = (spec.limit(limit.resource), Nanos(0));
            let is_full = limit.may_begin_full && !is_granted(limit.resource);
            if is_full { RecordRate::full(most, begin) } else { RecordRate::new(most, begin) }
        });
        let (rates, limits) = (rates.collect(), effective_limits(spec));
        let state = State { limits, rates, use_by_resource: BTreeMap::new(), used: Usage::default() };
        Self {
            began: Instant::now(),
            state: OrderedMutex::new(state),
            kept: KeptPackets::new(spec.limit(Resource::Kept)),
            writes: Arc::new(WriteRights::new(spec.writes.unwrap_or(WriteFields::ALL))),
        }
    }

    /// Prepares a change of the limits: sets the limit of kept packets to that of the present or the new description,
    /// whichever is lower.
    ///
    /// # Errors
    ///
    /// More packets are kept than the new limit allows.
    pub(crate) fn lower(&self, present: &SessionSpec, new: &SessionSpec) -> Result<(), StillKept> {
        let least = [present, new].into_iter().filter_map(|spec| spec.limit(Resource::Kept)).min();
        self.kept.change(least)
    }

    /// Applies the limits of a new description. [`lower`](Self::lower) must have succeeded for this description.
    pub(crate) fn apply(&self, spec: &SessionSpec) {
        let now = self.now();
        let mut state = self.state.lock();
        state.limits = effective_limits(spec);
        for (limit, rate) in RATES.iter().zip(&mut state.rates) {
            rate.change(spec.limit(limit.resource), now);
        }
        drop(state);
        // A call of `lower` has already set a limit that is not higher, so this cannot be refused.
        _ = self.kept.change(spec.limit(Resource::Kept));
        self.writes.change(spec.writes.unwrap_or(WriteFields::ALL));
    }

    /// Returns the present limit of a resource.
    pub(crate) fn get(&self, resource: Resource) -> Option<u64> {
        self.state.lock().limits.get(resource)
    }

    /// Updates the use of a limit, and the usage of all modules together, by `change`.
    pub(crate) fn report(&self, resource: Resource, change: impl FnOnce(&mut LimitUsage, &mut Usage)) {
        let State { use_by_resource, used, .. } = &mut *self.state.lock();
        change(use_by_resource.entry(resource).or_default(), used);
    }

    /// Adds the usage that is counted for all modules of the session together.
    pub(crate) fn add_to(&self, used: &mut Usage) {
        used.merge(&self.state.lock().used);
        used.drops.add(DropCause::FrameLimit, self.kept.state().refused);
    }

    pub(crate) fn status(&self) -> LimitsStatus {
        let amounts = Resource::limits().map(|(resource, _)| (resource, self.limit_status(resource)));
        let writes = self.writes.fields();
        LimitsStatus {
            amounts: amounts.filter(|(_, usage)| *usage != LimitUsage::default()).collect(),
            writes: (writes != WriteFields::ALL).then_some(writes),
            writes_refused: self.writes.refused(),
        }
    }

    fn limit_status(&self, resource: Resource) -> LimitUsage {
        if resource == Resource::Kept {
            let kept = self.kept.state();
            return LimitUsage { limit: kept.limit, in_use: kept.kept, refused: kept.refused };
        }
        let usage = self.state.lock().use_by_resource.get(&resource).copied().unwrap_or_default();
        LimitUsage { limit: self.get(resource), ..usage }
    }

    fn now(&self) -> Nanos {
        Nanos::from(self.began.elapsed())
    }
}

impl RecordLimits for SessionLimits {
    fn enforce(&self, records: &mut Records) -> Usage {
        let mut used = Usage::default();
        let now = self.now();
        let mut beyond = Vec::new();
        let mut state = self.state.lock();
        // The longest prefix of the records that all rates allow is accepted. Only accepted records use up credit.
        let mut count = records.len();
        for (limit, rate) in RATES.iter().zip(&mut state.rates) {
            let Some(mut credit) = rate.acceptable_now(now) else { continue };
            let sizes = || records.iter().take(count).map(|record| (limit.size)(&record));
            let fitting = sizes().take_while(|size| {
                let left = credit.checked_sub(*size);
                credit = left.unwrap_or(credit);
                left.is_some()
            });
            let fitting = fitting.count();
            if fitting < count {
                let lost = sizes().skip(fitting).fold(0, u64::saturating_add);
                used.drops.add(limit.cause, (count - fitting) as u64);
                beyond.push((limit.resource, lost));
                count = fitting;
            }
        }
        records.truncate(count);
        let limited = RATES.iter().zip(&mut state.rates).filter(|(_, rate)| rate.per_second().is_some());
        for (limit, rate) in limited {
            rate.take(records.iter().map(|record| (limit.size)(&record)).fold(0, u64::saturating_add), now);
        }
        drop(state);
        for (resource, lost) in beyond {
            self.report(resource, |usage, _| usage.refused = usage.refused.saturating_add(lost));
        }
        used.record_bytes = Bytes(records.bytes() as u64);
        used
    }
}
