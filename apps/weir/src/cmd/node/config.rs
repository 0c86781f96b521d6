//! `weir config check`: whether a node can be started with a configuration, as a start itself finds out.

use super::show;
use crate::Failure;
use crate::terms;
use indicatif::ProgressBar;
use std::io::{IsTerminal, Write};
use std::path::Path;
use weir_node::control::config::NodeConfiguration;
use weir_node::server::daemon::{Setup, check as look};
use weir_units::{Nanos, Shown as _};

/// Says what a node would do with this configuration, or what is wrong with it: what a start would say.
pub fn check(out: &mut impl Write, path: &Path) -> Result<(), Failure> {
    let shipped = crate::cmd::policy::shipped_bytes;
    let setup = Setup { config: path.to_owned(), calibration: terms::calibration(), shipped };
    // On a terminal alone: compiling can take long.
    let bar = std::io::stderr().is_terminal().then(ProgressBar::new_spinner);
    let (warnings, config) = look(&setup, &mut |what| {
        bar.iter().for_each(|bar| bar.set_message(format!("compiling and starting: {}", what.shown())));
    });
    bar.iter().for_each(ProgressBar::finish_and_clear);
    for warning in warnings {
        writeln!(out, "warning: {}", warning.at(path))?;
    }
    summary(out, &config?)?;
    Ok(())
}

/// Millionths of a core.
fn ppm((period, slice): (Nanos, Nanos)) -> u64 {
    // At most a million: a slice is no longer than its period, which is not zero.
    u64::try_from(u128::from(slice.0) * 1_000_000 / u128::from(period.0.max(1))).unwrap_or(u64::MAX)
}

fn summary(out: &mut impl Write, config: &NodeConfiguration) -> std::io::Result<()> {
    let NodeConfiguration { node, cpu, interfaces, sessions, .. } = config;
    writeln!(out, "node `{}`: socket {}, state in {}", node.name, node.socket.shown(), node.state.shown())?;
    if let Some(address) = node.metrics {
        writeln!(out, "metrics: http://{address}/metrics")?;
    }
    let own: Vec<String> = cpu.module_cores().iter().map(u16::to_string).collect();
    writeln!(out, "cores: {}, {} % of each can be reserved", own.join(", "), cpu.reservable)?;
    for interface in interfaces {
        writeln!(out, "interface {}: {} for its packets", interface.name.escape_debug(), interface.arena)?;
    }
    let mut rows = Vec::new();
    for session in sessions {
        let all = session.processors.iter().filter_map(|cpu| cpu.reservation()).map(ppm).sum::<u64>();
        let modules: Vec<String> =
            session.modules.iter().map(|module| module.module.escape_debug().to_string()).collect();
        rows.push(vec![
            format!("session {}", session.name),
            if all == 0 { "no reservation".to_owned() } else { format!("{} of a core", show::percent(all)) },
            session.memory.to_string(),
            format!("{} channels", session.channels.len()),
            if modules.is_empty() { "no modules".to_owned() } else { modules.join(", ") },
        ]);
    }
    show::table(out, &rows, &[0, 4])?;
    writeln!(out, "a node can be started with it")
}
