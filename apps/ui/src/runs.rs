//! Runs of modules over a capture that the user drops on the page, or over packets of a node's interface.
//!
//! A capture is never stored: its bytes go from the browser to the standard input of a `weir run` of the user. Packets of an
//! interface are read in a session of the node, within the rights of the user, whose records a `weir follow` reads. Both
//! write a report into a private folder, which is deleted with the run. A run ends when the page is closed.

mod interface;
mod process;

use crate::access::random_text;
use crate::modules::PageModule;
use crate::watch::line;
use process::RunProcess;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Read, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weir_http::Sink;
use weir_node::client::NodeLocation;

/// The most runs at a time.
const RUNS_MAX: usize = 4;
/// The interval at which the page gets the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// The time after which a run is removed if no page watches it.
const UNWATCHED_MAX: Duration = Duration::from_secs(30);
/// Bytes of a capture that are copied at once.
const COPIED_AT_ONCE: usize = 64 << 10;
/// The most modules of a run.
const MODULES_MAX: usize = 64;
/// The most characters of a capture's name in the title of its report.
const TITLE_CHARACTERS_MAX: usize = 200;
/// The longest time on an interface, in seconds.
const INTERFACE_SECONDS_MAX: u64 = 24 * 3600;

/// Errors of runs, for people.
#[derive(Debug, thiserror::Error)]
pub enum PageRunError {
    /// The request is not valid.
    #[error("{0}")]
    Invalid(String),
    /// Too many runs.
    #[error("{RUNS_MAX} runs are going on, which is the most: close the page of one of them")]
    TooMany,
    /// There is no such run.
    #[error("there is no such run: it has ended, or its page was closed")]
    Unknown,
    /// The run has its capture already, or needs none.
    #[error("this run has its packets already")]
    HasCapture,
    /// The system's error.
    #[error("the run cannot be started: {0}")]
    System(#[from] std::io::Error),
}

/// The description of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// The source of packets.
    pub source: PageRunSource,
    /// The modules. Without any, the default modules of `weir run`.
    pub modules: Vec<RunModule>,
}

/// The source of a run's packets.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PageRunSource {
    /// A capture that the page sends.
    Upload {
        /// Name of the file, for people.
        name: String,
        /// Length of the file in bytes.
        bytes: u64,
    },
    /// An interface of the node, for some seconds.
    Interface {
        /// Name of the interface.
        name: String,
        /// Time in seconds.
        seconds: u64,
    },
}

/// A module of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunModule {
    /// Name of a module that comes with weir.
    pub module: String,
    /// Values of parameters.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
}

/// All runs.
#[derive(Debug)]
pub struct Runs {
    runs: Mutex<BTreeMap<u64, Arc<Run>>>,
    last: AtomicU64,
    /// The program that runs modules: weir itself.
    program: PathBuf,
    /// The options by which a `weir follow` reaches the node.
    node_options: Vec<OsString>,
    modules: Vec<PageModule>,
}

/// One run.
#[derive(Debug)]
struct Run {
    spec: RunSpec,
    /// The arguments of `weir run` for the modules.
    arguments: Vec<OsString>,
    /// The unguessable name of the report.
    ticket: String,
    /// The private folder of the report, which is deleted with the run.
    folder: TempDir,
    process: Mutex<Option<Arc<RunProcess>>>,
    /// Bytes of the capture that have arrived, or the time on the interface in ms.
    progress: AtomicU64,
    created: Instant,
    is_watched: AtomicBool,
    is_started: AtomicBool,
    is_ended: AtomicBool,
    state: Mutex<RunState>,
}

/// The state of a run.
#[derive(Clone, Debug, Default)]
enum RunState {
    #[default]
    Running,
    Done(serde_json::Value),
    Failed(String),
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum RunLine<'a> {
    Progress { bytes: u64, bytes_total: u64 },
    Done { report: String, summary: &'a serde_json::Value },
    Failed(&'a str),
}

impl Runs {
    /// Creates an empty list of runs.
    pub fn new(program: PathBuf, node_options: Vec<OsString>, modules: Vec<PageModule>) -> Self {
        Self { runs: Mutex::default(), last: AtomicU64::new(0), program, node_options, modules }
    }

    /// Creates a run, and starts it if its packets come from an interface. Returns its number.
    ///
    /// # Errors
    /// The description is not valid, there are too many runs, or the system refuses.
    pub fn create(&self, spec: RunSpec, node: &Arc<NodeLocation>) -> Result<u64, PageRunError> {
        let module_arguments = self.check(&spec)?;
        let mut runs = self.lock();
        // A page that was closed before it watched its run has left it behind.
        let is_left = |run: &Run| !run.is_watched.load(Relaxed) && run.created.elapsed() > UNWATCHED_MAX;
        runs.extract_if(.., |_, run| is_left(run)).for_each(|(_, run)| run.end());
        if runs.len() >= RUNS_MAX {
            return Err(PageRunError::TooMany);
        }
        let run = Arc::new(Run {
            arguments: module_arguments,
            ticket: random_text(),
            folder: tempfile::Builder::new().prefix("weir-ui-").tempdir()?,
            process: Mutex::new(None),
            progress: AtomicU64::new(0),
            created: Instant::now(),
            is_watched: AtomicBool::new(false),
            is_started: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            state: Mutex::default(),
            spec,
        });
        if let PageRunSource::Interface { name, seconds } = &run.spec.source {
            run.is_started.store(true, Relaxed);
            let modules = run.spec.modules.iter().filter_map(|RunModule { module, set }| {
                Some(self.modules.iter().find(|it| it.name == *module)?.session_module(set))
            });
            let plan = interface::InterfacePlan {
                interface: name.clone(),
                modules: modules.collect(),
                time: Duration::from_secs(*seconds),
                program: self.program.clone(),
                node_options: self.node_options.clone(),
            };
            interface::start(plan, Arc::clone(&run), Arc::clone(node))?;
        }
        let number = self.last.fetch_add(1, Relaxed) + 1;
        runs.insert(number, run);
        Ok(number)
    }

    /// Checks a run's description. Returns the arguments for its modules.
    fn check(&self, spec: &RunSpec) -> Result<Vec<OsString>, PageRunError> {
        if spec.modules.len() > MODULES_MAX {
            return Err(PageRunError::Invalid(format!("at most {MODULES_MAX} modules run at once")));
        }
        if let PageRunSource::Interface { name, seconds } = &spec.source {
            if !(1..=INTERFACE_SECONDS_MAX).contains(seconds) {
                return Err(PageRunError::Invalid(format!(
                    "the time is from 1 to {INTERFACE_SECONDS_MAX} seconds"
                )));
            }
            if spec.modules.is_empty() {
                return Err(PageRunError::Invalid(format!(
                    "choose the modules that read {}",
                    weir_units::escaped(name)
                )));
            }
        }
        let mut arguments = Vec::new();
        for RunModule { module, set } in &spec.modules {
            let unknown = || {
                PageRunError::Invalid(format!("no module `{}` comes with weir", weir_units::escaped(module)))
            };
            let known = self.modules.iter().find(|it| it.name == *module).ok_or_else(unknown)?;
            arguments.push(OsString::from("-m"));
            arguments.push(OsString::from(known.argument(set).map_err(PageRunError::Invalid)?));
        }
        Ok(arguments)
    }

    /// Runs the modules over a capture, while it is read. Returns when the run has ended.
    ///
    /// # Errors
    /// There is no such run, it has its packets already, or the system refuses.
    pub fn run_capture(&self, number: u64, capture: &mut impl Read) -> Result<(), PageRunError> {
        let run = self.find(number)?;
        let PageRunSource::Upload { name, .. } = &run.spec.source else {
            return Err(PageRunError::HasCapture);
        };
        if run.is_started.swap(true, Relaxed) {
            return Err(PageRunError::HasCapture);
        }
        let mut arguments: Vec<OsString> = ["run", "-q", "--json", "-r", "-"].map(OsString::from).into();
        arguments.extend(["--report".into(), run.report_path().into()]);
        // A name that begins with a dash must not be read as an option.
        arguments.push(format!("--title={}", weir_units::escaped_prefix(name, TITLE_CHARACTERS_MAX)).into());
        arguments.extend(run.arguments.iter().cloned());
        let (process, mut input) = match RunProcess::start(&self.program, &arguments) {
            Ok(started) => started,
            Err(error) => {
                run.set(RunState::Failed(format!("weir cannot be started: {error}")));
                return Err(error.into());
            }
        };
        run.begin(&process);
        let mut part = vec![0; COPIED_AT_ONCE];
        let copied = loop {
            match capture.read(&mut part) {
                Ok(0) => break Ok(()),
                Ok(count) => {
                    // The program has read enough, or has failed. The rest of the capture is read and dropped, since a
                    // browser takes the answer only after it has sent everything.
                    if input.write_all(part.get(..count).unwrap_or_default()).is_err() {
                        break std::io::copy(capture, &mut std::io::sink()).map(drop);
                    }
                    run.progress.fetch_add(count as u64, Relaxed);
                }
                Err(error) => break Err(error),
            }
        };
        drop(input);
        if let Err(error) = copied {
            process.kill();
            process.wait().ok();
            run.set(RunState::Failed(format!("{} did not arrive: {error}", weir_units::escaped(name))));
            return Ok(());
        }
        run.set(match process.wait() {
            Ok(summary) => RunState::Done(summary),
            Err(why) => RunState::Failed(why),
        });
        Ok(())
    }

    /// Sends the progress of a run to its page, and then its result. Ends and removes the run when the page is closed.
    ///
    /// # Errors
    /// There is no such run.
    pub fn watch(&self, number: u64, page: &Sink) -> Result<(), PageRunError> {
        let run = self.find(number)?;
        run.is_watched.store(true, Relaxed);
        let mut is_told = false;
        loop {
            let state = run.state();
            let text = match &state {
                _ if is_told => weir_http::Bytes::from_static(b"{}\n"),
                RunState::Running => {
                    line(&RunLine::Progress { bytes: run.progress.load(Relaxed), bytes_total: run.total() })
                }
                RunState::Done(summary) => {
                    line(&RunLine::Done { report: format!("/report/{}", run.ticket), summary })
                }
                RunState::Failed(why) => line(&RunLine::Failed(why)),
            };
            is_told = !matches!(state, RunState::Running);
            if page.send(text).is_err() {
                break;
            }
            std::thread::sleep(PROGRESS_INTERVAL);
        }
        self.remove(number);
        Ok(())
    }

    /// Ends a run, and deletes its report.
    pub fn remove(&self, number: u64) {
        let run = self.lock().remove(&number);
        if let Some(run) = run {
            run.end();
        }
    }

    /// Ends all runs.
    pub fn remove_all(&self) {
        let runs = std::mem::take(&mut *self.lock());
        runs.values().for_each(|run| run.end());
    }

    /// Returns the report of a run by its unguessable name.
    pub fn report(&self, ticket: &str) -> Option<Vec<u8>> {
        let run = self.lock().values().find(|run| run.ticket == ticket).cloned()?;
        std::fs::read(run.report_path()).ok()
    }

    fn find(&self, number: u64) -> Result<Arc<Run>, PageRunError> {
        self.lock().get(&number).cloned().ok_or(PageRunError::Unknown)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Run {
    fn report_path(&self) -> PathBuf {
        self.folder.path().join("report.html")
    }

    /// Returns the length of the capture in bytes, or the time on an interface in ms.
    fn total(&self) -> u64 {
        match &self.spec.source {
            PageRunSource::Upload { bytes, .. } => *bytes,
            PageRunSource::Interface { seconds, .. } => seconds.saturating_mul(1000),
        }
    }

    /// Keeps a process, which ends with the run.
    fn begin(&self, process: &Arc<RunProcess>) {
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(process));
        if self.is_ended.load(Relaxed) {
            process.kill();
        }
    }

    /// Ends the run. Its folder is deleted when the last thread has let go of it.
    fn end(&self) {
        self.is_ended.store(true, Relaxed);
        if let Some(process) = self.process.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            process.kill();
        }
    }

    fn set(&self, state: RunState) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn state(&self) -> RunState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
