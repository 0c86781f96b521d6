//! Processor time of holders' requests, as the ledger has it: an account for each holder who asked for something in an interval.

use crate::control::authority::in_ledger;
use std::collections::BTreeMap;
use weir_ledger::{LedgerEvent, LedgerText};
use weir_trust::credential::{PrefixId, VerifiedCredential};
use weir_units::Nanos;

/// Holders that have an account of their own in an interval. Those of further ones are added up by the first links of their chains,
const HOLDERS_MAX: usize = 256;
/// of which there are so many; and all others together.
const PARTIES_MAX: usize = 256;

/// The work for one request, or a connection, of a holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestPermit {
    /// Requests.
    pub(crate) count: u64,
    /// The refused and failed requests among them.
    pub(crate) refused: u64,
    /// Processor time.
    pub(crate) cpu: Nanos,
}

impl RequestPermit {
    fn add(&mut self, more: Self) {
        self.count = self.count.saturating_add(more.count);
        self.refused = self.refused.saturating_add(more.refused);
        self.cpu.0 = self.cpu.0.saturating_add(more.cpu.0);
    }
}

/// Accounts of the present interval.
#[derive(Debug, Default)]
pub(crate) struct RequestAccounts {
    holders: BTreeMap<PrefixId, (LedgerText, Vec<LedgerText>, RequestPermit)>,
    parties: BTreeMap<PrefixId, RequestPermit>,
    others: RequestPermit,
}

impl RequestAccounts {
    /// Takes work for a holder.
    pub(crate) fn add(&mut self, holder: &VerifiedCredential, work: RequestPermit) {
        let (id, chain) = (holder.id(), holder.chain());
        if let Some((_, _, sum)) = self.holders.get_mut(&id) {
            return sum.add(work);
        }
        if self.holders.len() < HOLDERS_MAX {
            let (key, credentials) = in_ledger(holder);
            self.holders.insert(id, (key, credentials, work));
            return;
        }
        let party = chain.first().map(|link| link.id);
        let party = party.filter(|id| self.parties.len() < PARTIES_MAX || self.parties.contains_key(id));
        party.map_or(&mut self.others, |id| self.parties.entry(id).or_default()).add(work);
    }

    /// The entries of the interval, which is over then, and what holders are to be debited with.
    pub(crate) fn due(&mut self) -> (Vec<LedgerEvent>, BTreeMap<PrefixId, Nanos>) {
        let event = |key: Option<LedgerText>,
                     credentials: Vec<LedgerText>,
                     RequestPermit { count, refused, cpu }: RequestPermit| {
            LedgerEvent::Requests { key, credentials, count, refused, cpu }
        };
        let Self { holders, parties, others } = std::mem::take(self);
        let debts = holders.iter().map(|(id, (_, _, work))| (*id, work.cpu)).collect();
        let holders = holders.into_values().map(|(key, ids, work)| event(Some(key), ids, work));
        let parties =
            parties.into_iter().map(|(id, work)| event(None, vec![LedgerText::new(&id.to_string())], work));
        let others = (others != RequestPermit::default()).then(|| event(None, Vec::new(), others));
        (holders.chain(parties).chain(others).collect(), debts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weir_trust::credential::{Credential, Situation};
    use weir_trust::grant::{Grant, Second};
    use weir_trust::key::Identity;
    use weir_trust::revocation::Revocations;

    fn verified(operator: &Identity, seed: u8) -> Arc<VerifiedCredential> {
        let holder = Identity::from_seed(&[seed; 32]).public();
        let grant = Grant { expires: Some(Second::MAX), ..Grant::default() };
        let credential = Credential::mint(operator, holder, grant, &mut rand_core::OsRng).unwrap();
        let situation = Situation {
            roots: &[operator.public()],
            revocations: &Revocations::default(),
            peer: &holder,
            node: &"node".parse().unwrap(),
            now: Second::default(),
        };
        Arc::new(credential.verify(&situation).unwrap())
    }

    #[test]
    fn every_request_is_on_an_account_however_many_ask() {
        let operator = Identity::from_seed(&[7; 32]);
        let mut accounts = RequestAccounts::default();
        let work = |refused| RequestPermit { count: 1, refused, cpu: Nanos(10) };
        let first = verified(&operator, 0);
        accounts.add(&first, work(0));
        accounts.add(&first, work(1));
        let many = HOLDERS_MAX + PARTIES_MAX + 50;
        for _ in 1..many {
            accounts.add(&verified(&operator, 1), work(1));
        }
        let (due, debts) = accounts.due();
        assert_eq!((debts.len(), debts.get(&first.id())), (HOLDERS_MAX, Some(&Nanos(20))));
        assert_eq!(due.len(), HOLDERS_MAX + PARTIES_MAX + 1);
        let mut all = RequestPermit::default();
        for event in &due {
            let LedgerEvent::Requests { count, refused, cpu, .. } = event else { panic!("{event:?}") };
            all.add(RequestPermit { count: *count, refused: *refused, cpu: *cpu });
        }
        let many = many as u64;
        assert_eq!(all, RequestPermit { count: many + 1, refused: many, cpu: Nanos(10 * (many + 1)) });
        let (key, credentials) = in_ledger(&first);
        let own = LedgerEvent::Requests { key: Some(key), credentials, count: 2, refused: 1, cpu: Nanos(20) };
        assert!(due.contains(&own), "{:?}", due.first());
        assert!(accounts.due().0.is_empty());
    }
}
