//! What all modules of a session have together, beside processor time and memory.

use crate::spec::SessionSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_sandbox::WriteRights;
use weir_session::{KeptPackets, RecordRate, Records, StillKept};
use weir_trust::grant::Resource;
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

/// The limits of a session, and how often they were reached. Counters only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Flat", into = "Flat")]
pub struct LimitsShot {
    /// By resource, where there is something to tell.
    pub(crate) amounts: BTreeMap<Resource, LimitShot>,
    /// Fields of packets that may be written.
    pub writes: Option<WriteFields>,
    /// Patches that were refused because of another one.
    pub writes_refused: u64,
}

/// The limit of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitShot {
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

impl From<Flat> for LimitsShot {
    fn from(Flat { writes, numbers }: Flat) -> Self {
        let number = |key: &str| numbers.get(key).copied();
        let amounts = Resource::limits().map(|(resource, limit)| {
            let taken = limit.taken.and_then(|level| number(level.key));
            let beyond = number(limit.beyond.key).unwrap_or(0);
            (resource, LimitShot { most: number(limit.key), taken: taken.unwrap_or(0), beyond })
        });
        let amounts = amounts.filter(|(_, it)| *it != LimitShot::default()).collect();
        Self { amounts, writes, writes_refused: number(WRITES_REFUSED).unwrap_or(0) }
    }
}

impl From<LimitsShot> for Flat {
    fn from(shot: LimitsShot) -> Self {
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

impl LimitsShot {
    /// Whether there is nothing to tell.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The limit of a resource.
    pub fn of(&self, resource: Resource) -> LimitShot {
        self.amounts.get(&resource).copied().unwrap_or_default()
    }
}

impl Limits {
    /// Those of a session.
    pub(crate) fn of(spec: &SessionSpec) -> Self {
        Self {
            began: Instant::now(),
            records: Mutex::new(RecordRate::new(spec.limit(Resource::Records), Nanos(0))),
            over_rate: AtomicU64::new(0),
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
        self.records().change(spec.limit(Resource::Records), now);
        // That many or fewer were allowed, so no more are kept.
        _ = self.kept.change(spec.limit(Resource::Kept));
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
        let amounts = Resource::limits().map(|(resource, _)| (resource, self.limit_shot(resource)));
        let writes = self.writes.fields();
        LimitsShot {
            amounts: amounts.filter(|(_, it)| *it != LimitShot::default()).collect(),
            writes: (writes != WriteFields::ALL).then_some(writes),
            writes_refused: self.writes.refused(),
        }
    }

    fn limit_shot(&self, resource: Resource) -> LimitShot {
        match resource {
            Resource::Records => LimitShot {
                most: self.records().per_second(),
                taken: 0,
                beyond: self.over_rate.load(Ordering::Relaxed),
            },
            Resource::Kept => {
                let kept = self.kept.state();
                LimitShot { most: kept.most, taken: kept.kept, beyond: kept.refused }
            }
            _ => LimitShot::default(),
        }
    }

    fn records(&self) -> MutexGuard<'_, RecordRate> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
