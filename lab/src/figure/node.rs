//! A whole node, `weir node` as it is built, with its control socket.

use super::FigureError;
use crate::{BenchError, place};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_node::client::{Client, kind};
use weir_node::protocol::{Change, Reply, Request, SessionShot, Snapshot};
use weir_node::spec::{ModuleSpec, SessionSpec};
use weir_session::Name;

/// Longer than a node needs to start or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A node at work. It is killed when this is dropped.
#[derive(Debug)]
pub struct Node {
    folder: tempfile::TempDir,
    child: Child,
    client: Client,
}

/// Its cores: modules run on the one, and what receives runs where nothing is measured.
const CORES: &str = "[cpu]\ncores = [1]\nreceive = 0\n";
/// What the sessions of experiments may use: long calls, because what is seen here are shares of time.
const PROFILE: &str = "packet = '50ms'\ntick = '1s'\nstrikes = 1000000\n";

impl Node {
    /// Starts one with this configuration, except for its socket, state and cores: it begins with what else is to be said of them (`[cpu]`). There
    /// is a profile `long`.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(config: &str) -> Result<Self, FigureError> {
        let folder = tempfile::tempdir().map_err(FigureError::system("making a folder"))?;
        let path = |name: &str| folder.path().join(name);
        let write =
            |name: &str, text: &str| std::fs::write(path(name), text).map_err(BenchError::file(&path(name)));
        let (socket, state) = (path("node.sock"), path("state"));
        let head = format!(
            "[node]\nsocket = {:?}\nstate = {:?}\n{CORES}{config}\n[[profile]]\nname = \"long\"\nfile = \"long.toml\"\n",
            socket.display(),
            state.display()
        );
        write("long.toml", PROFILE)?;
        write("node.toml", &head)?;
        let said = std::fs::File::create(path("said")).map_err(BenchError::file(&path("said")))?;
        let mut command = Command::new(place::weir());
        command.args(["node", "-c"]).arg(path("node.toml"));
        command.env("XDG_CACHE_HOME", place::scratch().join("cache"));
        command.env_remove("SUDO_UID").stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let child = command.spawn().map_err(FigureError::system("starting `weir node`"))?;
        let mut starting = Starting { folder, child };
        let client = starting.client(&socket)?;
        let Starting { folder, child } = starting;
        Ok(Self { folder, child, client })
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The folder of its state.
    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Another connection to it.
    ///
    /// # Errors
    /// It does not answer.
    pub fn connect(&self) -> Result<Client, FigureError> {
        Ok(Client::connect(&self.folder.path().join("node.sock"))?)
    }

    /// Has it do something.
    ///
    /// # Errors
    /// It refuses.
    fn order(&mut self, request: Request, body: &[u8]) -> Result<(), FigureError> {
        self.client.order(request, body)?;
        Ok(())
    }

    /// Creates a session from the lines of its description.
    ///
    /// # Errors
    /// It is refused.
    pub fn create(&mut self, description: &str) -> Result<(), FigureError> {
        let spec: SessionSpec = read(description)?;
        self.order(Request::Create(spec), &[])
    }

    /// Changes a session as these lines say.
    ///
    /// # Errors
    /// It is refused.
    pub fn change(&mut self, description: &str) -> Result<(), FigureError> {
        let change: Change = read(description)?;
        self.order(Request::Change(change), &[])
    }

    /// Closes a session.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn close(&mut self, session: &str) -> Result<(), FigureError> {
        self.order(Request::Close { session: name(session)? }, &[])
    }

    /// Loads a module for a session.
    ///
    /// # Errors
    /// It is refused.
    pub fn load(&mut self, session: &str, module: ModuleSpec, file: &[u8]) -> Result<(), FigureError> {
        self.order(Request::Load { session: name(session)?, module, signatures: Vec::new() }, file)
    }

    /// Takes a module out of a session.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn unload(&mut self, session: &str, module: &str) -> Result<(), FigureError> {
        self.order(Request::Unload { session: name(session)?, module: name(module)? }, &[])
    }

    /// How things are.
    ///
    /// # Errors
    /// It does not answer.
    pub fn snapshot(&mut self) -> Result<Snapshot, FigureError> {
        self.client.send(Request::Show, &[])?;
        match self.client.receive()? {
            Reply::Snapshot(snapshot) => Ok(*snapshot),
            other => Err(FigureError::Nothing(format!("the node answered {}", kind(&other)))),
        }
    }

    /// Ends it as an operator would, so that what it records is whole.
    ///
    /// # Errors
    /// It does not end.
    pub fn stop(mut self) -> Result<(), FigureError> {
        let pid = self.pid().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status();
        told.map_err(FigureError::system("telling the node to end"))?;
        let begin = Instant::now();
        while self.child.try_wait().map_err(FigureError::system("waiting for the node"))?.is_none() {
            if begin.elapsed() > PATIENCE {
                return Err(FigureError::Late {
                    what: "the end of the node",
                    seconds: PATIENCE.as_secs(),
                    said: std::fs::read_to_string(self.folder.path().join("said")).unwrap_or_default(),
                });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits until its state is as it should be.
    ///
    /// # Errors
    /// It is not in time.
    pub fn until(
        &mut self,
        what: &'static str,
        mut is_so: impl FnMut(&Snapshot) -> bool,
    ) -> Result<(), FigureError> {
        let begin = Instant::now();
        loop {
            let snapshot = self.snapshot()?;
            if is_so(&snapshot) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(FigureError::Late {
                    what,
                    seconds: PATIENCE.as_secs(),
                    said: format!("{snapshot:?}"),
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A node of which nobody knows yet whether it starts.
struct Starting {
    folder: tempfile::TempDir,
    child: Child,
}

impl Starting {
    fn client(&mut self, socket: &std::path::Path) -> Result<Client, FigureError> {
        let begin = Instant::now();
        loop {
            match Client::connect(socket) {
                Ok(client) => return Ok(client),
                Err(error) if !error.is_absence() => return Err(error.into()),
                Err(_) => {}
            }
            let said = || std::fs::read_to_string(self.folder.path().join("said")).unwrap_or_default();
            let status = self.child.try_wait().map_err(FigureError::system("waiting for the node"))?;
            if let Some(status) = status {
                return Err(FigureError::Ended { what: format!("ended with {status}"), said: said() });
            }
            if begin.elapsed() > PATIENCE {
                _ = self.child.kill();
                _ = self.child.wait();
                return Err(FigureError::Late {
                    what: "the start of the node",
                    seconds: PATIENCE.as_secs(),
                    said: said(),
                });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A description as it stands in the configuration.
fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, FigureError> {
    toml::from_str(text).map_err(|error| FigureError::Nothing(format!("{text}: {error}")))
}

fn name(text: &str) -> Result<Name, FigureError> {
    Name::new(text).map_err(|error| FigureError::Nothing(error.to_string()))
}

/// A module's description: which, with what, as it stands in the configuration.
///
/// # Errors
/// The text is none.
pub fn module(text: &str) -> Result<ModuleSpec, FigureError> {
    read(text)
}

/// A session of a snapshot.
pub fn session<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a SessionShot> {
    snapshot.sessions.iter().find(|session| session.name == name)
}

/// Says which module has lost a call, if one has: then nothing that it did can be judged.
///
/// # Errors
/// One has.
pub fn is_sound(snapshot: &Snapshot) -> Result<(), FigureError> {
    let mut modules = snapshot.sessions.iter().flat_map(|session| &session.modules);
    match modules.find(|module| module.faults > 0) {
        None => Ok(()),
        Some(module) => {
            let (name, faults) = (&module.name, module.faults);
            let fault = module.last_fault.as_deref().unwrap_or("");
            Err(FigureError::Nothing(format!("{name} lost {faults} calls: {fault}")))
        }
    }
}

/// Processor time that a session has had, in ns.
pub fn used(snapshot: &Snapshot, name: &str) -> u64 {
    session(snapshot, name).map_or(0, |session| session.cpu.iter().map(|cpu| cpu.used_ns).sum())
}
