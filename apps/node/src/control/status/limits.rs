//! The limits in a session's status. In JSON each number has a key of its own, which the table of resources
//! (`weir_trust::grant::Resource`) defines.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_trust::grant::Resource;
use weir_wire::WriteFields;

/// Limits of a session, their present use, and the amounts that they have refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Flat", into = "Flat")]
pub struct LimitsStatus {
    /// The limit of each resource and its use. Resources without a limit and without use are left out.
    pub(crate) amounts: BTreeMap<Resource, LimitUsage>,
    /// Fields of packets that may be written; `None` for all.
    pub writes: Option<WriteFields>,
    /// Patches of packets that were refused because they write a field that is not in `writes`.
    pub writes_refused: u64,
}

/// The limit of one resource and its use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitUsage {
    /// Limit, in the resource's unit; `None` if there is none.
    pub limit: Option<u64>,
    /// Present use, for a resource that can be given back, such as kept packets; 0 for other resources.
    pub in_use: u64,
    /// Sum of the amounts that were refused because they exceeded the limit.
    pub refused: u64,
}

/// Serialised form of [`LimitsStatus`].
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
            let in_use = limit.present_use.and_then(|level| number(level.key));
            let refused = number(limit.excess.key).unwrap_or(0);
            (resource, LimitUsage { limit: number(limit.key), in_use: in_use.unwrap_or(0), refused })
        });
        let amounts = amounts.filter(|(_, usage)| *usage != LimitUsage::default()).collect();
        Self { amounts, writes, writes_refused: number(WRITES_REFUSED).unwrap_or(0) }
    }
}

impl From<LimitsStatus> for Flat {
    fn from(status: LimitsStatus) -> Self {
        let mut numbers = BTreeMap::new();
        let mut insert = |key: &str, number: Option<u64>| {
            numbers.extend(number.map(|number| (key.to_owned(), number)));
        };
        let nonzero = |number: u64| (number > 0).then_some(number);
        for (resource, limit) in Resource::limits() {
            let usage = status.of(resource);
            insert(limit.key, usage.limit);
            if let Some(level) = limit.present_use {
                insert(level.key, nonzero(usage.in_use));
            }
            insert(limit.excess.key, nonzero(usage.refused));
        }
        insert(WRITES_REFUSED, nonzero(status.writes_refused));
        Self { writes: status.writes, numbers }
    }
}

impl LimitsStatus {
    /// Returns true if there is nothing to report.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the use of a resource's limit.
    pub fn of(&self, resource: Resource) -> LimitUsage {
        self.amounts.get(&resource).copied().unwrap_or_default()
    }
}
