//! Why there is no bound, in words that tell the author what to do.

use crate::report::CodeLocation;
use std::fmt;

/// Why there is no bound at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnboundedReason {
    /// Where.
    pub place: CodeLocation,
    /// Why.
    pub why: Why,
}

/// Why there is no bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nothing that ends the loop was recognised.
    NoCounter,
    /// The counter meets its end only if it does not pass or wrap around it.
    MayMiss,
    /// The counter goes up to a value that can be anything.
    LimitUnknown,
    /// The loop has no way out.
    Endless,
    /// The function calls itself, by itself or through others.
    Recursion(String),
    /// The counter times what the loop costs is more than can be counted.
    Overflow,
    /// The module is too large, or too deep, to be analysed in the time that there is.
    TooLarge,
}

impl fmt::Display for UnboundedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.why)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCounter => f.write_str(
                "no counter was found that ends this loop: count it with WEIR_FOR(MAX, ...) in C or .bounded::<MAX>() in Rust, or let a local variable go up to a limit",
            ),
            Self::MayMiss => f.write_str(
                "the counter can step over its end and wrap around, unless it begins below it, which does not show here: count with WEIR_FOR(MAX, ...) in C or .bounded::<MAX>() in Rust, or cut the limit to a constant just before the loop, as in n < MAX ? n : MAX (compilers make != of <, so that to write < does not always help)",
            ),
            Self::LimitUnknown => f.write_str(
                "the loop's limit can be any number: cut it to a constant before the loop, as in n < MAX ? n : MAX, or read a parameter that has limits in the manifest where it is used",
            ),
            Self::Endless => f.write_str("this loop has no way out: add one, or remove the loop"),
            Self::Recursion(name) => write!(f, "{name} calls itself: write it as a loop with a counter"),
            Self::Overflow => f.write_str(
                "the loop's trips times its cost are more than can be counted: make its limit smaller",
            ),
            Self::TooLarge => f.write_str(
                "unbounded: too large: the module has more code on its paths than is analysed; split it, or have less of it inlined",
            ),
        }
    }
}
