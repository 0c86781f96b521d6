//! The records thread, which writes the records of all modules to files and sends them to followers.
//!
//! One thread encodes and writes, so that no core thread waits for a disk. The thread's CPU time is charged to the
//! sessions of the modules. While the thread writes to a disk or waits for a disk, it holds no lock that a core
//! thread takes.

mod files;
mod storage;

use crate::control::record_format::RecordFormat;
use crate::control::status::FollowedModule;
use crate::core_thread::task::BatchOutput;
use crate::sessions::findings::{FindingCounters, SessionFindings};
use crate::sessions::followers::{Follower, Following};
use crate::sessions::limits::SessionLimits;
use crate::sync::{LeafMutex, OrderedMutex, rank};
pub(crate) use files::RecordFilesError;
use files::{EndedFiles, ModuleRecordFiles};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use storage::RecordStorage;
pub(crate) use storage::{
    OpenRecordFile, SessionFiles, StorageHolder, StoredFile, StoredRecords, StoredSession,
};
use weir_datapath::account::DeferredCharges;
use weir_export_files::ExportError;
use weir_records::{FLUSH, RecordsError, Recovered, next_number};
use weir_rows::FindingReader;
use weir_sandbox::thread_time;
use weir_trust::grant::ModuleHash;
use weir_units::{Bytes, Escape as _, Nanos};
use {
    weir_admission::{Manifest, Name},
    weir_session::{HeldMemory, Record, Records},
};

/// Folder of records in the state folder.
pub(crate) const RECORDS: &str = "records";
/// Interval at which the thread checks the age of open files and the storage limits.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Time after an error, such as a full disk, until the thread tries to write again.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum wait for a slow disk when a module's files are completed.
const END_WAIT: Duration = Duration::from_secs(5);

/// Counters of a module's records. They never decrease.
#[derive(Debug, Default)]
pub struct WriteCounters {
    /// Rows in completed files.
    pub rows: AtomicU64,
    /// Rows that could not be written because the disk was full.
    pub disk_full: AtomicU64,
    /// Rows that could not be written for another reason.
    pub lost: AtomicU64,
    /// Findings.
    pub(crate) findings: FindingCounters,
}

/// A module whose records are written.
pub(crate) struct RecordedModule<'a> {
    /// Name in the session.
    pub(crate) name: &'a Name,
    /// Manifest, which declares the streams.
    pub(crate) manifest: &'a Manifest,
    /// Text of the manifest, for followers.
    pub(crate) manifest_text: String,
    /// Hash of the module's bytes.
    pub(crate) digest: ModuleHash,
    /// Format of the files.
    pub(crate) format: RecordFormat,
    /// Latest findings of the session.
    pub(crate) findings: Arc<SessionFindings>,
    /// Memory of the open files, taken from the session.
    pub(crate) memory: HeldMemory,
}

/// Limits at which a module's files are completed and the next files begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes of the rows in the files, before encoding.
    pub bytes: Bytes,
    /// Age of the files.
    pub time: Nanos,
}

/// The followers of a module's streams.
type Followers = Arc<LeafMutex<Vec<Follower>>>;

/// A module in the list of modules, which the records thread and requests use.
#[derive(Debug)]
struct ModuleEntry {
    streams: Vec<Name>,
    digest: ModuleHash,
    manifest: Arc<str>,
    followers: Followers,
    writer: Arc<OrderedMutex<ModuleWriter, { rank::MODULE_RECORDS }>>,
    session: Name,
    account: Arc<DeferredCharges>,
}

/// The modules by number.
type Modules = Arc<OrderedMutex<HashMap<u64, ModuleEntry>, { rank::RECORDS }>>;

/// Writes the records of one module.
#[derive(Debug)]
struct ModuleWriter {
    session: Name,
    module: Name,
    manifest: Manifest,
    folder: PathBuf,
    format: RecordFormat,
    files: Option<ModuleRecordFiles>,
    /// Name of the folder of the open files: MODULE-FILE_NUMBER.
    label: String,
    storage: Arc<SessionFiles>,
    /// Time when the open files were created.
    opened: Instant,
    /// Bytes of the rows in the open files, as the module emitted them.
    bytes: u64,
    /// Estimated bytes of the open files on the disk: their size when it was last read, plus the bytes of rows written
    /// since.
    on_disk: u64,
    /// Time of the last flush of the open files' write-ahead log.
    flushed: Instant,
    /// Rows in the open files. They are counted when the files are completed.
    rows: u64,
    numbers: Arc<FileNumbers>,
    /// Number of the last files if these were given up without rows. The next files reuse the number.
    unused: Option<u64>,
    written: Arc<WriteCounters>,
    account: Arc<DeferredCharges>,
    followers: Followers,
    /// Time of the last error; `None` once files have been completed without an error. Only the first error is logged.
    failed: Option<Instant>,
    /// True if the last error was a full disk.
    is_disk_full: bool,
    /// The session's latest findings.
    findings: Arc<SessionFindings>,
    /// Recognises the findings among the module's records; `None` for a module without findings.
    finding_reader: Option<FindingReader>,
    /// Memory of the open files, taken from the session until they are completed.
    _memory: HeldMemory,
}

/// The next file number of each module, by session and module. The session's folder is searched for earlier files only
/// when a module's number is not known yet, since there can be many files.
#[derive(Debug, Default)]
struct FileNumbers(LeafMutex<HashMap<(Name, Name), u64>>);

/// Maximum number of modules whose next number is remembered.
const NUMBERS_MAX: usize = 4096;

impl FileNumbers {
    fn next(&self, folder: &Path, session: &Name, module: &Name) -> u64 {
        let key = (session.clone(), module.clone());
        self.0.with(|numbers| {
            if numbers.len() >= NUMBERS_MAX && !numbers.contains_key(&key) {
                numbers.clear();
            }
            let next = numbers.entry(key).or_insert_with(|| next_number(folder, module.as_str()));
            let number = *next;
            *next = next.saturating_add(1);
            number
        })
    }
}

/// The handle of the records thread. Dropping it writes all pending output and ends the thread.
#[derive(Debug)]
pub struct RecordWriter {
    modules: Modules,
    numbers: Arc<FileNumbers>,
    storage: Arc<RecordStorage>,
    /// Files of open sessions by name.
    sessions: LeafMutex<HashMap<Name, Weak<SessionFiles>>>,
    outputs: Option<Sender<BatchOutput>>,
    thread: Option<JoinHandle<()>>,
    recovery: Option<Recovery>,
}

/// The thread that completes record files which a crash has left. Dropping this value ends the thread early; the next
/// start of the node completes the remaining files.
#[derive(Debug)]
struct Recovery {
    /// Set to true to end the thread.
    must_end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RecordWriter {
    /// Starts the records thread, and a thread that completes files which an earlier run of the node left in `records`.
    pub fn start(rotation: Rotation, records: &Path) -> std::io::Result<Self> {
        let (outputs, waiting) = channel();
        let (scan_done, wait_for_scan) = channel();
        let modules = Modules::default();
        let modules_of_thread = Arc::clone(&modules);
        let storage = RecordStorage::new(records.to_owned());
        let stored = Arc::clone(&storage);
        let thread = std::thread::Builder::new().name("weir-records".to_owned()).spawn(move || {
            // Files are completed only after the scan, so that files of earlier runs count as older than new files.
            stored.scan();
            _ = scan_done.send(());
            run_records_thread(&waiting, &modules_of_thread, &stored, rotation);
        })?;
        let recovery = Some(Recovery::start(records, Arc::clone(&storage), wait_for_scan)?);
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

    /// Opens the record files of a session with its limits and its holder. The session's files count as open until all
    /// returned values are dropped.
    pub(crate) fn session(
        &self,
        name: &Name,
        limits: &Arc<SessionLimits>,
        holder: StorageHolder,
    ) -> Arc<SessionFiles> {
        let files = self.storage.open(name, limits, holder);
        self.sessions.with(|sessions| {
            sessions.retain(|_, files| files.strong_count() > 0);
            sessions.insert(name.clone(), Arc::downgrade(&files));
        });
        files
    }

    /// Returns the record files of a session of any holder. Files that are not open are opened as those of an
    /// operator's session.
    pub(crate) fn session_or_operators(&self, name: &Name, limits: &Arc<SessionLimits>) -> Arc<SessionFiles> {
        let known = self.sessions.with(|sessions| sessions.get(name).and_then(Weak::upgrade));
        known.unwrap_or_else(|| self.session(name, limits, StorageHolder::default()))
    }

    /// Returns the number of record files that could not be deleted.
    pub(crate) fn deletions_failed(&self) -> u64 {
        self.storage.failed()
    }

    /// Returns the stored record files of all sessions, for reading.
    pub(crate) fn stored(&self) -> StoredRecords {
        StoredRecords::of(&self.storage)
    }

    /// Returns a sender for the output of modules.
    pub fn outputs(&self) -> Option<Sender<BatchOutput>> {
        self.outputs.clone()
    }

    /// Opens a module's record files, in `folder`/SESSION/MODULE-FILE_NUMBER. `module_number` is the module's number on the
    /// node. Writing is charged to `account`. The session's limits apply to the files.
    ///
    /// # Errors
    ///
    /// The files cannot be created.
    pub(crate) fn open(
        &self,
        module_number: u64,
        (session, limits): (&Name, &Arc<SessionLimits>),
        module: RecordedModule<'_>,
        folder: &Path,
        account: Arc<DeferredCharges>,
    ) -> Result<Arc<WriteCounters>, RecordFilesError> {
        let RecordedModule { name: module, manifest, manifest_text, digest, format, findings, memory } =
            module;
        let written: Arc<WriteCounters> = Arc::default();
        let folder = folder.join(session.as_str());
        let followers = Followers::default();
        let storage = self.session_or_operators(session, limits);
        let mut writer = ModuleWriter {
            session: session.clone(),
            module: module.clone(),
            manifest: manifest.clone(),
            folder,
            format,
            files: None,
            label: String::new(),
            storage,
            opened: Instant::now(),
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
            is_disk_full: false,
            findings,
            finding_reader: FindingReader::of(manifest),
            _memory: memory,
        };
        writer.files()?;
        let streams = manifest.streams.iter().map(|stream| stream.name.clone()).collect();
        let session = session.clone();
        let entry = ModuleEntry {
            streams,
            digest,
            manifest: manifest_text.into(),
            followers,
            writer: Arc::new(OrderedMutex::new(writer)),
            session,
            account,
        };
        self.modules.lock().insert(module_number, entry);
        Ok(written)
    }

    /// Replaces the limits of a session's files.
    pub(crate) fn set_limits(&self, session: &Name, limits: &Arc<SessionLimits>) {
        if let Some(files) = self.sessions.with(|sessions| sessions.get(session).and_then(Weak::upgrade)) {
            files.set_limits(limits);
        }
    }

    /// Follows streams of these modules from now on, each with its name and number; an empty list of streams stands for
    /// all. `None` if no module has such a stream.
    pub(crate) fn follow<'a>(
        &self,
        followed: impl Iterator<Item = (&'a Name, u64)>,
        streams: &[Name],
    ) -> Option<Following> {
        let modules = self.modules.lock();
        let (queue, mut following) = Following::new();
        for (name, number) in followed {
            let Some(entry) = modules.get(&number) else { continue };
            let module = FollowedModule {
                name: name.to_string(),
                digest: entry.digest.to_string(),
                manifest: entry.manifest.to_string(),
            };
            if let Some(follower) = following.add(&queue, module, &entry.streams, streams) {
                entry.followers.with(|followers| followers.push(follower));
            }
        }
        (!following.modules.is_empty()).then_some(following)
    }
}

/// Waits until the records thread has written a module's earlier output and completed its files, but at most
/// [`END_WAIT`].
pub(crate) fn close(outputs: &Sender<BatchOutput>, module: u64) {
    let (sender, receiver) = channel();
    let end = BatchOutput {
        module,
        records: Records::default(),
        log: Vec::new(),
        faults: Vec::new(),
        end: Some(sender),
        in_flight: None,
    };
    if outputs.send(end).is_ok() {
        _ = receiver.recv_timeout(END_WAIT);
    }
}

impl Drop for RecordWriter {
    fn drop(&mut self) {
        self.recovery = None;
        self.outputs = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
        for (_, entry) in self.modules.lock().drain() {
            entry.writer.lock().end();
        }
    }
}

fn run_records_thread(
    waiting: &Receiver<BatchOutput>,
    modules: &Modules,
    storage: &RecordStorage,
    rotation: Rotation,
) {
    let writer = |module: u64| modules.lock().get(&module).map(|entry| Arc::clone(&entry.writer));
    // Modules with rows in open files. Other files never reach a limit, so they need no check.
    let mut written = BTreeSet::new();
    let mut checked = Instant::now();
    loop {
        match waiting.recv_timeout(CHECK_INTERVAL.saturating_sub(checked.elapsed())) {
            Ok(BatchOutput { module, end: Some(requester), .. }) => {
                written.remove(&module);
                let entry = modules.lock().remove(&module);
                if let Some(entry) = entry {
                    entry.writer.lock().end();
                }
                // Sending fails if the requester does not wait any more.
                _ = requester.send(());
            }
            Ok(output) => {
                if let Some(writer) = writer(output.module) {
                    let (mut writer, begin) = (writer.lock(), thread_time());
                    writer.write_output(&output, rotation);
                    writer.account.charge(Nanos(thread_time().0.saturating_sub(begin.0)));
                    written.insert(output.module);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if checked.elapsed() >= CHECK_INTERVAL {
            checked = Instant::now();
            written.retain(|module| writer(*module).is_some_and(|writer| writer.lock().check(rotation)));
            enforce(storage, modules);
        }
    }
}

/// Enforces the storage limits. This is done even without new records, because limits can change. The CPU time is
/// charged to the sessions that pay for the deletions.
fn enforce(storage: &RecordStorage, modules: &Modules) {
    let begin = thread_time();
    let done = storage.enforce(Instant::now());
    if done.is_empty() {
        return;
    }
    let took = thread_time().0.saturating_sub(begin.0);
    let files: u64 = done.iter().map(|it| u64::from(it.files)).sum();
    let modules = modules.lock();
    for enforced in done {
        let account =
            modules.values().find(|entry| entry.session == enforced.session).map(|entry| &entry.account);
        if let Some(account) = account {
            account.charge(Nanos(took / files.max(1) * u64::from(enforced.files)));
        }
    }
}

impl Recovery {
    fn start(
        records: &Path,
        storage: Arc<RecordStorage>,
        wait_for_scan: Receiver<()>,
    ) -> std::io::Result<Self> {
        let (must_end, records) = (Arc::new(AtomicBool::new(false)), records.to_owned());
        let thread_must_end = Arc::clone(&must_end);
        let thread = std::thread::Builder::new().name("weir-recovery".to_owned()).spawn(move || {
            // Files are completed, and so renamed, only after the storage has listed all files.
            _ = wait_for_scan.recv();
            for session in folders(&records) {
                for files in folders(&session) {
                    if thread_must_end.load(Ordering::Relaxed) {
                        return;
                    }
                    let found = weir_records::recover(&files);
                    let exported = weir_export_files::recover(&files);
                    if !found.is_empty() || !exported.is_empty() {
                        storage.update_recovered(&session, &files);
                    }
                    found.into_iter().for_each(log_recovered);
                    exported.into_iter().for_each(log_exported);
                }
            }
        })?;
        Ok(Self { must_end, thread: Some(thread) })
    }
}

impl Drop for Recovery {
    fn drop(&mut self) {
        self.must_end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Returns the folders in a folder. Symbolic links are not followed.
fn folders(of: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(of).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

fn log_recovered(found: Result<Recovered, RecordsError>) {
    match found {
        Ok(Recovered { path, rows }) => crate::log::info(&format!(
            "an earlier run of the node crashed; its {rows} rows are complete in {}",
            path.escaped()
        )),
        Err(error) => crate::log::warn(&error),
    }
}

fn log_exported(found: Result<PathBuf, ExportError>) {
    match found {
        Ok(path) => crate::log::info(&format!(
            "an earlier run of the node crashed; its rows are complete in {}",
            path.escaped()
        )),
        Err(error) => crate::log::warn(&error),
    }
}

impl ModuleWriter {
    fn files(&mut self) -> Result<&mut ModuleRecordFiles, RecordFilesError> {
        if self.files.is_none() {
            let number = self.unused.take();
            let number =
                number.unwrap_or_else(|| self.numbers.next(&self.folder, &self.session, &self.module));
            let label = format!("{}-{number}", self.module);
            let named = self
                .storage
                .begin(&label)
                .map_err(|error| RecordsError::Folder { path: self.folder.clone(), source: error.into() });
            let files = named.map_err(RecordFilesError::from).and_then(|()| {
                ModuleRecordFiles::create(self.format, &self.folder, (&label, &self.module), &self.manifest)
            });
            // The number is used again if the file cannot be created.
            self.unused = Some(number);
            self.files = Some(files.inspect_err(|_| self.storage.end(&label))?);
            (self.opened, self.bytes, self.rows) = (Instant::now(), 0, 0);
            self.on_disk = self.storage.update_bytes(&label);
            self.label = label;
        }
        Ok(self.files.get_or_insert_with(|| unreachable!("the files were created above")))
    }

    fn write_output(&mut self, output: &BatchOutput, rotation: Rotation) {
        for line in &output.log {
            let level = ["error", "warning", "info"][usize::from(line.level.min(2))];
            self.log(&format!("{level}: {}", line.text));
        }
        for fault in &output.faults {
            self.log(&format!("a call was lost: {fault}"));
        }
        for record in output.records.iter() {
            match self.write(&record) {
                Ok(Written::Row) => {
                    let bytes = (record.row.len() + record.tail.len()) as u64;
                    (self.rows, self.bytes) = (self.rows + 1, self.bytes.saturating_add(bytes));
                    self.on_disk = self.on_disk.saturating_add(bytes);
                }
                Ok(Written::Paused) => self.count_lost(1),
                Ok(Written::NoPlace) => {}
                Err(error) => {
                    self.note_error(&error);
                    self.count_lost(1);
                    // The files are completed as far as possible. The next files may find free space.
                    self.end();
                }
            }
            if let Some(finding) = self.finding_reader.as_ref().and_then(|reader| reader.read(&record)) {
                self.written.findings.count(finding.severity);
                self.findings.add(&self.module, &finding);
            }
            self.followers.with(|followers| followers.retain(|follower| follower.offer(&record)));
        }
        _ = self.rotate(rotation);
    }

    /// Writes a row, unless an error occurred within the time [`RETRY`] before.
    fn write(&mut self, record: &Record<'_>) -> Result<Written, RecordFilesError> {
        if self.failed.is_some_and(|at| at.elapsed() < RETRY) {
            return Ok(Written::Paused);
        }
        let has_place = self.files()?.write(record)?;
        Ok(if has_place { Written::Row } else { Written::NoPlace })
    }

    /// Counts rows that could not be written, under the cause of the last error.
    fn count_lost(&self, rows: u64) {
        let counter = if self.is_disk_full { &self.written.disk_full } else { &self.written.lost };
        counter.fetch_add(rows, Ordering::Relaxed);
    }

    /// Records an error, and logs it unless an earlier error has been logged since files were last completed.
    fn note_error(&mut self, error: &RecordFilesError) {
        self.is_disk_full = error.is_disk_full();
        if self.failed.replace(Instant::now()).is_none() {
            self.log(&format!("records are lost: {error}"));
        }
    }

    /// Flushes the write-ahead log of the open files if it is time to, and completes the files if they have reached a
    /// limit. Returns true if the files stay open and have rows.
    fn check(&mut self, rotation: Rotation) -> bool {
        let begin = thread_time();
        if self.flushed.elapsed() >= FLUSH {
            self.flushed = Instant::now();
            if let Some(Err(error)) = self.files.as_mut().map(ModuleRecordFiles::flush) {
                self.note_error(&error);
                self.end();
            }
            if self.files.is_some() {
                self.on_disk = self.storage.update_bytes(&self.label);
            }
        }
        let has_rows = self.rotate(rotation);
        self.account.charge(Nanos(thread_time().0.saturating_sub(begin.0)));
        has_rows
    }

    /// Completes the files if they have reached a limit. Returns true if the files stay open and have rows.
    fn rotate(&mut self, rotation: Rotation) -> bool {
        let age = self.opened.elapsed().as_nanos();
        let is_full = self.bytes >= rotation.bytes.0
            || self.on_disk >= self.storage.file_bytes_max()
            || self.files.as_ref().is_some_and(ModuleRecordFiles::is_full);
        if self.rows > 0 && (is_full || age >= rotation.time.0.into()) {
            self.end();
        }
        self.rows > 0
    }

    /// Completes the files. Rows that are not in the completed files are counted as lost.
    fn end(&mut self) {
        let Some(files) = self.files.take() else { return };
        let EndedFiles { kept, is_whole, late, cut, errors } = files.end();
        self.storage.end(&self.label);
        let lost = std::mem::take(&mut self.rows).saturating_sub(kept);
        self.written.rows.fetch_add(kept, Ordering::Relaxed);
        if is_whole || kept > 0 {
            self.unused = None;
        }
        if cut > 0 {
            self.log(&format!("{cut} texts were cut to the length of an IPFIX message"));
        }
        if late > 0 {
            self.log(&format!(
                "{late} times are after 2262-04-11: its files contain the latest time of their format instead"
            ));
        }
        match errors.first() {
            Some(error) => self.note_error(error),
            None if is_whole && self.failed.take().is_some() => self.log("records are written again"),
            None => {}
        }
        self.count_lost(lost);
        (self.opened, self.bytes) = (Instant::now(), 0);
    }

    fn log(&self, what: &str) {
        let about = crate::log::session(&self.session).module(&self.module);
        about.info(&format_args!("session {}, module {}: {what}", self.session, self.module));
    }
}

/// The result of writing a row.
enum Written {
    /// The row is in the files.
    Row,
    /// The row was not tried, because of an earlier error.
    Paused,
    /// The format of the files cannot have rows of this stream.
    NoPlace,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::spec::SessionSpec;
    use weir_session::{MemoryReservation, NodeMemory, RecordOrder};
    use weir_trust::grant::Resource;

    const MANIFEST: &str = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n[[stream]]\nname = 'rows'\n\
                            [[stream.field]]\nname = 'n'\ntype = 'u64'\n";

    fn recorded<'a>(name: &'a Name, manifest: &'a Manifest) -> RecordedModule<'a> {
        let (manifest_text, findings) = (MANIFEST.to_owned(), Arc::default());
        RecordedModule {
            name,
            manifest,
            manifest_text,
            digest: ModuleHash([0; 32]),
            format: RecordFormat::Parquet,
            findings,
            memory: HeldMemory::new(MemoryReservation::uncounted(
                &NodeMemory::new(Bytes(0)),
                Bytes(0),
                Bytes(0),
            )),
        }
    }

    fn row(module: u64) -> BatchOutput {
        let mut records = Records::default();
        records.begin(RecordOrder::packet(0), 0, &7u64.to_le_bytes());
        BatchOutput { module, records, log: Vec::new(), faults: Vec::new(), end: None, in_flight: None }
    }

    #[test]
    fn a_file_is_completed_in_time_however_much_other_modules_write() {
        let folder = tempfile::tempdir().unwrap();
        let rotation = Rotation { bytes: Bytes(u64::MAX), time: Nanos(300 * Nanos::MILLISECOND.0) };
        let writer = RecordWriter::start(rotation, folder.path()).unwrap();
        let manifest = Manifest::parse(MANIFEST.as_bytes()).unwrap();
        let [quiet, busy] = [(1, "quiet"), (2, "busy")].map(|(number, module)| {
            let (session, module) = (Name::new("s").unwrap(), Name::new(module).unwrap());
            let limits = Arc::new(SessionLimits::new(&SessionSpec::new(session.clone()), None));
            writer
                .open(
                    number,
                    (&session, &limits),
                    recorded(&module, &manifest),
                    folder.path(),
                    Arc::default(),
                )
                .unwrap()
        });
        let outputs = writer.outputs().unwrap();
        outputs.send(row(1)).unwrap();
        let begin = Instant::now();
        while quiet.rows.load(Ordering::Relaxed) == 0 {
            assert!(begin.elapsed() < Duration::from_secs(60), "its file is not ended");
            outputs.send(row(2)).unwrap();
            // More often than the thread checks without input.
            std::thread::sleep(Duration::from_millis(1));
        }
        drop((outputs, writer));
        assert!(busy.rows.load(Ordering::Relaxed) > 0);
        assert_eq!(quiet.rows.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn files_completed_one_after_another_are_all_counted() {
        let folder = tempfile::tempdir().unwrap();
        // Files are completed after a row or two.
        let rotation = Rotation { bytes: Bytes(1), time: Nanos(u64::MAX) };
        let writer = RecordWriter::start(rotation, folder.path()).unwrap();
        let manifest = Manifest::parse(MANIFEST.as_bytes()).unwrap();
        let (session, module) = (Name::new("s").unwrap(), Name::new("m").unwrap());
        let limits = Arc::new(SessionLimits::new(&SessionSpec::new(session.clone()), None));
        let open = (&session, &limits);
        let written =
            writer.open(1, open, recorded(&module, &manifest), folder.path(), Arc::default()).unwrap();
        let outputs = writer.outputs().unwrap();
        let kept = || limits.status().of(Resource::RecordStorage).in_use;
        let wait = |is_so: &dyn Fn() -> bool| {
            let begin = Instant::now();
            while !is_so() {
                assert!(begin.elapsed() < Duration::from_secs(60), "{} bytes are counted", kept());
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        // The folder is searched once, before most of the files exist.
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
        let limits = Arc::new(SessionLimits::new(&SessionSpec::new(session.clone()), None));
        let open = (&session, &limits);
        let written =
            writer.open(1, open, recorded(&module, &manifest), folder.path(), Arc::default()).unwrap();
        let outputs = writer.outputs().unwrap();
        (0..5).for_each(|_| outputs.send(row(1)).unwrap());
        drop((outputs, writer));
        assert_eq!(written.rows.load(Ordering::Relaxed), 5);
        let files = std::fs::read_dir(folder.path().join("s")).unwrap().flatten();
        assert_eq!(files.filter(|file| file.path().is_dir()).count(), 5, "a file for each row");
    }
}
