//! The program `weir-lab`, run by `make figures`: its command line.

use super::{FIGURES, Figure, Mechanism, find, page};
use crate::error::{Context, LabError};
use crate::{criterion, namespace};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Carries out an experiment, of a paper or of weir's own, and fails if a criterion is not kept.
#[derive(Debug, Parser)]
#[command(name = "weir-lab")]
struct Cli {
    /// Name of an experiment; `list` lists all, `all` carries out all
    figure: String,
    /// Switch the examined mechanism off; a criterion should then be broken, which gives exit status 1
    #[arg(long)]
    without: bool,
    /// Folder for the chart, its rows and the page
    #[arg(long, value_name = "FOLDER", default_value = "out/figures")]
    into: PathBuf,
}

/// Runs the program `weir-lab`.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.figure.as_str() {
        "list" => {
            for Figure { name, title, without, .. } in FIGURES {
                println!("{name:12} {title}\n{:12}   --without: {without}", "");
            }
            Ok(true)
        }
        "all" => run_all(&cli),
        name => find(name).and_then(|figure| run_one(figure, &cli)),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("weir-lab: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Carries out all experiments. Returns true if all criteria are kept.
fn run_all(cli: &Cli) -> Result<bool, LabError> {
    let mut failed = Vec::new();
    for figure in FIGURES {
        println!("== {}: {}", figure.name, figure.title);
        match run_one(figure, cli) {
            Ok(true) => {}
            Ok(false) => failed.push(figure.name),
            Err(error @ LabError::NoNamespace) => return Err(error),
            Err(error) => {
                eprintln!("weir-lab: {}: {error}", figure.name);
                failed.push(figure.name);
            }
        }
    }
    if !failed.is_empty() {
        println!("experiments with broken criteria: {}", failed.join(", "));
    }
    Ok(failed.is_empty())
}

/// Carries out one experiment in its own namespace. Returns true if all its criteria are kept.
fn run_one(figure: &Figure, cli: &Cli) -> Result<bool, LabError> {
    if !namespace::is_inside() {
        let mut arguments = vec![figure.name.to_owned(), "--into".to_owned(), cli.into.display().to_string()];
        arguments.extend(cli.without.then(|| "--without".to_owned()));
        return Ok(namespace::command_inside(&arguments)?.status().context("unshare(1)")?.success());
    }
    namespace::raise_priority();
    let mechanism = if cli.without { Mechanism::Off } else { Mechanism::On };
    let outcome = (figure.run)(mechanism)?;
    println!("{}\n{}", criterion::table(&outcome.criteria), outcome.remarks);
    // The page has only results with the mechanism in use.
    if mechanism == Mechanism::On {
        page::write(&cli.into, figure, &outcome)?;
    }
    Ok(outcome.all_kept())
}
