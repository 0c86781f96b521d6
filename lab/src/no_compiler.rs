//! weir without a compiler beside weir with Cranelift: size of the program, and start of a node. The part `no-compiler` of
//! the benchmark.

use crate::error::{Context, LabError};
use crate::paths;
use crate::statistics::{Action, Sample, measure_values_in_turn, to_f64};
use crate::table::Table;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_node::client::Client;

/// The interval at which the start of a node is polled.
const POLL_INTERVAL: Duration = Duration::from_micros(200);
/// The longest wait for a node.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The table of both programs.
///
/// # Errors
/// A node does not start.
pub fn table(rounds: usize) -> Result<String, LabError> {
    let without = paths::without_compiler();
    if !without.is_file() {
        return Ok("Not measured: `make no-compiler` builds the program without a compiler.\n".to_owned());
    }
    let programs = [("with Cranelift", paths::built_weir()?), ("without a compiler", without)];
    let mut actions: Vec<Action<'_, [f64; 2]>> = Vec::new();
    for (_, program) in &programs {
        actions.push(Box::new(|| start(program)));
    }
    let values = measure_values_in_turn(rounds, &mut actions)?;
    drop(actions);
    let mut table = Table::new(
        "weir | program, MiB | node ready, ms | quartiles | resident memory of the node, MiB | quartiles",
    );
    for ((name, program), values) in programs.iter().zip(values) {
        let bytes = std::fs::metadata(program).map_err(LabError::file(program))?.len();
        let [ready, memory] = [0, 1].map(|at| values.iter().map(|value| value[at]).collect::<Sample>());
        table.row(format_args!(
            "{name} | {:.1} | {} | {}",
            to_f64(usize::try_from(bytes).unwrap_or(usize::MAX)) / f64::from(1 << 20),
            ready.cells(1),
            memory.cells(1)
        ));
    }
    Ok(format!(
        "A node without interfaces and sessions, from before `weir node` is executed to the first connection to its socket. Programs have symbols and no debugging information.\n\n{table}"
    ))
}

/// A process that is killed when this value is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Starts a node of a program. Returns the time until it is ready in ms, and its resident memory then in MiB.
fn start(program: &Path) -> Result<[f64; 2], LabError> {
    let folder = tempfile::tempdir().context("making a folder")?;
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let config = format!(
        "[node]\nsocket = {:?}\nstate = {:?}\n",
        path("node.sock").display(),
        path("state").display()
    );
    std::fs::write(path("node.toml"), config).map_err(LabError::file(&path("node.toml")))?;
    let mut command = Command::new(program);
    command.args(["node", "-c"]).arg(path("node.toml")).env_remove("SUDO_UID");
    command.env("XDG_CACHE_HOME", folder.path()).env("XDG_STATE_HOME", folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let mut node = Killed(command.spawn().context("starting `weir node`")?);
    while Client::connect_local(&path("node.sock")).is_err() {
        let ended = node.0.try_wait().context("waiting for the node")?;
        if ended.is_some() || begin.elapsed() > TIMEOUT {
            return Err(LabError::failed(program.display(), "the node does not start".to_owned()));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let ready = begin.elapsed().as_secs_f64() * 1e3;
    let status = format!("/proc/{}/status", node.0.id());
    let status = std::fs::read_to_string(&status).map_err(LabError::file(Path::new(&status)))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    Ok([ready, kib.unwrap_or(f64::NAN) / 1024.0])
}
