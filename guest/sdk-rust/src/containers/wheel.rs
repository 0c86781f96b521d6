//! The timer wheel.

/// A reference to a timer that runs, or has run. It stays valid as a value: a timer that has expired is not found any
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer(u64);

impl Timer {
    /// No timer, of zeros.
    pub const NONE: Timer = Timer(0);
}

#[derive(Clone, Copy)]
struct Link {
    /// Numbers of timers, and 1 more; 0: none.
    next: u32,
    previous: u32,
    /// Counts the uses of the timer, so that a reference of an earlier use is not valid.
    generation: u32,
    /// And 1 more; 0: the timer does not run.
    slot: u32,
}

/// Up to `TIMERS` timers, each with a value, in a wheel of `SLOTS` slots of `STEP_NS` ns (G. Varghese, A. Lauck, "Hashed and
/// hierarchical timing wheels", SOSP 1987, scheme 4). `SLOTS` is a multiple of 64.
///
/// A timer expires up to one step late, never early. The longest delay is (`SLOTS` - 2) * `STEP_NS`, and less while timers
/// are left. Where time goes back, the wheel stands still.
pub struct TimerWheel<V, const TIMERS: usize, const SLOTS: usize, const STEP_NS: u64> {
    /// Number of the step whose slot is next.
    step: u64,
    /// The first of the list of used timers.
    free: u32,
    /// Number of timers that were never used.
    fresh: u32,
    len: u32,
    first: [u32; SLOTS],
    counts: [u32; SLOTS],
    links: [Link; TIMERS],
    values: [V; TIMERS],
}

impl<V: Copy, const TIMERS: usize, const SLOTS: usize, const STEP_NS: u64>
    TimerWheel<V, TIMERS, SLOTS, STEP_NS>
{
    /// Returns a wheel without timers. `unused` fills it, and should be made of zeros.
    pub const fn new(unused: V) -> Self {
        const { assert!(SLOTS >= 64 && SLOTS % 64 == 0, "the number of slots is a multiple of 64") };
        const { assert!(TIMERS > 0 && STEP_NS > 0, "a wheel has timers, and steps") };
        Self {
            step: 0,
            free: 0,
            fresh: 0,
            len: 0,
            first: [0; SLOTS],
            counts: [0; SLOTS],
            links: [Link { next: 0, previous: 0, generation: 0, slot: 0 }; TIMERS],
            values: [unused; TIMERS],
        }
    }

    #[inline(always)]
    fn link(&mut self, number: u32) -> Option<&mut Link> {
        self.links.get_mut((number as usize).wrapping_sub(1))
    }

    /// Starts a timer that expires `delay_ns` ns after `now`. Returns `None` if all timers run, or the delay is longer than
    /// the wheel.
    pub fn start(&mut self, now: u64, delay_ns: u64, value: V) -> Option<Timer> {
        let step = now / STEP_NS;
        if self.len == 0 {
            self.step = step;
        }
        if delay_ns > (SLOTS as u64 - 1) * STEP_NS {
            return None;
        }
        let due = now.checked_add(delay_ns)?.div_ceil(STEP_NS).max(self.step);
        if due - self.step >= SLOTS as u64 {
            return None;
        }
        let number = if self.free != 0 {
            let number = self.free;
            self.free = self.link(number)?.next;
            number
        } else if (self.fresh as usize) < TIMERS {
            self.fresh += 1;
            self.fresh
        } else {
            return None;
        };
        let slot = (due % SLOTS as u64) as usize;
        let next = self.first[slot];
        let link = self.link(number)?;
        let generation = link.generation.wrapping_add(1);
        *link = Link { next, previous: 0, generation, slot: slot as u32 + 1 };
        if let Some(next) = self.link(next) {
            next.previous = number;
        }
        self.first[slot] = number;
        self.counts[slot] += 1;
        *self.values.get_mut(number as usize - 1)? = value;
        self.len += 1;
        Some(Timer(u64::from(generation) << 32 | u64::from(number)))
    }

    /// Cancels a timer. Returns false if it does not run any more.
    pub fn cancel(&mut self, timer: Timer) -> bool {
        let number = timer.0 as u32;
        let generation = (timer.0 >> 32) as u32;
        let free = self.free;
        let Some(link) = self.link(number) else { return false };
        if link.generation != generation || link.slot == 0 {
            return false;
        }
        let Link { next, previous, slot, .. } = *link;
        link.slot = 0;
        link.next = free;
        self.free = number;
        let slot = (slot as usize - 1) % SLOTS;
        if let Some(next) = self.link(next) {
            next.previous = previous;
        }
        match self.link(previous) {
            Some(previous) => previous.next = next,
            None => self.first[slot] = next,
        }
        self.counts[slot] -= 1;
        self.len -= 1;
        true
    }

    /// Returns the number of timers that run.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if no timer runs.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of timers that are due, and have not expired yet.
    pub fn left(&self, now: u64) -> usize {
        let last = now / STEP_NS;
        let mut left = 0;
        for i in 0..SLOTS as u64 {
            if self.step + i <= last {
                left += self.counts[((self.step + i) % SLOTS as u64) as usize] as usize;
            }
        }
        left
    }

    /// Expires the next timer that is due. A call passes up to 64 slots, and returns `None` without a timer in them: so
    /// the loop goes on to a number of steps, and does not end at `None`.
    ///
    /// ```
    /// # use weir_guest::containers::TimerWheel;
    /// # let (mut timers, now) = (TimerWheel::<u32, 8, 64, 1000>::new(0), 5000);
    /// # timers.start(0, 3000, 7);
    /// for _ in 0..64 {
    ///     if let Some(value) = timers.expire(now) {
    ///         assert_eq!(value, 7);
    ///     }
    /// }
    /// ```
    pub fn expire(&mut self, now: u64) -> Option<V> {
        let last = now / STEP_NS;
        if self.len == 0 || self.step > last {
            return None;
        }
        for _ in 0..64 {
            let slot = (self.step % SLOTS as u64) as usize;
            if self.counts[slot] != 0 {
                break;
            }
            if self.step > last {
                return None;
            }
            self.step += 1;
        }
        let number = self.first[(self.step % SLOTS as u64) as usize];
        if self.step > last || number == 0 {
            return None;
        }
        let value = *self.values.get((number as usize).wrapping_sub(1))?;
        let generation = self.link(number)?.generation;
        self.cancel(Timer(u64::from(generation) << 32 | u64::from(number)));
        Some(value)
    }
}
