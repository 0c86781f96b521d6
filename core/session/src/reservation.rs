//! Memory that sessions reserve, and their use of it.
//!
//! A session is charged for its whole reservation, and can use no memory beyond it. Each page by which one of its
//! modules grows is taken from the reservation before the module gets the page. All reservations together never exceed
//! the node's memory for sessions. ("The price of safety in an active network", section IV.D: a heap has a limit; its
//! holder is warned before the limit is reached, and can change the limit at run time.)

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use weir_units::{Bytes, display_among};

/// Memory is low when less than this fraction of the reservation is left: an eighth.
const LOW_DIVISOR: u64 = 8;

/// The memory that a node has for sessions.
#[derive(Debug)]
pub struct NodeMemory {
    total: Bytes,
    reserved: Mutex<u64>,
}

impl NodeMemory {
    /// Makes a pool of this size, with nothing reserved.
    pub fn new(total: Bytes) -> Arc<Self> {
        Arc::new(Self { total, reserved: Mutex::new(0) })
    }

    /// Returns the size of the pool.
    pub fn total(&self) -> Bytes {
        self.total
    }

    /// Returns the memory that is reserved.
    pub fn reserved(&self) -> Bytes {
        Bytes(*lock(&self.reserved))
    }

    /// Returns the memory that can still be reserved.
    pub fn left(&self) -> Bytes {
        Bytes(self.total.0.saturating_sub(self.reserved().0))
    }

    /// Changes one reservation from `from` to `to` bytes. The error is the largest possible size of the reservation.
    fn resize(&self, from: u64, to: u64) -> Result<(), Bytes> {
        let mut reserved = lock(&self.reserved);
        let others = reserved.saturating_sub(from);
        let left = self.total.0.saturating_sub(others);
        if to > left && to > from {
            return Err(Bytes(left));
        }
        *reserved = others.saturating_add(to);
        Ok(())
    }

    /// Replaces the reservations in `old` by those in `new`, in one step. Only the result has to fit, so the order of
    /// the sessions does not matter. Reservations in `old` are no longer counted; they keep their size, and never grow
    /// again.
    ///
    /// # Errors
    /// [`ReservationError::Left`], with the index in `new` of the first reservation that does not fit. The error
    /// leaves everything unchanged.
    pub fn replace(
        &self,
        old: &[Arc<MemoryReservation>],
        new: &[Arc<MemoryReservation>],
    ) -> Result<(), (usize, ReservationError)> {
        // Lock order: reservations before the node. Every other function locks one reservation and then the node.
        let mut old: Vec<_> = old.iter().map(|reservation| reservation.lock()).collect();
        let mut new: Vec<_> = new.iter().map(|reservation| reservation.lock()).collect();
        let mut reserved = lock(&self.reserved);
        let counted = old.iter().filter(|inner| inner.is_counted).map(|inner| inner.state.reserved.0);
        let before = counted.fold(0, u64::saturating_add);
        let after = new.iter().map(|inner| inner.state.reserved.0).fold(0, u64::saturating_add);
        let others = reserved.saturating_sub(before);
        let mut left = self.total.0.saturating_sub(others);
        if after > left && after > before {
            for (index, inner) in new.iter().enumerate() {
                let wanted = inner.state.reserved;
                if wanted.0 > left {
                    return Err((index, ReservationError::Left { wanted, left: Bytes(left) }));
                }
                left -= wanted.0;
            }
        }
        *reserved = others.saturating_add(after);
        old.iter_mut().for_each(|inner| inner.is_counted = false);
        new.iter_mut().for_each(|inner| inner.is_counted = true);
        Ok(())
    }
}

/// The reason why a reservation could not be made or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReservationError {
    /// The node has less memory left than requested.
    #[error("{wanted} of memory are more than is left: {left}", wanted = display_among(*wanted, &[*left]), left = display_among(*left, &[*wanted]))]
    Left {
        /// The requested memory.
        wanted: Bytes,
        /// The largest possible size of the reservation.
        left: Bytes,
    },
    /// The session uses more than requested.
    #[error("the session uses {used} of memory, which is more than {wanted}", wanted = display_among(*wanted, &[*used]), used = display_among(*used, &[*wanted]))]
    Used {
        /// The requested memory.
        wanted: Bytes,
        /// The memory in use.
        used: Bytes,
    },
    /// The request is above the session's ceiling.
    #[error("{wanted} of memory are more than the session may have: {ceiling}", wanted = display_among(*wanted, &[*ceiling]), ceiling = display_among(*ceiling, &[*wanted]))]
    Ceiling {
        /// The requested memory.
        wanted: Bytes,
        /// The session's ceiling.
        ceiling: Bytes,
    },
}

/// The size and use of a session's reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryState {
    /// The reserved memory, for which the session is charged.
    pub reserved: Bytes,
    /// The most that the session may reserve by itself.
    pub ceiling: Bytes,
    /// The memory in use.
    pub used: Bytes,
    /// The number of times that memory became low: less than an eighth was left, or a request was refused.
    pub times_low: u64,
    /// The number of requests for memory that were refused, because less was left.
    pub refused: u64,
}

impl MemoryState {
    /// Returns the memory that is not in use.
    pub fn left(&self) -> Bytes {
        Bytes(self.reserved.0.saturating_sub(self.used.0))
    }

    /// Returns true if less than an eighth is left.
    pub fn is_low(&self) -> bool {
        self.left().0 < self.reserved.0 / LOW_DIVISOR
    }
}

/// The memory reservation of one session.
pub struct MemoryReservation {
    node: Arc<NodeMemory>,
    inner: Mutex<Inner>,
    alarm: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Debug)]
struct Inner {
    state: MemoryState,
    /// True if the node's sum includes this reservation.
    is_counted: bool,
    /// The highest reservation since [`MemoryReservation::take_peak`] was last called.
    peak: Bytes,
    /// True if the alarm was called since memory became low.
    is_low_reported: bool,
}

impl std::fmt::Debug for MemoryReservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryReservation").field("state", &self.state()).finish_non_exhaustive()
    }
}

impl MemoryReservation {
    /// Reserves memory, which the session may change by itself up to a ceiling. Dropping the reservation frees it.
    ///
    /// # Errors
    /// [`ReservationError::Left`].
    pub fn new(
        node: &Arc<NodeMemory>,
        reserved: Bytes,
        ceiling: Bytes,
    ) -> Result<Arc<Self>, ReservationError> {
        let wanted = reserved;
        node.resize(0, reserved.0).map_err(|left| ReservationError::Left { wanted, left })?;
        let state = MemoryState { reserved, ceiling: ceiling.max(reserved), ..MemoryState::default() };
        Ok(Self::make(node, state, true))
    }

    /// Makes a reservation that is not counted yet, for a session that is being prepared. [`NodeMemory::replace`]
    /// counts it.
    pub fn uncounted(node: &Arc<NodeMemory>, reserved: Bytes, ceiling: Bytes) -> Arc<Self> {
        let state = MemoryState { reserved, ceiling: ceiling.max(reserved), ..MemoryState::default() };
        Self::make(node, state, false)
    }

    fn make(node: &Arc<NodeMemory>, state: MemoryState, is_counted: bool) -> Arc<Self> {
        let inner = Mutex::new(Inner { state, is_counted, peak: state.reserved, is_low_reported: false });
        Arc::new(Self { node: Arc::clone(node), inner, alarm: OnceLock::new() })
    }

    /// Registers a function to be called whenever [`MemoryState::times_low`] grows, on the thread that caused it. Only
    /// the first registered function is called.
    pub fn on_low(&self, alarm: impl Fn() + Send + Sync + 'static) {
        _ = self.alarm.set(Box::new(alarm));
    }

    /// Returns the present size and use.
    pub fn state(&self) -> MemoryState {
        self.lock().state
    }

    /// Returns the highest reservation since the last call of this function, which is made once in each interval. A
    /// session is charged for this peak for the whole interval, so shrinking the reservation before the end saves
    /// nothing.
    pub fn take_peak(&self) -> Bytes {
        let mut inner = self.lock();
        let now = inner.state.reserved;
        std::mem::replace(&mut inner.peak, now)
    }

    /// Raises the peak of the present interval to at least `peak`: the reservation of the session earlier in the
    /// interval.
    pub fn raise_peak(&self, peak: Bytes) {
        let mut inner = self.lock();
        inner.peak = inner.peak.max(peak);
    }

    /// Takes memory from the reservation, and returns true. Returns false, and takes nothing, if less is left.
    pub fn take(&self, bytes: Bytes) -> bool {
        self.update(|inner| {
            let is_available = bytes <= inner.state.left();
            if is_available {
                inner.state.used.0 += bytes.0;
            } else {
                inner.state.refused += 1;
            }
            (is_available, !is_available)
        })
    }

    /// Gives memory back to the reservation.
    pub fn give_back(&self, bytes: Bytes) {
        self.update(|inner| {
            inner.state.used.0 = inner.state.used.0.saturating_sub(bytes.0);
            ((), false)
        });
    }

    /// Changes the reservation and the ceiling, as the operator requests.
    ///
    /// # Errors
    /// Fails if the node has too little memory left, or if the session uses more than `reserved`.
    pub fn change(&self, reserved: Bytes, ceiling: Bytes) -> Result<(), ReservationError> {
        self.update(|inner| (self.resize(inner, reserved, ceiling.max(reserved)), false))
    }

    /// Checks that [`Self::change`] to this size would succeed now.
    ///
    /// # Errors
    /// Fails as [`Self::change`] does.
    pub fn check_change(&self, wanted: Bytes) -> Result<(), ReservationError> {
        let inner = self.lock();
        let MemoryState { used, reserved, .. } = inner.state;
        if wanted < used {
            return Err(ReservationError::Used { wanted, used });
        }
        let others_left = if inner.is_counted { self.node.left() } else { Bytes(0) };
        let left = Bytes(reserved.0.saturating_add(others_left.0));
        if wanted > left && wanted > reserved { Err(ReservationError::Left { wanted, left }) } else { Ok(()) }
    }

    /// Changes the reservation as the session itself requests, and returns the new size.
    ///
    /// # Errors
    /// Fails as [`Self::change`] does, or if the size is above the ceiling.
    pub fn request(&self, reserved: Bytes) -> Result<Bytes, ReservationError> {
        self.update(|inner| {
            let ceiling = inner.state.ceiling;
            let result = if reserved > ceiling {
                Err(ReservationError::Ceiling { wanted: reserved, ceiling })
            } else {
                self.resize(inner, reserved, ceiling)
            };
            (result.map(|()| reserved), false)
        })
    }

    fn resize(&self, inner: &mut Inner, wanted: Bytes, ceiling: Bytes) -> Result<(), ReservationError> {
        let used = inner.state.used;
        if wanted < used {
            return Err(ReservationError::Used { wanted, used });
        }
        if inner.is_counted {
            self.node
                .resize(inner.state.reserved.0, wanted.0)
                .map_err(|left| ReservationError::Left { wanted, left })?;
        } else if wanted > inner.state.reserved {
            return Err(ReservationError::Left { wanted, left: inner.state.reserved });
        }
        inner.is_low_reported &= inner.state.reserved == wanted;
        (inner.state.reserved, inner.state.ceiling) = (wanted, ceiling);
        inner.peak = inner.peak.max(wanted);
        Ok(())
    }

    /// Runs an update, which returns a result, and true if it has refused memory. Calls the alarm if memory was refused
    /// or has become low, after all locks are released.
    fn update<R>(&self, update: impl FnOnce(&mut Inner) -> (R, bool)) -> R {
        let (result, is_new) = {
            let mut inner = self.lock();
            let (result, is_refused) = update(&mut inner);
            let is_low = inner.state.is_low() || is_refused;
            let is_new = is_low && !inner.is_low_reported;
            inner.is_low_reported = is_low;
            inner.state.times_low += u64::from(is_new);
            (result, is_new)
        };
        if let Some(alarm) = self.alarm.get().filter(|_| is_new) {
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
        // Shrinking always succeeds.
        _ = self.node.resize(reserved, 0);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory that was taken from a reservation. Dropping this value gives the memory back.
#[derive(Debug)]
pub struct HeldMemory {
    reservation: Arc<MemoryReservation>,
    bytes: Bytes,
}

impl HeldMemory {
    /// Makes a value without memory, which can take memory from this reservation later.
    pub fn new(reservation: Arc<MemoryReservation>) -> Self {
        Self { reservation, bytes: Bytes(0) }
    }

    /// Takes `bytes` from a reservation; `None` if not enough is left.
    pub fn take(reservation: &Arc<MemoryReservation>, bytes: Bytes) -> Option<Self> {
        let mut held = Self::new(Arc::clone(reservation));
        held.set(bytes).then_some(held)
    }

    /// Returns the reservation that the memory is taken from.
    pub fn reservation(&self) -> &Arc<MemoryReservation> {
        &self.reservation
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Changes the size, and returns true. Returns false, and changes nothing, if the reservation has less left.
    pub fn set(&mut self, bytes: Bytes) -> bool {
        if bytes <= self.bytes {
            self.reservation.give_back(Bytes(self.bytes.0 - bytes.0));
        } else if !self.reservation.take(Bytes(bytes.0 - self.bytes.0)) {
            return false;
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.reservation.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    const MIB: u64 = 1 << 20;

    #[test]
    fn reservations_replace_others_in_one_step() {
        let node = NodeMemory::new(Bytes(100));
        let new = |bytes| MemoryReservation::new(&node, Bytes(bytes), Bytes(bytes)).unwrap();
        let uncounted = |bytes| MemoryReservation::uncounted(&node, Bytes(bytes), Bytes(100));
        let (a, b) = (new(60), new(40));
        let (grown, shrunk) = (uncounted(70), uncounted(30));
        assert_eq!(node.left(), Bytes(0), "a prepared reservation is not counted");
        // The growing reservation comes first; only the result has to fit.
        let old = [Arc::clone(&a), Arc::clone(&b)];
        assert_eq!(node.replace(&old, &[Arc::clone(&grown), Arc::clone(&shrunk)]), Ok(()));
        assert_eq!(node.left(), Bytes(0));
        let refused = Err((1, ReservationError::Left { wanted: Bytes(31), left: Bytes(30) }));
        let more = [uncounted(70), uncounted(31)];
        assert_eq!(node.replace(&[Arc::clone(&grown), Arc::clone(&shrunk)], &more), refused);
        drop(more);
        // A replaced reservation gives nothing back, and cannot grow.
        assert!(a.request(Bytes(61)).is_err() && a.request(Bytes(10)).is_ok());
        drop((a, b, old));
        assert_eq!(node.left(), Bytes(0));
        assert_eq!(shrunk.request(Bytes(20)), Ok(Bytes(20)));
        drop((grown, shrunk));
        assert_eq!(node.left(), Bytes(100));
    }

    #[test]
    fn reservations_never_exceed_the_node_and_are_freed_at_the_end() {
        let node = NodeMemory::new(Bytes(100));
        let a = MemoryReservation::new(&node, Bytes(60), Bytes(80)).unwrap();
        let refused = MemoryReservation::new(&node, Bytes(41), Bytes(41)).unwrap_err();
        assert_eq!(refused, ReservationError::Left { wanted: Bytes(41), left: Bytes(40) });
        let b = MemoryReservation::new(&node, Bytes(30), Bytes(30)).unwrap();
        // A ceiling reserves nothing.
        let short = ReservationError::Left { wanted: Bytes(71), left: Bytes(70) };
        assert_eq!(a.request(Bytes(71)), Err(short));
        let beyond = ReservationError::Ceiling { wanted: Bytes(81), ceiling: Bytes(80) };
        assert_eq!(a.request(Bytes(81)), Err(beyond));
        assert_eq!(a.request(Bytes(70)), Ok(Bytes(70)));
        assert_eq!(node.left(), Bytes(0));
        drop((a, b));
        assert_eq!((node.left(), node.reserved()), (Bytes(100), Bytes(0)));
    }

    #[test]
    fn a_reservation_is_neither_exceeded_nor_shrunk_below_its_use() {
        let node = NodeMemory::new(Bytes(100));
        let it = MemoryReservation::new(&node, Bytes(50), Bytes(50)).unwrap();
        let held = HeldMemory::take(&it, Bytes(40)).unwrap();
        assert!(HeldMemory::take(&it, Bytes(11)).is_none());
        let used = ReservationError::Used { wanted: Bytes(39), used: Bytes(40) };
        assert_eq!(it.change(Bytes(39), Bytes(39)), Err(used));
        assert_eq!(it.request(Bytes(39)), Err(used));
        assert_eq!(it.change(Bytes(40), Bytes(40)), Ok(()));
        drop(held);
        assert_eq!(it.change(Bytes(0), Bytes(0)), Ok(()));
        assert_eq!((it.take_peak(), it.take_peak()), (Bytes(50), Bytes(0)));
    }

    #[test]
    fn low_memory_is_reported_once_each_time() {
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
        assert_eq!((said(), it.state().refused), (1, 1000), "refusals count, the report is one");
        it.give_back(Bytes(10 * MIB));
        assert!(!it.take(Bytes(13 * MIB)));
        assert_eq!(said(), 2, "a request above what is left is reported, though much is left");
        // The reservation shrinks until little is left.
        it.change(Bytes(4 * MIB + 100), Bytes(64 * MIB)).unwrap();
        assert_eq!((said(), it.state().times_low), (3, 3));
    }

    proptest! {
        /// After any requests by any party, used memory is reserved, and reserved memory exists.
        #[test]
        fn the_sums_hold(steps in prop::collection::vec((0usize..3, 0u8..5, 0u64..80), 1..200)) {
            let node = NodeMemory::new(Bytes(100));
            let all: Vec<_> = (0..3).map(|_| MemoryReservation::new(&node, Bytes(10), Bytes(60)).unwrap()).collect();
            let mut holdings: Vec<HeldMemory> = Vec::new();
            for (who, what, amount) in steps {
                match what {
                    0 => holdings.extend(HeldMemory::take(&all[who], Bytes(amount))),
                    1 if !holdings.is_empty() => _ = holdings.swap_remove(usize::try_from(amount).unwrap() % holdings.len()),
                    2 => _ = all[who].change(Bytes(amount), Bytes(60)),
                    3 => {
                        if let Ok(reserved) = all[who].request(Bytes(amount)) {
                            prop_assert_eq!(reserved, Bytes(amount));
                        }
                    }
                    _ => if let Some(held) = holdings.last_mut() { _ = held.set(Bytes(amount)) },
                }
                let states: Vec<_> = all.iter().map(|it| it.state()).collect();
                prop_assert_eq!(states.iter().map(|state| state.reserved.0).sum::<u64>(), node.reserved().0);
                prop_assert!(node.reserved() <= node.total());
                for (it, state) in all.iter().zip(&states) {
                    let held = holdings.iter().filter(|held| Arc::ptr_eq(held.reservation(), it));
                    prop_assert_eq!(held.map(|held| held.bytes().0).sum::<u64>(), state.used.0);
                    prop_assert!(state.used <= state.reserved);
                }
            }
        }
    }
}
