//! Sending the packets that a file has: sampling, the rhythm of their time stamps, and the end of the file.

use weir_graph::arguments::{ArgumentFault, ElementArguments, FixedDecimal};
use weir_graph::engine::{Effects, ElementContext, GraphPacket, Reason, SignalId, TaskRun, TextOutput};
use weir_units::Timestamp;

/// The packets of a file.
pub trait ReplayInput {
    /// Returns the next packet; `None` at the end.
    ///
    /// # Errors
    ///
    /// Fails with a reason if the file cannot be read further.
    fn next(&mut self, cx: &mut ElementContext<'_>) -> Result<Option<GraphPacket>, Reason>;

    /// Returns a packet that goes to output 0. Sends others elsewhere.
    fn accept(&mut self, packet: GraphPacket, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        let _ = cx;
        Some(packet)
    }

    /// Sends packets that are there as [`ReplayInput::next`] and [`ReplayInput::accept`] do, at most this number, all at
    /// once. Returns how many, and adds those for output 0 to the count.
    fn emit_ready(&mut self, most: usize, count: &mut u64, cx: &mut ElementContext<'_>) -> usize {
        let _ = (most, count, cx);
        0
    }
}

/// All packets, as a part of them with nine decimals.
const WHOLE: i64 = 1_000_000_000;

/// The packets that other outputs get, or that are not chosen, in one turn at a pull output.
const RETRIES_MAX: usize = 16;

fn is_part(value: &FixedDecimal<9>) -> Result<(), ArgumentFault> {
    if (0..=WHOLE).contains(&value.0) {
        Ok(())
    } else {
        Err(ArgumentFault::Other("expected a number from 0 to 1".to_owned()))
    }
}

/// The end of a file for its element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplayEnd {
    /// Packets are left.
    NotYet,
    /// The last packet was sent, and the next turn ends the replay.
    Found,
    /// The driver was stopped, or the handler was called.
    Done,
}

/// The sending of packets that a file has.
pub struct PacketReplay {
    stop: bool,
    timing: bool,
    active: bool,
    /// In parts of a thousand millionth.
    sample: u64,
    /// The handler that is called at the end, instead of a stop.
    end_call: Option<String>,
    /// The packet that waits for its time.
    waiting: Option<GraphPacket>,
    /// The time from the time stamp of the first packet to its sending.
    shift: Option<i128>,
    end: ReplayEnd,
    /// The file could not be read to its end.
    is_incomplete: bool,
    count: u64,
    nonempty: SignalId,
}

impl PacketReplay {
    /// Reads the arguments TIMING, STOP, SAMPLE and ACTIVE. TIMING has a position if `timing_by_position`.
    pub fn read(
        args: &mut ElementArguments<'_, '_>,
        timing_by_position: bool,
        nonempty: impl FnOnce(bool) -> SignalId,
    ) -> Self {
        let timing =
            if timing_by_position { args.either("TIMING") } else { args.keyword("TIMING") }.or(false);
        let stop = args.keyword("STOP").or(false);
        let sample: FixedDecimal<9> = args.keyword("SAMPLE").checked(is_part).or(FixedDecimal(WHOLE));
        let active = args.keyword("ACTIVE").or(true);
        Self {
            stop,
            timing,
            active,
            sample: sample.0.unsigned_abs(),
            end_call: None,
            waiting: None,
            shift: None,
            end: ReplayEnd::NotYet,
            is_incomplete: false,
            count: 0,
            nonempty: nonempty(active),
        }
    }

    /// Returns true if the driver stops at the end.
    pub fn stops(&self) -> bool {
        self.stop
    }

    /// Has a handler called at the end.
    pub fn call_at_end(&mut self, call: Option<String>) {
        self.end_call = call;
    }

    /// Goes on from the place of an earlier element in the same file.
    pub fn take_state(&mut self, earlier: &mut Self, cx: &mut ElementContext<'_>) {
        self.waiting = earlier.waiting.take();
        (self.shift, self.end, self.count) = (earlier.shift, earlier.end, earlier.count);
        // The failure is reported once, by the element that goes on.
        self.is_incomplete = std::mem::take(&mut earlier.is_incomplete);
        if self.end == ReplayEnd::Done {
            cx.services.signals.sleep(self.nonempty);
        }
    }

    /// Gives the element a task, if its output pushes.
    pub fn begin(&self, cx: &mut ElementContext<'_>) {
        if cx.ports().outputs_push[0] {
            cx.add_task(self.active);
        }
    }

    /// Returns the effects, beside those of the file.
    pub fn effects(&self) -> Effects {
        let random = if self.sample < WHOLE.unsigned_abs() { Effects::RANDOM } else { Effects::NONE };
        random.and(if self.timing { Effects::CLOCK } else { Effects::NONE })
    }

    /// Returns the signal that is active while packets may be there.
    pub fn nonempty_signal(&self) -> SignalId {
        self.nonempty
    }

    /// Returns the number of packets for output 0.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sets the number of packets to 0.
    pub fn reset_count(&mut self) {
        self.count = 0;
    }

    /// Returns true if packets are sent.
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Sets ACTIVE.
    pub fn set_active(&mut self, active: bool, cx: &mut ElementContext<'_>) {
        self.active = active;
        if active && self.end != ReplayEnd::Done {
            cx.services.wake(self.nonempty);
            cx.schedule();
        }
    }

    /// Stops sending, and the driver.
    pub fn stop(&mut self, cx: &mut ElementContext<'_>) {
        self.active = false;
        cx.services.stop();
    }

    /// Goes on behind an end that is none any more.
    pub fn go_on(&mut self, cx: &mut ElementContext<'_>) {
        self.end = ReplayEnd::NotYet;
        self.set_active(true, cx);
    }

    /// Begins the rhythm of time stamps anew with the next packet.
    pub fn reset_timing(&mut self) {
        self.shift = None;
    }

    /// Returns the part of the packets that is sent.
    pub fn sampling_probability(&self) -> String {
        crate::control::general(self.sample as f64 / WHOLE as f64)
    }

    /// Returns the next packet whose time has come; `None` at the end, or before that time.
    fn next(&mut self, input: &mut impl ReplayInput, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        loop {
            let packet = match self.waiting.take() {
                Some(packet) => packet,
                None => {
                    let packet = self.read_next(input, cx)?;
                    if self.sample < WHOLE.unsigned_abs()
                        && cx.services.random() % WHOLE.unsigned_abs() >= self.sample
                    {
                        cx.services.pool.discard(packet);
                        continue;
                    }
                    packet
                }
            };
            if let Some(at) = self.later_time(&packet, cx) {
                self.waiting = Some(packet);
                cx.set_timer(at, 0);
                cx.services.signals.sleep(self.nonempty);
                return None;
            }
            return Some(packet);
        }
    }

    fn read_next(
        &mut self,
        input: &mut impl ReplayInput,
        cx: &mut ElementContext<'_>,
    ) -> Option<GraphPacket> {
        if self.end != ReplayEnd::NotYet {
            return None;
        }
        let next = input.next(cx).unwrap_or_else(|reason| {
            // The reason is reported at once, and `finish` fails.
            self.is_incomplete = true;
            cx.services.system.write_text(TextOutput::Error, &format!("{reason}\n"));
            None
        });
        if next.is_none() {
            self.end = ReplayEnd::Found;
        }
        next
    }

    /// Returns the time at which a packet is sent, if that is later.
    fn later_time(&mut self, packet: &GraphPacket, cx: &mut ElementContext<'_>) -> Option<Timestamp> {
        if !self.timing {
            return None;
        }
        let (now, time) = (cx.services.now(), i128::from(packet.time().0));
        let shift = *self.shift.get_or_insert(i128::from(now.0) - time);
        let at = Timestamp(u64::try_from((time + shift).max(0)).unwrap_or(u64::MAX));
        (at > now).then_some(at)
    }

    /// Stops the driver or calls the handler, once, if the end was found.
    fn end(&mut self, cx: &mut ElementContext<'_>) {
        if self.end != ReplayEnd::Found {
            return;
        }
        self.end = ReplayEnd::Done;
        cx.services.signals.sleep(self.nonempty);
        if self.stop {
            self.stop(cx);
        } else if let Some(call) = &self.end_call {
            cx.services.call_later(cx.element(), call);
        }
    }

    /// Runs the task of a push output.
    pub fn run(&mut self, most: usize, input: &mut impl ReplayInput, cx: &mut ElementContext<'_>) -> TaskRun {
        let takes_all = !self.timing && self.sample == WHOLE.unsigned_abs();
        let mut work = 0;
        while self.active && work < most {
            if takes_all && self.waiting.is_none() && self.end == ReplayEnd::NotYet {
                let ready = input.emit_ready(most - work, &mut self.count, cx);
                work += ready;
                if ready > 0 {
                    continue;
                }
            }
            let Some(packet) = self.next(input, cx) else {
                // Packets of this turn go on before the end has effects.
                let has_ended = self.end == ReplayEnd::Found;
                if has_ended && work == 0 {
                    self.end(cx);
                }
                return TaskRun { work, again: has_ended && work > 0 };
            };
            work += 1;
            if let Some(packet) = input.accept(packet, cx) {
                self.count += 1;
                cx.emit(0, packet);
            }
        }
        TaskRun { work, again: self.active }
    }

    /// Returns the next packet for a pull output.
    pub fn pull(&mut self, input: &mut impl ReplayInput, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        if !self.active {
            cx.services.signals.sleep(self.nonempty);
            return None;
        }
        for _ in 0..RETRIES_MAX {
            let Some(packet) = self.next(input, cx) else {
                self.end(cx);
                return None;
            };
            if let Some(packet) = input.accept(packet, cx) {
                self.count += 1;
                return Some(packet);
            }
        }
        None
    }

    /// Goes on when the time of the next packet has come.
    pub fn timer_expired(&self, cx: &mut ElementContext<'_>) {
        if self.active {
            cx.services.wake(self.nonempty);
            cx.schedule();
        }
    }

    /// Ends the element.
    ///
    /// # Errors
    ///
    /// Fails if the file could not be read to its end.
    pub fn finish(&self, file: &str) -> Result<(), Reason> {
        if self.is_incomplete { Err(format!("{file} was not read to its end")) } else { Ok(()) }
    }
}
