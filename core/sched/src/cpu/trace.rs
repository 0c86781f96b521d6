//! What a core was told and what it decided, a line an event; and the same again from such a record.
//!
//! [`Traced`] stands between a core and its caller and hands every event to a sink. The text is stable enough to be kept: the first line
//! tells the configuration, times are in nanoseconds, and what was decided stands behind `->`.

use super::{
    Account, Config, Core, Debt, Decision, NotRunning, Outcome, Ppm, Refusal, Reservation, Share, Stats,
    Terms, VpId, Weight,
};
use std::fmt;
use std::str::{FromStr, SplitAsciiWhitespace};
use weir_units::Nanos;

/// Something that a core was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// [`Core::create`].
    Create(Terms),
    /// [`Core::change`].
    Change(VpId, Terms),
    /// [`Core::pledge`].
    Pledge(VpId, Terms),
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
    Charge(Nanos, Outcome),
    /// [`Core::debit`].
    Debit(VpId, Nanos, Debt),
}

/// What a core answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// It was refused.
    Refused,
    /// A virtual processor was created.
    Created(VpId),
    /// What to do next.
    Decided(Decision),
    /// What could not be debited.
    Left(Nanos),
}

/// An input, when it came, and the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, on the core's clock.
    pub now: Nanos,
    /// What the core was told.
    pub input: Input,
    /// What it answered.
    pub answer: Answer,
}

/// A core that hands every event to `sink`.
pub struct Traced<F> {
    core: Core,
    sink: F,
}

impl<F: FnMut(Event)> Traced<F> {
    /// Records a core from its beginning, with nobody on it.
    pub fn new(config: Config, sink: F) -> Traced<F> {
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
    pub fn create(&mut self, terms: Terms, now: Nanos) -> Result<VpId, Refusal> {
        self.tell(Input::Create(terms), now, |core| core.create(terms, now), Answer::created)
    }

    /// [`Core::change`].
    pub fn change(&mut self, vp: VpId, terms: Terms, now: Nanos) -> Result<(), Refusal> {
        self.tell(Input::Change(vp, terms), now, |core| core.change(vp, terms, now), Answer::of)
    }

    /// [`Core::pledge`].
    pub fn pledge(&mut self, vp: VpId, terms: Terms, now: Nanos) -> Result<Nanos, Refusal> {
        self.tell(Input::Pledge(vp, terms), now, |core| core.pledge(vp, terms, now), Answer::of)
    }

    /// [`Core::close`].
    pub fn close(&mut self, vp: VpId, now: Nanos) -> Result<Stats, Refusal> {
        self.tell(Input::Close(vp), now, |core| core.close(vp, now), Answer::of)
    }

    /// [`Core::wake`].
    pub fn wake(&mut self, vp: VpId, now: Nanos) -> Result<(), Refusal> {
        self.tell(Input::Wake(vp), now, |core| core.wake(vp, now), Answer::of)
    }

    /// [`Core::sleep`].
    pub fn sleep(&mut self, vp: VpId, now: Nanos) -> Result<(), Refusal> {
        self.tell(Input::Sleep(vp), now, |core| core.sleep(vp, now), Answer::of)
    }

    /// [`Core::promised`].
    pub fn promised(&mut self, now: Nanos) -> Ppm {
        self.tell(Input::Look, now, |core| core.promised(now), |_| Answer::Done)
    }

    /// [`Core::next`].
    pub fn next(&mut self, now: Nanos) -> Decision {
        self.tell(Input::Next, now, |core| core.next(now), |decision| Answer::Decided(*decision))
    }

    /// [`Core::charge`].
    pub fn charge(&mut self, used: Nanos, now: Nanos, outcome: Outcome) -> Result<(), NotRunning> {
        self.tell(Input::Charge(used, outcome), now, |core| core.charge(used, now, outcome), Answer::of)
    }

    /// [`Core::debit`].
    pub fn debit(&mut self, vp: VpId, used: Nanos, debt: Debt, now: Nanos) -> Result<Nanos, Refusal> {
        self.tell(Input::Debit(vp, used, debt), now, |core| core.debit(vp, used, debt, now), Answer::left)
    }

    fn tell<T>(
        &mut self,
        input: Input,
        now: Nanos,
        act: impl FnOnce(&mut Core) -> T,
        answer: impl FnOnce(&T) -> Answer,
    ) -> T {
        let result = act(&mut self.core);
        (self.sink)(Event { now, input, answer: answer(&result) });
        result
    }
}

impl Answer {
    fn of<T, E>(result: &Result<T, E>) -> Answer {
        if result.is_ok() { Answer::Done } else { Answer::Refused }
    }

    fn created(result: &Result<VpId, Refusal>) -> Answer {
        result.map_or(Answer::Refused, Answer::Created)
    }

    fn left(result: &Result<Nanos, Refusal>) -> Answer {
        result.map_or(Answer::Refused, Answer::Left)
    }
}

/// Why a record was not replayed to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
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
        answer: Answer,
    },
}

/// The first line of a record of a core.
pub fn head(config: &Config) -> String {
    let Config { blocking, cap, arrears } = config;
    format!("weir-cpu-trace 2 blocking {} cap {} arrears {}", blocking.0, cap.0, arrears.0)
}

/// Puts what a record says to a new core, line by line, and compares its answers. Gives back the core as it is in the end.
///
/// # Errors
///
/// The first line that cannot be read, or that the core answers otherwise.
pub fn replay<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Core, ReplayError> {
    let mut lines = lines.into_iter().zip(1..);
    let config = lines.next().and_then(|(line, _)| config(line));
    let mut core = Core::new(config.ok_or(ReplayError::Unreadable { line: 1 })?);
    for (text, line) in lines {
        let event = Event::from_str(text).map_err(|_| ReplayError::Unreadable { line })?;
        let answer = event.input.put_to(&mut core, event.now);
        if answer != event.answer {
            return Err(ReplayError::Diverged { line, answer });
        }
    }
    Ok(core)
}

impl Input {
    fn put_to(self, core: &mut Core, now: Nanos) -> Answer {
        match self {
            Input::Create(terms) => Answer::created(&core.create(terms, now)),
            Input::Change(vp, terms) => Answer::of(&core.change(vp, terms, now)),
            Input::Pledge(vp, terms) => Answer::of(&core.pledge(vp, terms, now)),
            Input::Close(vp) => Answer::of(&core.close(vp, now)),
            Input::Wake(vp) => Answer::of(&core.wake(vp, now)),
            Input::Sleep(vp) => Answer::of(&core.sleep(vp, now)),
            Input::Look => {
                core.promised(now);
                Answer::Done
            }
            Input::Next => Answer::Decided(core.next(now)),
            Input::Charge(used, outcome) => Answer::of(&core.charge(used, now, outcome)),
            Input::Debit(vp, used, debt) => Answer::left(&core.debit(vp, used, debt, now)),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.now.0, self.input, self.answer)
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Create(terms) => write!(f, "create {}", Written(terms)),
            Input::Change(vp, terms) => write!(f, "change {vp} {}", Written(terms)),
            Input::Pledge(vp, terms) => write!(f, "pledge {vp} {}", Written(terms)),
            Input::Close(vp) => write!(f, "close {vp}"),
            Input::Wake(vp) => write!(f, "wake {vp}"),
            Input::Sleep(vp) => write!(f, "sleep {vp}"),
            Input::Look => f.write_str("look"),
            Input::Next => f.write_str("next"),
            Input::Charge(used, outcome) => write!(f, "charge {} {}", used.0, outcome_name(*outcome)),
            Input::Debit(vp, used, debt) => write!(f, "debit {vp} {} {}", used.0, debt_name(*debt)),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Done => f.write_str("done"),
            Answer::Refused => f.write_str("refused"),
            Answer::Created(vp) => write!(f, "created {vp}"),
            Answer::Left(left) => write!(f, "left {}", left.0),
            Answer::Decided(Decision::Run { vp, budget, account: Account::Reserved }) => {
                write!(f, "run {vp} {} reserved", budget.0)
            }
            Answer::Decided(Decision::Run { vp, budget, account: Account::Spare }) => {
                write!(f, "run {vp} {} spare", budget.0)
            }
            Answer::Decided(Decision::Idle { until: Some(until) }) => write!(f, "idle {}", until.0),
            Answer::Decided(Decision::Idle { until: None }) => f.write_str("idle"),
        }
    }
}

/// Terms as a record has them.
struct Written<'a>(&'a Terms);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.share {
            Share::Reserved(Reservation { period, slice, spare }) => {
                let spare = spare.map_or(0, Weight::get);
                write!(f, "reserved {} {} {spare} {}", period.0, slice.0, self.0.overrun.0)
            }
            Share::BestEffort(weight) => write!(f, "best-effort {} {}", weight.get(), self.0.overrun.0),
        }
    }
}

fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ready => "ready",
        Outcome::Suspended => "suspended",
        Outcome::Idle => "idle",
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

impl FromStr for Event {
    type Err = NotAnEvent;

    /// Reads what its `Display` writes, and nothing else.
    fn from_str(line: &str) -> Result<Event, NotAnEvent> {
        let mut words = line.split_ascii_whitespace();
        let event = event(&mut words).ok_or(NotAnEvent)?;
        if words.next().is_some() { Err(NotAnEvent) } else { Ok(event) }
    }
}

type Words<'a> = SplitAsciiWhitespace<'a>;

fn config(line: &str) -> Option<Config> {
    let mut words = line.split_ascii_whitespace();
    for expected in ["weir-cpu-trace", "2", "blocking"] {
        words.next().filter(|word| *word == expected)?;
    }
    let blocking = nanos(&mut words)?;
    words.next().filter(|word| *word == "cap")?;
    let cap = Ppm(words.next()?.parse().ok()?);
    words.next().filter(|word| *word == "arrears")?;
    let arrears = nanos(&mut words)?;
    words.next().is_none().then_some(Config { blocking, cap, arrears })
}

fn event(words: &mut Words) -> Option<Event> {
    let now = nanos(words)?;
    let input = match words.next()? {
        "create" => Input::Create(terms(words)?),
        "change" => Input::Change(vp(words)?, terms(words)?),
        "pledge" => Input::Pledge(vp(words)?, terms(words)?),
        "close" => Input::Close(vp(words)?),
        "wake" => Input::Wake(vp(words)?),
        "sleep" => Input::Sleep(vp(words)?),
        "look" => Input::Look,
        "next" => Input::Next,
        "charge" => Input::Charge(nanos(words)?, outcome(words)?),
        "debit" => Input::Debit(vp(words)?, nanos(words)?, debt(words)?),
        _ => return None,
    };
    words.next().filter(|word| *word == "->")?;
    let answer = match words.next()? {
        "done" => Answer::Done,
        "refused" => Answer::Refused,
        "created" => Answer::Created(vp(words)?),
        "left" => Answer::Left(nanos(words)?),
        "run" => {
            let (vp, budget) = (vp(words)?, nanos(words)?);
            let account = match words.next()? {
                "reserved" => Account::Reserved,
                "spare" => Account::Spare,
                _ => return None,
            };
            Answer::Decided(Decision::Run { vp, budget, account })
        }
        "idle" => {
            let until = match words.next() {
                Some(word) => Some(Nanos(word.parse().ok()?)),
                None => None,
            };
            Answer::Decided(Decision::Idle { until })
        }
        _ => return None,
    };
    Some(Event { now, input, answer })
}

fn nanos(words: &mut Words) -> Option<Nanos> {
    words.next()?.parse().ok().map(Nanos)
}

fn vp(words: &mut Words) -> Option<VpId> {
    let (index, generation) = words.next()?.split_once('.')?;
    Some(VpId { index: index.parse().ok()?, generation: generation.parse().ok()? })
}

fn outcome(words: &mut Words) -> Option<Outcome> {
    let word = words.next()?;
    [Outcome::Ready, Outcome::Suspended, Outcome::Idle]
        .into_iter()
        .find(|outcome| outcome_name(*outcome) == word)
}

fn debt(words: &mut Words) -> Option<Debt> {
    let word = words.next()?;
    [Debt::Imposed, Debt::Agreed].into_iter().find(|debt| debt_name(*debt) == word)
}

fn terms(words: &mut Words) -> Option<Terms> {
    let share = match words.next()? {
        "reserved" => {
            let (period, slice) = (nanos(words)?, nanos(words)?);
            let spare = match words.next()?.parse().ok()? {
                0 => None,
                weight => Some(Weight::new(weight)?),
            };
            Share::Reserved(Reservation { period, slice, spare })
        }
        "best-effort" => Share::BestEffort(Weight::new(words.next()?.parse().ok()?)?),
        _ => return None,
    };
    Some(Terms { share, overrun: nanos(words)? })
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
            let event: Event = line.parse().unwrap_or_else(|_| panic!("{line}"));
            assert_eq!(event.to_string(), line);
            let more = format!("{line} 1 1");
            assert_eq!(more.parse::<Event>(), Err(NotAnEvent), "{more}");
            let (less, _) = line.rsplit_once(' ').unwrap_or_default();
            assert!(
                less.parse::<Event>().is_ok_and(|event| event.to_string() == "10 next -> idle")
                    || less.parse::<Event>().is_err()
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
            assert_eq!(line.parse::<Event>(), Err(NotAnEvent), "{line}");
        }
        assert_eq!(replay([]).err(), Some(ReplayError::Unreadable { line: 1 }));
        assert_eq!(
            replay(["weir-cpu-trace 1 blocking 1 cap 1 arrears 1"]).err(),
            Some(ReplayError::Unreadable { line: 1 })
        );
    }

    proptest! {
        #[test]
        fn no_line_is_too_strange(
            words in prop::collection::vec("create|change|next|charge|->|run|idle|best-effort|[0-9]{1,21}|[0-9]\\.[0-9]|.", 0..12)
        ) {
            let line = words.join(" ");
            if let Ok(event) = line.parse::<Event>() {
                prop_assert_eq!(event.to_string().parse(), Ok(event));
            }
        }
    }
}
