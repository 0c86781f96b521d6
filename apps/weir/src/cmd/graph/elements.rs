//! `weir graph elements`.

use super::GraphCommandError;
use crate::Failure;
use clap::Args;
use std::io::Write;
use weir_elements::{AllElements, CLASSES};
use weir_graph::engine::ElementClasses as _;
use weir_graph::nearest;

/// `weir graph elements`.
#[derive(Debug, Args)]
pub struct ElementsArgs {
    /// The class whose manual is shown (default: a list of all)
    #[arg(value_name = "CLASS")]
    class: Option<String>,
}

/// Lists the element classes, or shows a manual.
///
/// # Errors
///
/// [`GraphCommandError::NoClass`], and errors of standard output.
pub fn elements(out: &mut impl Write, args: &ElementsArgs) -> Result<(), Failure> {
    let Some(name) = &args.class else {
        for (folder, classes) in CLASSES {
            writeln!(out, "{folder}")?;
            for class in *classes {
                writeln!(out, "  {:<22} {}", class.name, class.manual.lines().next().unwrap_or_default())?;
            }
        }
        return Ok(());
    };
    let Some(class) = AllElements.find(name) else {
        let nearest = nearest(name, AllElements.names());
        let suggestion = nearest.map_or(String::new(), |nearest| format!("; did you mean `{nearest}`?"));
        return Err(GraphCommandError::NoClass { name: name.clone(), suggestion }.into());
    };
    let (summary, text) = class.manual.split_once("\n\n").unwrap_or((class.manual, ""));
    writeln!(out, "{}: {summary}\n\n{text}\n", class.name)?;
    writeln!(
        out,
        "Ports: {} (inputs/outputs)   Processing: {}   Flow: {}",
        class.ports, class.processing, class.flow
    )?;
    writeln!(out, "Cost: {:?}, {}", class.cost, class.cost.description())?;
    Ok(())
}
