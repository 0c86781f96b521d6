//! Traces of a core's inputs and decisions, with one line for each event, and their replay.
//!
//! [`TracedCore`] wraps a core and passes every event to a sink. The text format is stable: the first line states the
//! configuration, times are in nanoseconds, and the decision follows `->`. The format keeps words for which the code
//! has other names: `arrears` is [`CoreConfig::lateness_max`], `pledge` is [`CoreScheduler::reserve_change`], `imposed`
//! and `agreed` are the values of [`DebitKind`], and `left` is the undebited part.

use super::{
    CoreConfig, CoreScheduler, CpuAllocation, CpuDecision, CpuReservation, CpuTerms, DebitKind, NotRunning,
    Ppm, ReservationRefusal, RunAccount, RunOutcome, Stats, VcpuId, Weight,
};
use std::fmt;
use std::str::{FromStr, SplitAsciiWhitespace};
use weir_units::Nanos;

/// An input of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceInput {
    /// A call of [`CoreScheduler::create`].
    Create(CpuTerms),
    /// A call of [`CoreScheduler::change`].
    Change(VcpuId, CpuTerms),
    /// A call of [`CoreScheduler::reserve_change`].
    ReserveChange(VcpuId, CpuTerms),
    /// A call of [`CoreScheduler::close`].
    Close(VcpuId),
    /// A call of [`CoreScheduler::wake`].
    Wake(VcpuId),
    /// A call of [`CoreScheduler::sleep`].
    Sleep(VcpuId),
    /// A call of [`CoreScheduler::reserved_share`], which advances the clock.
    ReservedShare,
    /// A call of [`CoreScheduler::next`].
    Next,
    /// A call of [`CoreScheduler::charge`].
    Charge(Nanos, RunOutcome),
    /// A call of [`CoreScheduler::debit`].
    Debit(VcpuId, Nanos, DebitKind),
}

/// The result of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceOutput {
    /// The call succeeded.
    Done,
    /// The call was refused.
    Refused,
    /// A virtual CPU was created.
    Created(VcpuId),
    /// The next action was decided.
    Decided(CpuDecision),
    /// The part of a debit that exceeds the limit of the debt, and is not debited.
    Undebited(Nanos),
}

/// An input with its time and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The time of the input, on the core's clock.
    pub now: Nanos,
    /// The input.
    pub input: TraceInput,
    /// The result.
    pub answer: TraceOutput,
}

/// A core scheduler that passes a [`TraceEvent`] to `sink` for each call.
pub struct TracedCore<F> {
    core: CoreScheduler,
    sink: F,
}

impl<F: FnMut(TraceEvent)> TracedCore<F> {
    /// Creates a core without virtual CPUs, and records it from the beginning.
    pub fn new(config: CoreConfig, sink: F) -> TracedCore<F> {
        TracedCore { core: CoreScheduler::new(config), sink }
    }

    /// The core scheduler, for reading.
    pub fn core(&self) -> &CoreScheduler {
        &self.core
    }

    /// Calls and records [`CoreScheduler::create`].
    ///
    /// # Errors
    ///
    /// The error of [`CoreScheduler::create`].
    pub fn create(&mut self, terms: CpuTerms, now: Nanos) -> Result<VcpuId, ReservationRefusal> {
        self.trace(TraceInput::Create(terms), now, |core| core.create(terms, now), TraceOutput::created)
    }

    /// Calls and records [`CoreScheduler::change`], with the same errors.
    pub fn change(&mut self, id: VcpuId, terms: CpuTerms, now: Nanos) -> Result<(), ReservationRefusal> {
        self.trace(TraceInput::Change(id, terms), now, |core| core.change(id, terms, now), TraceOutput::done)
    }

    /// Calls and records [`CoreScheduler::reserve_change`], with the same errors.
    pub fn reserve_change(
        &mut self,
        id: VcpuId,
        terms: CpuTerms,
        now: Nanos,
    ) -> Result<Nanos, ReservationRefusal> {
        self.trace(
            TraceInput::ReserveChange(id, terms),
            now,
            |core| core.reserve_change(id, terms, now),
            TraceOutput::done,
        )
    }

    /// Calls and records [`CoreScheduler::close`], with the same errors.
    pub fn close(&mut self, id: VcpuId, now: Nanos) -> Result<Stats, ReservationRefusal> {
        self.trace(TraceInput::Close(id), now, |core| core.close(id, now), TraceOutput::done)
    }

    /// Calls and records [`CoreScheduler::wake`], with the same errors.
    pub fn wake(&mut self, id: VcpuId, now: Nanos) -> Result<(), ReservationRefusal> {
        self.trace(TraceInput::Wake(id), now, |core| core.wake(id, now), TraceOutput::done)
    }

    /// Calls and records [`CoreScheduler::sleep`], with the same errors.
    pub fn sleep(&mut self, id: VcpuId, now: Nanos) -> Result<(), ReservationRefusal> {
        self.trace(TraceInput::Sleep(id), now, |core| core.sleep(id, now), TraceOutput::done)
    }

    /// Calls and records [`CoreScheduler::reserved_share`].
    pub fn reserved_share(&mut self, now: Nanos) -> Ppm {
        self.trace(TraceInput::ReservedShare, now, |core| core.reserved_share(now), |_| TraceOutput::Done)
    }

    /// Calls and records [`CoreScheduler::next`].
    pub fn next(&mut self, now: Nanos) -> CpuDecision {
        self.trace(TraceInput::Next, now, |core| core.next(now), |decision| TraceOutput::Decided(*decision))
    }

    /// Calls and records [`CoreScheduler::charge`], with the same errors.
    pub fn charge(&mut self, used: Nanos, now: Nanos, outcome: RunOutcome) -> Result<(), NotRunning> {
        self.trace(
            TraceInput::Charge(used, outcome),
            now,
            |core| core.charge(used, now, outcome),
            TraceOutput::done,
        )
    }

    /// Calls and records [`CoreScheduler::debit`], with the same errors.
    pub fn debit(
        &mut self,
        id: VcpuId,
        used: Nanos,
        kind: DebitKind,
        now: Nanos,
    ) -> Result<Nanos, ReservationRefusal> {
        self.trace(
            TraceInput::Debit(id, used, kind),
            now,
            |core| core.debit(id, used, kind, now),
            TraceOutput::undebited,
        )
    }

    fn trace<T>(
        &mut self,
        input: TraceInput,
        now: Nanos,
        act: impl FnOnce(&mut CoreScheduler) -> T,
        answer: impl FnOnce(&T) -> TraceOutput,
    ) -> T {
        let result = act(&mut self.core);
        (self.sink)(TraceEvent { now, input, answer: answer(&result) });
        result
    }
}

impl TraceOutput {
    fn done<T, E>(result: &Result<T, E>) -> TraceOutput {
        if result.is_ok() { TraceOutput::Done } else { TraceOutput::Refused }
    }

    fn created(result: &Result<VcpuId, ReservationRefusal>) -> TraceOutput {
        result.map_or(TraceOutput::Refused, TraceOutput::Created)
    }

    fn undebited(result: &Result<Nanos, ReservationRefusal>) -> TraceOutput {
        result.map_or(TraceOutput::Refused, TraceOutput::Undebited)
    }
}

/// The reason why a trace could not be replayed to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuReplayError {
    /// A line is not an event of a trace.
    #[error("line {line} of the trace cannot be read")]
    Unreadable {
        /// The line's number, from 1.
        line: usize,
    },
    /// The core gives a result that differs from the recorded one.
    #[error("line {line} of the trace: the core answers `{answer}`")]
    Diverged {
        /// The line's number, from 1.
        line: usize,
        /// The result of the replay.
        answer: TraceOutput,
    },
}

/// The first line of a core's trace, which states the configuration.
pub fn first_line(config: &CoreConfig) -> String {
    let CoreConfig { blocking_max, cap, lateness_max } = config;
    format!("weir-cpu-trace 2 blocking {} cap {} arrears {}", blocking_max.0, cap.0, lateness_max.0)
}

/// Replays a trace on a new core, line by line, and compares the results. Returns the core after the last line.
///
/// # Errors
///
/// [`CpuReplayError`] for the first line that cannot be read or has another result.
pub fn replay<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<CoreScheduler, CpuReplayError> {
    let mut lines = lines.into_iter().zip(1..);
    let config = lines.next().and_then(|(line, _)| config(line));
    let mut core = CoreScheduler::new(config.ok_or(CpuReplayError::Unreadable { line: 1 })?);
    for (text, line) in lines {
        let event = TraceEvent::from_str(text).map_err(|_| CpuReplayError::Unreadable { line })?;
        let answer = event.input.apply_to(&mut core, event.now);
        if answer != event.answer {
            return Err(CpuReplayError::Diverged { line, answer });
        }
    }
    Ok(core)
}

impl TraceInput {
    fn apply_to(self, core: &mut CoreScheduler, now: Nanos) -> TraceOutput {
        match self {
            TraceInput::Create(terms) => TraceOutput::created(&core.create(terms, now)),
            TraceInput::Change(vcpu_id, terms) => TraceOutput::done(&core.change(vcpu_id, terms, now)),
            TraceInput::ReserveChange(vcpu_id, terms) => {
                TraceOutput::done(&core.reserve_change(vcpu_id, terms, now))
            }
            TraceInput::Close(vcpu_id) => TraceOutput::done(&core.close(vcpu_id, now)),
            TraceInput::Wake(vcpu_id) => TraceOutput::done(&core.wake(vcpu_id, now)),
            TraceInput::Sleep(vcpu_id) => TraceOutput::done(&core.sleep(vcpu_id, now)),
            TraceInput::ReservedShare => {
                core.reserved_share(now);
                TraceOutput::Done
            }
            TraceInput::Next => TraceOutput::Decided(core.next(now)),
            TraceInput::Charge(used, outcome) => TraceOutput::done(&core.charge(used, now, outcome)),
            TraceInput::Debit(vcpu_id, used, kind) => {
                TraceOutput::undebited(&core.debit(vcpu_id, used, kind, now))
            }
        }
    }
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.now.0, self.input, self.answer)
    }
}

impl fmt::Display for TraceInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceInput::Create(terms) => write!(f, "create {}", TermsText(terms)),
            TraceInput::Change(vcpu_id, terms) => write!(f, "change {vcpu_id} {}", TermsText(terms)),
            TraceInput::ReserveChange(vcpu_id, terms) => write!(f, "pledge {vcpu_id} {}", TermsText(terms)),
            TraceInput::Close(vcpu_id) => write!(f, "close {vcpu_id}"),
            TraceInput::Wake(vcpu_id) => write!(f, "wake {vcpu_id}"),
            TraceInput::Sleep(vcpu_id) => write!(f, "sleep {vcpu_id}"),
            TraceInput::ReservedShare => f.write_str("look"),
            TraceInput::Next => f.write_str("next"),
            TraceInput::Charge(used, outcome) => write!(f, "charge {} {}", used.0, outcome_name(*outcome)),
            TraceInput::Debit(vcpu_id, used, kind) => {
                write!(f, "debit {vcpu_id} {} {}", used.0, debit_kind_name(*kind))
            }
        }
    }
}

impl fmt::Display for TraceOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceOutput::Done => f.write_str("done"),
            TraceOutput::Refused => f.write_str("refused"),
            TraceOutput::Created(vcpu_id) => write!(f, "created {vcpu_id}"),
            TraceOutput::Undebited(rest) => write!(f, "left {}", rest.0),
            TraceOutput::Decided(CpuDecision::Run { vcpu_id, budget, account: RunAccount::Reserved }) => {
                write!(f, "run {vcpu_id} {} reserved", budget.0)
            }
            TraceOutput::Decided(CpuDecision::Run { vcpu_id, budget, account: RunAccount::Spare }) => {
                write!(f, "run {vcpu_id} {} spare", budget.0)
            }
            TraceOutput::Decided(CpuDecision::Idle { until: Some(until) }) => write!(f, "idle {}", until.0),
            TraceOutput::Decided(CpuDecision::Idle { until: None }) => f.write_str("idle"),
        }
    }
}

/// Terms in the format of a trace.
struct TermsText<'a>(&'a CpuTerms);

impl fmt::Display for TermsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.share {
            CpuAllocation::Reserved(CpuReservation { period, slice, spare }) => {
                let spare = spare.map_or(0, Weight::get);
                write!(f, "reserved {} {} {spare} {}", period.0, slice.0, self.0.overrun.0)
            }
            CpuAllocation::BestEffort(weight) => {
                write!(f, "best-effort {} {}", weight.get(), self.0.overrun.0)
            }
        }
    }
}

fn outcome_name(outcome: RunOutcome) -> &'static str {
    match outcome {
        RunOutcome::Ready => "ready",
        RunOutcome::Suspended => "suspended",
        RunOutcome::Idle => "idle",
    }
}

fn debit_kind_name(kind: DebitKind) -> &'static str {
    match kind {
        DebitKind::Unrequested => "imposed",
        DebitKind::Requested => "agreed",
    }
}

/// The error that a line is not an event of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an event of a trace")]
pub struct NotAnEvent;

impl FromStr for TraceEvent {
    type Err = NotAnEvent;

    /// Parses exactly the format that `Display` writes.
    fn from_str(line: &str) -> Result<TraceEvent, NotAnEvent> {
        let mut words = line.split_ascii_whitespace();
        let event = event(&mut words).ok_or(NotAnEvent)?;
        if words.next().is_some() { Err(NotAnEvent) } else { Ok(event) }
    }
}

type Words<'a> = SplitAsciiWhitespace<'a>;

fn config(line: &str) -> Option<CoreConfig> {
    let mut words = line.split_ascii_whitespace();
    for expected in ["weir-cpu-trace", "2", "blocking"] {
        words.next().filter(|word| *word == expected)?;
    }
    let blocking_max = nanos(&mut words)?;
    words.next().filter(|word| *word == "cap")?;
    let cap = Ppm(words.next()?.parse().ok()?);
    words.next().filter(|word| *word == "arrears")?;
    let lateness_max = nanos(&mut words)?;
    words.next().is_none().then_some(CoreConfig { blocking_max, cap, lateness_max })
}

fn event(words: &mut Words) -> Option<TraceEvent> {
    let now = nanos(words)?;
    let input = match words.next()? {
        "create" => TraceInput::Create(terms(words)?),
        "change" => TraceInput::Change(vcpu_id(words)?, terms(words)?),
        "pledge" => TraceInput::ReserveChange(vcpu_id(words)?, terms(words)?),
        "close" => TraceInput::Close(vcpu_id(words)?),
        "wake" => TraceInput::Wake(vcpu_id(words)?),
        "sleep" => TraceInput::Sleep(vcpu_id(words)?),
        "look" => TraceInput::ReservedShare,
        "next" => TraceInput::Next,
        "charge" => TraceInput::Charge(nanos(words)?, outcome(words)?),
        "debit" => TraceInput::Debit(vcpu_id(words)?, nanos(words)?, debit_kind(words)?),
        _ => return None,
    };
    words.next().filter(|word| *word == "->")?;
    let answer = match words.next()? {
        "done" => TraceOutput::Done,
        "refused" => TraceOutput::Refused,
        "created" => TraceOutput::Created(vcpu_id(words)?),
        "left" => TraceOutput::Undebited(nanos(words)?),
        "run" => {
            let (vcpu_id, budget) = (vcpu_id(words)?, nanos(words)?);
            let account = match words.next()? {
                "reserved" => RunAccount::Reserved,
                "spare" => RunAccount::Spare,
                _ => return None,
            };
            TraceOutput::Decided(CpuDecision::Run { vcpu_id, budget, account })
        }
        "idle" => {
            let until = match words.next() {
                Some(word) => Some(Nanos(word.parse().ok()?)),
                None => None,
            };
            TraceOutput::Decided(CpuDecision::Idle { until })
        }
        _ => return None,
    };
    Some(TraceEvent { now, input, answer })
}

fn nanos(words: &mut Words) -> Option<Nanos> {
    words.next()?.parse().ok().map(Nanos)
}

fn vcpu_id(words: &mut Words) -> Option<VcpuId> {
    let (index, generation) = words.next()?.split_once('.')?;
    Some(VcpuId { index: index.parse().ok()?, generation: generation.parse().ok()? })
}

fn outcome(words: &mut Words) -> Option<RunOutcome> {
    let word = words.next()?;
    [RunOutcome::Ready, RunOutcome::Suspended, RunOutcome::Idle]
        .into_iter()
        .find(|outcome| outcome_name(*outcome) == word)
}

fn debit_kind(words: &mut Words) -> Option<DebitKind> {
    let word = words.next()?;
    [DebitKind::Unrequested, DebitKind::Requested].into_iter().find(|kind| debit_kind_name(*kind) == word)
}

fn terms(words: &mut Words) -> Option<CpuTerms> {
    let share = match words.next()? {
        "reserved" => {
            let (period, slice) = (nanos(words)?, nanos(words)?);
            let spare = match words.next()?.parse().ok()? {
                0 => None,
                weight => Some(Weight::new(weight)?),
            };
            CpuAllocation::Reserved(CpuReservation { period, slice, spare })
        }
        "best-effort" => CpuAllocation::BestEffort(Weight::new(words.next()?.parse().ok()?)?),
        _ => return None,
    };
    Some(CpuTerms { share, overrun: nanos(words)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_event_is_parsed_from_its_own_text_and_other_lines_are_refused() {
        let lines = [
            "0 create reserved 4000000 400000 0 0 -> created 0.0",
            "0 create reserved 4000000 400000 100 5000 -> refused",
            "7 create best-effort 10000 0 -> created 1.4294967295",
            "18446744073709551615 change 3.1 best-effort 1 9 -> done",
            "8 pledge 3.1 reserved 4000000 400000 0 0 -> done",
            "9 close 0.0 -> done",
            "9 wake 0.0 -> refused",
            "9 sleep 0.0 -> done",
            "9 debit 0.0 700 imposed -> left 200",
            "9 debit 0.0 700 imposed -> refused",
            "9 look -> done",
            "10 next -> run 0.0 95000 reserved",
            "10 next -> run 0.0 95000 spare",
            "10 next -> idle 4000000",
            "10 next -> idle",
            "11 charge 95001 suspended -> done",
            "11 charge 95001 ready -> refused",
            "12 debit 0.0 95001 agreed -> left 0",
        ];
        for line in lines {
            let event: TraceEvent = line.parse().unwrap_or_else(|_| panic!("{line}"));
            assert_eq!(event.to_string(), line);
            let more = format!("{line} 1 1");
            assert_eq!(more.parse::<TraceEvent>(), Err(NotAnEvent), "{more}");
            let (less, _) = line.rsplit_once(' ').unwrap_or_default();
            assert!(
                less.parse::<TraceEvent>().is_ok_and(|event| event.to_string() == "10 next -> idle")
                    || less.parse::<TraceEvent>().is_err()
            );
        }
        for line in [
            "",
            "1",
            "next -> idle",
            "1 create best-effort 0 0 -> done",
            "1 create best-effort 10001 0 -> done",
            "-1 next -> idle",
            "1 debit 0.0 7 borrowed -> left 0",
            "1 debit 0.0 7 -> left 0",
        ] {
            assert_eq!(line.parse::<TraceEvent>(), Err(NotAnEvent), "{line}");
        }
        assert_eq!(replay([]).err(), Some(CpuReplayError::Unreadable { line: 1 }));
        assert_eq!(
            replay(["weir-cpu-trace 1 blocking 1 cap 1 arrears 1"]).err(),
            Some(CpuReplayError::Unreadable { line: 1 })
        );
    }

    proptest! {
        #[test]
        fn no_line_causes_a_panic(
            words in prop::collection::vec("create|change|next|charge|->|run|idle|best-effort|[0-9]{1,21}|[0-9]\\.[0-9]|.", 0..12)
        ) {
            let line = words.join(" ");
            if let Ok(event) = line.parse::<TraceEvent>() {
                prop_assert_eq!(event.to_string().parse(), Ok(event));
            }
        }
    }
}
