//! Memory that sessions reserve, and what they use of it.
//!
//! A session is charged for all that it has reserved, and has nothing beyond it: each page that a module of it grows by is taken from the
//! reservation before the module has it. Reservations together are never more than the node has for them. ("The price of safety in an active
//! network", section IV.D: a heap has a limit, its holder is told before it is reached, and can change it while it runs.)

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use weir_units::{Bytes, beside};

/// Memory is low when less than this part of the reservation is left.
const LOW_PART: u64 = 8;

/// The memory that a node has for sessions.
#[derive(Debug)]
pub struct NodeMemory {
    of: Bytes,
    reserved: Mutex<u64>,
}

impl NodeMemory {
    /// So much, of which nothing is reserved.
    pub fn new(of: Bytes) -> Arc<Self> {
        Arc::new(Self { of, reserved: Mutex::new(0) })
    }

    /// All of it.
    pub fn of(&self) -> Bytes {
        self.of
    }

    /// What is reserved.
    pub fn reserved(&self) -> Bytes {
        Bytes(*lock(&self.reserved))
    }

    /// What can still be reserved.
    pub fn left(&self) -> Bytes {
        Bytes(self.of.0.saturating_sub(self.reserved().0))
    }

    /// Has one reservation be `to` where it was `from`. What could be reserved at most, where that is less.
    fn exchange(&self, from: u64, to: u64) -> Result<(), Bytes> {
        let mut reserved = lock(&self.reserved);
        let others = reserved.saturating_sub(from);
        let left = self.of.0.saturating_sub(others);
        if to > left && to > from {
            return Err(Bytes(left));
        }
        *reserved = others.saturating_add(to);
        Ok(())
    }

    /// Puts the reservations of `come` in the place of those of `gone`, all of them at once: there has to be room for the result alone, in whatever order they come. Those of `gone` are
    /// counted no more, keep what they have, and never grow again.
    ///
    /// # Errors
    /// [`ReservationError::Left`], with the place in `come` of the first that there is no room for. Nothing has changed then.
    pub fn replace(
        &self,
        gone: &[Arc<MemoryReservation>],
        come: &[Arc<MemoryReservation>],
    ) -> Result<(), (usize, ReservationError)> {
        // All others lock one of them, and then the node's.
        let mut gone: Vec<_> = gone.iter().map(|it| it.lock()).collect();
        let mut come: Vec<_> = come.iter().map(|it| it.lock()).collect();
        let mut reserved = lock(&self.reserved);
        let counted = gone.iter().filter(|inner| inner.is_counted).map(|inner| inner.state.reserved.0);
        let before = counted.fold(0, u64::saturating_add);
        let after = come.iter().map(|inner| inner.state.reserved.0).fold(0, u64::saturating_add);
        let others = reserved.saturating_sub(before);
        let mut left = self.of.0.saturating_sub(others);
        if after > left && after > before {
            for (place, inner) in come.iter().enumerate() {
                let wanted = inner.state.reserved;
                if wanted.0 > left {
                    return Err((place, ReservationError::Left { wanted, left: Bytes(left) }));
                }
                left -= wanted.0;
            }
        }
        *reserved = others.saturating_add(after);
        gone.iter_mut().for_each(|inner| inner.is_counted = false);
        come.iter_mut().for_each(|inner| inner.is_counted = true);
        Ok(())
    }
}

/// Why a reservation cannot be what is asked for. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReservationError {
    /// The node has no more.
    #[error("{wanted} of memory are more than is left: {left}", wanted = beside(*wanted, &[*left]), left = beside(*left, &[*wanted]))]
    Left {
        /// What was wanted.
        wanted: Bytes,
        /// What could be.
        left: Bytes,
    },
    /// It is used.
    #[error("{used} of memory are in use, which is more than {wanted}", wanted = beside(*wanted, &[*used]), used = beside(*used, &[*wanted]))]
    Used {
        /// What was wanted.
        wanted: Bytes,
        /// What is used of it.
        used: Bytes,
    },
    /// A session may not have so much.
    #[error("{wanted} of memory are more than the session may have: {ceiling}", wanted = beside(*wanted, &[*ceiling]), ceiling = beside(*ceiling, &[*wanted]))]
    Ceiling {
        /// What was wanted.
        wanted: Bytes,
        /// What it may have at most.
        ceiling: Bytes,
    },
}

/// How a session stands with its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryState {
    /// What it has reserved, and is charged for.
    pub reserved: Bytes,
    /// What it may reserve by itself at most.
    pub ceiling: Bytes,
    /// What is in use.
    pub used: Bytes,
    /// How often it was low: when less than an eighth came to be left, or more was asked for than was left.
    pub times_low: u64,
    /// How often more was asked for than was left, and not given.
    pub refused: u64,
}

impl MemoryState {
    /// What is not in use.
    pub fn left(&self) -> Bytes {
        Bytes(self.reserved.0.saturating_sub(self.used.0))
    }

    /// Whether less than an eighth is left.
    pub fn is_low(&self) -> bool {
        self.left().0 < self.reserved.0 / LOW_PART
    }
}

/// What one session has reserved.
pub struct MemoryReservation {
    node: Arc<NodeMemory>,
    inner: Mutex<Inner>,
    alarm: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Debug)]
struct Inner {
    state: MemoryState,
    /// It is among what the node has reserved.
    is_counted: bool,
    /// The most that was reserved since this was asked for last.
    peak: Bytes,
    /// That it is low has been said, and nothing has changed since that would make it worth saying again.
    is_said: bool,
}

impl std::fmt::Debug for MemoryReservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryReservation").field("state", &self.state()).finish_non_exhaustive()
    }
}

impl MemoryReservation {
    /// Reserves so much, which the session may change by itself up to a ceiling. It is free again when this is dropped.
    ///
    /// # Errors
    /// [`ReservationError::Left`].
    pub fn new(
        node: &Arc<NodeMemory>,
        reserved: Bytes,
        ceiling: Bytes,
    ) -> Result<Arc<Self>, ReservationError> {
        let wanted = reserved;
        node.exchange(0, reserved.0).map_err(|left| ReservationError::Left { wanted, left })?;
        let state = MemoryState { reserved, ceiling: ceiling.max(reserved), ..MemoryState::default() };
        Ok(Self::with(node, state, true))
    }

    /// A reservation that is not counted yet, for a session that is prepared: [`NodeMemory::replace`] counts it.
    pub fn apart(node: &Arc<NodeMemory>, reserved: Bytes, ceiling: Bytes) -> Arc<Self> {
        let state = MemoryState { reserved, ceiling: ceiling.max(reserved), ..MemoryState::default() };
        Self::with(node, state, false)
    }

    fn with(node: &Arc<NodeMemory>, state: MemoryState, is_counted: bool) -> Arc<Self> {
        let inner = Mutex::new(Inner { state, is_counted, peak: state.reserved, is_said: false });
        Arc::new(Self { node: Arc::clone(node), inner, alarm: OnceLock::new() })
    }

    /// Has this called whenever [`MemoryState::times_low`] has grown, by whoever caused it and in the middle of what that one does. Only the
    /// first one given is called.
    pub fn on_low(&self, alarm: impl Fn() + Send + Sync + 'static) {
        _ = self.alarm.set(Box::new(alarm));
    }

    /// How it stands.
    pub fn state(&self) -> MemoryState {
        self.lock().state
    }

    /// The most that was reserved since this was called last: what an interval is charged for, so that nobody saves by giving back what it had
    /// just before the end.
    pub fn take_peak(&self) -> Bytes {
        let mut inner = self.lock();
        let now = inner.state.reserved;
        std::mem::replace(&mut inner.peak, now)
    }

    /// Has the present interval charged for no less than this, which the session had reserved in it before.
    pub fn had(&self, peak: Bytes) {
        let mut inner = self.lock();
        inner.peak = inner.peak.max(peak);
    }

    /// Takes so much for use, or nothing where so much is not left. Says whether it was taken.
    pub fn take(&self, bytes: Bytes) -> bool {
        self.act(|inner| {
            let is_left = bytes <= inner.state.left();
            if is_left {
                inner.state.used.0 += bytes.0;
            } else {
                inner.state.refused += 1;
            }
            (is_left, !is_left)
        })
    }

    /// Gives back what was taken.
    pub fn give_back(&self, bytes: Bytes) {
        self.act(|inner| {
            inner.state.used.0 = inner.state.used.0.saturating_sub(bytes.0);
            ((), false)
        });
    }

    /// The operator changes what is reserved, and the ceiling.
    ///
    /// # Errors
    /// Where the node has not so much left, or more is in use.
    pub fn change(&self, reserved: Bytes, ceiling: Bytes) -> Result<(), ReservationError> {
        self.act(|inner| (self.exchange(inner, reserved, ceiling.max(reserved)), false))
    }

    /// The session itself changes what is reserved. What it is then.
    ///
    /// # Errors
    /// As [`Self::change`], or where that is more than its ceiling.
    pub fn ask(&self, reserved: Bytes) -> Result<Bytes, ReservationError> {
        self.act(|inner| {
            let ceiling = inner.state.ceiling;
            let result = if reserved > ceiling {
                Err(ReservationError::Ceiling { wanted: reserved, ceiling })
            } else {
                self.exchange(inner, reserved, ceiling)
            };
            (result.map(|()| reserved), false)
        })
    }

    fn exchange(&self, inner: &mut Inner, wanted: Bytes, ceiling: Bytes) -> Result<(), ReservationError> {
        let used = inner.state.used;
        if wanted < used {
            return Err(ReservationError::Used { wanted, used });
        }
        if inner.is_counted {
            self.node
                .exchange(inner.state.reserved.0, wanted.0)
                .map_err(|left| ReservationError::Left { wanted, left })?;
        } else if wanted > inner.state.reserved {
            return Err(ReservationError::Left { wanted, left: inner.state.reserved });
        }
        inner.is_said &= inner.state.reserved == wanted;
        (inner.state.reserved, inner.state.ceiling) = (wanted, ceiling);
        inner.peak = inner.peak.max(wanted);
        Ok(())
    }

    /// Does something, and says that memory is low where it has become so, or `is_short`. The alarm sounds when nothing is locked any more.
    fn act<R>(&self, act: impl FnOnce(&mut Inner) -> (R, bool)) -> R {
        let (result, is_news) = {
            let mut inner = self.lock();
            let (result, is_short) = act(&mut inner);
            let is_low = inner.state.is_low() || is_short;
            let is_news = is_low && !inner.is_said;
            inner.is_said = is_low;
            inner.state.times_low += u64::from(is_news);
            (result, is_news)
        };
        if let Some(alarm) = self.alarm.get().filter(|_| is_news) {
            alarm();
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        let inner = self.lock();
        if !inner.is_counted {
            return;
        }
        let reserved = inner.state.reserved.0;
        drop(inner);
        // Less than before is always there.
        _ = self.node.exchange(reserved, 0);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What one holder has taken of a reservation; given back when it is dropped.
#[derive(Debug)]
pub struct Holding {
    of: Arc<MemoryReservation>,
    bytes: Bytes,
}

impl Holding {
    /// Holds nothing yet.
    pub fn new(of: Arc<MemoryReservation>) -> Self {
        Self { of, bytes: Bytes(0) }
    }

    /// So much; nothing where so much is not left.
    pub fn of(of: &Arc<MemoryReservation>, bytes: Bytes) -> Option<Self> {
        let mut holding = Self::new(Arc::clone(of));
        holding.set(bytes).then_some(holding)
    }

    /// What it is taken from.
    pub fn reservation(&self) -> &Arc<MemoryReservation> {
        &self.of
    }

    /// What it holds.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Has it hold so much. Says whether it does; else it holds what it did.
    pub fn set(&mut self, bytes: Bytes) -> bool {
        if bytes <= self.bytes {
            self.of.give_back(Bytes(self.bytes.0 - bytes.0));
        } else if !self.of.take(Bytes(bytes.0 - self.bytes.0)) {
            return false;
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.of.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    const MIB: u64 = 1 << 20;

    #[test]
    fn reservations_take_the_places_of_others_all_at_once() {
        let node = NodeMemory::new(Bytes(100));
        let new = |bytes| MemoryReservation::new(&node, Bytes(bytes), Bytes(bytes)).unwrap();
        let apart = |bytes| MemoryReservation::apart(&node, Bytes(bytes), Bytes(100));
        let (a, b) = (new(60), new(40));
        let (grown, shrunk) = (apart(70), apart(30));
        assert_eq!(node.left(), Bytes(0), "what is prepared is not counted");
        // The one that grows comes first, and there is room for the result.
        let old = [Arc::clone(&a), Arc::clone(&b)];
        assert_eq!(node.replace(&old, &[Arc::clone(&grown), Arc::clone(&shrunk)]), Ok(()));
        assert_eq!(node.left(), Bytes(0));
        let refused = Err((1, ReservationError::Left { wanted: Bytes(31), left: Bytes(30) }));
        let more = [apart(70), apart(31)];
        assert_eq!(node.replace(&[Arc::clone(&grown), Arc::clone(&shrunk)], &more), refused);
        drop(more);
        // What was replaced gives nothing back, and gets no more.
        assert!(a.ask(Bytes(61)).is_err() && a.ask(Bytes(10)).is_ok());
        drop((a, b, old));
        assert_eq!(node.left(), Bytes(0));
        assert_eq!(shrunk.ask(Bytes(20)), Ok(Bytes(20)));
        drop((grown, shrunk));
        assert_eq!(node.left(), Bytes(100));
    }

    #[test]
    fn what_is_reserved_is_no_more_than_there_is_and_free_again_at_the_end() {
        let node = NodeMemory::new(Bytes(100));
        let a = MemoryReservation::new(&node, Bytes(60), Bytes(80)).unwrap();
        let refused = MemoryReservation::new(&node, Bytes(41), Bytes(41)).unwrap_err();
        assert_eq!(refused, ReservationError::Left { wanted: Bytes(41), left: Bytes(40) });
        let b = MemoryReservation::new(&node, Bytes(30), Bytes(30)).unwrap();
        // A ceiling promises nothing.
        let short = ReservationError::Left { wanted: Bytes(71), left: Bytes(70) };
        assert_eq!(a.ask(Bytes(71)), Err(short));
        let beyond = ReservationError::Ceiling { wanted: Bytes(81), ceiling: Bytes(80) };
        assert_eq!(a.ask(Bytes(81)), Err(beyond));
        assert_eq!(a.ask(Bytes(70)), Ok(Bytes(70)));
        assert_eq!(node.left(), Bytes(0));
        drop((a, b));
        assert_eq!((node.left(), node.reserved()), (Bytes(100), Bytes(0)));
    }

    #[test]
    fn what_is_used_can_neither_be_exceeded_nor_be_taken_away() {
        let node = NodeMemory::new(Bytes(100));
        let it = MemoryReservation::new(&node, Bytes(50), Bytes(50)).unwrap();
        let holding = Holding::of(&it, Bytes(40)).unwrap();
        assert!(Holding::of(&it, Bytes(11)).is_none());
        let used = ReservationError::Used { wanted: Bytes(39), used: Bytes(40) };
        assert_eq!(it.change(Bytes(39), Bytes(39)), Err(used));
        assert_eq!(it.ask(Bytes(39)), Err(used));
        assert_eq!(it.change(Bytes(40), Bytes(40)), Ok(()));
        drop(holding);
        assert_eq!(it.change(Bytes(0), Bytes(0)), Ok(()));
        assert_eq!((it.take_peak(), it.take_peak()), (Bytes(50), Bytes(0)));
    }

    #[test]
    fn that_it_is_low_is_said_once_each_time() {
        let node = NodeMemory::new(Bytes(100 * MIB));
        let it = MemoryReservation::new(&node, Bytes(16 * MIB), Bytes(64 * MIB)).unwrap();
        let said: Arc<AtomicU64> = Arc::default();
        let counts = Arc::clone(&said);
        it.on_low(move || _ = counts.fetch_add(1, Ordering::Relaxed));
        let said = || said.load(Ordering::Relaxed);
        assert!(it.take(Bytes(14 * MIB)));
        assert_eq!(said(), 0, "an eighth is left");
        assert!(it.take(Bytes(1)));
        assert!(it.take(Bytes(1)));
        assert_eq!(said(), 1);
        for _ in 0..1000 {
            assert!(!it.take(Bytes(MIB * 2)));
        }
        assert_eq!((said(), it.state().refused), (1, 1000), "however often more is wanted");
        it.give_back(Bytes(10 * MIB));
        assert!(!it.take(Bytes(13 * MIB)));
        assert_eq!(said(), 2, "more is wanted than is left, though that is much");
        // Less is reserved, of which little is left.
        it.change(Bytes(4 * MIB + 100), Bytes(64 * MIB)).unwrap();
        assert_eq!((said(), it.state().times_low), (3, 3));
    }

    proptest! {
        /// Whatever is asked for by whom, what is used is reserved, and what is reserved is there.
        #[test]
        fn the_sums_hold(steps in prop::collection::vec((0usize..3, 0u8..5, 0u64..80), 1..200)) {
            let node = NodeMemory::new(Bytes(100));
            let all: Vec<_> = (0..3).map(|_| MemoryReservation::new(&node, Bytes(10), Bytes(60)).unwrap()).collect();
            let mut holdings: Vec<Holding> = Vec::new();
            for (who, what, amount) in steps {
                match what {
                    0 => holdings.extend(Holding::of(&all[who], Bytes(amount))),
                    1 if !holdings.is_empty() => _ = holdings.swap_remove(usize::try_from(amount).unwrap() % holdings.len()),
                    2 => _ = all[who].change(Bytes(amount), Bytes(60)),
                    3 => {
                        if let Ok(reserved) = all[who].ask(Bytes(amount)) {
                            prop_assert_eq!(reserved, Bytes(amount));
                        }
                    }
                    _ => if let Some(holding) = holdings.last_mut() { _ = holding.set(Bytes(amount)) },
                }
                let states: Vec<_> = all.iter().map(|it| it.state()).collect();
                prop_assert_eq!(states.iter().map(|state| state.reserved.0).sum::<u64>(), node.reserved().0);
                prop_assert!(node.reserved() <= node.of());
                for (it, state) in all.iter().zip(&states) {
                    let held = holdings.iter().filter(|holding| Arc::ptr_eq(holding.reservation(), it));
                    prop_assert_eq!(held.map(|holding| holding.bytes().0).sum::<u64>(), state.used.0);
                    prop_assert!(state.used <= state.reserved);
                }
            }
        }
    }
}
