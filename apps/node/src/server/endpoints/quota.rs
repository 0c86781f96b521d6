//! Quotas for connections, and for the memory of files that clients send.

use crate::sync::{OrderedMutex, rank};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_trust::credential::DelegationId;

/// The maximum number of bytes of request bodies in memory. Each body is held until its request is answered, and this
/// memory is charged to no session.
const BODIES_MAX: usize = 4 * weir_abi::limit::TABLE_BYTES as usize;

/// Counts a connected client until it is dropped.
#[derive(Debug)]
pub(super) struct ClientPermit(Arc<AtomicUsize>);

impl ClientPermit {
    /// Counts one more client. Returns `None` if `clients_max` clients are connected.
    pub(super) fn acquire(clients: &Arc<AtomicUsize>, clients_max: usize) -> Option<Self> {
        let one_more = |count: usize| (count < clients_max).then_some(count + 1);
        clients.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Self(Arc::clone(clients)))
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Slots for remote peers, limited in total and for each key or source.
#[derive(Debug)]
pub(super) struct PeerQuota<K> {
    taken: OrderedMutex<BTreeMap<K, usize>, { rank::INDEPENDENT }>,
    total_max: usize,
    per_key_max: usize,
}

impl<K: Ord + Copy> PeerQuota<K> {
    /// Creates `total_max` slots, of which one key or source can take `per_key_max`.
    pub(super) fn new(total_max: usize, per_key_max: usize) -> Self {
        Self { taken: OrderedMutex::default(), total_max, per_key_max }
    }

    /// Takes a slot. Returns `None` if all slots, or all slots of this key, are taken.
    pub(super) fn acquire(&self, key: K) -> Option<PeerPermit<'_, K>> {
        let mut taken = self.taken.lock();
        if taken.values().sum::<usize>() >= self.total_max {
            return None;
        }
        let own = taken.get(&key).copied().unwrap_or(0);
        if own >= self.per_key_max {
            return None;
        }
        taken.insert(key, own + 1);
        Some(PeerPermit { quota: self, key })
    }
}

/// The slot of one peer. The slot becomes free when this value is dropped.
#[derive(Debug)]
pub(super) struct PeerPermit<'a, K: Ord + Copy> {
    quota: &'a PeerQuota<K>,
    key: K,
}

impl<K: Ord + Copy> Drop for PeerPermit<'_, K> {
    fn drop(&mut self) {
        let mut taken = self.quota.taken.lock();
        if let Some(own) = taken.get_mut(&self.key) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

/// Memory for request bodies, shared among parties: see [`delegation_chain`](crate::control::authority::delegation_chain).
///
/// A party gets memory if the free memory is afterwards at least as large as the memory of the party. So a single party
/// gets at most half of the memory, two parties get a third each, and there is always memory for one more party. The
/// operator can take all free memory.
#[derive(Debug, Default)]
pub(super) struct UploadQuota(OrderedMutex<BTreeMap<Option<DelegationId>, usize>, { rank::INDEPENDENT }>);

impl UploadQuota {
    /// Reserves memory. Returns `None` if too little is free. `party` is the first identifier of the client's chain;
    /// `None` for the operator.
    pub(super) fn acquire(&self, party: Option<DelegationId>, bytes: usize) -> Option<UploadPermit<'_>> {
        let mut taken = self.0.lock();
        let all = taken.values().sum::<usize>().checked_add(bytes)?;
        let free = BODIES_MAX.checked_sub(all)?;
        let own = taken.get(&party).copied().unwrap_or(0) + bytes;
        if bytes > 0 && party.is_some() && own > free {
            return None;
        }
        taken.insert(party, own);
        Some(UploadPermit { quota: self, party, bytes })
    }
}

/// Memory for one request body. The memory becomes free when this value is dropped.
#[derive(Debug)]
pub(super) struct UploadPermit<'a> {
    quota: &'a UploadQuota,
    party: Option<DelegationId>,
    bytes: usize,
}

impl Drop for UploadPermit<'_> {
    fn drop(&mut self) {
        let mut taken = self.quota.0.lock();
        if let Some(own) = taken.get_mut(&self.party) {
            *own -= self.bytes;
            if *own == 0 {
                taken.remove(&self.party);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_cannot_take_all_slots() {
        let key = |n: u8| weir_trust::key::Identity::from_seed(&[n; 32]).public();
        let quota = PeerQuota::new(3, 2);
        let first = quota.acquire(key(1)).unwrap();
        let _second = quota.acquire(key(1)).unwrap();
        assert!(quota.acquire(key(1)).is_none());
        let _other = quota.acquire(key(2)).unwrap();
        assert!(quota.acquire(key(2)).is_none() && quota.acquire(key(3)).is_none());
        // A refused peer leaves no entry.
        assert_eq!(quota.taken.lock().len(), 2);
        drop(first);
        assert!(quota.acquire(key(3)).is_some());
        // A key without slots leaves no entry.
        assert_eq!(quota.taken.lock().len(), 2);
    }

    fn party(digit: char) -> Option<DelegationId> {
        Some(format!("weir-id:{}", digit.to_string().repeat(32)).parse().unwrap())
    }

    #[test]
    fn the_operator_can_take_the_whole_upload_quota_and_it_is_returned() {
        let quota = UploadQuota::default();
        let first = quota.acquire(None, BODIES_MAX - 10).unwrap();
        let second = quota.acquire(None, 10).unwrap();
        assert!(quota.acquire(None, 1).is_none() && quota.acquire(None, usize::MAX).is_none());
        // A request without a body needs no memory.
        assert!(quota.acquire(None, 0).is_some());
        drop(second);
        assert!(quota.acquire(None, 11).is_none() && quota.acquire(None, 10).is_some());
        drop(first);
        assert!(quota.0.lock().is_empty());
    }

    #[test]
    fn the_upload_quota_always_leaves_memory_for_another_party() {
        let (quota, file) = (UploadQuota::default(), weir_admission::MODULE_BYTES_MAX);
        let mut permits = Vec::new();
        let mut take_all = |of| {
            let before = permits.len();
            permits.extend(std::iter::from_fn(|| quota.acquire(of, file)));
            permits.len() - before
        };
        // The quota has room for 32 files of 8 MiB. Each party takes half of the rest.
        let parties = ['a', 'b', 'c', 'd'].map(party);
        assert_eq!(parties.map(&mut take_all), [16, 8, 4, 2]);
        assert!(quota.acquire(parties[0], 1).is_none() && quota.acquire(parties[0], usize::MAX).is_none());
        assert!(quota.acquire(parties[0], 0).is_some());
        assert!(quota.acquire(party('e'), file).is_some());
        drop(permits);
        assert!(quota.0.lock().is_empty());
    }
}
