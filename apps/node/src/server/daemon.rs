//! The daemon: owns the node, its ledger and its configuration, and executes requests, signals and events.
//!
//! The types of its mutexes state the order in which they are locked ([`crate::sync`]).

mod charge;
mod check;
mod close;
mod compilers;
mod confine;
mod credentials;
mod error;
mod explain;
mod ledger_query;
mod llvm;
mod load;
mod records;
mod reload;
mod replace;
mod restore;
mod revoke;
mod save;
mod watch;

pub use check::check;
pub use error::DaemonError;

use crate::control::ShippedModules;
use crate::control::access::RemoteAccessCounters;
use crate::control::audit::{Decisions, PendingDecision};
use crate::control::authority::{self, Permitted, RequestRefusal, Requester, SessionOwner, SharedRights};
use crate::control::config::NodeConfiguration;
use crate::control::policy::Policy;
use crate::control::protocol::{ControlRequest, Snapshot};
use crate::control::share::ShareGrant;
use crate::control::spec::SessionSpec;
use crate::log::{self, info, warn};
use crate::server::case_simulation::CaseEnvironment;
use crate::server::child_isolation::{self, SpawnerWatch};
use crate::server::compile_queue::FairCompileQueue;
use crate::server::config_check::ConfigLines;
use crate::server::deliveries::Deliveries;
use crate::server::endpoints::RequestThreads;
use crate::server::request_usage::RequestAccounts;
use crate::server::session_store::{NotedSurvival, SessionStore};
use crate::server::single_value_cache::SingleValueCache;
use crate::server::state_version;
use crate::server::trust::{self, RemoteConfigError, Trust};
use crate::server::unwritten_revocations::UnwrittenRevocations;
use crate::server::uploads::Uploads;
use crate::sessions::error::NodeError;
use crate::sessions::node::{Node, SessionState};
use crate::sessions::tables::{TableFile, read_file};
use crate::sessions::usage::{Interval, UsageRecorder};
use crate::sync::{LeafMutex, OrderedMutex, rank};
use compilers::new_module_loader;
pub(crate) use ledger_query::LedgerQuery;
pub(crate) use records::{RecordAccess, SessionRecords};
use revoke::DelegatedRateLimiter;
use save::SaveQueue;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use watch::WatchedFiles;
use weir_admission::{CalibratedProfile, Calibration, Name, Profile};
use weir_compilation::compiler_keys::CompilerPolicy;
use weir_datapath::clock::ClockReading;
use weir_datapath::event::ObservedEvent;
use weir_ledger::{CloseReason, Digest, LedgerEvent, LedgerText, UnloadReason};
use weir_ledger_files::{LedgerOptions, LedgerWriter, NodeStart};
use weir_os::child::Cores;
use weir_sandbox::Cache;
use weir_trust::credential::{CredentialRefusal, VerifiedCredential};
use weir_trust::grant::UnixSecond;
use weir_trust::key::PublicKey;
use weir_units::{Nanos, Timestamp};

/// The name of the ledger's folder within the node's state folder.
pub const LEDGER: &str = "ledger";

/// The arguments of [`run`] and [`check`].
#[derive(Clone, Debug)]
pub struct Setup {
    /// The configuration file.
    pub config: PathBuf,
    /// The measured time of a unit of fuel on this machine.
    pub calibration: Calibration,
    /// The modules that come with weir.
    pub shipped: ShippedModules,
}

/// The age up to which holders get a cached snapshot. So holders share snapshots, and many holders do not cause more of
/// them.
const SNAPSHOT_AGE_MAX: Duration = Duration::from_millis(50);

/// The interval of watchdog messages to the service manager.
const WATCHDOG_INTERVAL: Duration = Duration::from_secs(1);

/// A signal that the process received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Stop,
    Reload,
}

/// A configuration with its policy, its tables, and the paths of its revocation lists.
#[derive(Clone, Debug)]
struct LoadedConfig {
    config: NodeConfiguration,
    /// The line numbers of the configuration's sections.
    lines: ConfigLines,
    profiles: BTreeMap<Name, CalibratedProfile>,
    /// The profile for modules whose configuration names none.
    default: CalibratedProfile,
    tables: Vec<TableFile>,
    trust: Option<Arc<Trust>>,
    /// The trusted compilers.
    compilers: Arc<CompilerPolicy>,
    /// The files with revocation lists.
    list_files: Vec<PathBuf>,
    /// A folder to which further files with revocation lists can be added while the node runs.
    list_folder: Option<PathBuf>,
    /// The hash of the configuration, its policy's files and its tables, for the ledger.
    digest: Digest,
}

fn read(path: &Path, bytes_max: usize) -> Result<Vec<u8>, DaemonError> {
    read_at_most(path, bytes_max).map_err(|source| DaemonError::Read { path: path.to_owned(), source })
}

/// Reads a file, but at most `bytes_max` + 1 bytes, so that the caller can detect a longer file.
pub(crate) fn read_at_most(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    // Only a regular file is opened: a FIFO would block until it has a writer.
    let file = weir_os::private::open_regular(path)?;
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_text(path: &Path, bytes_max: usize) -> Result<String, DaemonError> {
    String::from_utf8(read(path, bytes_max)?).map_err(|_| DaemonError::Read {
        path: path.to_owned(),
        source: io::Error::other("is not UTF-8 text"),
    })
}

/// Reads a configuration, its policy and its tables, and tries the cases of the policy. Does not read the key's file and
/// the modules of sessions.
fn load_config(
    path: &Path,
    calibration: &Calibration,
    shipped: ShippedModules,
) -> Result<LoadedConfig, DaemonError> {
    let text = read_text(path, crate::control::config::CONFIG_BYTES_MAX)?;
    let lines = ConfigLines::find(&text);
    let invalid =
        |source| DaemonError::Config { path: path.to_owned(), line: lines.line_of_error(&source), source };
    let config = NodeConfiguration::parse(&text).map_err(invalid)?;
    let mut policy = Policy::from_config(&config, path, shipped)?;
    let trust = Trust::from_config(&config, &policy, path)?;
    try_cases(&config, &policy, path, shipped)?;
    let mut hashed = text.into_bytes();
    hashed.append(&mut policy.bytes);
    let profiles = policy.profiles.into_iter();
    let profiles =
        profiles.map(|(name, profile)| (name, calibrated(profile, &config, calibration))).collect();
    let mut tables = Vec::new();
    for table in &config.tables {
        let file = TableFile::new(table.name.clone(), read_file(&resolve_path(path, &table.file))?);
        hashed.extend_from_slice(&file.digest.0);
        tables.push(file);
    }
    let default = calibrated(Profile::default(), &config, calibration);
    let (list_files, list_folder, digest) = (policy.lists, policy.revoked, Digest::of_bytes(&hashed));
    let keys = policy.compilers.into_iter().map(|(_, key)| key).collect();
    let compilers = Arc::new(CompilerPolicy { keys, signatures: config.compilation.signatures.into() });
    Ok(LoadedConfig {
        config,
        lines,
        profiles,
        default,
        tables,
        trust,
        compilers,
        list_files,
        list_folder,
        digest,
    })
}

/// Tries the cases of a policy, which all have to hold before the policy takes effect.
fn try_cases(
    config: &NodeConfiguration,
    policy: &Policy,
    path: &Path,
    shipped: ShippedModules,
) -> Result<(), DaemonError> {
    if policy.cases.is_empty() {
        return Ok(());
    }
    let node = &config.credential_name().map_err(|_| DaemonError::Trust {
        path: path.to_owned(),
        source: RemoteConfigError::Name(config.node.name.clone()),
    })?;
    let trials = policy.try_cases(&CaseEnvironment { node, config: Some(config), shipped });
    let total = trials.len();
    let mut failed =
        trials.into_iter().filter_map(|trial| Some((trial.difference?, trial.file, trial.line, trial.name)));
    let Some((difference, file, line, name)) = failed.next() else { return Ok(()) };
    let (name, other_failures) = (weir_units::escaped(&name), failed.count());
    Err(DaemonError::Case { path: file, line, name, difference, other_failures, total })
}

/// Returns a profile with this node's calibration, and for the longest time for which a module may keep a core.
fn calibrated(profile: Profile, config: &NodeConfiguration, calibration: &Calibration) -> CalibratedProfile {
    CalibratedProfile::new(profile.for_blocking(config.cpu.blocking_max), calibration.clone())
}

/// Resolves a path of the configuration, which is relative to the configuration file's folder.
pub(crate) fn resolve_path(config: &Path, file: &Path) -> PathBuf {
    config.parent().map_or_else(|| file.to_owned(), |folder| folder.join(file))
}

/// The daemon's state.
pub(crate) struct Daemon {
    setup: Setup,
    node: OrderedMutex<Node, { rank::NODE }>,
    ledger: OrderedMutex<LedgerState, { rank::LEDGER }>,
    /// The numbers of sessions that are being closed in the background.
    closing: LeafMutex<BTreeSet<u64>>,
    /// The roots of trust; `None` if the node has no remote access.
    trust: LeafMutex<Option<Arc<Trust>>>,
    /// The cache of snapshots for holders.
    holder_snapshots: SingleValueCache<HolderSnapshot>,
    /// Files that clients upload in parts.
    pub(crate) uploads: Uploads,
    compile_queue: FairCompileQueue,
    /// True once it was logged that the ledger cannot be read.
    is_ledger_error_logged: AtomicBool,
    /// Locked while the revocations change and are written.
    revocation_lock: OrderedMutex<(), { rank::REVOCATIONS }>,
    /// Roots whose revocations could not be written.
    unwritten_revocations: LeafMutex<UnwrittenRevocations>,
    /// The rate limit for revocation lists of delegators.
    delegated_rate: LeafMutex<DelegatedRateLimiter>,
    /// Counters of delivered revocation lists.
    deliveries: Deliveries,
    /// Decisions on requests that have no ledger entry yet.
    decisions: LeafMutex<Decisions>,
    /// The usage of requests in the current interval.
    requests: LeafMutex<RequestAccounts>,
    /// The cores that run no modules; `None` if there is no such core.
    cores: Option<Cores>,
    /// Counters of remote access.
    pub(crate) access: RemoteAccessCounters,
    /// True if the limits of roots have changed, and sessions have to be checked against them.
    root_limits_changed: AtomicBool,
    /// The store of saved sessions; `None` if sessions are not saved.
    store: OrderedMutex<Option<SessionStore>, { rank::STORE }>,
    /// Sessions that still have to be saved.
    save_queue: LeafMutex<SaveQueue>,
    /// Locked during a reload, so that reloads do not overlap.
    reload_lock: OrderedMutex<(), { rank::RELOAD }>,
    /// The configuration in effect.
    loaded: LeafMutex<LoadedConfig>,
}

/// A snapshot of the node, and the owner of each session, by the session's name on the node.
struct HolderSnapshot {
    snapshot: Snapshot,
    owners: BTreeMap<String, SessionOwner>,
}

/// The ledger's writer, with the usage that the ledger does not contain yet.
struct LedgerState {
    writer: LedgerWriter,
    usage: UsageRecorder,
    /// The current interval.
    interval: Interval,
    /// True if the last commit failed.
    commit_failed: bool,
}

fn now() -> Timestamp {
    weir_datapath::clock::wall_clock()
}

/// Runs a node until a signal stops it.
///
/// # Errors
///
/// The node does not start, or its spawner process ends. Other errors are logged and counted, and do not end the node.
pub fn run(setup: Setup) -> Result<(), DaemonError> {
    let loaded = load_config(&setup.config, &setup.calibration, setup.shipped)?;
    log::begin(loaded.config.node.log, &loaded.config.node.name);
    // The configuration is checked before any file of the node is created or changed.
    check::verify(&setup, &loaded)?;
    let cache = Cache::of_user()
        .map_err(|error| warn(&format_args!("compiled modules are not cached: {error}")))
        .ok();
    if let Err(error) = weir_netio::raise_file_descriptor_limit() {
        warn(&format_args!("the limit of open files cannot be raised: {error}"));
    }
    let key_file = loaded.config.remote.as_ref().map(|remote| resolve_path(&setup.config, &remote.key));
    let state = &loaded.config.node.state;
    confine::make_private(state)?;
    // Opening the ledger locks it, so no other node runs in this folder when leftovers of an earlier node are removed.
    let ledger = weir_ledger_files::LedgerFolder::open(&state.join(LEDGER))?;
    crate::server::child_isolation::start(&loaded.config.isolation, state, key_file)?;
    let key = match &loaded.config.remote {
        Some(remote) => Some(trust::start_key_agent(&resolve_path(&setup.config, &remote.key))?),
        None => None,
    };
    // The process is confined before untrusted input is parsed, and while it has only one thread: confinement applies to
    // the calling thread and to threads that it starts.
    confine::confine(&loaded.config, cache.as_ref())?;
    confine::warn_if_unreadable(&setup.config);
    let (signal_sender, signals) = channel();
    crate::server::endpoints::catch_signals(signal_sender)
        .map_err(|source| DaemonError::System { what: "waiting for signals", source })?;
    abort_on_panic();
    let (daemon, events) = Daemon::start(setup, loaded, ledger, cache)?;
    let daemon = Arc::new(daemon);
    // If the server cannot start, the node stops in order, so that its ledger does not record a crash.
    let service = RequestThreads::start(&daemon, key).inspect_err(|_| daemon.stop())?;
    crate::server::endpoints::notify("READY=1");
    info(&format!("node {} is running", daemon.node.lock().config.node.name));
    let result = daemon.event_loop(&signals, &events);
    crate::server::endpoints::notify("STOPPING=1");
    drop(service);
    daemon.stop_after(result.is_ok());
    result
}

/// Sets a flag when it is dropped.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Makes a panic abort the process, unless it is in a thread that serves a client. A node that goes on without a core's or
/// interface's thread would look alive.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        if !crate::server::endpoints::is_client_thread(std::thread::current().name()) {
            std::process::abort();
        }
    }));
}

impl Daemon {
    /// Starts the node and creates the sessions of its configuration.
    fn start(
        setup: Setup,
        mut loaded: LoadedConfig,
        ledger: weir_ledger_files::LedgerFolder,
        cache: Option<Cache>,
    ) -> Result<(Self, Receiver<ObservedEvent>), DaemonError> {
        let cores = loaded.config.other_cores();
        // The check of the modules already starts them, so it has to know all revocations.
        let state = &loaded.config.node.state;
        loaded.trust = revoke::with_stored_revocations(loaded.trust.take(), state)?;
        let loader = new_module_loader(&setup, &loaded, cache)?;
        if let Some(why) = loader.engine.why_not_llvm() {
            info(&format!("modules run in code of Cranelift alone: {why}"));
        }
        // The modules are checked before the first ledger entry is written.
        let checked = check::check_modules(&setup, &loaded, &loader)?;
        state_version::update(&confine::make_private(&loaded.config.node.state)?)?;
        let (event_sender, events) = channel();
        let start = NodeStart {
            node: loaded.config.node.name.clone(),
            version: LedgerText::new(env!("CARGO_PKG_VERSION")),
            configuration: loaded.digest,
            at: now(),
        };
        let (mut ledger, opened) = LedgerWriter::with_storage(ledger, start, LedgerOptions::default())?;
        if opened.crashed {
            warn(&"the node crashed when it ran last; its ledger is complete up to the crash");
        }
        // Each session has a ledger entry, so no earlier session's number is higher than the number of entries.
        let before = ledger.head().map_or(0, |head| head.sequence);
        let tables = std::mem::take(&mut loaded.tables);
        let node = Node::start(loaded.config.clone(), loader, before, &event_sender).and_then(|node| {
            // Tables are published before sessions are created, as modules may read tables when they start.
            loaded.tables = node.loader.registry.configure(tables)?;
            Ok(node)
        });
        let node = match node {
            Ok(node) => node,
            Err(error) => {
                // The ledger is ended in order, so that it does not record a crash. An error of the ledger itself is
                // found at the next start.
                _ = ledger.stop(now());
                return Err(error.into());
            }
        };
        let ledger = LedgerState {
            writer: ledger,
            usage: UsageRecorder::default(),
            interval: Interval::begin(ClockReading::now()),
            commit_failed: false,
        };
        let sessions = loaded.config.sessions.clone();
        let (node, ledger) = (OrderedMutex::new(node), OrderedMutex::new(ledger));
        let trust = LeafMutex::new(loaded.trust.clone());
        let daemon = Self {
            setup,
            node,
            ledger,
            closing: LeafMutex::default(),
            trust,
            holder_snapshots: SingleValueCache::new(SNAPSHOT_AGE_MAX),
            uploads: Uploads::default(),
            compile_queue: FairCompileQueue::default(),
            is_ledger_error_logged: AtomicBool::new(false),
            revocation_lock: OrderedMutex::default(),
            unwritten_revocations: LeafMutex::default(),
            delegated_rate: LeafMutex::default(),
            deliveries: Deliveries::default(),
            decisions: LeafMutex::new(Decisions::since(now())),
            requests: LeafMutex::default(),
            cores,
            access: RemoteAccessCounters::default(),
            root_limits_changed: AtomicBool::new(false),
            store: OrderedMutex::default(),
            save_queue: LeafMutex::default(),
            reload_lock: OrderedMutex::default(),
            loaded: LeafMutex::new(loaded),
        };
        let started = daemon.load_revocations().and_then(|()| {
            sessions.into_iter().try_for_each(|session| daemon.create_checked(session, &checked))
        });
        started.inspect_err(|_| daemon.stop())?;
        daemon.restore_sessions();
        Ok((daemon, events))
    }

    /// Creates a session of the configuration, and charges it for the check of its modules. `checked` has the processor time
    /// of that check for each session.
    fn create_checked(
        &self,
        session: SessionSpec,
        checked: &BTreeMap<Name, Nanos>,
    ) -> Result<(), DaemonError> {
        let name = session.name.clone();
        let created = self.create_configured(session);
        created.map_err(|error| self.session_error(name.clone(), error))?;
        if let Some(used) = checked.get(&name) {
            self.node.lock().charge(&name, None, *used);
        }
        Ok(())
    }

    fn session_error(&self, session: Name, error: NodeError) -> DaemonError {
        DaemonError::Session { path: self.setup.config.clone(), session, error }
    }

    /// Handles signals and events, and does periodic work, until the node has to stop.
    ///
    /// # Errors
    ///
    /// The node has to stop because its spawner process has ended.
    fn event_loop(
        self: &Arc<Self>,
        signals: &Receiver<Signal>,
        events: &Receiver<ObservedEvent>,
    ) -> Result<(), DaemonError> {
        let interval = Duration::from_nanos(self.node.lock().config.node.ledger_interval.0);
        let mut interval_end = Instant::now() + interval;
        let mut watchdog_sent = Instant::now();
        let (mut watched, mut spawner) = (WatchedFiles::default(), SpawnerWatch::default());
        let (restored, mut noted_survival) = (OnceLock::new(), NotedSurvival::default());
        let is_ending = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // The scope waits for its threads, which end once the flag is set.
            let _end = SetOnDrop(&is_ending);
            scope.spawn(|| {
                self.restore_modules(&is_ending);
                restored.set(Instant::now())
            });
            scope.spawn(|| self.save_delayed(&is_ending));
            scope.spawn(|| self.compile_busy_modules(&is_ending));
            loop {
                let timeout =
                    interval_end.saturating_duration_since(Instant::now()).min(Duration::from_millis(100));
                match signals.recv_timeout(timeout) {
                    Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                    // A reload has a thread of its own, as it compiles modules: ledger intervals and watchdog messages go on
                    // meanwhile.
                    Ok(Signal::Reload) => drop(scope.spawn(|| match self.reload() {
                        Ok(notes) => notes.iter().for_each(|note| info(note)),
                        Err(error) => warn(&format_args!("the configuration was not reloaded: {error}")),
                    })),
                    Err(RecvTimeoutError::Timeout) => {}
                }
                spawner.check(Instant::now())?;
                for event in events.try_iter() {
                    self.handle_event(event);
                }
                let sources: Vec<_> = self.node.lock().sources.values().cloned().collect();
                sources.iter().for_each(|source| source.join_filters());
                self.read_changed_lists(&mut watched);
                self.close_expired();
                self.withdraw_untrusted_code();
                self.uploads.remove_expired(Instant::now());
                self.note_survival(restored.get(), &mut noted_survival);
                if Instant::now() >= interval_end {
                    interval_end += interval;
                    self.end_interval();
                    self.retry_revocation_writes();
                    self.unload_failed();
                }
                if watchdog_sent.elapsed() >= WATCHDOG_INTERVAL {
                    // No watchdog message is sent while the node's lock is stuck.
                    drop(self.node.lock());
                    crate::server::endpoints::notify("WATCHDOG=1");
                    watchdog_sent = Instant::now();
                }
            }
        })
    }

    /// Writes the usage, the requests and the decisions of the current interval to the ledger, and begins the next interval.
    fn end_interval(&self) {
        let mut ledger = self.ledger.lock();
        let reading = ClockReading::now();
        let (begin, end, length) = ledger.interval.until(reading);
        let (used, changed) = {
            let mut node = self.node.lock_after(&ledger);
            node.release_unused();
            let used = ledger.usage.usage_of_all(&node, length);
            let changed = node.reservations_changed_by_modules();
            self.save_queue.with(|queue| changed.iter().for_each(|session| queue.add(session)));
            (used, changed.iter().filter_map(|name| node.reserved(name)).collect::<Vec<_>>())
        };
        ledger.interval = Interval::begin(reading);
        used.events().for_each(|event| ledger.writer.push(begin, end, event));
        let (requests, debts) = self.requests.with(RequestAccounts::end_interval);
        self.node.lock_after(&ledger).debit(debts);
        for event in requests {
            ledger.writer.push(begin, end, event);
        }
        for (begin, end, event) in self.decisions.with(|decisions| decisions.due(end, false)) {
            ledger.writer.push(begin, end, event);
        }
        for (session, reserved) in changed {
            ledger.append(LedgerEvent::SessionChanged { session, reserved });
        }
        ledger.commit();
    }

    /// Stops the node in order: closes its sessions, and writes the last entries of the ledger.
    fn stop(&self) {
        self.stop_after(true);
    }

    /// Stops the node. `has_survived` is false if the node has to stop because of an event that a session may have caused.
    fn stop_after(&self, has_survived: bool) {
        self.end_saving(has_survived);
        let names: Vec<Name> = self.node.lock().sessions.keys().cloned().collect();
        for name in names {
            if let Err(error) = self.close_by_name(&name, CloseReason::Node, UnloadReason::NodeStop) {
                log::session(&name).warn(&format_args!("session {name}: {error}"));
            }
        }
        self.node.lock().finish_traces();
        self.write_revocations_at_stop();
        let mut ledger = self.ledger.lock();
        let (begin, end, _) = ledger.interval.until(ClockReading::now());
        for event in self.requests.with(RequestAccounts::end_interval).0 {
            ledger.writer.push(begin, end, event);
        }
        for (begin, end, event) in self.decisions.with(|decisions| decisions.due(now(), true)) {
            ledger.writer.push(begin, end, event);
        }
        if let Err(error) = ledger.writer.stop(now()) {
            warn(&error);
        }
    }
}

impl LedgerState {
    fn append(&mut self, event: LedgerEvent) {
        self.writer.push_at(now(), event);
    }

    fn commit(&mut self) {
        let result = self.writer.commit();
        let failed = std::mem::replace(&mut self.commit_failed, result.is_err());
        match result {
            Err(error) if !failed => {
                warn(&format_args!("the ledger cannot be written, and is kept in memory: {error}"))
            }
            Ok(_) if failed => info("the ledger is written again"),
            _ => {}
        }
    }
}

impl Daemon {
    pub(crate) fn snapshot(&self) -> Snapshot {
        let (remote, revocations) = (self.access.status(), self.revocation_counts());
        let (processes, refused_processes) =
            (child_isolation::started_processes(), child_isolation::refused_starts());
        Snapshot { remote, revocations, processes, refused_processes, ..self.node.lock().snapshot() }
    }

    /// Returns the path of the local socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.node.lock().config.node.socket.clone()
    }

    pub(crate) fn name(&self) -> Name {
        self.node.lock().config.node.name.clone()
    }

    /// Returns the address of the metrics server; `None` if metrics are not served.
    pub(crate) fn metrics(&self) -> Option<std::net::SocketAddr> {
        self.node.lock().config.node.metrics
    }

    /// Locks the node and reads from it.
    pub(crate) fn with_node<R>(&self, read: impl FnOnce(&Node) -> R) -> R {
        read(&self.node.lock())
    }

    /// Returns the address for remote connections; `None` if the node has no remote access.
    pub(crate) fn remote(&self) -> Option<std::net::SocketAddr> {
        self.node.lock().config.remote.as_ref().map(|remote| remote.listen)
    }

    pub(crate) fn trust(&self) -> Option<Arc<Trust>> {
        self.trust.get()
    }

    /// Decides whether a client may make a request.
    pub(crate) fn permit(
        &self,
        requester: &Requester,
        request: ControlRequest,
        body: Option<&[u8]>,
    ) -> Result<Permitted, RequestRefusal> {
        let requester = &self.with_current_credential(requester)?;
        authority::permit(requester, request, body, &|name| self.shared_rights(name), &self.setup.shipped)
    }

    /// Returns the node's name of the session that a request names. Each holder has a namespace of its own. A name
    /// outside the holder's namespace is taken as the node's name of another holder's session.
    pub(crate) fn session_of(&self, requester: &Requester, request: &ControlRequest) -> Option<Name> {
        let requested = request.session()?;
        let Requester::Holder(credential) = requester else { return Some(requested.clone()) };
        let own = SessionOwner::name_of(credential, requested);
        let is_own = matches!(request, ControlRequest::Create(_))
            || self.node.lock().sessions.contains_key(&own)
            || self.has_closed_session(request, &own);
        Some(if is_own { own } else { requested.clone() })
    }

    /// Records the decision on a request in the ledger, at once or with others at the end of the interval.
    pub(crate) fn record_decision(&self, decision: PendingDecision) {
        let event = self.decisions.with(|decisions| decisions.add(now(), decision));
        if let Some(event) = event {
            self.ledger.lock().append(event);
        }
    }

    /// Counts failed handshakes.
    pub(crate) fn count_failed_handshakes(&self, count: u64) {
        self.decisions.with(|decisions| decisions.handshakes_failed(count));
    }

    /// Checks that a client's right still holds: its operator's key, or its credential.
    pub(crate) fn check_right(&self, requester: &Requester) -> Result<(), RequestRefusal> {
        self.with_current_credential(requester).map(drop)
    }

    /// Returns the client with its credential verified again.
    fn with_current_credential(&self, requester: &Requester) -> Result<Requester, RequestRefusal> {
        match requester {
            Requester::Operator(Some(key)) if !self.is_operator(key) => Err(RequestRefusal::NotOperator),
            Requester::Operator(_) => Ok(requester.clone()),
            Requester::Holder(credential) => Ok(Requester::Holder(self.reverify(credential)?)),
        }
    }

    /// Returns true if this key is that of an operator of the node.
    pub(crate) fn is_operator(&self, key: &PublicKey) -> bool {
        self.trust().is_some_and(|trust| trust.is_operator(key))
    }

    /// Returns true if this key is a root of trust of the node.
    pub(crate) fn is_root(&self, key: &PublicKey) -> bool {
        self.trust().is_some_and(|trust| trust.roots().contains(key))
    }

    /// Verifies a credential again, against the present time, roots and revocations.
    fn reverify(
        &self,
        credential: &Arc<VerifiedCredential>,
    ) -> Result<Arc<VerifiedCredential>, RequestRefusal> {
        match self.trust() {
            Some(trust) => Ok(trust.current(credential, UnixSecond::containing(now()))?),
            None => Err(CredentialRefusal::UnknownRoot(*credential.root()).into()),
        }
    }

    fn owner_of(&self, session: &Name) -> Option<SessionOwner> {
        self.node.lock().sessions.get(session)?.owner.clone()
    }

    /// Returns the owner of a session, and the rights over the session that the owner shares. `None` for the operator's
    /// sessions.
    fn shared_rights(&self, session: &Name) -> Option<SharedRights> {
        let (owner, share) = {
            let node = self.node.lock();
            let state = node.sessions.get(session)?;
            (state.owner.clone()?, state.spec.share.clone())
        };
        // A reload may have changed the limit of the owner's root a moment ago. An owner without a right is refused later.
        let credential = self.reverify(&owner.credential).unwrap_or_else(|_| Arc::clone(&owner.credential));
        Some(SharedRights { owner: SessionOwner { credential, ..owner }, share })
    }

    /// Checks that a client still has the right by which a running request was permitted. `by` is the share, if the session
    /// belongs to another holder.
    pub(crate) fn check_share(
        &self,
        requester: &Requester,
        session: &Name,
        by: Option<&ShareGrant>,
    ) -> Result<(), RequestRefusal> {
        self.check_right(requester)?;
        let (Some(by), Requester::Holder(credential)) = (by, requester) else { return Ok(()) };
        match self.shared_rights(session) {
            Some(shared) if shared.owner.relation(credential).is_some() && shared.share.contains(by) => {
                Ok(())
            }
            Some(_) => Err(RequestRefusal::not_shared(session, *by)),
            None => Err(RequestRefusal::NoSession(session.clone())),
        }
    }

    /// Returns a snapshot of all that a client may see. Holders share a cached snapshot, since taking a snapshot uses time
    /// of every core that is charged to no session.
    pub(crate) fn snapshot_for(&self, requester: &Requester) -> Snapshot {
        let Requester::Holder(credential) = requester else { return self.snapshot() };
        let holder_snapshot = self.holder_snapshots.get(|| {
            let node = self.node.lock();
            let owned =
                |(name, state): (&Name, &SessionState)| Some((name.to_string(), state.owner.clone()?));
            HolderSnapshot {
                owners: node.sessions.iter().filter_map(owned).collect(),
                snapshot: node.snapshot(),
            }
        });
        authority::snapshot_of(credential, &holder_snapshot.snapshot, &holder_snapshot.owners)
    }

    /// Makes the next snapshot for a holder a new one. To be called after a change of the node.
    pub(crate) fn invalidate_snapshots(&self) {
        self.holder_snapshots.invalidate();
    }

    /// Replaces the contents of a table of the operator.
    pub(crate) fn put_table(&self, table: &Name, bytes: &[u8]) -> Result<(), NodeError> {
        crate::sessions::descriptors::wait_for_free(|| self.with_node(Node::release_unused))?;
        let registry = Arc::clone(&self.node.lock().loader.registry);
        // The copy may take long, so it is made without the node's lock.
        Ok(registry.put(table, bytes)?)
    }

    /// Removes a table of the operator.
    pub(crate) fn remove_table(&self, table: &Name) -> Result<(), NodeError> {
        Ok(self.node.lock().loader.registry.remove(table)?)
    }
}
