//! A node under experiment: a process of the built program `weir node`, controlled through its local socket.

use crate::error::{Context, LabError};
use crate::paths;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_admission::Name;
use weir_node::client::{Client, reply_kind};
use weir_node::control::protocol::{Change, ControlRequest, Reply, SessionStatus, Snapshot};
use weir_node::control::spec::{ModuleSpec, SessionSpec};

/// The time limit for the start and the end of a node, and for a change of its state.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// The cores in the configuration: modules run on core 1, and the node receives on core 0, which is not measured.
const CORES: &str = "[cpu]\ncores = [1]\nreceive_core = 0\n";
/// A profile that permits long calls, because experiments measure shares of time.
const PROFILE: &str = "packet = '50ms'\ntick = '1s'\nstrikes = 1000000\n";

/// A running node, which is killed when this value is dropped.
#[derive(Debug)]
pub struct NodeProcess {
    folder: tempfile::TempDir,
    process: Process,
    client: Client,
}

#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Returns the configuration of a node, with `config` after the keys of all nodes.
fn configuration(socket: &Path, state: &Path, cores: &str, config: &str) -> String {
    format!(
        "[node]\nsocket = {:?}\nstate = {:?}\n{cores}{config}\n[[profile]]\nname = \"long\"\nfile = \"long.toml\"\n",
        socket.display(),
        state.display()
    )
}

impl NodeProcess {
    /// Starts a node with a profile `long` and the configuration `config`, which must begin with further keys of `[cpu]`, or
    /// with a new table.
    pub fn start(config: &str) -> Result<Self, LabError> {
        Self::start_on(CORES, config)
    }

    /// As [`start`](Self::start), with `cores` as the first keys of `[cpu]`.
    pub fn start_on(cores: &str, config: &str) -> Result<Self, LabError> {
        let folder = tempfile::tempdir().context("making a folder")?;
        let path = |name: &str| folder.path().join(name);
        let write =
            |name: &str, text: &str| std::fs::write(path(name), text).map_err(LabError::file(&path(name)));
        let socket = path("node.sock");
        let configuration = configuration(&socket, &path("state"), cores, config);
        write("long.toml", PROFILE)?;
        write("node.toml", &configuration)?;
        let errors = std::fs::File::create(path("errors")).map_err(LabError::file(&path("errors")))?;
        let mut command = Command::new(paths::weir());
        command.args(["node", "-c"]).arg(path("node.toml"));
        command.env("XDG_CACHE_HOME", paths::scratch().join("cache"));
        command.env_remove("SUDO_UID").stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let mut process = Process(command.spawn().context("starting `weir node`")?);
        let client = wait_for(
            "the start of the node",
            || error_output(folder.path()),
            || {
                if let Some(status) = process.0.try_wait().context("waiting for the node")? {
                    let what = format!("the node ended with {status}");
                    return Err(LabError::failed(what, error_output(folder.path())));
                }
                match Client::connect_local(&socket) {
                    Ok(client) => Ok(Some(client)),
                    Err(error) if error.is_unreachable() => Ok(None),
                    Err(error) => Err(error.into()),
                }
            },
        )?;
        Ok(Self { folder, process, client })
    }

    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    fn execute(&mut self, request: ControlRequest, body: &[u8]) -> Result<(), LabError> {
        self.client.execute(request, body)?;
        Ok(())
    }

    /// Creates a session from its description in TOML.
    pub fn create(&mut self, description: &str) -> Result<(), LabError> {
        let spec: SessionSpec = parse_toml(description)?;
        self.execute(ControlRequest::Create(spec), &[])
    }

    /// Changes a session by a change request in TOML.
    pub fn change(&mut self, description: &str) -> Result<(), LabError> {
        let change: Change = parse_toml(description)?;
        self.execute(ControlRequest::Change(change), &[])
    }

    pub fn close(&mut self, session: &str) -> Result<(), LabError> {
        self.execute(ControlRequest::Close { session: parse_name(session)? }, &[])
    }

    pub fn load(&mut self, session: &str, module: ModuleSpec, file: &[u8]) -> Result<(), LabError> {
        self.execute(
            ControlRequest::Load {
                session: parse_name(session)?,
                module,
                signatures: Vec::new(),
                replace: None,
            },
            file,
        )
    }

    pub fn unload(&mut self, session: &str, module: &str) -> Result<(), LabError> {
        self.execute(
            ControlRequest::Unload { session: parse_name(session)?, module: parse_name(module)? },
            &[],
        )
    }

    pub fn snapshot(&mut self) -> Result<Snapshot, LabError> {
        self.client.send(ControlRequest::Show, &[])?;
        match self.client.receive()? {
            Reply::Snapshot(snapshot) => Ok(*snapshot),
            other => Err(LabError::NoData(format!("the node answered {}", reply_kind(&other)))),
        }
    }

    /// Ends the node by a signal, so that it completes its files, and waits for its end.
    pub fn stop(mut self) -> Result<(), LabError> {
        Command::new("kill")
            .args(["-TERM", &self.pid().to_string()])
            .status()
            .context("stopping the node")?;
        wait_for(
            "the end of the node",
            || error_output(self.folder.path()),
            || Ok(self.process.0.try_wait().context("waiting for the node")?.map(drop)),
        )
    }

    /// Waits until a condition on the node's state is met. `event` names that change in an error.
    pub fn wait_until(&mut self, event: &str, condition: impl Fn(&Snapshot) -> bool) -> Result<(), LabError> {
        wait_for(event, String::new, || Ok(condition(&self.snapshot()?).then_some(())))
    }
}

/// Calls `poll` until it returns a value, up to the time limit. The error after the limit names `event`, and has the text of
/// `errors`.
fn wait_for<T>(
    event: &str,
    errors: impl Fn() -> String,
    mut poll: impl FnMut() -> Result<Option<T>, LabError>,
) -> Result<T, LabError> {
    let begin = Instant::now();
    loop {
        if let Some(value) = poll()? {
            return Ok(value);
        }
        if begin.elapsed() > TIME_LIMIT {
            let what = format!("{event} did not happen within {} s", TIME_LIMIT.as_secs());
            return Err(LabError::failed(what, errors()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The error output of the node with this folder.
fn error_output(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("errors")).unwrap_or_default()
}

/// Parses TOML as in the node's configuration.
fn parse_toml<T: DeserializeOwned>(text: &str) -> Result<T, LabError> {
    toml::from_str(text).context(text)
}

fn parse_name(text: &str) -> Result<Name, LabError> {
    Name::new(text).context(text)
}

/// Parses the description of a module in TOML, as in the node's configuration.
pub fn parse_module(text: &str) -> Result<ModuleSpec, LabError> {
    parse_toml(text)
}

/// The session of this name in a snapshot.
pub fn find_session<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a SessionStatus> {
    snapshot.sessions.iter().find(|session| session.name == name)
}

/// Fails if a module had a fault, because the results are then invalid.
pub fn check_no_faults(snapshot: &Snapshot) -> Result<(), LabError> {
    let mut modules = snapshot.sessions.iter().flat_map(|session| &session.modules);
    match modules.find(|module| module.faults > 0) {
        None => Ok(()),
        Some(module) => {
            let (name, faults) = (&module.name, module.faults);
            let fault = module.last_fault.as_deref().unwrap_or("");
            Err(LabError::NoData(format!("module {name} had {faults} faults, the last one: {fault}")))
        }
    }
}

/// The processor time of a session in ns, or 0 if there is no such session.
pub fn used_ns(snapshot: &Snapshot, name: &str) -> u64 {
    find_session(snapshot, name).map_or(0, |session| session.cpu.iter().map(|cpu| cpu.used_ns).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_of_experiments_is_one_of_this_weir() {
        let text = configuration(Path::new("/run/node.sock"), Path::new("/var/lib/weir"), CORES, "");
        weir_node::control::config::NodeConfiguration::parse(&text).unwrap();
    }
}
