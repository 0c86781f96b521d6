//! A whole node: `weir node` as it is built, and its control socket.

use crate::error::{Doing, LabError};
use crate::place;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_admission::Name;
use weir_node::client::{Client, kind};
use weir_node::control::protocol::{Change, ControlRequest, Reply, SessionStatus, Snapshot};
use weir_node::control::spec::{ModuleSpec, SessionSpec};

/// The time limit for the start and the end of a node, and for a change of its state.
const PATIENCE: Duration = Duration::from_secs(20);
/// Modules run on one core. The node receives on the other one, which is not measured.
const CORES: &str = "[cpu]\ncores = [1]\nreceive = 0\n";
/// A profile with long calls, because experiments measure shares of time.
const PROFILE: &str = "packet = '50ms'\ntick = '1s'\nstrikes = 1000000\n";

/// A running node, killed when this is dropped.
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

impl NodeProcess {
    /// Starts a node with a profile `long` and this configuration, which begins with the rest of `[cpu]`. Socket, state and cores are given.
    pub fn start(config: &str) -> Result<Self, LabError> {
        let folder = tempfile::tempdir().doing("making a folder")?;
        let path = |name: &str| folder.path().join(name);
        let write =
            |name: &str, text: &str| std::fs::write(path(name), text).map_err(LabError::file(&path(name)));
        let socket = path("node.sock");
        let head = format!(
            "[node]\nsocket = {:?}\nstate = {:?}\n{CORES}{config}\n[[profile]]\nname = \"long\"\nfile = \"long.toml\"\n",
            socket.display(),
            path("state").display()
        );
        write("long.toml", PROFILE)?;
        write("node.toml", &head)?;
        let said = std::fs::File::create(path("said")).map_err(LabError::file(&path("said")))?;
        let mut command = Command::new(place::weir());
        command.args(["node", "-c"]).arg(path("node.toml"));
        command.env("XDG_CACHE_HOME", place::scratch().join("cache"));
        command.env_remove("SUDO_UID").stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let mut process = Process(command.spawn().doing("starting `weir node`")?);
        let client = within(
            "the start of the node",
            || said_in(folder.path()),
            || {
                if let Some(status) = process.0.try_wait().doing("waiting for the node")? {
                    let what = format!("the node ended with {status}");
                    return Err(LabError::failed(what, said_in(folder.path())));
                }
                match Client::connect(&socket) {
                    Ok(client) => Ok(Some(client)),
                    Err(error) if error.is_absence() => Ok(None),
                    Err(error) => Err(error.into()),
                }
            },
        )?;
        Ok(Self { folder, process, client })
    }

    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    fn order(&mut self, request: ControlRequest, body: &[u8]) -> Result<(), LabError> {
        self.client.order(request, body)?;
        Ok(())
    }

    /// Creates a session from the lines of its description.
    pub fn create(&mut self, description: &str) -> Result<(), LabError> {
        let spec: SessionSpec = read(description)?;
        self.order(ControlRequest::Create(spec), &[])
    }

    /// Changes a session as these lines say.
    pub fn change(&mut self, description: &str) -> Result<(), LabError> {
        let change: Change = read(description)?;
        self.order(ControlRequest::Change(change), &[])
    }

    pub fn close(&mut self, session: &str) -> Result<(), LabError> {
        self.order(ControlRequest::Close { session: name(session)? }, &[])
    }

    pub fn load(&mut self, session: &str, module: ModuleSpec, file: &[u8]) -> Result<(), LabError> {
        self.order(ControlRequest::Load { session: name(session)?, module, signatures: Vec::new() }, file)
    }

    pub fn unload(&mut self, session: &str, module: &str) -> Result<(), LabError> {
        self.order(ControlRequest::Unload { session: name(session)?, module: name(module)? }, &[])
    }

    /// The node's state.
    pub fn snapshot(&mut self) -> Result<Snapshot, LabError> {
        self.client.send(ControlRequest::Show, &[])?;
        match self.client.receive()? {
            Reply::Snapshot(snapshot) => Ok(*snapshot),
            other => Err(LabError::Nothing(format!("the node answered {}", kind(&other)))),
        }
    }

    /// Ends the node as an operator would, so that its records are complete.
    pub fn stop(mut self) -> Result<(), LabError> {
        Command::new("kill").args(["-TERM", &self.pid().to_string()]).status().doing("stopping the node")?;
        within(
            "the end of the node",
            || said_in(self.folder.path()),
            || Ok(self.process.0.try_wait().doing("waiting for the node")?.map(drop)),
        )
    }

    /// Waits for a state of the node.
    pub fn until(&mut self, what: &str, is_so: impl Fn(&Snapshot) -> bool) -> Result<(), LabError> {
        within(what, String::new, || Ok(is_so(&self.snapshot()?).then_some(())))
    }
}

/// Waits for a value, up to the time limit. The error has the text of `said`.
fn within<T>(
    what: &str,
    said: impl Fn() -> String,
    mut look: impl FnMut() -> Result<Option<T>, LabError>,
) -> Result<T, LabError> {
    let begin = Instant::now();
    loop {
        if let Some(value) = look()? {
            return Ok(value);
        }
        if begin.elapsed() > PATIENCE {
            let what = format!("{what} did not happen within {} s", PATIENCE.as_secs());
            return Err(LabError::failed(what, said()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The error output of a node.
fn said_in(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("said")).unwrap_or_default()
}

/// A description, as in the configuration.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, LabError> {
    toml::from_str(text).doing(text)
}

fn name(text: &str) -> Result<Name, LabError> {
    Name::new(text).doing(text)
}

/// The description of a module, as in the configuration.
pub fn module(text: &str) -> Result<ModuleSpec, LabError> {
    read(text)
}

/// A session of a snapshot.
pub fn session<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a SessionStatus> {
    snapshot.sessions.iter().find(|session| session.name == name)
}

/// Fails where a module has lost a call, because its results cannot be judged then.
pub fn is_sound(snapshot: &Snapshot) -> Result<(), LabError> {
    let mut modules = snapshot.sessions.iter().flat_map(|session| &session.modules);
    match modules.find(|module| module.faults > 0) {
        None => Ok(()),
        Some(module) => {
            let (name, faults) = (&module.name, module.faults);
            let fault = module.last_fault.as_deref().unwrap_or("");
            Err(LabError::Nothing(format!("{name} lost {faults} calls: {fault}")))
        }
    }
}

/// Processor time of a session, in ns.
pub fn used(snapshot: &Snapshot, name: &str) -> u64 {
    session(snapshot, name).map_or(0, |session| session.cpu.iter().map(|cpu| cpu.used_ns).sum())
}
