//! Whose turn it is to have something compiled.
//!
//! Analysing and compiling take a processor, for as long as what a stranger has sent makes them. So holders of credentials wait in turn: there is one at a time
//! under each grant of the operator's, and so many at a time in all; of those who wait, the one under the grant whose last turn was longest ago is next, and among
//! those under one grant the same. What it took is paid from the processor time that their grants give them: whoever has 5 % of a core, and had a
//! compiler work for a second, has the next turn twenty seconds later. So it is with reading the ledger, in turns of a moment each. The operator waits for nobody.

use crate::authority::{Owner, line};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_trust::credential::{PrefixId, Verified};
use weir_trust::grant::CpuShare;
use weir_units::Nanos;

/// At a time, at least: one who has it busy for long keeps nobody else from his.
const AT_A_TIME_MIN: usize = 2;
/// Who has to wait for longer until it is paid is told so, and does not wait.
const PAYING_MAX: Duration = Duration::from_secs(20);
/// How long is waited for others. The client waits for a minute in all.
const WAITING_MAX: Duration = Duration::from_secs(30);
/// How many of those who had a turn are remembered, for who is next.
const REMEMBERED: usize = 256;

/// Why there is no turn. Nothing is wrong with what was asked; it is to be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTurn {
    /// What was compiled before is not paid for.
    #[error(
        "what was analysed, compiled or read under this credential has taken its share of processor time in advance: try again in {} s", .0.as_secs() + 1
    )]
    Unpaid(Duration),
    /// Others are before.
    #[error("others have something compiled, and it has not been your turn for {} s: try again", .0.as_secs())]
    Others(Duration),
}

/// One block of a chain, and the share of a core that it gives, if it says so.
type Payer = (PrefixId, Option<CpuShare>);

/// A queue in which everybody gets his turn.
#[derive(Debug)]
pub(crate) struct Turns {
    inside: Mutex<Inside>,
    has_changed: Condvar,
    at_a_time: usize,
}

#[derive(Debug, Default)]
struct Inside {
    next_ticket: u64,
    working: Vec<Waiting>,
    waiting: Vec<Waiting>,
    /// When it is paid what was done for whom.
    paid: BTreeMap<PrefixId, Instant>,
    /// Who had a turn: the last one at the end.
    had: VecDeque<PrefixId>,
}

#[derive(Clone, Debug)]
struct Waiting {
    ticket: u64,
    chain: Vec<Payer>,
}

impl Waiting {
    fn first(&self) -> Option<PrefixId> {
        self.chain.first().map(|(id, _)| *id)
    }

    fn last(&self) -> Option<PrefixId> {
        self.chain.last().map(|(id, _)| *id)
    }
}

impl Inside {
    /// How long it takes until this one has paid for what it had.
    fn unpaid(&self, waiting: &Waiting, now: Instant) -> Duration {
        let paid = waiting.chain.iter().filter_map(|(id, _)| self.paid.get(id));
        paid.map(|paid| paid.saturating_duration_since(now)).max().unwrap_or_default()
    }

    /// How long ago somebody had a turn: the less the longer.
    fn had(&self, id: Option<PrefixId>) -> usize {
        self.had.iter().position(|had| Some(*had) == id).map_or(0, |place| place + 1)
    }

    /// Whose turn it is, if it is somebody's.
    fn next(&self, at_a_time: usize, now: Instant) -> Option<u64> {
        if self.working.len() >= at_a_time {
            return None;
        }
        let is_free = |waiting: &&Waiting| {
            !self.working.iter().any(|working| working.first() == waiting.first())
                && self.unpaid(waiting, now).is_zero()
        };
        let free = self.waiting.iter().filter(is_free);
        let first =
            |waiting: &&Waiting| (self.had(waiting.first()), self.had(waiting.last()), waiting.ticket);
        free.min_by_key(first).map(|waiting| waiting.ticket)
    }

    fn begin(&mut self, ticket: u64) {
        let Some(place) = self.waiting.iter().position(|waiting| waiting.ticket == ticket) else { return };
        let waiting = self.waiting.remove(place);
        for id in [waiting.first(), waiting.last()].into_iter().flatten() {
            self.had.retain(|had| *had != id);
            self.had.push_back(id);
        }
        while self.had.len() > REMEMBERED {
            self.had.pop_front();
        }
        self.working.push(waiting);
    }

    fn end(&mut self, ticket: u64, used: Nanos, now: Instant) {
        let Some(place) = self.working.iter().position(|working| working.ticket == ticket) else { return };
        let working = self.working.remove(place);
        // What is paid needs not be remembered.
        self.paid.retain(|_, paid| *paid > now);
        for (id, share) in working.chain {
            let Some(share) = share else { continue };
            let paid = self.paid.get(&id).copied().unwrap_or(now);
            let Some(paid) = paid.checked_add(time_of(used, share)) else { continue };
            self.paid.insert(id, paid);
        }
    }
}

/// How long somebody with this share pays for that.
fn time_of(used: Nanos, share: CpuShare) -> Duration {
    let nanos = u128::from(used.0) * 1_000_000 / u128::from(share.0.max(1));
    // Who has so little has to pay for centuries; that is as good as for ever.
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl Default for Turns {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::new((processors / 2).max(AT_A_TIME_MIN))
    }
}

impl Turns {
    fn new(at_a_time: usize) -> Self {
        Self { inside: Mutex::default(), has_changed: Condvar::new(), at_a_time }
    }

    /// Waits for a turn of the owner's; of the operator's, where it is nobody else.
    pub(crate) fn take(&self, owner: Option<&Owner>) -> Result<Turn<'_>, NoTurn> {
        self.take_by(owner.map(|owner| &*owner.credential))
    }

    /// The same for whoever holds a credential.
    pub(crate) fn take_by(&self, holder: Option<&Verified>) -> Result<Turn<'_>, NoTurn> {
        let Some(holder) = holder else { return Ok(Turn { turns: None, ticket: 0, used: Nanos(0) }) };
        self.wait(line(holder).collect())
    }

    fn wait(&self, chain: Vec<Payer>) -> Result<Turn<'_>, NoTurn> {
        let until = Instant::now() + WAITING_MAX;
        let mut inside = self.lock();
        inside.next_ticket += 1;
        let waiting = Waiting { ticket: inside.next_ticket, chain };
        let ticket = waiting.ticket;
        inside.waiting.push(waiting.clone());
        loop {
            let now = Instant::now();
            if inside.next(self.at_a_time, now) == Some(ticket) {
                inside.begin(ticket);
                // There may be a place for another one.
                self.has_changed.notify_all();
                return Ok(Turn { turns: Some(self), ticket, used: Nanos(0) });
            }
            let unpaid = inside.unpaid(&waiting, now);
            let why = if unpaid > PAYING_MAX {
                Some(NoTurn::Unpaid(unpaid))
            } else if now >= until {
                Some(NoTurn::Others(WAITING_MAX))
            } else {
                None
            };
            if let Some(why) = why {
                inside.waiting.retain(|waiting| waiting.ticket != ticket);
                self.has_changed.notify_all();
                return Err(why);
            }
            let left = until.saturating_duration_since(now);
            let left = if unpaid.is_zero() { left } else { left.min(unpaid) };
            let waited = self.has_changed.wait_timeout(inside, left);
            inside = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody's turn, for as long as this is there.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    /// None for the operator, who waits for nobody and whom nobody waits for.
    turns: Option<&'a Turns>,
    ticket: u64,
    used: Nanos,
}

impl Turn<'_> {
    /// So much processor time was used in it.
    pub(crate) fn spent(&mut self, time: Nanos) {
        self.used.0 = self.used.0.saturating_add(time.0);
    }

    /// All that was used in it so far.
    pub(crate) fn used(&self) -> Nanos {
        self.used
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(turns) = self.turns {
            turns.lock().end(self.ticket, self.used, Instant::now());
            turns.has_changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> PrefixId {
        format!("weir-id:{}{}", char::from(b'a' + number), "a".repeat(31)).parse().unwrap()
    }

    /// A chain of these, each of which gives so many percent.
    fn chain(links: &[(u8, u64)]) -> Vec<Payer> {
        links.iter().map(|(number, percent)| (id(*number), Some(CpuShare(percent * 10_000)))).collect()
    }

    /// A queue in which these wait, in this order, with tickets from 0 on.
    fn queue(chains: &[Vec<Payer>]) -> Inside {
        let waiting = (0..).zip(chains).map(|(ticket, chain)| Waiting { ticket, chain: chain.clone() });
        Inside { waiting: waiting.collect(), next_ticket: chains.len() as u64, ..Inside::default() }
    }

    /// The order in which they come, one after the other.
    fn order(inside: &mut Inside, now: Instant) -> Vec<u64> {
        let mut order = Vec::new();
        while let Some(ticket) = inside.next(1, now) {
            inside.begin(ticket);
            inside.end(ticket, Nanos(0), now);
            order.push(ticket);
        }
        order
    }

    #[test]
    fn who_asks_for_much_waits_for_those_who_ask_for_little() {
        let (greedy, modest, other) = (chain(&[(1, 50)]), chain(&[(2, 50)]), chain(&[(3, 50)]));
        let [a, b, c, d] = [0; 4].map(|_| greedy.clone());
        let mut inside = queue(&[a, b, c, d, modest, other]);
        assert_eq!(order(&mut inside, Instant::now()), [0, 4, 5, 1, 2, 3]);
        // Those who got the right from one are together one, and in turn among themselves.
        let [a, b, c] = [1, 1, 2].map(|student| chain(&[(1, 50), (10 + student, 50)]));
        let mut inside = queue(&[a, b, c, chain(&[(2, 50)])]);
        assert_eq!(order(&mut inside, Instant::now()), [0, 3, 2, 1]);
    }

    #[test]
    fn there_is_one_at_a_time_under_a_grant_and_so_many_in_all() {
        let now = Instant::now();
        let mut inside = queue(&[
            chain(&[(1, 50), (2, 50)]),
            chain(&[(1, 50), (3, 50)]),
            chain(&[(4, 50)]),
            chain(&[(5, 50)]),
        ]);
        inside.begin(inside.next(2, now).unwrap());
        assert_eq!(inside.next(2, now), Some(2), "the second is under the same grant as the first");
        inside.begin(2);
        assert_eq!(inside.next(2, now), None);
        inside.end(0, Nanos(0), now);
        assert_eq!(inside.next(2, now), Some(3));
    }

    #[test]
    fn what_was_used_is_paid_by_everybody_in_the_chain_from_his_share() {
        let now = Instant::now();
        let (parent, child) = (chain(&[(1, 50)]), chain(&[(1, 50), (2, 5)]));
        let mut inside = queue(&[child.clone(), parent.clone(), child.clone(), chain(&[(3, 1)])]);
        inside.begin(0);
        inside.end(0, Nanos::SECOND, now);
        let [_, parent, child] = [0, 1, 2].map(|ticket| Waiting {
            ticket,
            chain: if ticket == 1 { parent.clone() } else { child.clone() },
        });
        assert_eq!(inside.unpaid(&parent, now), Duration::from_secs(2));
        assert_eq!(inside.unpaid(&child, now), Duration::from_secs(20));
        // Another one's turn comes meanwhile, and theirs when they have paid.
        assert_eq!(inside.next(1, now), Some(3));
        inside.begin(3);
        inside.end(3, Nanos(0), now);
        assert_eq!(inside.next(1, now), None);
        assert_eq!(inside.next(1, now + Duration::from_secs(2)), Some(1));
        inside.begin(1);
        inside.end(1, Nanos::SECOND, now + Duration::from_secs(2));
        // The child's is later than its own alone would be only where the parent's is.
        assert_eq!(inside.unpaid(&child, now + Duration::from_secs(2)), Duration::from_secs(18));
        assert_eq!(inside.next(1, now + Duration::from_secs(20)), Some(2));
        // What is paid is forgotten.
        inside.begin(2);
        inside.end(2, Nanos(0), now + Duration::from_secs(60));
        assert_eq!(inside.paid.len(), 2, "{:?}", inside.paid);
        inside.working.push(Waiting { ticket: 9, chain: Vec::new() });
        inside.end(9, Nanos(0), now + Duration::from_secs(61));
        assert!(inside.paid.is_empty());
    }

    #[test]
    fn nobody_waits_for_what_is_paid_too_late_and_the_operator_for_nobody() {
        let turns = Turns::new(1);
        let mut turn = turns.wait(chain(&[(1, 5)])).unwrap();
        turn.spent(Nanos(2 * Nanos::SECOND.0));
        assert_eq!(turn.used(), Nanos(2 * Nanos::SECOND.0));
        drop(turns.take(None).unwrap());
        drop(turn);
        let refused = turns.wait(chain(&[(1, 5), (2, 5)])).unwrap_err();
        assert!(matches!(refused, NoTurn::Unpaid(left) if left > PAYING_MAX), "{refused}");
        assert!(turns.lock().waiting.is_empty() && turns.lock().working.is_empty());
        // Others are not kept from theirs.
        drop(turns.wait(chain(&[(3, 5)])).unwrap());
    }

    #[test]
    fn each_of_many_gets_a_turn_and_none_has_it_together_with_one_under_the_same_grant() {
        let turns = Turns::new(2);
        let working = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..12u8 {
                let (turns, working) = (&turns, &working);
                scope.spawn(move || {
                    let grant = number % 3;
                    let turn = turns.wait(chain(&[(grant, 100), (3 + number, 100)])).unwrap();
                    let lock = || working.lock().unwrap_or_else(PoisonError::into_inner);
                    {
                        let mut there = lock();
                        assert!(there.len() < 2 && !there.contains(&grant), "{there:?} and {grant}");
                        there.push(grant);
                    }
                    std::thread::yield_now();
                    lock().retain(|other| *other != grant);
                    drop(turn);
                });
            }
        });
        assert!(turns.lock().working.is_empty() && turns.lock().waiting.is_empty());
    }
}
