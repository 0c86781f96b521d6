//! Usage of holders' requests: their number and processor time, accumulated over a ledger interval.

use crate::control::authority::in_ledger;
use std::collections::BTreeMap;
use weir_ledger::{LedgerEvent, LedgerText};
use weir_trust::credential::{DelegationId, VerifiedCredential};
use weir_units::Nanos;

/// The maximum number of holders with a ledger entry of their own in an interval.
const HOLDERS_MAX: usize = 256;
/// The maximum number of root grants with an entry in an interval. A root grant is the first delegation of a chain. Its
/// entry sums up the holders under it that have no entry of their own. One last entry sums up the remaining holders.
const ROOT_GRANTS_MAX: usize = 256;

/// The usage of a holder's requests and connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestUsage {
    pub(crate) count: u64,
    /// The number of refused and failed requests among `count`.
    pub(crate) refused: u64,
    /// The processor time that was charged to no session.
    pub(crate) cpu: Nanos,
}

impl RequestUsage {
    fn add(&mut self, more: Self) {
        self.count = self.count.saturating_add(more.count);
        self.refused = self.refused.saturating_add(more.refused);
        self.cpu.0 = self.cpu.0.saturating_add(more.cpu.0);
    }
}

/// The usage of requests in the current interval.
#[derive(Debug, Default)]
pub(crate) struct RequestAccounts {
    /// The key, the credential identifiers of the chain and the usage of each holder.
    holders: BTreeMap<DelegationId, (LedgerText, Vec<LedgerText>, RequestUsage)>,
    /// The sums for root grants.
    root_grants: BTreeMap<DelegationId, RequestUsage>,
    /// The sum for all others.
    others: RequestUsage,
}

impl RequestAccounts {
    /// Adds a holder's usage.
    pub(crate) fn add(&mut self, holder: &VerifiedCredential, usage: RequestUsage) {
        let (id, chain) = (holder.id(), holder.chain());
        if let Some((_, _, sum)) = self.holders.get_mut(&id) {
            return sum.add(usage);
        }
        if self.holders.len() < HOLDERS_MAX {
            let (key, credentials) = in_ledger(holder);
            self.holders.insert(id, (key, credentials, usage));
            return;
        }
        let root_grant = chain.first().map(|link| link.id);
        let root_grant = root_grant
            .filter(|id| self.root_grants.len() < ROOT_GRANTS_MAX || self.root_grants.contains_key(id));
        root_grant.map_or(&mut self.others, |id| self.root_grants.entry(id).or_default()).add(usage);
    }

    /// Ends the interval. Returns its ledger entries, and the processor time with which each holder has to be debited.
    pub(crate) fn end_interval(&mut self) -> (Vec<LedgerEvent>, BTreeMap<DelegationId, Nanos>) {
        let event = |key: Option<LedgerText>,
                     credentials: Vec<LedgerText>,
                     RequestUsage { count, refused, cpu }: RequestUsage| {
            LedgerEvent::Requests { key, credentials, count, refused, cpu }
        };
        let Self { holders, root_grants, others } = std::mem::take(self);
        let debts = holders.iter().map(|(id, (_, _, usage))| (*id, usage.cpu)).collect();
        let holders = holders.into_values().map(|(key, ids, usage)| event(Some(key), ids, usage));
        let root_grants = root_grants
            .into_iter()
            .map(|(id, usage)| event(None, vec![LedgerText::new(&id.to_string())], usage));
        let others = (others != RequestUsage::default()).then(|| event(None, Vec::new(), others));
        (holders.chain(root_grants).chain(others).collect(), debts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weir_trust::credential::{Credential, VerificationContext};
    use weir_trust::grant::{Grant, UnixSecond};
    use weir_trust::key::Identity;
    use weir_trust::revocation::Revocations;

    fn verified(operator: &Identity, seed: u8) -> Arc<VerifiedCredential> {
        let holder = Identity::from_seed(&[seed; 32]).public();
        let grant = Grant { expires: Some(UnixSecond::MAX), ..Grant::default() };
        let credential = Credential::mint(operator, holder, grant, None, &mut rand_core::OsRng).unwrap();
        let situation = VerificationContext {
            roots: &[operator.public()],
            revocations: &Revocations::default(),
            peer: &holder,
            node: &"node".parse().unwrap(),
            now: UnixSecond::default(),
        };
        Arc::new(credential.verify(&situation).unwrap())
    }

    #[test]
    fn every_request_is_accounted_even_with_more_holders_than_entries() {
        let operator = Identity::from_seed(&[7; 32]);
        let mut accounts = RequestAccounts::default();
        let usage = |refused| RequestUsage { count: 1, refused, cpu: Nanos(10) };
        let first = verified(&operator, 0);
        accounts.add(&first, usage(0));
        accounts.add(&first, usage(1));
        let many = HOLDERS_MAX + ROOT_GRANTS_MAX + 50;
        for _ in 1..many {
            accounts.add(&verified(&operator, 1), usage(1));
        }
        let (entries, debts) = accounts.end_interval();
        assert_eq!((debts.len(), debts.get(&first.id())), (HOLDERS_MAX, Some(&Nanos(20))));
        assert_eq!(entries.len(), HOLDERS_MAX + ROOT_GRANTS_MAX + 1);
        let mut all = RequestUsage::default();
        for event in &entries {
            let LedgerEvent::Requests { count, refused, cpu, .. } = event else { panic!("{event:?}") };
            all.add(RequestUsage { count: *count, refused: *refused, cpu: *cpu });
        }
        let many = many as u64;
        assert_eq!(all, RequestUsage { count: many + 1, refused: many, cpu: Nanos(10 * (many + 1)) });
        let (key, credentials) = in_ledger(&first);
        let own = LedgerEvent::Requests { key: Some(key), credentials, count: 2, refused: 1, cpu: Nanos(20) };
        assert!(entries.contains(&own), "{:?}", entries.first());
        assert!(accounts.end_interval().0.is_empty());
    }
}
