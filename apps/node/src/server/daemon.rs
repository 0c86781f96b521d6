//! The daemon: a node, its ledger, and everything that happens to them.

mod charging;
mod confining;
mod ending;
mod error;
mod explaining;
mod loading;
mod noticing;
mod rehearsal;
mod reload;
mod revoking;
mod telling;

pub use error::{DaemonError, RequestRefused};
pub use rehearsal::check;

use crate::control::access::RemoteAccessCounters;
use crate::control::audit::{Decisions, PendingDecision};
use crate::control::authority::{self, Asker, Permitted, RequestRefusal, SessionOwner, SharedRights};
use crate::control::config::NodeConfiguration;
use crate::control::policy::{Ground, Policy};
use crate::control::protocol::{ControlRequest, Snapshot};
use crate::control::share::ShareGrant;
use crate::control::spec::SessionSpec;
use crate::error::NodeError;
use crate::server::deliveries::Deliveries;
use crate::server::isolation::SpawnerWatch;
use crate::server::log::{self, say, warn};
use crate::server::recent::Recent;
use crate::server::requests::RequestAccounts;
use crate::server::service::RequestThreads;
use crate::server::trust::{self, RemoteConfigError, Trust};
use crate::server::turns::FairCompileQueue;
use crate::server::uploads::Uploads;
use crate::server::verify::ConfigLines;
use crate::sessions::bill::{Interval, UsageRecorder};
use crate::sessions::node::{Node, SessionState};
use crate::sessions::tables::{TableFile, read_file};
use crate::sessions::unkept::Unkept;
use crate::sessions::workshop::{ModuleLoader, ShippedProfiles};
use noticing::WatchedFiles;
use revoking::DelegatedRateLimiter;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
pub(crate) use telling::LedgerQuery;
use weir_admission::{AdmissionTerms, Calibration, Name, Profile};
use weir_datapath::moment::Moment;
use weir_datapath::notice::ObservedEvent;
use weir_ledger::{CloseReason, Digest, LedgerEvent, LedgerText, Unloaded};
use weir_ledger_files::{LedgerOptions, LedgerWriter, Start};
use weir_os::child::Cores;
use weir_sandbox::{Cache, CompileLimits, Engine, EngineOptions};
use weir_trust::credential::{CredentialRefusal as Worthless, VerifiedCredential};
use weir_trust::grant::Second;
use weir_trust::key::PublicKey;
use weir_units::{Nanos, Timestamp};

/// A start or a stop of a module may take so much processor time before it is broken off.
const CALL_LIMIT: Duration = Duration::from_millis(500);

/// A node keeps its ledger in this folder of its state.
pub const LEDGER: &str = "ledger";

/// What the daemon is started with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The configuration file.
    pub config: PathBuf,
    /// How long fuel takes on this node.
    pub calibration: Calibration,
    /// The modules that come with weir.
    pub shipped: ShippedProfiles,
}

/// How old what holders see may be: as often as one of them can have it anew, all of them together can.
const SEEN_AGE: Duration = Duration::from_millis(50);

/// How often the service manager is told that the node is well.
const FEED: Duration = Duration::from_secs(1);

/// What happens to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Stop,
    Reload,
}

/// A configuration with the files that it names, and a digest of all.
#[derive(Clone, Debug)]
struct Loaded {
    config: NodeConfiguration,
    /// The lines of its parts.
    places: ConfigLines,
    profiles: BTreeMap<Name, AdmissionTerms>,
    default: AdmissionTerms,
    tables: Vec<TableFile>,
    trust: Option<Arc<Trust>>,
    /// Files with revocation lists, and the folder that may come to have more.
    lists: Vec<PathBuf>,
    revoked: Option<PathBuf>,
    digest: Digest,
}

fn read(path: &Path, most: usize) -> Result<Vec<u8>, DaemonError> {
    read_file_of(path, most).map_err(|source| DaemonError::Read { path: path.to_owned(), source })
}

/// The bytes of a file of at most so many; of a longer one, enough to see that it is.
pub(crate) fn read_file_of(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    // A reload must not wait for the writer of a FIFO.
    let file = weir_os::private::open_regular(path)?;
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_text(path: &Path, most: usize) -> Result<String, DaemonError> {
    String::from_utf8(read(path, most)?).map_err(|_| DaemonError::Read {
        path: path.to_owned(),
        source: io::Error::other("is not UTF-8 text"),
    })
}

fn load(path: &Path, calibration: &Calibration, shipped: ShippedProfiles) -> Result<Loaded, DaemonError> {
    let text = read_text(path, crate::control::config::CONFIG_BYTES_MAX)?;
    let places = ConfigLines::of(&text);
    let wrong =
        |source| DaemonError::Config { path: path.to_owned(), line: places.of_error(&source), source };
    let config = NodeConfiguration::parse(&text).map_err(wrong)?;
    let mut policy = Policy::of(&config, path, shipped)?;
    let trust = Trust::of(&config, &policy, path)?;
    try_cases(&config, &policy, path, shipped)?;
    let mut all = text.into_bytes();
    all.append(&mut policy.bytes);
    let profiles = policy.profiles.into_iter();
    let profiles = profiles.map(|(name, profile)| (name, terms(profile, &config, calibration))).collect();
    let mut tables = Vec::new();
    for table in &config.tables {
        let sheet = TableFile::new(table.name.clone(), read_file(&beside(path, &table.file))?);
        all.extend_from_slice(&sheet.digest.0);
        tables.push(sheet);
    }
    let default = terms(Profile::default(), &config, calibration);
    let (lists, revoked, digest) = (policy.lists, policy.revoked, Digest::of(&all));
    Ok(Loaded { config, places, profiles, default, tables, trust, lists, revoked, digest })
}

/// Before anything of a policy takes effect, its cases have to hold.
fn try_cases(
    config: &NodeConfiguration,
    policy: &Policy,
    path: &Path,
    shipped: ShippedProfiles,
) -> Result<(), DaemonError> {
    if policy.cases.is_empty() {
        return Ok(());
    }
    let node = &config.name().map_err(|_| DaemonError::Trust {
        path: path.to_owned(),
        source: RemoteConfigError::Name(config.node.name.clone()),
    })?;
    let trials = policy.try_cases(&Ground { node, config: Some(config), shipped });
    let of = trials.len();
    let mut failed =
        trials.into_iter().filter_map(|trial| Some((trial.wrong?, trial.file, trial.line, trial.name)));
    let Some((wrong, file, line, name)) = failed.next() else { return Ok(()) };
    let (name, more) = (weir_units::shown(&name), failed.count());
    Err(DaemonError::Case { path: file, line, name, wrong, more, of })
}

/// A profile on this node: what can be suspended is looked at several times in the longest time that it may keep a core.
fn terms(profile: Profile, config: &NodeConfiguration, calibration: &Calibration) -> AdmissionTerms {
    let piece = profile.piece.min(Nanos(config.cpu.blocking.0 / 4));
    AdmissionTerms { profile: Profile { piece, ..profile }, calibration: calibration.clone() }
}

/// A path in the configuration is relative to its file.
pub(crate) fn beside(config: &Path, file: &Path) -> PathBuf {
    config.parent().map_or_else(|| file.to_owned(), |folder| folder.join(file))
}

/// The daemon's state.
pub(crate) struct Daemon {
    setup: Setup,
    node: Mutex<Node>,
    books: Mutex<LedgerState>,
    /// The numbers of sessions that are being ended because of what they did.
    ending: Mutex<BTreeSet<u64>>,
    /// Whose credentials count. Nobody's, where the node is not reached from elsewhere.
    trust: Mutex<Option<Arc<Trust>>>,
    /// What holders see of the node.
    seen: Recent<Seen>,
    /// Files that come in parts.
    pub(crate) uploads: Uploads,
    /// Who has something compiled, or the ledger read.
    turns: FairCompileQueue,
    /// The ledger could not be read when somebody asked, and that was said.
    is_ledger_broken: AtomicBool,
    /// Held while what is known to have been taken back changes, and is kept.
    revoking: Mutex<()>,
    /// Roots whose state could not be written.
    unkept: Mutex<Unkept>,
    /// The rate of revocation lists of delegators.
    delegated_pace: Mutex<DelegatedRateLimiter>,
    /// Counters of delivered revocation lists.
    deliveries: Deliveries,
    /// Decisions on requests that stand in no entry yet.
    decisions: Mutex<Decisions>,
    /// The processor time of requests.
    requests: Mutex<RequestAccounts>,
    /// The cores for work that no module waits for; all cores where there are none.
    cores: Option<Cores>,
    /// Counters of access from elsewhere.
    pub(crate) access: RemoteAccessCounters,
    /// Whether sessions have to be held against what their roots may grant now.
    is_limited_anew: AtomicBool,
    /// Held while the configuration is read again and takes effect, so that one is at a time.
    reloading: Mutex<()>,
    /// The configuration that holds.
    loaded: Mutex<Loaded>,
}

/// How things were a moment ago, and whose the sessions are, by the node's names.
struct Seen {
    snapshot: Snapshot,
    owners: BTreeMap<String, SessionOwner>,
}

/// The ledger, and what stands in it already.
struct LedgerState {
    ledger: LedgerWriter,
    bill: UsageRecorder,
    /// The present interval.
    interval: Interval,
    /// It could not be written the last time.
    fails: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> Timestamp {
    weir_datapath::moment::wall_clock()
}

/// Runs a node until it is told to stop.
///
/// # Errors
///
/// It does not start. What goes wrong later is said, counted, and does not end it.
pub fn run(setup: Setup) -> Result<(), DaemonError> {
    let loaded = load(&setup.config, &setup.calibration, setup.shipped)?;
    log::begin(loaded.config.node.log, &loaded.config.node.name);
    // Before anything of the node's is touched.
    rehearsal::verify(&setup, &loaded)?;
    let cache =
        Cache::of_user().map_err(|error| warn(&format_args!("compiled modules are not kept: {error}"))).ok();
    if let Err(error) = weir_netio::raise_descriptor_limit() {
        warn(&format_args!("the node can have no more files open than it was started with: {error}"));
    }
    let key_file = loaded.config.remote.as_ref().map(|remote| beside(&setup.config, &remote.key));
    let state = &loaded.config.node.state;
    confining::make_private(state)?;
    // Held before anything that a running node has started is taken for what an earlier one has left.
    let ledger = weir_ledger_files::LedgerFolder::open(&state.join(LEDGER))?;
    crate::server::isolation::start(&loaded.config.isolation, state, key_file)?;
    let key = match &loaded.config.remote {
        Some(remote) => Some(trust::keeper(&beside(&setup.config, &remote.key))?),
        None => None,
    };
    // Before anything of a stranger's is looked at, and while there is one thread: it is for good.
    confining::confine(&loaded.config, cache.as_ref())?;
    confining::readable_again(&setup.config);
    let (signals, happening) = channel();
    crate::server::service::catch_signals(signals)
        .map_err(|source| DaemonError::System { what: "waiting for signals", source })?;
    end_with_a_panic();
    let (daemon, notices) = Daemon::start(setup, loaded, ledger, cache)?;
    let daemon = Arc::new(daemon);
    // It has not crashed where it cannot be reached: it stops in order.
    let service = RequestThreads::start(&daemon, key).inspect_err(|_| daemon.stop())?;
    crate::server::service::notify("READY=1");
    say(&format!("node {} is running", lock(&daemon.node).config.node.name));
    let watched = daemon.watch(&happening, &notices);
    crate::server::service::notify("STOPPING=1");
    drop(service);
    daemon.stop();
    watched
}

/// The engine of a node, with the rules by which it admits modules.
fn workshop(setup: &Setup, loaded: &Loaded, cache: Option<Cache>) -> Result<ModuleLoader, DaemonError> {
    let cores = loaded.config.cpu.other_cores();
    let options = EngineOptions {
        call_limit: CALL_LIMIT,
        compile_in_child: Some(CompileLimits { cores, ..CompileLimits::default() }),
        ..EngineOptions::default()
    };
    let engine = Arc::new(Engine::new(options, cache)?);
    let (default, profiles) = (loaded.default.clone(), loaded.profiles.clone());
    Ok(ModuleLoader::new(engine, default, profiles, setup.shipped, loaded.config.cpu.blocking))
}

/// Has the process end where a thread panics that others rely on: one without its cores or interfaces would still look alive. What a client's request
/// does ends with its thread.
fn end_with_a_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tell(info);
        if !crate::server::service::is_of_a_client(std::thread::current().name()) {
            std::process::abort();
        }
    }));
}

impl Daemon {
    /// Starts the node and creates the sessions of its configuration.
    fn start(
        setup: Setup,
        mut loaded: Loaded,
        ledger: weir_ledger_files::LedgerFolder,
        cache: Option<Cache>,
    ) -> Result<(Self, Receiver<ObservedEvent>), DaemonError> {
        let cores = loaded.config.cpu.other_cores();
        let workshop = workshop(&setup, &loaded, cache)?;
        // Before there is an entry in the ledger.
        let tried = rehearsal::try_modules(&setup, &loaded, &workshop)?;
        let (tells, notices) = channel();
        let start = Start {
            node: loaded.config.node.name.clone(),
            version: LedgerText::new(env!("CARGO_PKG_VERSION")),
            configuration: loaded.digest,
            at: now(),
        };
        let (mut ledger, opened) = LedgerWriter::with_storage(ledger, start, LedgerOptions::default())?;
        if opened.crashed {
            warn(&"the node did not stop in order when it ran last; its ledger is whole up to then");
        }
        // Each session has an entry of its own in the ledger, so no earlier one has a higher number than there are entries.
        let before = ledger.head().map_or(0, |head| head.sequence);
        let tables = std::mem::take(&mut loaded.tables);
        let node = Node::start(loaded.config.clone(), workshop, before, &tells).and_then(|node| {
            // Before the sessions, whose modules may want to read them when they begin.
            loaded.tables = node.workshop.shelf.configure(tables)?;
            Ok(node)
        });
        let node = match node {
            Ok(node) => node,
            Err(error) => {
                // It has not crashed. What the ledger lacks then is said at the next start.
                _ = ledger.stop(now());
                return Err(error.into());
            }
        };
        let books = LedgerState {
            ledger,
            bill: UsageRecorder::default(),
            interval: Interval::begin(Moment::now()),
            fails: false,
        };
        let sessions = loaded.config.sessions.clone();
        let (node, books) = (Mutex::new(node), Mutex::new(books));
        let trust = Mutex::new(loaded.trust.clone());
        let daemon = Self {
            setup,
            node,
            books,
            ending: Mutex::default(),
            trust,
            seen: Recent::new(SEEN_AGE),
            uploads: Uploads::default(),
            turns: FairCompileQueue::default(),
            is_ledger_broken: AtomicBool::new(false),
            revoking: Mutex::default(),
            unkept: Mutex::default(),
            delegated_pace: Mutex::default(),
            deliveries: Deliveries::default(),
            decisions: Mutex::new(Decisions::since(now())),
            requests: Mutex::default(),
            cores,
            access: RemoteAccessCounters::default(),
            is_limited_anew: AtomicBool::new(false),
            reloading: Mutex::default(),
            loaded: Mutex::new(loaded),
        };
        let begun = daemon
            .remember()
            .and_then(|()| sessions.into_iter().try_for_each(|session| daemon.create_tried(session, &tried)));
        begun.inspect_err(|_| daemon.stop())?;
        Ok((daemon, notices))
    }

    /// Creates a session of the configuration, and debits it for the check of its modules.
    fn create_tried(&self, session: SessionSpec, tried: &BTreeMap<Name, Nanos>) -> Result<(), DaemonError> {
        let name = session.name.clone();
        let created = self.create_configured(session);
        created.map_err(|error| self.of_configuration(name.clone(), error))?;
        if let Some(used) = tried.get(&name) {
            lock(&self.node).charge(&name, None, *used);
        }
        Ok(())
    }

    fn of_configuration(&self, session: Name, error: NodeError) -> DaemonError {
        DaemonError::Session { path: self.setup.config.clone(), session, error }
    }

    /// Waits for what happens, until the node is to stop.
    ///
    /// # Errors
    ///
    /// It is to stop because its spawner has ended.
    fn watch(
        self: &Arc<Self>,
        happening: &Receiver<Signal>,
        notices: &Receiver<ObservedEvent>,
    ) -> Result<(), DaemonError> {
        let interval = Duration::from_nanos(lock(&self.node).config.node.interval.0);
        let mut next = Instant::now() + interval;
        let mut fed = Instant::now();
        let (mut watched, mut spawner) = (WatchedFiles::default(), SpawnerWatch::default());
        std::thread::scope(|scope| {
            loop {
                let left = next.saturating_duration_since(Instant::now()).min(Duration::from_millis(100));
                match happening.recv_timeout(left) {
                    Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                    // Modules are compiled for it. Intervals end meanwhile, and the service manager is told that all is well.
                    Ok(Signal::Reload) => drop(scope.spawn(|| match self.reload() {
                        Ok(notes) => notes.iter().for_each(|note| say(note)),
                        Err(error) => warn(&format_args!("nothing was changed: {error}")),
                    })),
                    Err(RecvTimeoutError::Timeout) => {}
                }
                spawner.look(Instant::now())?;
                for notice in notices.try_iter() {
                    self.heed(notice);
                }
                let sources: Vec<_> = lock(&self.node).sources.values().cloned().collect();
                sources.iter().for_each(|source| source.settle());
                self.notice_lists(&mut watched);
                self.close_expired();
                self.uploads.tidy(Instant::now());
                if Instant::now() >= next {
                    next += interval;
                    self.end_interval();
                    self.keep_again();
                    self.unload_ended();
                }
                if fed.elapsed() >= FEED {
                    // A node that is held for ever is not well.
                    drop(lock(&self.node));
                    crate::server::service::notify("WATCHDOG=1");
                    fed = Instant::now();
                }
            }
        })
    }

    fn end_interval(&self) {
        let mut books = lock(&self.books);
        let moment = Moment::now();
        let (begin, end, length) = books.interval.until(moment);
        let (used, changed) = {
            let mut node = lock(&self.node);
            node.tidy();
            let used = books.bill.usages(&node, length);
            let changed = node.changed_by_themselves();
            (used, changed.iter().filter_map(|name| node.reserved(name)).collect::<Vec<_>>())
        };
        books.interval = Interval::begin(moment);
        used.events().for_each(|event| books.ledger.push(begin, end, event));
        let (requests, debts) = lock(&self.requests).due();
        lock(&self.node).debit(debts);
        for event in requests {
            books.ledger.push(begin, end, event);
        }
        for (begin, end, event) in lock(&self.decisions).due(end, false) {
            books.ledger.push(begin, end, event);
        }
        for (session, reserved) in changed {
            books.enter(LedgerEvent::SessionChanged { session, reserved });
        }
        books.commit();
    }

    fn stop(&self) {
        let names: Vec<Name> = lock(&self.node).sessions.keys().cloned().collect();
        for name in names {
            if let Err(error) = self.close_now(&name, CloseReason::Node, Unloaded::NodeStop) {
                log::session(&name).warn(&format_args!("session {name}: {error}"));
            }
        }
        lock(&self.node).end_records();
        self.keep_at_end();
        let mut books = lock(&self.books);
        let (begin, end, _) = books.interval.until(Moment::now());
        for event in lock(&self.requests).due().0 {
            books.ledger.push(begin, end, event);
        }
        for (begin, end, event) in lock(&self.decisions).due(now(), true) {
            books.ledger.push(begin, end, event);
        }
        if let Err(error) = books.ledger.stop(now()) {
            warn(&error);
        }
    }
}

impl LedgerState {
    fn enter(&mut self, event: LedgerEvent) {
        self.ledger.push_at(now(), event);
    }

    fn commit(&mut self) {
        let result = self.ledger.commit();
        let failed = std::mem::replace(&mut self.fails, result.is_err());
        match result {
            Err(error) if !failed => warn(&format_args!("the ledger is kept in memory: {error}")),
            Ok(_) if failed => say("the ledger is written again"),
            _ => {}
        }
    }
}

/// What is asked of it.
impl Daemon {
    pub(crate) fn snapshot(&self) -> Snapshot {
        let (remote, revocations) = (self.access.shot(), self.revocations_shot());
        Snapshot { remote, revocations, ..lock(&self.node).snapshot() }
    }

    /// How requests reach it.
    pub(crate) fn socket(&self) -> PathBuf {
        lock(&self.node).config.node.socket.clone()
    }

    pub(crate) fn name(&self) -> Name {
        lock(&self.node).config.node.name.clone()
    }

    pub(crate) fn metrics(&self) -> Option<std::net::SocketAddr> {
        lock(&self.node).config.node.metrics
    }

    pub(crate) fn with_node<R>(&self, ask: impl FnOnce(&Node) -> R) -> R {
        ask(&lock(&self.node))
    }

    /// Where it is reached from elsewhere.
    pub(crate) fn remote(&self) -> Option<std::net::SocketAddr> {
        lock(&self.node).config.remote.as_ref().map(|remote| remote.listen)
    }

    pub(crate) fn trust(&self) -> Option<Arc<Trust>> {
        lock(&self.trust).clone()
    }

    /// Decides on a request.
    pub(crate) fn permit(
        &self,
        asker: &Asker,
        ask: ControlRequest,
        body: Option<&[u8]>,
    ) -> Result<Permitted, RequestRefusal> {
        let asker = &self.current(asker)?;
        authority::permit(asker, ask, body, &|name| self.shared(name), &self.setup.shipped)
    }

    /// What the node calls the session that a request is about: a holder has names of his own.
    pub(crate) fn session_of(&self, asker: &Asker, ask: &ControlRequest) -> Option<Name> {
        let called = ask.session()?;
        let Asker::Holder(credential) = asker else { return Some(called.clone()) };
        let own = SessionOwner::name_of(credential, called);
        let is_own = matches!(ask, ControlRequest::Create(_)) || lock(&self.node).sessions.contains_key(&own);
        Some(if is_own { own } else { called.clone() })
    }

    /// Enters what was decided.
    pub(crate) fn decided(&self, asked: PendingDecision) {
        let event = lock(&self.decisions).note(now(), asked);
        if let Some(event) = event {
            lock(&self.books).enter(event);
        }
    }

    /// Counts handshakes that came to nothing.
    pub(crate) fn handshakes_failed(&self, count: u64) {
        lock(&self.decisions).handshakes_failed(count);
    }

    /// Whether its asker's credential is still worth something.
    pub(crate) fn still(&self, asker: &Asker) -> Result<(), RequestRefusal> {
        self.current(asker).map(drop)
    }

    /// Its asker with what his credential is worth now.
    fn current(&self, asker: &Asker) -> Result<Asker, RequestRefusal> {
        match asker {
            Asker::Operator(Some(key)) if !self.is_operator(key) => Err(RequestRefusal::NoOperator),
            Asker::Operator(_) => Ok(asker.clone()),
            Asker::Holder(credential) => Ok(Asker::Holder(self.worth(credential)?)),
        }
    }

    /// Whether somebody with this key is an operator of the node.
    pub(crate) fn is_operator(&self, key: &PublicKey) -> bool {
        self.trust().is_some_and(|trust| trust.is_operator(key))
    }

    /// Returns true if this key is a root of trust here.
    pub(crate) fn is_root(&self, key: &PublicKey) -> bool {
        self.trust().is_some_and(|trust| trust.roots().contains(key))
    }

    /// What a credential is worth now.
    fn worth(&self, credential: &Arc<VerifiedCredential>) -> Result<Arc<VerifiedCredential>, RequestRefusal> {
        match self.trust() {
            Some(trust) => Ok(trust.current(credential, Second::of(now()))?),
            None => Err(Worthless::UnknownRoot(*credential.root()).into()),
        }
    }

    fn owner_of(&self, session: &Name) -> Option<SessionOwner> {
        lock(&self.node).sessions.get(session)?.owner.clone()
    }

    /// The owner of a session, and the rights over it that they share. None for the operator's sessions.
    fn shared(&self, session: &Name) -> Option<SharedRights> {
        let node = lock(&self.node);
        let there = node.sessions.get(session)?;
        Some(SharedRights { owner: there.owner.clone()?, share: there.spec.share.clone() })
    }

    /// Checks that an asker still has the right by which a running request was permitted: the session is theirs, or is still shared with them.
    pub(crate) fn still_over(
        &self,
        asker: &Asker,
        session: &Name,
        by: Option<&ShareGrant>,
    ) -> Result<(), RequestRefusal> {
        self.still(asker)?;
        let (Some(by), Asker::Holder(credential)) = (by, asker) else { return Ok(()) };
        match self.shared(session) {
            Some(shared) if shared.owner.standing(credential).is_some() && shared.share.contains(by) => {
                Ok(())
            }
            Some(_) => Err(RequestRefusal::not_shared(session, *by)),
            None => Err(RequestRefusal::NoSession(session.clone())),
        }
    }

    /// How things are, as far as they concern whoever asks. A holder may have what another one had a moment ago: each takes time of every core, and is on nobody's bill.
    pub(crate) fn snapshot_for(&self, asker: &Asker) -> Snapshot {
        let Asker::Holder(credential) = asker else { return self.snapshot() };
        let seen = self.seen.get(|| {
            let node = lock(&self.node);
            let owned =
                |(name, there): (&Name, &SessionState)| Some((name.to_string(), there.owner.clone()?));
            Seen { owners: node.sessions.iter().filter_map(owned).collect(), snapshot: node.snapshot() }
        });
        authority::snapshot_of(credential, &seen.snapshot, &seen.owners)
    }

    /// Somebody has changed something: when he looks, he sees it.
    pub(crate) fn has_changed(&self) {
        self.seen.outdate();
    }

    /// The operator's next version of a table.
    pub(crate) fn put_table(&self, table: &Name, bytes: &[u8]) -> Result<(), NodeError> {
        crate::server::descriptors::spare(|| self.with_node(Node::tidy))?;
        let shelf = Arc::clone(&lock(&self.node).workshop.shelf);
        // It may be long, and nobody has to wait while it is copied.
        Ok(shelf.put(table, bytes)?)
    }

    /// The end of a table of the operator's.
    pub(crate) fn remove_table(&self, table: &Name) -> Result<(), NodeError> {
        Ok(lock(&self.node).workshop.shelf.remove(table)?)
    }
}
