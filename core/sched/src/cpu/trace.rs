//! What a core was told and what it decided, a line an event; and the same again from such a record.
//!
//! [`Traced`] stands between a core and its caller and hands every event to a sink. The text is stable enough to be kept: the first line
//! tells the configuration, times are in nanoseconds, and what was decided stands behind `->`.

use super::{
    Charged, Core, CoreConfig, CpuDecision, CpuReservation, CpuTerms, Debt, NotRunning, Placement, Ppm,
    ReservationRefusal, RunOutcome, Stats, VpId, Weight,
};
use std::fmt;
use std::str::{FromStr, SplitAsciiWhitespace};
use weir_units::Nanos;

/// Something that a core was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceInput {
    /// [`Core::create`].
    Create(CpuTerms),
    /// [`Core::change`].
    Change(VpId, CpuTerms),
    /// [`Core::pledge`].
    Pledge(VpId, CpuTerms),
    /// [`Core::close`].
    Close(VpId),
    /// [`Core::wake`].
    Wake(VpId),
    /// [`Core::sleep`].
    Sleep(VpId),
    /// [`Core::promised`], which lets time pass.
    Look,
    /// [`Core::next`].
    Next,
    /// [`Core::charge`].
    Charge(Nanos, RunOutcome),
    /// [`Core::debit`].
    Debit(VpId, Nanos, Debt),
}

/// What a core answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceOutput {
    /// It is done.
    Done,
    /// It was refused.
    Refused,
    /// A virtual processor was created.
    Created(VpId),
    /// What to do next.
    Decided(CpuDecision),
    /// What could not be debited.
    Left(Nanos),
}

/// An input, when it came, and the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// When, on the core's clock.
    pub now: Nanos,
    /// What the core was told.
    pub input: TraceInput,
    /// What it answered.
    pub answer: TraceOutput,
}

/// A core that hands every event to `sink`.
pub struct Traced<F> {
    core: Core,
    sink: F,
}

impl<F: FnMut(TraceEvent)> Traced<F> {
    /// Records a core from its beginning, with nobody on it.
    pub fn new(config: CoreConfig, sink: F) -> Traced<F> {
        Traced { core: Core::new(config), sink }
    }

    /// For what changes nothing.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// [`Core::create`].
    ///
    /// # Errors
    ///
    /// As there, here and below.
    pub fn create(&mut self, terms: CpuTerms, now: Nanos) -> Result<VpId, ReservationRefusal> {
        self.tell(TraceInput::Create(terms), now, |core| core.create(terms, now), TraceOutput::created)
    }

    /// [`Core::change`].
    pub fn change(&mut self, vp: VpId, terms: CpuTerms, now: Nanos) -> Result<(), ReservationRefusal> {
        self.tell(TraceInput::Change(vp, terms), now, |core| core.change(vp, terms, now), TraceOutput::of)
    }

    /// [`Core::pledge`].
    pub fn pledge(&mut self, vp: VpId, terms: CpuTerms, now: Nanos) -> Result<Nanos, ReservationRefusal> {
        self.tell(TraceInput::Pledge(vp, terms), now, |core| core.pledge(vp, terms, now), TraceOutput::of)
    }

    /// [`Core::close`].
    pub fn close(&mut self, vp: VpId, now: Nanos) -> Result<Stats, ReservationRefusal> {
        self.tell(TraceInput::Close(vp), now, |core| core.close(vp, now), TraceOutput::of)
    }

    /// [`Core::wake`].
    pub fn wake(&mut self, vp: VpId, now: Nanos) -> Result<(), ReservationRefusal> {
        self.tell(TraceInput::Wake(vp), now, |core| core.wake(vp, now), TraceOutput::of)
    }

    /// [`Core::sleep`].
    pub fn sleep(&mut self, vp: VpId, now: Nanos) -> Result<(), ReservationRefusal> {
        self.tell(TraceInput::Sleep(vp), now, |core| core.sleep(vp, now), TraceOutput::of)
    }

    /// [`Core::promised`].
    pub fn promised(&mut self, now: Nanos) -> Ppm {
        self.tell(TraceInput::Look, now, |core| core.promised(now), |_| TraceOutput::Done)
    }

    /// [`Core::next`].
    pub fn next(&mut self, now: Nanos) -> CpuDecision {
        self.tell(TraceInput::Next, now, |core| core.next(now), |decision| TraceOutput::Decided(*decision))
    }

    /// [`Core::charge`].
    pub fn charge(&mut self, used: Nanos, now: Nanos, outcome: RunOutcome) -> Result<(), NotRunning> {
        self.tell(
            TraceInput::Charge(used, outcome),
            now,
            |core| core.charge(used, now, outcome),
            TraceOutput::of,
        )
    }

    /// [`Core::debit`].
    pub fn debit(
        &mut self,
        vp: VpId,
        used: Nanos,
        debt: Debt,
        now: Nanos,
    ) -> Result<Nanos, ReservationRefusal> {
        self.tell(
            TraceInput::Debit(vp, used, debt),
            now,
            |core| core.debit(vp, used, debt, now),
            TraceOutput::left,
        )
    }

    fn tell<T>(
        &mut self,
        input: TraceInput,
        now: Nanos,
        act: impl FnOnce(&mut Core) -> T,
        answer: impl FnOnce(&T) -> TraceOutput,
    ) -> T {
        let result = act(&mut self.core);
        (self.sink)(TraceEvent { now, input, answer: answer(&result) });
        result
    }
}

impl TraceOutput {
    fn of<T, E>(result: &Result<T, E>) -> TraceOutput {
        if result.is_ok() { TraceOutput::Done } else { TraceOutput::Refused }
    }

    fn created(result: &Result<VpId, ReservationRefusal>) -> TraceOutput {
        result.map_or(TraceOutput::Refused, TraceOutput::Created)
    }

    fn left(result: &Result<Nanos, ReservationRefusal>) -> TraceOutput {
        result.map_or(TraceOutput::Refused, TraceOutput::Left)
    }
}

/// Why a record was not replayed to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuReplayError {
    /// A line is none that is written here.
    #[error("line {line} of the trace cannot be read")]
    Unreadable {
        /// From 1.
        line: usize,
    },
    /// The core answers otherwise than it did.
    #[error("line {line} of the trace: the core answers `{answer}`")]
    Diverged {
        /// From 1.
        line: usize,
        /// What it answers now.
        answer: TraceOutput,
    },
}

/// The first line of a record of a core.
pub fn head(config: &CoreConfig) -> String {
    let CoreConfig { blocking, cap, arrears } = config;
    format!("weir-cpu-trace 2 blocking {} cap {} arrears {}", blocking.0, cap.0, arrears.0)
}

/// Puts what a record says to a new core, line by line, and compares its answers. Gives back the core as it is in the end.
///
/// # Errors
///
/// The first line that cannot be read, or that the core answers otherwise.
pub fn replay<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Core, CpuReplayError> {
    let mut lines = lines.into_iter().zip(1..);
    let config = lines.next().and_then(|(line, _)| config(line));
    let mut core = Core::new(config.ok_or(CpuReplayError::Unreadable { line: 1 })?);
    for (text, line) in lines {
        let event = TraceEvent::from_str(text).map_err(|_| CpuReplayError::Unreadable { line })?;
        let answer = event.input.put_to(&mut core, event.now);
        if answer != event.answer {
            return Err(CpuReplayError::Diverged { line, answer });
        }
    }
    Ok(core)
}

impl TraceInput {
    fn put_to(self, core: &mut Core, now: Nanos) -> TraceOutput {
        match self {
            TraceInput::Create(terms) => TraceOutput::created(&core.create(terms, now)),
            TraceInput::Change(vp, terms) => TraceOutput::of(&core.change(vp, terms, now)),
            TraceInput::Pledge(vp, terms) => TraceOutput::of(&core.pledge(vp, terms, now)),
            TraceInput::Close(vp) => TraceOutput::of(&core.close(vp, now)),
            TraceInput::Wake(vp) => TraceOutput::of(&core.wake(vp, now)),
            TraceInput::Sleep(vp) => TraceOutput::of(&core.sleep(vp, now)),
            TraceInput::Look => {
                core.promised(now);
                TraceOutput::Done
            }
            TraceInput::Next => TraceOutput::Decided(core.next(now)),
            TraceInput::Charge(used, outcome) => TraceOutput::of(&core.charge(used, now, outcome)),
            TraceInput::Debit(vp, used, debt) => TraceOutput::left(&core.debit(vp, used, debt, now)),
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
            TraceInput::Create(terms) => write!(f, "create {}", Written(terms)),
            TraceInput::Change(vp, terms) => write!(f, "change {vp} {}", Written(terms)),
            TraceInput::Pledge(vp, terms) => write!(f, "pledge {vp} {}", Written(terms)),
            TraceInput::Close(vp) => write!(f, "close {vp}"),
            TraceInput::Wake(vp) => write!(f, "wake {vp}"),
            TraceInput::Sleep(vp) => write!(f, "sleep {vp}"),
            TraceInput::Look => f.write_str("look"),
            TraceInput::Next => f.write_str("next"),
            TraceInput::Charge(used, outcome) => write!(f, "charge {} {}", used.0, outcome_name(*outcome)),
            TraceInput::Debit(vp, used, debt) => write!(f, "debit {vp} {} {}", used.0, debt_name(*debt)),
        }
    }
}

impl fmt::Display for TraceOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceOutput::Done => f.write_str("done"),
            TraceOutput::Refused => f.write_str("refused"),
            TraceOutput::Created(vp) => write!(f, "created {vp}"),
            TraceOutput::Left(left) => write!(f, "left {}", left.0),
            TraceOutput::Decided(CpuDecision::Run { vp, budget, account: Charged::Reserved }) => {
                write!(f, "run {vp} {} reserved", budget.0)
            }
            TraceOutput::Decided(CpuDecision::Run { vp, budget, account: Charged::Spare }) => {
                write!(f, "run {vp} {} spare", budget.0)
            }
            TraceOutput::Decided(CpuDecision::Idle { until: Some(until) }) => write!(f, "idle {}", until.0),
            TraceOutput::Decided(CpuDecision::Idle { until: None }) => f.write_str("idle"),
        }
    }
}

/// Terms as a record has them.
struct Written<'a>(&'a CpuTerms);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.share {
            Placement::Reserved(CpuReservation { period, slice, spare }) => {
                let spare = spare.map_or(0, Weight::get);
                write!(f, "reserved {} {} {spare} {}", period.0, slice.0, self.0.overrun.0)
            }
            Placement::BestEffort(weight) => write!(f, "best-effort {} {}", weight.get(), self.0.overrun.0),
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

fn debt_name(debt: Debt) -> &'static str {
    match debt {
        Debt::Imposed => "imposed",
        Debt::Agreed => "agreed",
    }
}

/// A line that is none of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an event of a trace")]
pub struct NotAnEvent;

impl FromStr for TraceEvent {
    type Err = NotAnEvent;

    /// Reads what its `Display` writes, and nothing else.
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
    let blocking = nanos(&mut words)?;
    words.next().filter(|word| *word == "cap")?;
    let cap = Ppm(words.next()?.parse().ok()?);
    words.next().filter(|word| *word == "arrears")?;
    let arrears = nanos(&mut words)?;
    words.next().is_none().then_some(CoreConfig { blocking, cap, arrears })
}

fn event(words: &mut Words) -> Option<TraceEvent> {
    let now = nanos(words)?;
    let input = match words.next()? {
        "create" => TraceInput::Create(terms(words)?),
        "change" => TraceInput::Change(vp(words)?, terms(words)?),
        "pledge" => TraceInput::Pledge(vp(words)?, terms(words)?),
        "close" => TraceInput::Close(vp(words)?),
        "wake" => TraceInput::Wake(vp(words)?),
        "sleep" => TraceInput::Sleep(vp(words)?),
        "look" => TraceInput::Look,
        "next" => TraceInput::Next,
        "charge" => TraceInput::Charge(nanos(words)?, outcome(words)?),
        "debit" => TraceInput::Debit(vp(words)?, nanos(words)?, debt(words)?),
        _ => return None,
    };
    words.next().filter(|word| *word == "->")?;
    let answer = match words.next()? {
        "done" => TraceOutput::Done,
        "refused" => TraceOutput::Refused,
        "created" => TraceOutput::Created(vp(words)?),
        "left" => TraceOutput::Left(nanos(words)?),
        "run" => {
            let (vp, budget) = (vp(words)?, nanos(words)?);
            let account = match words.next()? {
                "reserved" => Charged::Reserved,
                "spare" => Charged::Spare,
                _ => return None,
            };
            TraceOutput::Decided(CpuDecision::Run { vp, budget, account })
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

fn vp(words: &mut Words) -> Option<VpId> {
    let (index, generation) = words.next()?.split_once('.')?;
    Some(VpId { index: index.parse().ok()?, generation: generation.parse().ok()? })
}

fn outcome(words: &mut Words) -> Option<RunOutcome> {
    let word = words.next()?;
    [RunOutcome::Ready, RunOutcome::Suspended, RunOutcome::Idle]
        .into_iter()
        .find(|outcome| outcome_name(*outcome) == word)
}

fn debt(words: &mut Words) -> Option<Debt> {
    let word = words.next()?;
    [Debt::Imposed, Debt::Agreed].into_iter().find(|debt| debt_name(*debt) == word)
}

fn terms(words: &mut Words) -> Option<CpuTerms> {
    let share = match words.next()? {
        "reserved" => {
            let (period, slice) = (nanos(words)?, nanos(words)?);
            let spare = match words.next()?.parse().ok()? {
                0 => None,
                weight => Some(Weight::new(weight)?),
            };
            Placement::Reserved(CpuReservation { period, slice, spare })
        }
        "best-effort" => Placement::BestEffort(Weight::new(words.next()?.parse().ok()?)?),
        _ => return None,
    };
    Some(CpuTerms { share, overrun: nanos(words)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_event_is_read_as_it_is_written_and_nothing_else_is_read() {
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
        fn no_line_is_too_strange(
            words in prop::collection::vec("create|change|next|charge|->|run|idle|best-effort|[0-9]{1,21}|[0-9]\\.[0-9]|.", 0..12)
        ) {
            let line = words.join(" ");
            if let Ok(event) = line.parse::<TraceEvent>() {
                prop_assert_eq!(event.to_string().parse(), Ok(event));
            }
        }
    }
}
