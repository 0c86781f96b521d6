//! The program of the experiments, `make figures`.

use super::{FIGURES, Figure, Mechanism, find, page};
use crate::error::{Doing, LabError};
use crate::{criterion, namespace};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Does an experiment of the papers, and fails when what must be seen is not seen.
#[derive(Debug, Parser)]
#[command(name = "weir-lab")]
struct Cli {
    /// The experiment; `list` lists them, `all` does all of them
    figure: String,
    /// With the mechanism that it is about switched off: then it must fail
    #[arg(long)]
    without: bool,
    /// The folder for the drawing, its rows and the page
    #[arg(long, value_name = "FOLDER", default_value = "out/figures")]
    into: PathBuf,
}

/// The program `weir-lab`.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.figure.as_str() {
        "list" => {
            for Figure { name, title, without, .. } in FIGURES {
                println!("{name:12} {title}\n{:12}   --without: {without}", "");
            }
            Ok(true)
        }
        "all" => all(&cli),
        name => find(name).and_then(|figure| one(figure, &cli)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("weir-lab: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Does all experiments. Returns true if all criteria are kept.
fn all(cli: &Cli) -> Result<bool, LabError> {
    let mut failed = Vec::new();
    for figure in FIGURES {
        println!("== {}: {}", figure.name, figure.title);
        match one(figure, cli) {
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
        println!("not seen: {}", failed.join(", "));
    }
    Ok(failed.is_empty())
}

/// Does one experiment in a namespace of its own. Returns true if all its criteria are kept.
fn one(figure: &Figure, cli: &Cli) -> Result<bool, LabError> {
    if !namespace::is_inside() {
        let mut arguments = vec![figure.name.to_owned(), "--into".to_owned(), cli.into.display().to_string()];
        arguments.extend(cli.without.then(|| "--without".to_owned()));
        return Ok(namespace::inside(&arguments)?.status().doing("unshare(1)")?.success());
    }
    namespace::go_first();
    let mechanism = if cli.without { Mechanism::Off } else { Mechanism::On };
    let outcome = (figure.run)(mechanism)?;
    println!("{}\n{}", criterion::table(&outcome.criteria), outcome.found);
    // The page shows what weir does, not what it would not do.
    if mechanism == Mechanism::On {
        page::write(&cli.into, figure, &outcome)?;
    }
    Ok(outcome.is_seen())
}
