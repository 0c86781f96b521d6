//! `weir graph check`.

use super::libraries::LibraryFolders;
use super::load::{ConfigurationArgs, Loaded, load};
use super::run::faulty;
use super::threads::{MOST_THREADS, describe};
use crate::Failure;
use clap::Args;
use std::io::Write;
use weir_elements::AllElements;
use weir_graph::engine::{OneByOne, OnlyInterfaces, Router, RunOptions, SimulatedClock, ThreadPlacement};
use weir_units::{Escape as _, escaped_lines};

/// `weir graph check`.
#[derive(Debug, Args)]
pub struct GraphCheckArgs {
    #[command(flatten)]
    configuration: ConfigurationArgs,
    /// Also show on which of this number of threads each element would run
    #[arg(short = 'j', long, value_name = "THREADS", value_parser = clap::value_parser!(u16).range(1..=MOST_THREADS))]
    threads: Option<u16>,
}

/// Checks a configuration. Opens none of its files and devices.
///
/// # Errors
///
/// [`super::GraphCommandError`], and errors of standard output.
pub fn check(out: &mut impl Write, args: &GraphCheckArgs) -> Result<(), Failure> {
    let libraries = LibraryFolders::new(args.configuration.clickpath()).with_elements();
    let Loaded { name, flat } = load(&args.configuration, &libraries, true)?;
    let clock = Box::<SimulatedClock>::default();
    let system = Box::new(OnlyInterfaces(weir_graph_io::interfaces()));
    let mut router = Router::new(flat, &AllElements, system, clock, RunOptions::default())
        .map_err(|errors| faulty(&name, &errors))?;
    let rights = router.rights();
    let graph = router.graph();
    let connections: usize = graph.ports.iter().flat_map(|it| &it.targets).map(Vec::len).sum();
    let elements = graph.declared.len();
    writeln!(out, "{}: {elements} elements, {connections} connections", name.escaped())?;
    let (batched, reached) = router.batched();
    let percent = (batched * 100).checked_div(reached).unwrap_or(100);
    writeln!(out, "{batched} of {reached} elements get pushed packets in batches: {percent} %")?;
    let show = |element: usize| graph.declared[element].to_string();
    for (element, right) in rights {
        let declared = &graph.declared[element];
        let shown = format!("{} :: {}", declared.name, declared.class);
        writeln!(out, "  {} needs {}", shown.escaped(), right.escaped())?;
    }
    for (start, reason) in router.one_by_one() {
        let because = match reason {
            OneByOne::Effects(one, other) => {
                format!("the order of the effects of {} and {} can be seen", show(one), show(other))
            }
            OneByOne::Copies => "too many packets can come of one".to_owned(),
            OneByOne::Control(element) => format!("{} stops the graph or calls handlers", show(element)),
        };
        writeln!(out, "  one by one behind {}: {}", show(start).escaped(), because.escaped())?;
    }
    if let Some(threads) = args.threads {
        let placement = ThreadPlacement::of(&mut router, usize::from(threads));
        write!(out, "{}", escaped_lines(&describe(&placement, router.graph())))?;
    }
    Ok(())
}
