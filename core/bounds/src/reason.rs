//! The causes of a missing bound, with messages that tell the module's author what to do.

use crate::report::CodeLocation;
use std::fmt;

/// The most functions of a cycle of calls that a message names, the first included.
pub(crate) const CYCLE_NAMES_MAX: usize = 5;

/// A code location without a bound, and the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnboundedReason {
    /// The location of the loop, the call or the function that has no bound.
    pub place: CodeLocation,
    /// The cause.
    pub cause: UnboundedCause,
}

/// The cause of a missing bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnboundedCause {
    /// No induction variable that ends the loop was recognised.
    NoCounter(CounterProblem),
    /// The induction variable may step over its limit, or wrap around before it reaches the limit.
    MayMiss,
    /// The limit of the induction variable can be any number.
    LimitUnknown,
    /// The loop has no exit.
    Endless,
    /// The first of these functions calls itself: directly, or through the others, each of which calls the next. A long cycle is
    /// cut.
    Recursion(Vec<String>),
    /// The trip count times the cost of the loop's body overflows.
    Overflow,
    /// The analysis of the module needs more work or memory than its limits allow: there is too much code, or the code
    /// is nested too deeply.
    TooLarge,
}

/// The reason why no variable of a loop counts towards the loop's end, as far as the tests of the loop show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CounterProblem {
    /// The counter has this many bits, and wraps around.
    Narrow(u8),
    /// Each iteration multiplies the counter, which can stay 0 or wrap around.
    Multiplied,
    /// The counter's step can be 0.
    StepMayBeZero,
    /// The counter's step can be any number.
    StepUnknown,
    /// Both sides of the loop's test change.
    BothMove,
    /// The loop ends by data that each iteration reads or computes.
    EndsByData,
    /// None of these.
    #[default]
    Unknown,
}

impl CounterProblem {
    /// All problems, with one of the numbers of bits.
    pub const ALL: [Self; 7] = [
        Self::Narrow(8),
        Self::Multiplied,
        Self::StepMayBeZero,
        Self::StepUnknown,
        Self::BothMove,
        Self::EndsByData,
        Self::Unknown,
    ];
}

impl UnboundedCause {
    /// Returns true for a cause of a loop that a bound in the source would remove.
    pub fn is_of_loop(&self) -> bool {
        matches!(self, Self::NoCounter(_) | Self::MayMiss | Self::LimitUnknown | Self::Endless)
    }
}

impl fmt::Display for CounterProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Narrow(bits) => {
                write!(
                    f,
                    "the counter has {bits} bits and wraps around at {}, and the limit can be larger: make it uint32_t, or count the loop",
                    1_u64 << bits
                )
            }
            Self::Multiplied => f.write_str(
                "the counter is multiplied, so that it can stay 0 or wrap around: count the iterations beside it, as in i < 32 for 32 bits",
            ),
            Self::StepMayBeZero => f.write_str(
                "the counter's step can be 0: leave the loop where the step is 0 or more than what is left, as in if (n < 2 || n > left) break, or count the loop",
            ),
            Self::StepUnknown => f.write_str(
                "the counter's step can be any number: cut it before the loop, as in s < 1 ? 1 : s > 255 ? 255 : s, or count the loop",
            ),
            Self::BothMove => f.write_str(
                "both sides of the loop's test change, so that neither is a limit: count the loop",
            ),
            Self::EndsByData => f.write_str(
                "the loop ends by what each iteration reads or computes, which can be anything: count the loop",
            ),
            Self::Unknown => f.write_str("no counter was found that ends this loop: count the loop"),
        }?;
        f.write_str(" with WEIR_FOR(MAX, ...) in C or .bounded::<MAX>() in Rust")
    }
}

impl fmt::Display for UnboundedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.cause)
    }
}

impl fmt::Display for UnboundedCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCounter(problem) => problem.fmt(f),
            Self::MayMiss => f.write_str(
                "the counter can step over its end and wrap around, because the code does not show that it begins below its end: count with WEIR_FOR(MAX, ...) in C or .bounded::<MAX>() in Rust, or cut the limit to a constant just before the loop, as in n < MAX ? n : MAX (compilers turn < into !=, so writing < does not always help)",
            ),
            Self::LimitUnknown => f.write_str(
                "the loop's limit can be any number: cut it to a constant before the loop, as in n < MAX ? n : MAX, or take the limit from a parameter whose largest value is set in the manifest, and read the parameter right at the loop",
            ),
            Self::Endless => f.write_str(
                "this loop has no way out: add one, remove the loop, or count it with WEIR_FOR(MAX, ...) in C or .bounded::<MAX>() in Rust",
            ),
            Self::Recursion(cycle) => {
                let (name, through) = match cycle.as_slice() {
                    [] => ("a function", &[][..]),
                    [name, through @ ..] => (name.as_str(), through),
                };
                write!(f, "{name} calls itself")?;
                for (i, function) in through.iter().enumerate() {
                    write!(f, "{}{function}", if i == 0 { " through " } else { ", " })?;
                }
                f.write_str(
                    ": write it as a loop over a stack with the arguments of its calls, WEIR_STACK in C or containers::Stack in Rust",
                )
            }
            Self::Overflow => f.write_str(
                "the loop's trip count times the cost of its body is more than can be counted: make the loop's limit smaller",
            ),
            Self::TooLarge => f.write_str(
                "unbounded: too large: the module has more code on its paths than is analysed; split it, or have less of it inlined",
            ),
        }
    }
}
