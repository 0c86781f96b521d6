//! The processor time of a node whose sessions have no packets. The part `idle` of the benchmark.

use crate::error::LabError;
use crate::figure::network::create_veth_pair;
use crate::figure::node::{NodeProcess, parse_module};
use crate::module::Module;
use crate::native::process_time;
use crate::table::{Table, yes_or_no};
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use weir_node::control::protocol::Snapshot;

/// The number of sessions, each with a channel and a module.
const SESSIONS: u32 = 1000;
/// The promised limit in percent of a core.
const CORE_PERCENT_MAX: f64 = 1.0;
/// The duration of the measurement.
const TIME: Duration = Duration::from_secs(5);

/// The table of the share of a core that idle sessions use, with the processor time of their creation. Must run in a
/// network namespace of its own.
pub fn table() -> Result<String, LabError> {
    create_veth_pair("a", "b")?;
    let mut config = String::from("[[interface]]\nname = \"b\"\narena = \"8 MiB\"\n");
    for number in 0..SESSIONS {
        _ = write!(
            config,
            "[[session]]\nname = \"s{number}\"\nmemory = \"1 MiB\"\nchannel = [{{ interface = \"b\", filter = \"udp\", queue = 64 }}]\n"
        );
    }
    let mut node = NodeProcess::start(&config)?;
    let wasm = Module::empty()?.wasm;
    for number in 0..SESSIONS {
        node.load(&format!("s{number}"), parse_module("module = \"empty.wasm\"")?, &wasm)?;
    }
    let loaded =
        |snapshot: &Snapshot| snapshot.sessions.iter().filter(|session| !session.modules.is_empty()).count();
    node.wait_until("the start of all modules", |snapshot| loaded(snapshot) == SESSIONS as usize)?;
    let used = || {
        let ended = || LabError::NoData("the node has ended".to_owned());
        process_time(node.pid()).ok_or_else(ended)
    };
    let setting_up = used()?.as_secs_f64();
    // Work that follows the start of the modules is not counted as idle.
    std::thread::sleep(Duration::from_secs(2));
    let (before, begin) = (used()?, Instant::now());
    std::thread::sleep(TIME);
    let idle = (used()? - before).as_secs_f64() / begin.elapsed().as_secs_f64() * 100.0;
    let mut table = Table::new("idle sessions | of a core | promised | kept");
    let kept = yes_or_no(idle < CORE_PERCENT_MAX);
    table.row(format_args!("{SESSIONS} | {idle:.2} % | under {CORE_PERCENT_MAX:.0} % | {kept}"));
    Ok(format!(
        "A node whose sessions each have a channel on an interface and a module, without any packets; processor time of all its threads in {} s.\n\n{table}\n\
         To start the node, create the sessions, and check, compile and load a module into each took {setting_up:.1} s of processor time: {:.1} ms for each.\n",
        TIME.as_secs(),
        setting_up * 1000.0 / f64::from(SESSIONS),
    ))
}
