//! What all modules of a session have together, beside processor time and memory.

use crate::control::authority::SessionOwner;
use crate::control::spec::SessionSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_ledger::{DropCause, Usage};
use weir_sandbox::WriteRights;
use weir_session::{KeptPackets, Record, RecordRate, Records, StillKept};
use weir_trust::grant::{Amounts, Resource};
use weir_units::{Bytes, Nanos};
use weir_wire::WriteFields;

/// A rate that holds the records of a session.
struct Rated {
    resource: Resource,
    /// The cause under which a record beyond it is counted.
    cause: DropCause,
    /// The amount that one record takes.
    size: fn(&Record<'_>) -> u64,
    /// It begins with what a second brings, where no credential limits it: else one who makes sessions again and again had that each time.
    may_begin_full: bool,
}

const RATES: &[Rated] = &[
    Rated { resource: Resource::Records, cause: DropCause::RecordRate, size: |_| 1, may_begin_full: false },
    Rated {
        resource: Resource::RecordBytes,
        cause: DropCause::RecordBytes,
        // As the module emitted it: what compresses well counts as much.
        size: |record| (record.row.len() + record.tail.len()) as u64,
        may_begin_full: true,
    },
];

/// What a session is held to, and how often it was. Its modules are on several cores, and share this.
#[derive(Debug)]
pub(crate) struct SessionLimits {
    began: Instant,
    state: Mutex<State>,
    /// The packets that they keep,
    pub(crate) kept: Arc<KeptPackets>,
    /// and what they may write of others.
    pub(crate) writes: Arc<WriteRights>,
}

#[derive(Debug)]
struct State {
    /// The limits as they are now.
    most: Amounts,
    /// Credits of the rates of records, in the order of [`RATES`].
    rates: Vec<RecordRate>,
    /// Counts of each limit, from the code that enforces it.
    told: BTreeMap<Resource, LimitUsage>,
    /// What is charged to all modules of the session together.
    used: Usage,
}

/// The limits of a session that are stated, or usual.
fn amounts(spec: &SessionSpec) -> Amounts {
    Resource::limits().filter_map(|(resource, _)| Some((resource, spec.limit(resource)?))).collect()
}

/// The limits of a session, and how often they were reached. Counters only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Flat", into = "Flat")]
pub struct LimitsStatus {
    /// By resource, where there is something to tell.
    pub(crate) amounts: BTreeMap<Resource, LimitUsage>,
    /// Fields of packets that may be written.
    pub writes: Option<WriteFields>,
    /// Patches that were refused because of another one.
    pub writes_refused: u64,
}

/// The limit of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitUsage {
    /// The limit.
    pub most: Option<u64>,
    /// The amount that is taken now, where it is a level.
    pub taken: u64,
    /// The amount that was beyond the limit.
    pub beyond: u64,
}

/// The same with one key for each number, as the table of resources names them.
#[derive(Serialize, Deserialize)]
struct Flat {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    writes: Option<WriteFields>,
    #[serde(flatten)]
    numbers: BTreeMap<String, u64>,
}

const WRITES_REFUSED: &str = "writes_refused";

impl From<Flat> for LimitsStatus {
    fn from(Flat { writes, numbers }: Flat) -> Self {
        let number = |key: &str| numbers.get(key).copied();
        let amounts = Resource::limits().map(|(resource, limit)| {
            let taken = limit.taken.and_then(|level| number(level.key));
            let beyond = number(limit.beyond.key).unwrap_or(0);
            (resource, LimitUsage { most: number(limit.key), taken: taken.unwrap_or(0), beyond })
        });
        let amounts = amounts.filter(|(_, it)| *it != LimitUsage::default()).collect();
        Self { amounts, writes, writes_refused: number(WRITES_REFUSED).unwrap_or(0) }
    }
}

impl From<LimitsStatus> for Flat {
    fn from(shot: LimitsStatus) -> Self {
        let mut numbers = BTreeMap::new();
        let mut tell = |key: &str, number: Option<u64>| {
            numbers.extend(number.map(|number| (key.to_owned(), number)));
        };
        let some = |number: u64| (number > 0).then_some(number);
        for (resource, limit) in Resource::limits() {
            let it = shot.of(resource);
            tell(limit.key, it.most);
            if let Some(level) = limit.taken {
                tell(level.key, some(it.taken));
            }
            tell(limit.beyond.key, some(it.beyond));
        }
        tell(WRITES_REFUSED, some(shot.writes_refused));
        Self { writes: shot.writes, numbers }
    }
}

impl LimitsStatus {
    /// Whether there is nothing to tell.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The limit of a resource.
    pub fn of(&self, resource: Resource) -> LimitUsage {
        self.amounts.get(&resource).copied().unwrap_or_default()
    }
}

impl SessionLimits {
    /// Those of a session, under the credential of its owner.
    pub(crate) fn of(spec: &SessionSpec, owner: Option<&SessionOwner>) -> Self {
        let is_granted = |resource| {
            owner.is_some_and(|owner| {
                let SessionOwner { credential, .. } = owner;
                let ceilings = [&credential.grant().ceilings, &credential.limit().ceilings];
                ceilings.iter().any(|ceilings| ceilings.get(resource).is_some())
            })
        };
        let rates = RATES.iter().map(|rated| {
            let (most, begin) = (spec.limit(rated.resource), Nanos(0));
            let is_full = rated.may_begin_full && !is_granted(rated.resource);
            if is_full { RecordRate::full(most, begin) } else { RecordRate::new(most, begin) }
        });
        let (rates, most) = (rates.collect(), amounts(spec));
        let state = State { most, rates, told: BTreeMap::new(), used: Usage::default() };
        Self {
            began: Instant::now(),
            state: Mutex::new(state),
            kept: KeptPackets::new(spec.limit(Resource::Kept)),
            writes: Arc::new(WriteRights::new(spec.writes.unwrap_or(WriteFields::ALL))),
        }
    }

    /// From now on no more are kept than the session as it was, and as it is to be, may keep.
    ///
    /// # Errors
    ///
    /// More are kept.
    pub(crate) fn narrow(&self, was: &SessionSpec, is_to_be: &SessionSpec) -> Result<(), StillKept> {
        let least = [was, is_to_be].into_iter().filter_map(|spec| spec.limit(Resource::Kept)).min();
        self.kept.change(least)
    }

    /// From now on they are those of the session as it is now, for which they were [narrowed](Self::narrow) where it may keep less.
    pub(crate) fn become_those_of(&self, spec: &SessionSpec) {
        let now = self.now();
        let mut state = self.state();
        state.most = amounts(spec);
        for (rated, rate) in RATES.iter().zip(&mut state.rates) {
            rate.change(spec.limit(rated.resource), now);
        }
        drop(state);
        // That many or fewer were allowed, so no more are kept.
        _ = self.kept.change(spec.limit(Resource::Kept));
        self.writes.change(spec.writes.unwrap_or(WriteFields::ALL));
    }

    /// Leaves of these records those that may be taken now, the first ones. Returns what is charged for them, and those that are lost.
    pub(crate) fn hold(&self, records: &mut Records) -> Usage {
        let mut used = Usage::default();
        let now = self.now();
        let mut beyond = Vec::new();
        let mut state = self.state();
        // The records that are taken are the first ones that all rates have room for, and only those use a rate up.
        let mut count = records.len();
        for (rated, rate) in RATES.iter().zip(&mut state.rates) {
            let Some(mut room) = rate.room_now(now) else { continue };
            let sizes = || records.iter().take(count).map(|record| (rated.size)(&record));
            let fitting = sizes().take_while(|size| {
                let left = room.checked_sub(*size);
                room = left.unwrap_or(room);
                left.is_some()
            });
            let fitting = fitting.count();
            if fitting < count {
                let lost = sizes().skip(fitting).fold(0, u64::saturating_add);
                used.drops.add(rated.cause, (count - fitting) as u64);
                beyond.push((rated.resource, lost));
                count = fitting;
            }
        }
        records.truncate(count);
        let limited = RATES.iter().zip(&mut state.rates).filter(|(_, rate)| rate.per_second().is_some());
        for (rated, rate) in limited {
            rate.take(records.iter().map(|record| (rated.size)(&record)).fold(0, u64::saturating_add), now);
        }
        drop(state);
        for (resource, lost) in beyond {
            self.tell(resource, |told, _| told.beyond = told.beyond.saturating_add(lost));
        }
        used.record_bytes = Bytes(records.bytes() as u64);
        used
    }

    /// The limit of a resource now.
    pub(crate) fn get(&self, resource: Resource) -> Option<u64> {
        self.state().most.get(resource)
    }

    /// Changes what is told of a limit (the level that is taken, the amount beyond it), and what is charged to all modules together.
    pub(crate) fn tell(&self, resource: Resource, change: impl FnOnce(&mut LimitUsage, &mut Usage)) {
        let State { told, used, .. } = &mut *self.state();
        change(told.entry(resource).or_default(), used);
    }

    /// Adds to a bill what is counted for all modules of the session together.
    pub(crate) fn add_to(&self, used: &mut Usage) {
        used.merge(&self.state().used);
        used.drops.add(DropCause::FrameLimit, self.kept.state().refused);
    }

    pub(crate) fn shot(&self) -> LimitsStatus {
        let amounts = Resource::limits().map(|(resource, _)| (resource, self.limit_shot(resource)));
        let writes = self.writes.fields();
        LimitsStatus {
            amounts: amounts.filter(|(_, it)| *it != LimitUsage::default()).collect(),
            writes: (writes != WriteFields::ALL).then_some(writes),
            writes_refused: self.writes.refused(),
        }
    }

    fn limit_shot(&self, resource: Resource) -> LimitUsage {
        if resource == Resource::Kept {
            let kept = self.kept.state();
            return LimitUsage { most: kept.most, taken: kept.kept, beyond: kept.refused };
        }
        let told = self.state().told.get(&resource).copied().unwrap_or_default();
        LimitUsage { most: self.get(resource), ..told }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
