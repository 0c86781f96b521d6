//! The loop of the spawner's own process: executes the node's requests until the node ends.
//!
//! A spawner reads only messages of one fixed length from the node. It has the few capabilities of its phase
//! (`privileges.rs`), and can make all system calls but those that neither it nor its children need (`calls.rs`).

use super::channel::{Failed, REQUEST_BYTES, SpawnReply, SpawnRequest, SpawnStep, Started};
use super::fork::{ForkPlan, Forked, NamespaceMode, NotForked, SpawnTemplate, kill};
use super::group::Groups;
use super::{PROCESSES_MAX, PROCESSES_OF_MODULES_MAX, ProcessRole, Settings};
use crate::launch::{CORE_WORDS, ProcessLimits, Streams};
use crate::privileges::SpawnerPhase;
use crate::{ConfineError, Isolation, calls, code, descriptors, hide, privileges};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest time for a trial process to exit.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest time from a process's creation until it executes its program. It is shorter than the node's wait for an
/// answer.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// The most slots that are tried for one process. A slot is skipped if its old control group cannot be removed.
const SLOTS_TRIED_MAX: usize = 4;
/// The pause before a retry after a transient system error.
const RETRY_PAUSE: Duration = Duration::from_millis(10);
/// The number of transient system errors in a row after which a spawner ends.
const RETRIES_MAX: u32 = 500;
/// Milliseconds until removing a group is tried again: when a process has just ended, its group may not be empty yet.
const GROUP_RETRY_MS: libc::c_int = 20;
/// The longest time for which a spawner waits for its processes to end after the node has ended.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why a spawner ends before the node does.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The arguments are not those with which a node starts a spawner.
    #[error("a spawner is started by a node, and by no other program")]
    Arguments,
    /// The spawner cannot be confined.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// The channel to the node is broken, or the system refuses something necessary.
    #[error("the process that starts others: {0}")]
    System(#[from] io::Error),
}

/// A started process.
#[derive(Debug)]
struct SpawnedProcess {
    /// The slot, a number that determines the process's user and its control group.
    slot: u32,
    role: ProcessRole,
    /// `None` once the process has ended and only its group remains.
    handle: Option<OwnedFd>,
    has_group: bool,
}

/// The state of a spawner.
#[derive(Debug)]
struct Server {
    channel: OwnedFd,
    template: SpawnTemplate,
    first_user: u32,
    mode: NamespaceMode,
    groups: Option<Groups>,
    /// The running processes, and ended processes whose groups remain.
    processes: Vec<SpawnedProcess>,
}

/// Runs a spawner: finds the isolation that the system allows, and starts processes on request until the node ends.
/// `arguments` are the command-line arguments after [`SPAWNER`](super::SPAWNER).
///
/// # Errors
/// [`ServeError`].
pub fn serve(arguments: &[OsString]) -> Result<(), ServeError> {
    let settings = Settings::read(arguments).ok_or(ServeError::Arguments)?;
    let channel = io::stdin().as_fd().try_clone_to_owned()?;
    // From here on, other processes of the user can neither trace the spawner nor read its memory.
    hide()?;
    // SAFETY: the calls take no pointers, or null where that is allowed. They enable address randomisation, join a new
    // session keyring, and drop the node's supplementary groups; a failure does no harm.
    unsafe {
        libc::personality(0);
        libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, 0);
        libc::setgroups(0, std::ptr::null());
    }
    let groups = Groups::find(&settings.group, &settings.label, std::os::unix::process::parent_id());
    code::seal_program().map_err(ConfineError::Code)?;
    privileges::keep_for_spawner(SpawnerPhase::Probing)?;
    calls::restrict_spawner()?;
    let template = SpawnTemplate::new(settings.key.as_deref())?;
    let first_user = settings.first_user;
    let mut server = Server {
        channel,
        template,
        first_user,
        mode: NamespaceMode::NoNamespaces,
        groups,
        processes: Vec::new(),
    };
    server.find_best_mode();
    privileges::keep_for_spawner(match server.mode {
        NamespaceMode::OwnUser => SpawnerPhase::OwnUser,
        NamespaceMode::SharedUser => SpawnerPhase::SharedUser,
        NamespaceMode::NoUserNamespace => SpawnerPhase::NoUserNamespace,
        NamespaceMode::NoNamespaces => SpawnerPhase::NoNamespaces,
    })?;
    let isolation = server.isolation(server.mode, server.groups.is_some());
    server.send_answer(&SpawnReply { number: 0, outcome: Ok(Started { id: 0, isolation }), dead: None })?;
    let served = server.serve();
    server.end();
    Ok(served?)
}

impl Server {
    /// Returns the isolation of a process that is started with this mode, with or without a control group.
    fn isolation(&self, mode: NamespaceMode, has_group: bool) -> Isolation {
        let group = match &self.groups {
            Some(groups) if has_group && groups.has_limits => Isolation::GROUP.with(Isolation::LIMITS),
            Some(_) if has_group => Isolation::GROUP,
            _ => Isolation::NONE,
        };
        // Sealed pages of code cannot be changed: mseal(2).
        let sealed = if code::can_seal() { Isolation::SEALED } else { Isolation::NONE };
        mode.isolation().with(group).with(sealed)
    }

    /// Sets the mode with the strongest isolation in which a process can be started on this system, with a control group
    /// if possible.
    fn find_best_mode(&mut self) {
        let process_limits = ProcessLimits {
            processor: 0,
            address_space: 16 << 30,
            memory: 256 << 20,
            nice: 0,
            descriptors: crate::helper::DESCRIPTORS,
            cores: [0; CORE_WORDS],
        };
        for mode in [
            NamespaceMode::OwnUser,
            NamespaceMode::SharedUser,
            NamespaceMode::NoUserNamespace,
            NamespaceMode::NoNamespaces,
        ] {
            for has_group in [true, false] {
                if has_group && self.groups.is_none() {
                    continue;
                }
                if self.try_mode(mode, &process_limits, has_group).is_ok() {
                    self.mode = mode;
                    if !has_group {
                        self.groups = None;
                    }
                    return;
                }
            }
        }
    }

    /// Starts a trial process and waits for its exit. Its standard input is empty, so it confines itself and exits at once.
    ///
    /// # Errors
    /// The process cannot be started with this mode, or cannot confine itself.
    fn try_mode(
        &self,
        mode: NamespaceMode,
        process_limits: &ProcessLimits,
        has_group: bool,
    ) -> io::Result<()> {
        let groups = self.groups.as_ref().filter(|_| has_group);
        let group = groups.map(|groups| groups.make(0, process_limits.memory)).transpose()?;
        let plan = ForkPlan {
            role: ProcessRole::Module,
            mode,
            process_limits: *process_limits,
            streams: &Streams::default(),
            user: self.first_user,
            group: group.as_deref(),
            // The spawner itself waits for the trial process.
            is_of_parent: false,
            within: TRIAL_TIMEOUT,
        };
        let tried = match self.template.fork(&plan) {
            Ok(forked) => check_exit(&forked),
            Err(NotForked { failed, dead }) => {
                dead.iter().for_each(|dead| _ = wait(dead.id));
                Err(failed.error)
            }
        };
        if let Some(groups) = groups {
            for _ in 0..50 {
                if groups.remove(0).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        tried
    }

    /// Executes requests until the node ends.
    fn serve(&mut self) -> io::Result<()> {
        let mut retries = 0;
        loop {
            match self.serve_once() {
                Ok(true) => retries = 0,
                Ok(false) => return Ok(()),
                // The spawner continues as long as possible: a node without a spawner must be restarted.
                Err(error) if is_transient(&error) && retries < RETRIES_MAX => {
                    retries += 1;
                    std::thread::sleep(RETRY_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for a request or the end of a process, and handles it. Returns false if the node has ended.
    fn serve_once(&mut self) -> io::Result<bool> {
        self.remove_finished();
        let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut polled = vec![readable(self.channel.as_raw_fd())];
        // Processes without a handle are left out: poll(2) counts each entry against the limit on open descriptors.
        polled.extend(
            self.processes
                .iter()
                .filter_map(|process| process.handle.as_ref().map(|handle| readable(handle.as_raw_fd()))),
        );
        let has_leftover_groups = polled.len() <= self.processes.len();
        let ready = poll(&mut polled, if has_leftover_groups { GROUP_RETRY_MS } else { -1 })?;
        let (from_channel, of_handles) = polled.split_first().ok_or(ErrorKind::InvalidData)?;
        let with_handle = self.processes.iter_mut().filter(|process| process.handle.is_some());
        for (process, polled) in with_handle.zip(of_handles) {
            if polled.revents != 0 {
                process.handle = None;
            }
        }
        if ready == 0 || from_channel.revents == 0 {
            return Ok(true);
        }
        // One more byte than a request has, so that a longer message is noticed and refused.
        let mut bytes = [0; REQUEST_BYTES + 1];
        let (len, received) = descriptors::receive(self.channel.as_fd(), &mut bytes)?;
        if len == 0 {
            return Ok(false);
        }
        let (number, request) = SpawnRequest::read(bytes.get(..len).unwrap_or_default());
        let (outcome, dead) = match self.start(request, received) {
            Ok(started) => (Ok(started), None),
            Err((failed, dead)) => (Err(failed), dead),
        };
        self.send_answer(&SpawnReply { number, outcome, dead })?;
        Ok(true)
    }

    /// Removes the processes that have ended and whose groups can be removed.
    fn remove_finished(&mut self) {
        let groups = self.groups.as_ref();
        self.processes.retain(|process| {
            let is_finished = process.handle.is_none()
                && (!process.has_group || groups.is_none_or(|groups| groups.remove(process.slot).is_ok()));
            !is_finished
        });
    }

    /// Starts a process with the isolation that this spawner has announced. `received` are the descriptors that came with
    /// the request.
    ///
    /// # Errors
    /// The process cannot be started, or only with less isolation than announced. The error has the id of the process if
    /// it was created: it has been killed, and the node must wait for its end.
    fn start(
        &mut self,
        request: Option<SpawnRequest>,
        received: Vec<OwnedFd>,
    ) -> Result<Started, (Failed, Option<u32>)> {
        let failed = |step, error| (Failed { step, error }, None);
        let invalid = || failed(SpawnStep::Request, ErrorKind::InvalidInput.into());
        let SpawnRequest { role, process_limits } = request.ok_or_else(invalid)?;
        let streams = streams(role, received).ok_or_else(invalid)?;
        // A key agent must read the key's file, which belongs to the node's own user.
        let mode = match (role, self.mode) {
            (ProcessRole::KeyAgent, NamespaceMode::OwnUser) => NamespaceMode::SharedUser,
            (_, mode) => mode,
        };
        let memory =
            if process_limits.memory == 0 { process_limits.address_space } else { process_limits.memory };
        let (slot, group) = self.allocate_slot(role, memory).map_err(|failed| (failed, None))?;
        let has_group = group.is_some();
        let plan = ForkPlan {
            role,
            mode,
            process_limits,
            streams: &streams,
            user: self.first_user.saturating_add(slot),
            group: group.as_deref(),
            // The process becomes a child of the node.
            is_of_parent: true,
            within: START_TIMEOUT,
        };
        match self.template.fork(&plan) {
            Ok(Forked { id, handle }) => {
                self.processes.push(SpawnedProcess { slot, role, handle: Some(handle), has_group });
                Ok(Started { id, isolation: self.isolation(mode, has_group) })
            }
            Err(NotForked { failed, dead }) => {
                // The slot and the group are in use until the process has ended.
                let id = dead.as_ref().map(|dead| dead.id);
                let handle = dead.map(|dead| dead.handle);
                self.processes.push(SpawnedProcess { slot, role, handle, has_group });
                Err((failed, id))
            }
        }
    }

    /// Allocates a slot for a process, and creates its control group if this spawner uses control groups. Returns the slot
    /// and the group's folder.
    fn allocate_slot(&mut self, role: ProcessRole, memory: u64) -> Result<(u32, Option<PathBuf>), Failed> {
        let full = || Failed { step: SpawnStep::Slot, error: io::Error::from_raw_os_error(libc::EBUSY) };
        let mut failed = full();
        for _ in 0..SLOTS_TRIED_MAX {
            let slot = free_slot(&self.processes, role).ok_or_else(full)?;
            match self.groups.as_ref().map(|groups| groups.make(slot, memory)).transpose() {
                Ok(group) => return Ok((slot, group)),
                // Killed processes of an earlier group have not ended yet. The slot is in use until they have.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    self.processes.push(SpawnedProcess { slot, role, handle: None, has_group: true });
                    failed = Failed { step: SpawnStep::Group, error };
                }
                Err(error) => return Err(Failed { step: SpawnStep::Group, error }),
            }
        }
        Err(failed)
    }

    /// Sends an answer to the node. Tries again after a transient error, because the process that the answer names runs
    /// already.
    fn send_answer(&self, answer: &SpawnReply) -> io::Result<()> {
        let bytes = answer.write();
        for _ in 0..RETRIES_MAX {
            match descriptors::send(self.channel.as_fd(), &bytes, &[]) {
                Err(error) if is_transient(&error) => std::thread::sleep(RETRY_PAUSE),
                result => return result,
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    /// Ends the remaining processes after the node has ended.
    fn end(&mut self) {
        self.processes.iter().filter_map(|process| process.handle.as_ref()).for_each(kill);
        let until = Instant::now() + END_TIMEOUT;
        while !self.processes.is_empty() && Instant::now() < until {
            for process in &mut self.processes {
                let Some(handle) = &process.handle else { continue };
                let mut polled = [libc::pollfd { fd: handle.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
                if poll(&mut polled, GROUP_RETRY_MS).is_ok_and(|ready| ready > 0) {
                    process.handle = None;
                }
            }
            self.remove_finished();
        }
    }
}

/// Returns the lowest free slot for a process of this role. Modules have at most [`PROCESSES_OF_MODULES_MAX`]
/// processes, so that the node can always start compilers and its key agent.
fn free_slot(processes: &[SpawnedProcess], role: ProcessRole) -> Option<u32> {
    let of_modules = processes.iter().filter(|process| process.role == ProcessRole::Module).count();
    if role == ProcessRole::Module
        && u32::try_from(of_modules).map_or(true, |count| count >= PROCESSES_OF_MODULES_MAX)
    {
        return None;
    }
    let used: BTreeSet<u32> = processes.iter().map(|process| process.slot).collect();
    (0..PROCESSES_MAX).find(|slot| !used.contains(slot))
}

/// Returns true for a transient error: a lack of memory, or an interruption by a signal.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::ENOMEM | libc::ENOBUFS))
}

/// Assigns the received descriptors to the standard streams of a process. A long-lived process has only standard input,
/// which is a socket; a compiler has all three. Returns `None` if the number of descriptors is wrong.
fn streams(role: ProcessRole, mut received: Vec<OwnedFd>) -> Option<Streams> {
    match (role, received.len()) {
        (ProcessRole::Module | ProcessRole::KeyAgent, 1) => {
            Some(Streams { input: received.pop(), ..Streams::default() })
        }
        (ProcessRole::Compiler | ProcessRole::ExternalCompiler | ProcessRole::ExternalCompilerVersion, 3) => {
            let (error, output, input) = (received.pop(), received.pop(), received.pop());
            Some(Streams { input, output, error })
        }
        _ => None,
    }
}

/// Waits until one of these descriptors is ready, for at most `milliseconds`. Returns the number of ready descriptors.
fn poll(polled: &mut [libc::pollfd], milliseconds: libc::c_int) -> io::Result<i32> {
    let count = libc::nfds_t::try_from(polled.len()).map_err(io::Error::other)?;
    // SAFETY: the pointer is to `count` live entries.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), count, milliseconds) };
    if ready >= 0 {
        return Ok(ready);
    }
    let error = io::Error::last_os_error();
    if error.kind() == ErrorKind::Interrupted { Ok(0) } else { Err(error) }
}

/// Waits until a trial process exits, and kills it after [`TRIAL_TIMEOUT`].
///
/// # Errors
/// The exit status is not 0.
fn check_exit(forked: &Forked) -> io::Result<()> {
    let mut polled = [libc::pollfd { fd: forked.handle.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    let milliseconds = libc::c_int::try_from(TRIAL_TIMEOUT.as_millis()).unwrap_or(libc::c_int::MAX);
    if poll(&mut polled, milliseconds)? == 0 {
        kill(&forked.handle);
    }
    match wait(forked.id)? {
        0 => Ok(()),
        status => Err(io::Error::other(format!("status {status:#x}"))),
    }
}

/// Waits for the end of a child of this process. Returns its status, as waitpid(2) does.
fn wait(id: u32) -> io::Result<libc::c_int> {
    let id = libc::pid_t::try_from(id).map_err(io::Error::other)?;
    let mut status = 0;
    // SAFETY: the pointer is to a live local.
    match unsafe { libc::waitpid(id, &raw mut status, 0) } {
        waited if waited == id => Ok(status),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_leave_slots_for_compilers_and_the_key_agent() {
        let process = |slot, role| SpawnedProcess { slot, role, handle: None, has_group: false };
        let mut processes: Vec<SpawnedProcess> =
            (0..PROCESSES_OF_MODULES_MAX).map(|slot| process(slot, ProcessRole::Module)).collect();
        assert_eq!(free_slot(&processes[1..], ProcessRole::Module), Some(0), "the lowest that is free");
        assert_eq!(free_slot(&processes, ProcessRole::Module), None);
        for slot in PROCESSES_OF_MODULES_MAX..PROCESSES_MAX {
            assert_eq!(free_slot(&processes, ProcessRole::KeyAgent), Some(slot));
            assert_eq!(free_slot(&processes, ProcessRole::Compiler), Some(slot));
            processes.push(process(slot, ProcessRole::Compiler));
        }
        assert_eq!(free_slot(&processes, ProcessRole::Compiler), None);
        // Compilers do not use up the slots of modules.
        processes.remove(0);
        assert_eq!(free_slot(&processes, ProcessRole::Module), Some(0));
    }

    #[test]
    fn a_role_gets_exactly_its_streams() {
        let nothing =
            |count: usize| (0..count).map(|_| std::fs::File::open("/dev/null").unwrap().into()).collect();
        use ProcessRole::{Compiler, ExternalCompiler, ExternalCompilerVersion, KeyAgent, Module};
        for role in [Module, Compiler, ExternalCompiler, ExternalCompilerVersion, KeyAgent] {
            let expected = if matches!(role, ProcessRole::Module | ProcessRole::KeyAgent) { 1 } else { 3 };
            for count in 0..5 {
                assert_eq!(streams(role, nothing(count)).is_some(), count == expected, "{role:?} {count}");
            }
        }
    }
}
