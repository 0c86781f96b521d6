//! Writes docs/figures: the charts and tables of each experiment, and one page that shows them beside the results of the
//! papers.

use super::{FIGURES, Figure, Outcome};
use crate::error::LabError;
use crate::{criterion, machine};
use std::fmt::Write as _;
use std::path::Path;

/// The beginning of the page.
const HEAD: &str = "# Figures: the results of the papers, and those of weir

Each figure is an experiment that anyone with root on a Linux machine can repeat:

    make figures                                  # all experiments, and this page
    target/release/weir-lab list                  # the names of the experiments
    target/release/weir-lab price-11 --into DIR   # one experiment, into a folder
    target/release/weir-lab price-11 --without    # with the mechanism switched off: its criteria must fail

An experiment creates its own network namespace with veth pairs and traffic, and a whole node (`weir node`) if it examines one. It fails if a criterion
is not kept. Below each figure are the measured values, the machine, and the result of the paper. The rows of each chart are in the CSV file
beside it. Only `weir-lab` writes this page.
";

/// Writes the files of an experiment, and its part of the page, into a folder. Other parts of the page stay.
pub fn write(folder: &Path, figure: &Figure, outcome: &Outcome) -> Result<(), LabError> {
    let put = |name: &str, text: &str| -> Result<(), LabError> {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(LabError::file(&path))
    };
    std::fs::create_dir_all(folder).map_err(LabError::file(folder))?;
    for (name, csv) in &outcome.records {
        put(&format!("{name}.csv"), csv.text())?;
    }
    for (name, chart) in &outcome.charts {
        put(&format!("{name}.svg"), &chart.svg(name)?)?;
    }
    let before = std::fs::read_to_string(folder.join("README.md")).unwrap_or_default();
    put("README.md", &replace_part(&before, figure, &part(figure, outcome)))
}

/// The page `before` with the part of this experiment replaced.
fn replace_part(before: &str, figure: &Figure, part: &str) -> String {
    let mut text = HEAD.to_owned();
    for other in FIGURES {
        let (open, close) = markers(other.name);
        let old = || before.split_once(&open)?.1.split_once(&close).map(|(inner, _)| inner.trim());
        let inner = if other.name == figure.name { Some(part.trim()) } else { old() };
        if let Some(inner) = inner {
            _ = write!(text, "\n{open}\n{inner}\n{close}\n");
        }
    }
    text
}

/// The comments before and after the part of an experiment.
fn markers(name: &str) -> (String, String) {
    (format!("<!-- figure:{name} -->"), format!("<!-- /figure:{name} -->"))
}

/// The part of the page for one experiment.
fn part(figure: &Figure, outcome: &Outcome) -> String {
    let mut text =
        format!("## {}\n\n    weir-lab {}\n\n{}\n", figure.title, figure.name, figure.experiment.trim());
    for (name, _) in &outcome.charts {
        _ = write!(text, "\n![{}]({name}.svg)\n", figure.title);
    }
    _ = write!(text, "\n{}", criterion::table(&outcome.criteria));
    if !outcome.remarks.trim().is_empty() {
        _ = write!(text, "\n{}\n", outcome.remarks.trim());
    }
    if !figure.paper.is_empty() {
        _ = write!(text, "\n**The paper:** {}\n", figure.paper.trim());
    }
    _ = write!(text, "\n`--without`: {}.\n", figure.without.trim());
    let files: Vec<String> =
        outcome.records.iter().map(|(name, _)| format!("[{name}.csv]({name}.csv)")).collect();
    let machine = machine::name();
    _ = write!(text, "\nRecorded: {}. Machine: {machine}.\n", files.join(", "));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Criterion;

    #[test]
    fn a_part_is_replaced_and_other_parts_stay() {
        let figure = &FIGURES[0];
        let first = replace_part("", figure, "old");
        assert!(first.starts_with("# Figures") && first.contains("\nold\n"));
        let second = replace_part(&first, figure, "new");
        assert_eq!(second, first.replace("\nold\n", "\nnew\n"));
        let Some(other) = FIGURES.get(1) else { return };
        let both = replace_part(&second, other, "its own");
        assert!(both.contains("\nnew\n") && both.contains("\nits own\n"));
    }

    #[test]
    fn a_part_has_the_command_the_criteria_and_the_result_of_the_paper() {
        let outcome = Outcome {
            criteria: vec![Criterion::at_most("error", 0.2, 1.0, "points")],
            remarks: "Nothing was missed.".to_owned(),
            ..Outcome::default()
        };
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &FIGURES[0], &outcome).unwrap();
        let text = std::fs::read_to_string(folder.path().join("README.md")).unwrap();
        for part in ["weir-lab price-11", "≤ 1 points", "Nothing was missed.", "**The paper:**", "Machine: "]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
