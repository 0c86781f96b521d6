//! `weir config check`: checks a node's configuration as a start of the node does.

use super::show;
use crate::Failure;
use crate::calibrated_profile;
use indicatif::ProgressBar;
use std::io::{IsTerminal, Write};
use std::path::Path;
use weir_node::control::config::NodeConfiguration;
use weir_node::server::daemon::{Setup, check as check_start};
use weir_units::{Escape as _, Nanos};

/// Prints a summary of the configuration, or the errors and warnings that a start of the node would give.
pub fn check(out: &mut impl Write, path: &Path) -> Result<(), Failure> {
    let shipped = crate::cmd::policy::shipped_bytes;
    let setup = Setup { config: path.to_owned(), calibration: calibrated_profile::calibration(), shipped };
    // A spinner shows that the command runs, because compiling can take long.
    let bar = std::io::stderr().is_terminal().then(ProgressBar::new_spinner);
    let (warnings, config) = check_start(&setup, &mut |module| {
        bar.iter().for_each(|bar| bar.set_message(format!("compiling and starting: {}", module.escaped())));
    });
    bar.iter().for_each(ProgressBar::finish_and_clear);
    for warning in warnings {
        writeln!(out, "warning: {}", warning.at(path))?;
    }
    print_summary(out, &config?)?;
    Ok(())
}

/// Returns the share of a core that a reservation takes, in parts per million.
fn reserved_ppm((period, slice): (Nanos, Nanos)) -> u64 {
    // At most 1,000,000, as a slice is no longer than its period.
    u64::try_from(u128::from(slice.0) * 1_000_000 / u128::from(period.0.max(1))).unwrap_or(u64::MAX)
}

/// Prints a summary of a configuration that can be used.
fn print_summary(out: &mut impl Write, config: &NodeConfiguration) -> std::io::Result<()> {
    let NodeConfiguration { node, cpu, interfaces, sessions, .. } = config;
    writeln!(
        out,
        "node `{}`: socket {}, state in {}",
        node.name,
        node.socket.escaped(),
        node.state.escaped()
    )?;
    if let Some(address) = node.metrics {
        writeln!(out, "metrics: http://{address}/metrics")?;
    }
    let cores: Vec<String> = cpu.module_cores().iter().map(u16::to_string).collect();
    writeln!(out, "cores: {}, {} % of each can be reserved", cores.join(", "), cpu.reservable)?;
    for interface in interfaces {
        writeln!(out, "interface {}: {} for its packets", interface.name.escape_debug(), interface.arena)?;
    }
    let mut rows = Vec::new();
    for session in sessions {
        let reserved =
            session.processors.iter().filter_map(|cpu| cpu.reservation()).map(reserved_ppm).sum::<u64>();
        let modules: Vec<String> =
            session.modules.iter().map(|module| module.module.escape_debug().to_string()).collect();
        rows.push(vec![
            format!("session {}", session.name),
            if reserved == 0 {
                "no reservation".to_owned()
            } else {
                format!("{} of a core", show::percent(reserved))
            },
            session.memory.to_string(),
            format!("{} channels", session.channels.len()),
            if modules.is_empty() { "no modules".to_owned() } else { modules.join(", ") },
        ]);
    }
    show::print_columns(out, &rows, &[0, 4])?;
    writeln!(out, "a node can be started with this configuration")
}
