//! The spawner's own process: executes the node's requests.
//!
//! A spawner reads only messages of one fixed length from the node. Its own rights are few: the capabilities in
//! `privileges`, and all system calls but those that neither it nor its children need.

use super::channel::{Failed, REQUEST_BYTES, SpawnReply, SpawnRequest, SpawnStep, Started};
use super::fork::{ForkPlan, Forked, Mode, NotForked, SpawnTemplate, kill};
use super::group::Groups;
use super::{PROCESSES_MAX, PROCESSES_OF_MODULES_MAX, ProcessRole, Settings};
use crate::launch::{Allotment, CORE_WORDS, Streams};
use crate::privileges::SpawnerPhase;
use crate::{ConfineError, Isolation, calls, code, descriptors, hide, privileges};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest time for a trial process to exit.
const TRIAL: Duration = Duration::from_secs(20);
/// The longest time from a process's creation until it executes its program: less than the node waits for an answer.
const START: Duration = Duration::from_secs(10);
/// The most numbers that are tried for one process. A number is skipped if its old group cannot be removed.
const GROUPS_TRIED: usize = 4;
/// The pause after a transient system error.
const PAUSE: Duration = Duration::from_millis(10);
/// The number of transient system errors in a row after which a spawner ends.
const PAUSES_MAX: u32 = 500;
/// Milliseconds until removing a group is tried again. A group may not be empty yet when its process has just ended.
const GROUP_RETRY_MS: libc::c_int = 20;
/// The longest time for which a spawner waits for its processes to end after the node has ended.
const ENDING: Duration = Duration::from_secs(10);

/// The reason why a spawner ends before the node does. The cause is the node, or its system.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The arguments are not those with which a node starts a spawner.
    #[error("a spawner is started by a node, and by nothing else")]
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
    /// The number that determines the process's user and its control group.
    number: u32,
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
    mode: Mode,
    groups: Option<Groups>,
    /// The running processes, and ended ones whose groups remain.
    entries: Vec<SpawnedProcess>,
}

/// Runs a spawner: finds the isolation that the system allows, and starts processes on request until the node is
/// gone. `arguments` are those after [`SPAWNER`](super::SPAWNER).
///
/// # Errors
/// [`ServeError`].
pub fn serve(arguments: &[OsString]) -> Result<(), ServeError> {
    let settings = Settings::read(arguments).ok_or(ServeError::Arguments)?;
    let channel = io::stdin().as_fd().try_clone_to_owned()?;
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
    privileges::keep_for_spawner(SpawnerPhase::Trying)?;
    calls::restrict_spawner()?;
    let template = SpawnTemplate::new(settings.key.as_deref())?;
    let first_user = settings.first_user;
    let mut server = Server { channel, template, first_user, mode: Mode::None, groups, entries: Vec::new() };
    server.try_modes();
    privileges::keep_for_spawner(match server.mode {
        Mode::OwnUser => SpawnerPhase::OwnUsers,
        Mode::User => SpawnerPhase::Users,
        Mode::Privileged => SpawnerPhase::Namespaces,
        Mode::None => SpawnerPhase::Nothing,
    })?;
    let isolation = server.isolation(server.mode, server.groups.is_some());
    server.send_answer(&SpawnReply { number: 0, outcome: Ok(Started { id: 0, isolation }), dead: None })?;
    let served = server.serve();
    server.end();
    Ok(served?)
}

impl Server {
    /// Returns the isolation of a process that is started with this mode, with or without a control group.
    fn isolation(&self, mode: Mode, has_group: bool) -> Isolation {
        let group = match &self.groups {
            Some(groups) if has_group && groups.has_limits => Isolation::GROUP.with(Isolation::LIMITS),
            Some(_) if has_group => Isolation::GROUP,
            _ => Isolation::NONE,
        };
        let sealed = if code::can_seal() { Isolation::SEALED } else { Isolation::NONE };
        mode.isolation().with(group).with(sealed)
    }

    /// Finds the best mode in which a process can be started on this system, preferably with a control group.
    fn try_modes(&mut self) {
        let allotment = Allotment {
            processor: 0,
            addresses: 16 << 30,
            memory: 256 << 20,
            nice: 0,
            descriptors: crate::helper::DESCRIPTORS,
            cores: [0; CORE_WORDS],
        };
        for mode in [Mode::OwnUser, Mode::User, Mode::Privileged, Mode::None] {
            for has_group in [true, false] {
                if has_group && self.groups.is_none() {
                    continue;
                }
                if self.try_mode(mode, &allotment, has_group).is_ok() {
                    self.mode = mode;
                    if !has_group {
                        self.groups = None;
                    }
                    return;
                }
            }
        }
    }

    /// Starts a trial process, whose standard input is empty: it confines itself and exits at once. Waits for its exit.
    ///
    /// # Errors
    /// The process cannot be started with this mode, or cannot confine itself.
    fn try_mode(&self, mode: Mode, allotment: &Allotment, has_group: bool) -> io::Result<()> {
        let groups = self.groups.as_ref().filter(|_| has_group);
        let group = groups.map(|groups| groups.make(0, allotment.memory)).transpose()?;
        let plan = ForkPlan {
            role: ProcessRole::Module,
            mode,
            allotment: *allotment,
            streams: &Streams::default(),
            user: self.first_user,
            group: group.as_deref(),
            is_of_parent: false,
            within: TRIAL,
        };
        let tried = match self.template.fork(&plan) {
            Ok(forked) => check_exit(&forked),
            Err(NotForked { why, dead }) => {
                dead.iter().for_each(|dead| _ = wait(dead.id));
                Err(why.error)
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

    /// Executes requests until the node is gone.
    fn serve(&mut self) -> io::Result<()> {
        let mut pauses = 0;
        loop {
            match self.serve_once() {
                Ok(true) => pauses = 0,
                Ok(false) => return Ok(()),
                // The spawner continues as long as possible: a node without a spawner must be restarted.
                Err(error) if is_transient(&error) && pauses < PAUSES_MAX => {
                    pauses += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for a request or the end of a process, and handles it. Returns false if the node is gone.
    fn serve_once(&mut self) -> io::Result<bool> {
        self.remove_finished();
        let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut polled = vec![readable(self.channel.as_raw_fd())];
        // Only entries with a handle: poll(2) takes no more entries than the process may have descriptors.
        polled.extend(
            self.entries
                .iter()
                .filter_map(|entry| entry.handle.as_ref().map(|handle| readable(handle.as_raw_fd()))),
        );
        let has_leftover_groups = polled.len() <= self.entries.len();
        let ready = poll(&mut polled, if has_leftover_groups { GROUP_RETRY_MS } else { -1 })?;
        let (from_channel, of_handles) = polled.split_first().ok_or(ErrorKind::InvalidData)?;
        let with_handle = self.entries.iter_mut().filter(|entry| entry.handle.is_some());
        for (entry, polled) in with_handle.zip(of_handles) {
            if polled.revents != 0 {
                entry.handle = None;
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
            Err((why, dead)) => (Err(why), dead),
        };
        self.send_answer(&SpawnReply { number, outcome, dead })?;
        Ok(true)
    }

    /// Removes the groups of processes that have ended.
    fn remove_finished(&mut self) {
        let groups = self.groups.as_ref();
        self.entries.retain(|entry| {
            let is_gone = entry.handle.is_none()
                && (!entry.has_group || groups.is_none_or(|groups| groups.remove(entry.number).is_ok()));
            !is_gone
        });
    }

    /// Starts a process with the isolation that this spawner has announced. Fails if that is not possible, because the
    /// node would take a process with less isolation for an isolated one.
    ///
    /// The error comes with the id of the process if it was created: it has been killed, and the node must wait for it.
    fn start(
        &mut self,
        request: Option<SpawnRequest>,
        received: Vec<OwnedFd>,
    ) -> Result<Started, (Failed, Option<u32>)> {
        let failed = |step, error| (Failed { step, error }, None);
        let invalid = || failed(SpawnStep::Request, ErrorKind::InvalidInput.into());
        let SpawnRequest { role, allotment } = request.ok_or_else(invalid)?;
        let streams = streams(role, received).ok_or_else(invalid)?;
        // A key agent must read the key's file, which belongs to the node's own user.
        let mode = match (role, self.mode) {
            (ProcessRole::KeyAgent, Mode::OwnUser) => Mode::User,
            (_, mode) => mode,
        };
        let memory = if allotment.memory == 0 { allotment.addresses } else { allotment.memory };
        let (number, group) = self.allocate(role, memory).map_err(|why| (why, None))?;
        let has_group = group.is_some();
        let plan = ForkPlan {
            role,
            mode,
            allotment,
            streams: &streams,
            user: self.first_user.saturating_add(number),
            group: group.as_deref(),
            is_of_parent: true,
            within: START,
        };
        match self.template.fork(&plan) {
            Ok(Forked { id, handle }) => {
                self.entries.push(SpawnedProcess { number, role, handle: Some(handle), has_group });
                Ok(Started { id, isolation: self.isolation(mode, has_group) })
            }
            Err(NotForked { why, dead }) => {
                // The number and the group are in use until the process has ended.
                let id = dead.as_ref().map(|dead| dead.id);
                let handle = dead.map(|dead| dead.handle);
                self.entries.push(SpawnedProcess { number, role, handle, has_group });
                Err((why, id))
            }
        }
    }

    /// Allocates a number for a process, and creates its group where there are groups.
    fn allocate(&mut self, role: ProcessRole, memory: u64) -> Result<(u32, Option<PathBuf>), Failed> {
        let full = || Failed { step: SpawnStep::Number, error: io::Error::from_raw_os_error(libc::EBUSY) };
        let mut failed = full();
        for _ in 0..GROUPS_TRIED {
            let number = free_number(&self.entries, role).ok_or_else(full)?;
            match self.groups.as_ref().map(|groups| groups.make(number, memory)).transpose() {
                Ok(group) => return Ok((number, group)),
                // Processes in the old group do not end. The number is in use until they have.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    self.entries.push(SpawnedProcess { number, role, handle: None, has_group: true });
                    failed = Failed { step: SpawnStep::Group, error };
                }
                Err(error) => return Err(Failed { step: SpawnStep::Group, error }),
            }
        }
        Err(failed)
    }

    /// Sends an answer to the node. After a transient error it tries again, because the process in the answer runs
    /// already.
    fn send_answer(&self, answer: &SpawnReply) -> io::Result<()> {
        let bytes = answer.write();
        for _ in 0..PAUSES_MAX {
            match descriptors::send(self.channel.as_fd(), &bytes, &[]) {
                Err(error) if is_transient(&error) => std::thread::sleep(PAUSE),
                result => return result,
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    /// Ends the remaining processes when the node is gone.
    fn end(&mut self) {
        self.entries.iter().filter_map(|entry| entry.handle.as_ref()).for_each(kill);
        let until = Instant::now() + ENDING;
        while !self.entries.is_empty() && Instant::now() < until {
            for entry in &mut self.entries {
                let Some(handle) = &entry.handle else { continue };
                let mut polled = [libc::pollfd { fd: handle.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
                if poll(&mut polled, GROUP_RETRY_MS).is_ok_and(|ready| ready > 0) {
                    entry.handle = None;
                }
            }
            self.remove_finished();
        }
    }
}

/// Returns the lowest free number for a process of this role. Modules have at most [`PROCESSES_OF_MODULES_MAX`]
/// processes, so that the node can always start compilers and its key agent.
fn free_number(entries: &[SpawnedProcess], role: ProcessRole) -> Option<u32> {
    let of_modules = entries.iter().filter(|entry| entry.role == ProcessRole::Module).count();
    if role == ProcessRole::Module
        && u32::try_from(of_modules).map_or(true, |count| count >= PROCESSES_OF_MODULES_MAX)
    {
        return None;
    }
    let taken: BTreeSet<u32> = entries.iter().map(|entry| entry.number).collect();
    (0..PROCESSES_MAX).find(|number| !taken.contains(number))
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
        (ProcessRole::Compiler, 3) => {
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

/// Waits until a trial process exits, and kills it after [`TRIAL`].
///
/// # Errors
/// The exit status is not 0.
fn check_exit(forked: &Forked) -> io::Result<()> {
    let mut polled = [libc::pollfd { fd: forked.handle.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    let milliseconds = libc::c_int::try_from(TRIAL.as_millis()).unwrap_or(libc::c_int::MAX);
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
    fn modules_leave_numbers_for_compilers_and_the_key_agent() {
        let entry = |number, role| SpawnedProcess { number, role, handle: None, has_group: false };
        let mut entries: Vec<SpawnedProcess> =
            (0..PROCESSES_OF_MODULES_MAX).map(|number| entry(number, ProcessRole::Module)).collect();
        assert_eq!(free_number(&entries[1..], ProcessRole::Module), Some(0), "the lowest that is free");
        assert_eq!(free_number(&entries, ProcessRole::Module), None);
        for number in PROCESSES_OF_MODULES_MAX..PROCESSES_MAX {
            assert_eq!(free_number(&entries, ProcessRole::KeyAgent), Some(number));
            assert_eq!(free_number(&entries, ProcessRole::Compiler), Some(number));
            entries.push(entry(number, ProcessRole::Compiler));
        }
        assert_eq!(free_number(&entries, ProcessRole::Compiler), None);
        // Compilers do not use up the numbers of modules.
        entries.remove(0);
        assert_eq!(free_number(&entries, ProcessRole::Module), Some(0));
    }

    #[test]
    fn a_role_gets_exactly_its_streams() {
        let nothing =
            |count: usize| (0..count).map(|_| std::fs::File::open("/dev/null").unwrap().into()).collect();
        for role in [ProcessRole::Module, ProcessRole::Compiler, ProcessRole::KeyAgent] {
            let expected = if matches!(role, ProcessRole::Module | ProcessRole::KeyAgent) { 1 } else { 3 };
            for count in 0..5 {
                assert_eq!(streams(role, nothing(count)).is_some(), count == expected, "{role:?} {count}");
            }
        }
    }
}
