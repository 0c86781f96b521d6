//! What a node takes for sessions that have nothing to do.

use crate::figure::node::{Node, module};
use crate::figure::{FigureError, scene};
use crate::module::Module;
use crate::table::{Table, yes_or_no};
use crate::{BenchError, namespace};
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use weir_node::protocol::Snapshot;

/// Sessions, each with a channel and a module.
const SESSIONS: usize = 1000;
/// How much of a core they may take, in percent.
const PROMISE: f64 = 1.0;
/// How long is looked.
const TIME: Duration = Duration::from_secs(5);
/// Ticks of a second in /proc/PID/stat: `USER_HZ`, which Linux never changes.
const TICKS: f64 = 100.0;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Processor time of the node from its start until all sessions had their modules, in seconds.
    pub setting_up: f64,
    /// What it takes then, in percent of a core.
    pub idle: f64,
}

/// The percentage of a core that they take, and what it takes to set them up, measured by this program in a network namespace.
///
/// # Errors
/// Namespaces cannot be made, or the node does not do what it should.
pub fn table() -> Result<String, BenchError> {
    let text = namespace::measure(&["--idle"])?;
    let costs = said(&text).ok_or_else(|| namespace::failed(&["--idle"], text))?;
    let kept = yes_or_no(costs.idle < PROMISE);
    let mut table = Table::new(&["idle sessions", "of a core", "promised", "kept"]);
    table.row([SESSIONS.to_string(), format!("{:.2} %", costs.idle), format!("under {PROMISE:.0} %"), kept]);
    Ok(format!(
        "A node whose sessions each have a channel on an interface and a module, and for which nothing comes; processor time of all its threads in {} s.\n\n{table}\n\
         To start the node, create the sessions and load a module into each, all checked and compiled, took it {:.1} s of processor time: {:.1} ms for each.\n",
        TIME.as_secs(),
        costs.setting_up,
        costs.setting_up * 1000.0 / f64::from(u32::try_from(SESSIONS).unwrap_or(u32::MAX)),
    ))
}

/// What [`child`] has said.
fn said(text: &str) -> Option<Costs> {
    let values: Vec<f64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [setting_up, idle] = values.try_into().ok()?;
    Some(Costs { setting_up, idle })
}

/// The measurement itself: in a namespace of its own.
///
/// # Errors
/// The node does not start, or refuses.
pub fn child() -> Result<Costs, FigureError> {
    scene::cable("a", "b")?;
    let mut config = String::from("[[interface]]\nname = \"b\"\narena = \"8 MiB\"\n");
    for number in 0..SESSIONS {
        _ = write!(
            config,
            "[[session]]\nname = \"s{number}\"\nmemory = \"1 MiB\"\nchannel = [{{ interface = \"b\", filter = \"udp\", queue = 64 }}]\n"
        );
    }
    let mut node = Node::start(&config)?;
    let wasm = Module::empty()?.wasm;
    for number in 0..SESSIONS {
        node.load(&format!("s{number}"), module("module = \"empty.wasm\"")?, &wasm)?;
    }
    let all =
        |snapshot: &Snapshot| snapshot.sessions.iter().filter(|session| !session.modules.is_empty()).count();
    node.until("the start of all modules", |snapshot| all(snapshot) == SESSIONS)?;
    let setting_up = ticks(node.pid())? / TICKS;
    // What starting them has left to do is not part of being idle.
    std::thread::sleep(Duration::from_secs(2));
    let (before, begin) = (ticks(node.pid())?, Instant::now());
    std::thread::sleep(TIME);
    let (after, elapsed) = (ticks(node.pid())?, begin.elapsed());
    Ok(Costs { setting_up, idle: (after - before) / TICKS / elapsed.as_secs_f64() * 100.0 })
}

/// Processor time of a process, in ticks.
fn ticks(pid: u32) -> Result<f64, FigureError> {
    let text =
        std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(FigureError::system("reading /proc"))?;
    parse(&text).ok_or_else(|| FigureError::Nothing(format!("/proc/{pid}/stat is `{text}`")))
}

/// User and system time: the 14th and 15th field, of which the second is a name in brackets that can hold anything.
fn parse(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u32>().ok().map(f64::from);
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let stat = "4711 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 250 30 0 0 20 0 12 0 99\n";
        assert_eq!(parse(stat), Some(280.0));
        assert_eq!(parse("4711 (a"), None);
        assert!(ticks(std::process::id()).unwrap() >= 0.0);
    }

    #[test]
    fn what_a_child_says_is_read_whole_or_not() {
        assert_eq!(said("2.5 0.31\n"), Some(Costs { setting_up: 2.5, idle: 0.31 }));
        assert_eq!(said("2.5"), None);
        assert_eq!(said("experiments need root"), None);
    }
}
