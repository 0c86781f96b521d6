//! The experiments: `make figures`.

#![forbid(unsafe_code)]

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use weir_lab::figure::{FIGURES, Figure, FigureError, Mechanism, find, page, scene, verdict};

/// Does an experiment of the papers, and fails when what must be seen is not seen.
#[derive(Debug, Parser)]
#[command(name = "weir-lab")]
struct Cli {
    /// Which experiment; `list` says which there are, `all` does all of them
    figure: String,
    /// With the mechanism that it is about switched off: then it must fail
    #[arg(long)]
    without: bool,
    /// The folder for the drawing, its rows and the page
    #[arg(long, value_name = "FOLDER", default_value = "out/figures")]
    into: PathBuf,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.figure.as_str() {
        "list" => {
            list();
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

fn list() {
    for figure in FIGURES {
        println!("{:12} {}\n{:12}   --without: {}", figure.name, figure.title, "", figure.without);
    }
}

/// All of them, one after the other; whether all was seen.
fn all(cli: &Cli) -> Result<bool, FigureError> {
    let mut failed = Vec::new();
    for figure in FIGURES {
        println!("== {}: {}", figure.name, figure.title);
        match one(figure, cli) {
            Ok(true) => {}
            Ok(false) => failed.push(figure.name),
            Err(error @ FigureError::NoNamespace) => return Err(error),
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

/// One experiment in a namespace of its own; whether all was seen.
fn one(figure: &Figure, cli: &Cli) -> Result<bool, FigureError> {
    if !scene::is_inside() {
        let mut arguments = vec![figure.name.to_owned(), "--into".to_owned(), cli.into.display().to_string()];
        arguments.extend(cli.without.then(|| "--without".to_owned()));
        return Ok(scene::inside(&arguments)?.success());
    }
    scene::go_first();
    let mechanism = if cli.without { Mechanism::Off } else { Mechanism::On };
    let outcome = (figure.run)(mechanism)?;
    println!("{}\n{}", verdict::table(&outcome.verdicts), outcome.found);
    // The page shows what weir does, not what it would not do.
    if mechanism == Mechanism::On {
        page::write(&cli.into, figure, &outcome)?;
    }
    Ok(outcome.is_seen())
}
