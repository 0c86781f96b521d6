//! Where records go: to files, and to whoever follows a stream.
//!
//! Encoding and writing is the work of one thread, so that no core waits for a disk. What a module's records cost goes on its session's account. What
//! that thread holds while it writes, nobody else needs.

mod storage;

use crate::guest::BatchOutput;
use crate::sessions::followers::{Follower, Following, fields};
use crate::sessions::limits::SessionLimits;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use storage::RecordStorage;
pub(crate) use storage::{SessionFiles, StorageHolder};
use weir_datapath::account::DeferredCharges;
use weir_records::{Durability, FLUSH, ModuleFiles, RecordsError, Recovered};
use weir_sandbox::thread_time;
use weir_units::{Bytes, Nanos, Shown as _};
use {
    weir_admission::{Manifest, Name},
    weir_session::{Record, Records},
};

/// The folder of records in that of the node's state.
pub(crate) const RECORDS: &str = "records";
/// How often the thread looks whether a file has been open for long enough.
const LOOK: Duration = Duration::from_millis(200);
/// After an error, such as a full disk, the next file is tried so much later.
const RETRY: Duration = Duration::from_secs(1);
/// Who ends a module's files waits no longer than this for a slow disk.
const END: Duration = Duration::from_secs(5);

/// What became of a module's records. Counters only grow.
#[derive(Debug, Default)]
pub struct WriteCounters {
    /// Rows that are in a file that has been ended.
    pub rows: AtomicU64,
    /// Rows that could not be written.
    pub lost: AtomicU64,
}

/// When a file is ended and the next one begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// When it has about so many bytes: those of its rows, before they are encoded …
    pub bytes: Bytes,
    /// … or has been written for so long.
    pub time: Nanos,
}

/// Who follows a module's streams.
type Followers = Arc<Mutex<Vec<Follower>>>;

/// A module, for whoever does not write.
#[derive(Debug)]
struct Known {
    streams: Vec<Name>,
    followers: Followers,
    sink: Arc<Mutex<Sink>>,
    session: Name,
    account: Arc<DeferredCharges>,
}

/// The modules, by their numbers.
type Modules = Arc<Mutex<HashMap<u64, Known>>>;

#[derive(Debug)]
struct Sink {
    session: Name,
    module: Name,
    manifest: Manifest,
    folder: PathBuf,
    files: Option<ModuleFiles>,
    /// The folder that they are in.
    label: String,
    storage: Arc<SessionFiles>,
    since: Instant,
    /// Bytes of the rows in the present files, as the module emitted them.
    bytes: u64,
    /// Bytes of the present files on the disk, and of rows since that was looked up.
    on_disk: u64,
    /// When the rows in the present files were last brought to the log.
    flushed: Instant,
    /// Rows in the present files, and not counted yet.
    rows: u64,
    numbers: Arc<Numbers>,
    /// The number of files that were given up with nothing in them.
    unused: Option<u64>,
    written: Arc<WriteCounters>,
    account: Arc<DeferredCharges>,
    followers: Followers,
    /// When writing failed, until it succeeds again. It is said once.
    failed: Option<Instant>,
}

/// The numbers of the next files of modules, by session and module. Those of an earlier life of the node are looked for once: there can be many.
#[derive(Debug, Default)]
struct Numbers(Mutex<HashMap<(Name, Name), u64>>);

/// Modules of which the next number is remembered, at most.
const NUMBERS_MAX: usize = 4096;

impl Numbers {
    fn next(&self, folder: &Path, session: &Name, module: &Name) -> u64 {
        let mut numbers = lock(&self.0);
        let key = (session.clone(), module.clone());
        if numbers.len() >= NUMBERS_MAX && !numbers.contains_key(&key) {
            numbers.clear();
        }
        let next = numbers.entry(key).or_insert_with(|| first_free(folder, module));
        let number = *next;
        *next = next.saturating_add(1);
        number
    }
}

/// The thread, from outside. It ends when this is dropped, after all that was given to it is written.
#[derive(Debug)]
pub struct RecordWriter {
    modules: Modules,
    numbers: Arc<Numbers>,
    storage: Arc<RecordStorage>,
    /// The files of open sessions, by the sessions' names.
    sessions: Mutex<HashMap<Name, Weak<SessionFiles>>>,
    outputs: Option<Sender<BatchOutput>>,
    thread: Option<JoinHandle<()>>,
    recovery: Option<Recovery>,
}

/// The thread that completes the files of a node that crashed. It ends early when this is dropped: the next start goes on.
#[derive(Debug)]
struct Recovery {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RecordWriter {
    /// Starts the thread, and one that completes what an earlier life of the node left in `records` when it crashed.
    pub fn start(rotation: Rotation, records: &Path) -> std::io::Result<Self> {
        let (outputs, waiting) = channel();
        let (scanned, is_scanned) = channel();
        let modules = Modules::default();
        let theirs = Arc::clone(&modules);
        let storage = RecordStorage::new(records.to_owned());
        let stored = Arc::clone(&storage);
        let thread = std::thread::Builder::new().name("weir-records".to_owned()).spawn(move || {
            // No file is ended before: then the files of an earlier life are older than all others.
            stored.scan();
            _ = scanned.send(());
            work(&waiting, &theirs, &stored, rotation);
        })?;
        let recovery = Some(Recovery::start(records, Arc::clone(&storage), is_scanned)?);
        let (numbers, sessions) = Default::default();
        Ok(Self {
            modules,
            numbers,
            storage,
            sessions,
            outputs: Some(outputs),
            thread: Some(thread),
            recovery,
        })
    }

    /// Opens the files of a session, which are its holder's. They are open while any of the returned values is there.
    pub(crate) fn session(
        &self,
        name: &Name,
        limits: &Arc<SessionLimits>,
        holder: StorageHolder,
    ) -> Arc<SessionFiles> {
        let files = self.storage.open(name, limits, holder);
        let mut sessions = lock(&self.sessions);
        sessions.retain(|_, files| files.strong_count() > 0);
        sessions.insert(name.clone(), Arc::downgrade(&files));
        files
    }

    /// The files of a session if they are open, else those of a session of the operator, opened.
    pub(crate) fn operators_session(&self, name: &Name, limits: &Arc<SessionLimits>) -> Arc<SessionFiles> {
        let known = lock(&self.sessions).get(name).and_then(Weak::upgrade);
        known.unwrap_or_else(|| self.session(name, limits, StorageHolder::default()))
    }

    /// Tries to delete record files that have failed.
    pub(crate) fn deletions_failed(&self) -> u64 {
        self.storage.failed()
    }

    /// Where modules put what comes out of them.
    pub fn outputs(&self) -> Option<Sender<BatchOutput>> {
        self.outputs.clone()
    }

    /// Makes ready for a module's records, in `folder`/SESSION/MODULE-NUMBER. What it takes to write them goes on its account; its session's limits say how much is kept.
    ///
    /// # Errors
    ///
    /// The files cannot be made.
    pub(crate) fn open(
        &self,
        guest: u64,
        (session, limits): (&Name, &Arc<SessionLimits>),
        module: &Name,
        manifest: &Manifest,
        folder: &Path,
        account: Arc<DeferredCharges>,
    ) -> Result<Arc<WriteCounters>, RecordsError> {
        let written: Arc<WriteCounters> = Arc::default();
        let folder = folder.join(session.as_str());
        let followers = Followers::default();
        let storage = self.operators_session(session, limits);
        let mut sink = Sink {
            session: session.clone(),
            module: module.clone(),
            manifest: manifest.clone(),
            folder,
            files: None,
            label: String::new(),
            storage,
            since: Instant::now(),
            bytes: 0,
            on_disk: 0,
            flushed: Instant::now(),
            rows: 0,
            numbers: Arc::clone(&self.numbers),
            unused: None,
            written: Arc::clone(&written),
            account: Arc::clone(&account),
            followers: Arc::clone(&followers),
            failed: None,
        };
        sink.files()?;
        let streams = manifest.streams.iter().map(|stream| stream.name.clone()).collect();
        let session = session.clone();
        let known = Known { streams, followers, sink: Arc::new(Mutex::new(sink)), session, account };
        lock(&self.modules).insert(guest, known);
        Ok(written)
    }

    /// Has the files of a session kept within these limits from now on.
    pub(crate) fn hold_to(&self, session: &Name, limits: &Arc<SessionLimits>) {
        if let Some(files) = lock(&self.sessions).get(session).and_then(Weak::upgrade) {
            files.held_to(limits);
        }
    }

    /// The rows of a module's stream from now on.
    pub fn follow(&self, guest: u64, stream: &Name) -> Option<Following> {
        let modules = lock(&self.modules);
        let known = modules.get(&guest)?;
        let number = known.streams.iter().position(|known| known == stream)?;
        let (follower, following) = Follower::of(u16::try_from(number).ok()?);
        lock(&known.followers).push(follower);
        Some(following)
    }
}

/// Ends a module's files, when everything that it has emitted is in them.
pub(crate) fn close(outputs: &Sender<BatchOutput>, guest: u64) {
    let (told, hears) = channel();
    let end = BatchOutput {
        module: guest,
        records: Records::default(),
        log: Vec::new(),
        faults: Vec::new(),
        end: Some(told),
        load: None,
    };
    if outputs.send(end).is_ok() {
        _ = hears.recv_timeout(END);
    }
}

impl Drop for RecordWriter {
    fn drop(&mut self) {
        self.recovery = None;
        self.outputs = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
        for (_, known) in lock(&self.modules).drain() {
            lock(&known.sink).end();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work(waiting: &Receiver<BatchOutput>, modules: &Modules, storage: &RecordStorage, rotation: Rotation) {
    let sink = |module: u64| lock(modules).get(&module).map(|known| Arc::clone(&known.sink));
    // Those with something in their files: only they can be due. Most may have nothing to say.
    let mut written = BTreeSet::new();
    let mut looked = Instant::now();
    loop {
        match waiting.recv_timeout(LOOK.saturating_sub(looked.elapsed())) {
            Ok(BatchOutput { module, end: Some(told), .. }) => {
                written.remove(&module);
                let known = lock(modules).remove(&module);
                if let Some(known) = known {
                    lock(&known.sink).end();
                }
                // Nobody waits for it any more where it took too long.
                _ = told.send(());
            }
            Ok(output) => {
                if let Some(sink) = sink(output.module) {
                    let (mut sink, begin) = (lock(&sink), thread_time());
                    sink.take(&output, rotation);
                    sink.account.charge(Nanos(thread_time().0.saturating_sub(begin.0)));
                    written.insert(output.module);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            written.retain(|module| sink(*module).is_some_and(|sink| lock(&sink).look(rotation)));
            enforce(storage, modules);
        }
    }
}

/// Keeps sessions within their limits: also those with nothing new, as limits change. The time goes on the accounts of sessions for which files were deleted.
fn enforce(storage: &RecordStorage, modules: &Modules) {
    let begin = thread_time();
    let done = storage.enforce(Instant::now());
    if done.is_empty() {
        return;
    }
    let took = thread_time().0.saturating_sub(begin.0);
    let files: u64 = done.iter().map(|it| u64::from(it.files)).sum();
    let modules = lock(modules);
    for it in done {
        let account = modules.values().find(|known| known.session == it.session).map(|known| &known.account);
        if let Some(account) = account {
            account.charge(Nanos(took / files.max(1) * u64::from(it.files)));
        }
    }
}

impl Recovery {
    fn start(records: &Path, storage: Arc<RecordStorage>, is_scanned: Receiver<()>) -> std::io::Result<Self> {
        let (ends, records) = (Arc::new(AtomicBool::new(false)), records.to_owned());
        let ended = Arc::clone(&ends);
        let thread = std::thread::Builder::new().name("weir-recovery".to_owned()).spawn(move || {
            // The files are on the list before they get other names.
            _ = is_scanned.recv();
            for session in folders(&records) {
                for files in folders(&session) {
                    if ended.load(Ordering::Relaxed) {
                        return;
                    }
                    let found = weir_records::recover(&files);
                    if !found.is_empty() {
                        storage.recovered(&session, &files);
                    }
                    found.into_iter().for_each(say_recovered);
                }
            }
        })?;
        Ok(Self { ends, thread: Some(thread) })
    }
}

impl Drop for Recovery {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// The folders in a folder. Links are not followed.
fn folders(of: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(of).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

fn say_recovered(found: Result<Recovered, RecordsError>) {
    match found {
        Ok(Recovered { path, rows }) => crate::server::log::say(&format!(
            "an earlier life of the node ended without warning; the {rows} rows that it had written to {} are complete",
            path.shown()
        )),
        Err(error) => crate::server::log::warn(&error),
    }
}

/// Files of an earlier life of the node stay as they are.
fn first_free(folder: &Path, module: &Name) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let numbers = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        name.to_str()?.strip_prefix(module.as_str())?.strip_prefix('-')?.parse::<u64>().ok()
    });
    numbers.max().map_or(0, |number| number.saturating_add(1))
}

impl Sink {
    fn files(&mut self) -> Result<&mut ModuleFiles, RecordsError> {
        if self.files.is_none() {
            let number = self.unused.take();
            let number =
                number.unwrap_or_else(|| self.numbers.next(&self.folder, &self.session, &self.module));
            let label = format!("{}-{number}", self.module);
            let named = self
                .storage
                .begin(&label)
                .map_err(|error| RecordsError::Folder { path: self.folder.clone(), source: error.into() });
            let files = named.and_then(|()| {
                ModuleFiles::create(Some(&self.folder), &label, &self.manifest, Durability::Seconds)
            });
            // What could not be made is tried again.
            self.unused = Some(number);
            self.files = Some(files.inspect_err(|_| self.storage.end(&label))?);
            (self.since, self.bytes, self.rows) = (Instant::now(), 0, 0);
            self.on_disk = self.storage.grow(&label);
            self.label = label;
        }
        Ok(self.files.get_or_insert_with(|| unreachable!("it was just made")))
    }

    fn take(&mut self, output: &BatchOutput, rotation: Rotation) {
        for line in &output.log {
            let level = ["error", "warning", "info"][usize::from(line.level.min(2))];
            self.say(&format!("{level}: {}", line.text));
        }
        for fault in &output.faults {
            self.say(&format!("lost a call: {fault}"));
        }
        for record in output.records.iter() {
            match self.write(&record) {
                Ok(true) => {
                    let bytes = (record.row.len() + record.tail.len()) as u64;
                    (self.rows, self.bytes) = (self.rows + 1, self.bytes.saturating_add(bytes));
                    self.on_disk = self.on_disk.saturating_add(bytes);
                }
                Ok(false) => _ = self.written.lost.fetch_add(1, Ordering::Relaxed),
                Err(error) => {
                    self.written.lost.fetch_add(1, Ordering::Relaxed);
                    self.fail(&error);
                    // Another try with the next file, when there may be room.
                    self.end();
                }
            }
            self.pass_on(&record);
        }
        _ = self.rotate(rotation);
    }

    /// Says whether the row was taken; none is while writing has just failed.
    fn write(&mut self, record: &Record<'_>) -> Result<bool, RecordsError> {
        if self.failed.is_some_and(|at| at.elapsed() < RETRY) {
            return Ok(false);
        }
        self.files()?.write(record)?;
        Ok(true)
    }

    /// It is said once, until files are complete again.
    fn fail(&mut self, error: &RecordsError) {
        if self.failed.replace(Instant::now()).is_none() {
            self.say(&format!("records are lost: {error}"));
        }
    }

    /// Ends its files if they are due, or brings their rows to the log. Says whether they have something in them and are not ended.
    fn look(&mut self, rotation: Rotation) -> bool {
        let begin = thread_time();
        if self.flushed.elapsed() >= FLUSH {
            self.flushed = Instant::now();
            if let Some(Err(error)) = self.files.as_mut().map(ModuleFiles::flush) {
                self.fail(&error);
                self.end();
            }
            if self.files.is_some() {
                self.on_disk = self.storage.grow(&self.label);
            }
        }
        let goes_on = self.rotate(rotation);
        self.account.charge(Nanos(thread_time().0.saturating_sub(begin.0)));
        goes_on
    }

    /// Ends its files if they are due. Says whether they have something in them and are not.
    fn rotate(&mut self, rotation: Rotation) -> bool {
        let age = self.since.elapsed().as_nanos();
        let is_full = self.bytes >= rotation.bytes.0 || self.on_disk >= self.storage.file_bytes_max();
        if self.rows > 0 && (is_full || age >= rotation.time.0.into()) {
            self.end();
        }
        self.rows > 0
    }

    /// Ends its files. What they hold is written; what else they were given is lost.
    fn end(&mut self) {
        let Some(files) = self.files.take() else { return };
        let ended = files.end();
        self.storage.end(&self.label);
        let lost = std::mem::take(&mut self.rows).saturating_sub(ended.kept);
        self.written.rows.fetch_add(ended.kept, Ordering::Relaxed);
        self.written.lost.fetch_add(lost, Ordering::Relaxed);
        let is_whole = ended.streams.iter().all(|stream| stream.path.as_deref().is_some_and(is_complete));
        if is_whole || ended.kept > 0 {
            self.unused = None;
        }
        let late: u64 = ended.streams.iter().map(|stream| stream.late).sum();
        if late > 0 {
            self.say(&format!(
                "{late} times are after 2262-04-11: its files have the last time that they can hold instead"
            ));
        }
        match &ended.error {
            Some(error) => self.fail(error),
            None if is_whole && self.failed.take().is_some() => self.say("records are written again"),
            None => {}
        }
        (self.since, self.bytes) = (Instant::now(), 0);
    }

    fn pass_on(&mut self, record: &Record<'_>) {
        let Some(stream) = self.manifest.streams.get(usize::from(record.stream)) else { return };
        let row = || fields(stream, record);
        lock(&self.followers).retain(|follower| follower.offer(record.stream, row));
    }

    fn say(&self, what: &str) {
        let about = crate::server::log::session(&self.session).module(&self.module);
        about.say(&format_args!("session {}, module {}: {what}", self.session, self.module));
    }
}

/// Whether a file has the name of one that is whole.
fn is_complete(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "parquet")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::spec::SessionSpec;
    use weir_session::RecordOrder;
    use weir_trust::grant::Resource;

    const MANIFEST: &str = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n[[stream]]\nname = 'rows'\n\
                            [[stream.field]]\nname = 'n'\ntype = 'u64'\n";

    fn row(module: u64) -> BatchOutput {
        let mut records = Records::default();
        records.begin(RecordOrder::packet(0), 0, &7u64.to_le_bytes());
        BatchOutput { module, records, log: Vec::new(), faults: Vec::new(), end: None, load: None }
    }

    #[test]
    fn a_file_is_ended_in_time_however_much_others_write() {
        let folder = tempfile::tempdir().unwrap();
        let rotation = Rotation { bytes: Bytes(u64::MAX), time: Nanos(300 * Nanos::MILLISECOND.0) };
        let writer = RecordWriter::start(rotation, folder.path()).unwrap();
        let manifest = Manifest::parse(MANIFEST.as_bytes()).unwrap();
        let [quiet, busy] = [(1, "quiet"), (2, "busy")].map(|(guest, module)| {
            let (session, module) = (Name::new("s").unwrap(), Name::new(module).unwrap());
            let limits = Arc::new(SessionLimits::of(&SessionSpec::new(session.clone()), None));
            writer
                .open(guest, (&session, &limits), &module, &manifest, folder.path(), Arc::default())
                .unwrap()
        });
        let outputs = writer.outputs().unwrap();
        outputs.send(row(1)).unwrap();
        let begin = Instant::now();
        while quiet.rows.load(Ordering::Relaxed) == 0 {
            assert!(begin.elapsed() < Duration::from_secs(60), "its file is not ended");
            outputs.send(row(2)).unwrap();
            // More often than the thread looks when nothing comes.
            std::thread::sleep(Duration::from_millis(1));
        }
        drop((outputs, writer));
        assert!(busy.rows.load(Ordering::Relaxed) > 0);
        assert_eq!(quiet.rows.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn files_that_are_ended_one_after_another_are_all_counted() {
        let folder = tempfile::tempdir().unwrap();
        // Files are ended after a row or two.
        let rotation = Rotation { bytes: Bytes(1), time: Nanos(u64::MAX) };
        let writer = RecordWriter::start(rotation, folder.path()).unwrap();
        let manifest = Manifest::parse(MANIFEST.as_bytes()).unwrap();
        let (session, module) = (Name::new("s").unwrap(), Name::new("m").unwrap());
        let limits = Arc::new(SessionLimits::of(&SessionSpec::new(session.clone()), None));
        let open = (&session, &limits);
        let written = writer.open(1, open, &module, &manifest, folder.path(), Arc::default()).unwrap();
        let outputs = writer.outputs().unwrap();
        let kept = || limits.shot().of(Resource::RecordStorage).taken;
        let wait = |is_so: &dyn Fn() -> bool| {
            let begin = Instant::now();
            while !is_so() {
                assert!(begin.elapsed() < Duration::from_secs(60), "{} bytes are counted", kept());
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        // The folder is searched once, before most of the files are made.
        wait(&|| kept() > 0);
        (0..40).for_each(|_| outputs.send(row(1)).unwrap());
        wait(&|| written.rows.load(Ordering::Relaxed) >= 38);
        // A file takes a block at least.
        wait(&|| kept() >= 19 * 4096);
    }

    #[test]
    fn each_row_counts_for_the_end_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let rotation = Rotation { bytes: Bytes(1), time: Nanos(u64::MAX) };
        let writer = RecordWriter::start(rotation, folder.path()).unwrap();
        let manifest = Manifest::parse(MANIFEST.as_bytes()).unwrap();
        let (session, module) = (Name::new("s").unwrap(), Name::new("m").unwrap());
        let limits = Arc::new(SessionLimits::of(&SessionSpec::new(session.clone()), None));
        let open = (&session, &limits);
        let written = writer.open(1, open, &module, &manifest, folder.path(), Arc::default()).unwrap();
        let outputs = writer.outputs().unwrap();
        (0..5).for_each(|_| outputs.send(row(1)).unwrap());
        drop((outputs, writer));
        assert_eq!(written.rows.load(Ordering::Relaxed), 5);
        let files = std::fs::read_dir(folder.path().join("s")).unwrap().flatten();
        assert_eq!(files.filter(|file| file.path().is_dir()).count(), 5, "a file for each row");
    }
}
