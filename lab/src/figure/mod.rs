//! The experiments of the papers, done with weir, and one of weir's own: `weir-lab FIGURE`, and `make figures` for all of them.
//!
//! An experiment creates its own network namespace, traffic and node, records the results, and checks its criteria.
//! With `--without` the examined mechanism is switched off, and the criteria must fail. [`page`] shows the results
//! beside those of the paper.

mod chart;
mod csv;
mod diet_oke_4;
mod diet_oke_5;
mod diet_oke_6;
mod flame_5;
mod flame_6;
mod link_script;
pub(crate) mod monitor;
pub(crate) mod network;
pub(crate) mod node;
mod page;
mod payoff;
mod price_11;
mod price_12;
mod price_13;
mod price_15;
mod price_16;
pub mod program;
mod source_to_running;
mod sqosh_6;
pub(crate) mod synthetic;
mod watch;

use crate::criterion::Criterion;
use crate::error::LabError;
use chart::{Chart, ChartAxis, Mark};
use csv::Csv;

/// An experiment, and its texts on the page.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The paper, and the number of its figure, or the subject of an experiment of weir's own.
    pub name: &'static str,
    /// The heading on the page.
    pub title: &'static str,
    /// The description of the experiment with weir, in Markdown.
    pub experiment: &'static str,
    /// The experiment of the paper and its result, in Markdown. Empty for an experiment of weir's own.
    pub paper: &'static str,
    /// The difference that `--without` makes.
    pub without: &'static str,
    run: fn(Mechanism) -> Result<Outcome, LabError>,
}

/// The state of the examined mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// In use.
    On,
    /// Switched off.
    Off,
}

/// The result of an experiment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Recorded rows, each set with the name of its file without its extension.
    records: Vec<(String, Csv)>,
    /// Charts, each with the name of its file without its extension.
    charts: Vec<(String, Chart)>,
    criteria: Vec<Criterion>,
    /// Text below the criteria, in Markdown.
    remarks: String,
}

impl Outcome {
    /// An outcome with one file of rows and one chart.
    fn new(figure: &Figure, csv: Csv, chart: Chart, criteria: Vec<Criterion>, remarks: String) -> Self {
        let name = figure.name.to_owned();
        Self { records: vec![(name.clone(), csv)], charts: vec![(name, chart)], criteria, remarks }
    }

    /// Returns true if there are criteria and all are kept.
    fn all_kept(&self) -> bool {
        !self.criteria.is_empty() && self.criteria.iter().all(|criterion| criterion.is_kept)
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
    flame_6::FIGURE,
    diet_oke_4::FIGURE,
    diet_oke_5::FIGURE,
    diet_oke_6::FIGURE,
    payoff::FIGURE,
    source_to_running::FIGURE,
];

/// The experiment with this name.
pub fn find(name: &str) -> Result<&'static Figure, LabError> {
    FIGURES.iter().find(|figure| figure.name == name).ok_or_else(|| LabError::UnknownFigure(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_unique_name_and_all_texts() {
        for (place, figure) in FIGURES.iter().enumerate() {
            assert_eq!(find(figure.name).unwrap().title, figure.title);
            assert!(FIGURES.iter().skip(place + 1).all(|other| other.name != figure.name));
            for text in [figure.title, figure.experiment, figure.without] {
                assert!(!text.trim().is_empty(), "{}", figure.name);
            }
            let is_own = ["payoff", "source-to-running"].contains(&figure.name);
            assert_eq!(figure.paper.is_empty(), is_own, "{}", figure.name);
        }
        assert!(matches!(find("price-99"), Err(LabError::UnknownFigure(_))));
    }

    #[test]
    fn an_outcome_without_criteria_fails() {
        assert!(!Outcome::default().all_kept());
        let criterion = |is_kept: bool| Criterion::at_most("a", f64::from(u8::from(!is_kept)), 0.0, "");
        let seen = |kept: &[bool]| {
            Outcome { criteria: kept.iter().map(|k| criterion(*k)).collect(), ..Outcome::default() }
                .all_kept()
        };
        assert!(seen(&[true, true]) && !seen(&[true, false]));
    }
}
