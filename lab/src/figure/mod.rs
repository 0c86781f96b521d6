//! The experiments of the papers, done with weir: `weir-lab FIGURE`, and `make figures` for all of them.
//!
//! An experiment makes its own network namespace, traffic and node, records what happens, and says whether what must be seen was seen. With
//! `--without` the mechanism that it is about is switched off; then it must not be seen. [`page`] puts what was recorded beside what the paper found.

pub mod chart;
pub mod csv;
pub mod diet_oke_4;
pub mod diet_oke_5;
pub mod diet_oke_6;
mod error;
pub mod flame_5;
pub mod guest;
pub mod line;
pub mod monitor;
pub mod node;
pub mod page;
pub mod price_11;
pub mod price_12;
pub mod price_13;
pub mod price_15;
pub mod price_16;
pub mod scene;
pub mod sqosh_6;
pub mod verdict;
pub mod watch;

pub use chart::{Axis, Chart, Mark};
pub use csv::Csv;
pub use error::FigureError;
pub use verdict::Verdict;

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Its name: the paper, and the number of the figure there.
    pub name: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// What is done here, in Markdown.
    pub here: &'static str,
    /// What the paper did and found, in Markdown.
    pub paper: &'static str,
    /// What `--without` switches off.
    pub without: &'static str,
    /// Does it.
    pub run: fn(Mechanism) -> Result<Outcome, FigureError>,
}

/// Whether the mechanism that an experiment is about works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// As it is used.
    On,
    /// Switched off.
    Off,
}

/// What came out of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was recorded: the name of a file without its ending, and its rows.
    pub records: Vec<(String, Csv)>,
    /// What is drawn of it, likewise.
    pub charts: Vec<(String, Chart)>,
    /// What must be seen.
    pub verdicts: Vec<Verdict>,
    /// What else is to be said, in Markdown.
    pub found: String,
}

impl Outcome {
    /// Whether all was seen that must be.
    pub fn is_seen(&self) -> bool {
        !self.verdicts.is_empty() && self.verdicts.iter().all(|verdict| verdict.is_kept)
    }
}

/// All experiments, in the order of the page.
pub const FIGURES: &[Figure] = &[
    price_11::FIGURE,
    price_12::FIGURE,
    price_13::FIGURE,
    price_15::FIGURE,
    price_16::FIGURE,
    sqosh_6::FIGURE,
    flame_5::FIGURE,
    diet_oke_4::FIGURE,
    diet_oke_5::FIGURE,
    diet_oke_6::FIGURE,
];

/// The experiment of that name.
///
/// # Errors
/// There is none.
pub fn find(name: &str) -> Result<&'static Figure, FigureError> {
    FIGURES.iter().find(|figure| figure.name == name).ok_or_else(|| FigureError::Unknown(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_name_of_its_own_and_says_what_it_is() {
        for (place, figure) in FIGURES.iter().enumerate() {
            assert_eq!(find(figure.name).unwrap().title, figure.title);
            assert!(FIGURES.iter().skip(place + 1).all(|other| other.name != figure.name));
            for text in [figure.title, figure.here, figure.paper, figure.without] {
                assert!(!text.trim().is_empty(), "{}", figure.name);
            }
        }
        assert!(matches!(find("price-99"), Err(FigureError::Unknown(_))));
    }

    #[test]
    fn who_demands_nothing_has_seen_nothing() {
        assert!(!Outcome::default().is_seen());
        let verdict = |is_kept| Verdict { is_kept, ..Verdict::at_most("a", 0.0, 1.0, "") };
        let seen = |kept: &[bool]| {
            Outcome { verdicts: kept.iter().map(|k| verdict(*k)).collect(), ..Outcome::default() }.is_seen()
        };
        assert!(seen(&[true, true]) && !seen(&[true, false]));
    }
}
