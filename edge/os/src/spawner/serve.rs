//! The spawner itself: what it does with requests.
//!
//! It reads messages of one length from the node and nothing else. Its own rights are few, too: those in `privileges`, and all system calls but those that
//! neither it nor what it starts needs.

use super::fork::{ForkPlan, Forked, Mode, NotForked, SpawnTemplate, kill};
use super::group::Groups;
use super::line::{Failed, REQUEST_BYTES, SpawnReply, SpawnRequest, SpawnStep, Started};
use super::{PROCESSES_MAX, PROCESSES_OF_MODULES_MAX, ProcessRole, Settings};
use crate::launch::{Allotment, CORE_WORDS, Streams};
use crate::privileges::OfSpawner;
use crate::{ConfineError, Isolation, calls, code, descriptors, hide, privileges};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest time of a process on trial.
const TRIAL: Duration = Duration::from_secs(20);
/// The time from a process's beginning until it executes its program, at most: less than the node waits for an answer.
const START: Duration = Duration::from_secs(10);
/// Groups that are tried for one process. Those that are passed over hold what cannot be killed.
const GROUPS_TRIED: usize = 4;
/// The pause after an error of the system that passes, and the errors in a row that end a spawner.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSES_MAX: u32 = 500;
/// A group whose process has just ended may not be empty yet: how long until it is looked again.
const AGAIN: libc::c_int = 20;
/// The longest time for the other processes to end after the node.
const ENDING: Duration = Duration::from_secs(10);

/// Why a spawner ends before the node does. To blame is the node, or its system.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its arguments are none that a node gives.
    #[error("a spawner is started by a node, and by nothing else")]
    Arguments,
    /// It cannot give up what it does not need.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// The line to the node is broken, or the system refuses what it needs.
    #[error("the process that starts others: {0}")]
    System(#[from] io::Error),
}

/// A process that was started.
#[derive(Debug)]
struct Entry {
    /// Of its user and its group.
    number: u32,
    role: ProcessRole,
    /// Nothing when it has ended, and only its group is left.
    handle: Option<OwnedFd>,
    has_group: bool,
}

#[derive(Debug)]
struct Server {
    line: OwnedFd,
    origin: SpawnTemplate,
    first_user: u32,
    mode: Mode,
    groups: Option<Groups>,
    entries: Vec<Entry>,
}

/// Runs a spawner: it tries the walls that the system allows, and starts processes on request until the node is gone. `arguments` are those behind
/// [`SPAWNER`](super::SPAWNER).
///
/// # Errors
/// [`ServeError`].
pub fn serve(arguments: &[OsString]) -> Result<(), ServeError> {
    let settings = Settings::read(arguments).ok_or(ServeError::Arguments)?;
    let line = io::stdin().as_fd().try_clone_to_owned()?;
    hide()?;
    // SAFETY: take no pointers, or null where that is allowed. None of it has to succeed: addresses at random, and a session keyring and no groups that
    // are the node's.
    unsafe {
        libc::personality(0);
        libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, 0);
        libc::setgroups(0, std::ptr::null());
    }
    let groups = Groups::find(&settings.group, &settings.label, std::os::unix::process::parent_id());
    code::seal_program().map_err(ConfineError::Code)?;
    privileges::of_a_spawner(OfSpawner::Trying)?;
    calls::none_of_a_spawner()?;
    let origin = SpawnTemplate::new(settings.key.as_deref())?;
    let first_user = settings.first_user;
    let mut server = Server { line, origin, first_user, mode: Mode::None, groups, entries: Vec::new() };
    server.try_modes();
    privileges::of_a_spawner(match server.mode {
        Mode::OwnUser => OfSpawner::OwnUsers,
        Mode::User => OfSpawner::Users,
        Mode::Privileged => OfSpawner::Namespaces,
        Mode::None => OfSpawner::Nothing,
    })?;
    let isolation = server.isolation(server.mode, server.groups.is_some());
    server.say(&SpawnReply { number: 0, outcome: Ok(Started { id: 0, isolation }), dead: None })?;
    let served = server.serve();
    server.end();
    Ok(served?)
}

impl Server {
    /// The walls of a process that was started so.
    fn isolation(&self, mode: Mode, has_group: bool) -> Isolation {
        let group = match &self.groups {
            Some(groups) if has_group && groups.has_limits => Isolation::GROUP.with(Isolation::LIMITS),
            Some(_) if has_group => Isolation::GROUP,
            _ => Isolation::NONE,
        };
        let sealed = if code::can_seal() { Isolation::SEALED } else { Isolation::NONE };
        mode.isolation().with(group).with(sealed)
    }

    /// Finds the best way in which a process can be started here.
    fn try_modes(&mut self) {
        let allotment = Allotment {
            processor: 0,
            addresses: 16 << 30,
            memory: 256 << 20,
            nice: 0,
            descriptors: crate::companion::DESCRIPTORS,
            cores: [0; CORE_WORDS],
        };
        for mode in [Mode::OwnUser, Mode::User, Mode::Privileged, Mode::None] {
            for has_group in [true, false] {
                if has_group && self.groups.is_none() {
                    continue;
                }
                if self.tries(mode, &allotment, has_group).is_ok() {
                    self.mode = mode;
                    if !has_group {
                        self.groups = None;
                    }
                    return;
                }
            }
        }
    }

    /// Starts a process without a client, and waits until it has ended in order: it has put up all of its walls by then.
    fn tries(&self, mode: Mode, allotment: &Allotment, has_group: bool) -> io::Result<()> {
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
        let tried = match self.origin.fork(&plan) {
            Ok(forked) => ends_in_order(&forked),
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

    /// Does what it is told until the node is gone.
    fn serve(&mut self) -> io::Result<()> {
        let mut pauses = 0;
        loop {
            match self.serve_once() {
                Ok(true) => pauses = 0,
                Ok(false) => return Ok(()),
                // Its end would be the node's.
                Err(error) if passes(&error) && pauses < PAUSES_MAX => {
                    pauses += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for a request or the end of a process, and does what there is to do. Says whether the node is there still.
    fn serve_once(&mut self) -> io::Result<bool> {
        self.tidy();
        let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut polled = vec![readable(self.line.as_raw_fd())];
        // Those without a handle are left out: poll(2) takes no more entries than there can be descriptors.
        polled.extend(
            self.entries
                .iter()
                .filter_map(|entry| entry.handle.as_ref().map(|handle| readable(handle.as_raw_fd()))),
        );
        let is_left = polled.len() <= self.entries.len();
        let ready = poll(&mut polled, if is_left { AGAIN } else { -1 })?;
        let (of_line, of_handles) = polled.split_first().ok_or(ErrorKind::InvalidData)?;
        let with_handle = self.entries.iter_mut().filter(|entry| entry.handle.is_some());
        for (entry, polled) in with_handle.zip(of_handles) {
            if polled.revents != 0 {
                entry.handle = None;
            }
        }
        if ready == 0 || of_line.revents == 0 {
            return Ok(true);
        }
        // One more, for which it is refused.
        let mut bytes = [0; REQUEST_BYTES + 1];
        let (len, given) = descriptors::receive(self.line.as_fd(), &mut bytes)?;
        if len == 0 {
            return Ok(false);
        }
        let (number, request) = SpawnRequest::read(bytes.get(..len).unwrap_or_default());
        let (outcome, dead) = match self.start(request, given) {
            Ok(started) => (Ok(started), None),
            Err((why, dead)) => (Err(why), dead),
        };
        self.say(&SpawnReply { number, outcome, dead })?;
        Ok(true)
    }

    /// Removes what is left of processes that have ended.
    fn tidy(&mut self) {
        let groups = self.groups.as_ref();
        self.entries.retain(|entry| {
            let is_gone = entry.handle.is_none()
                && (!entry.has_group || groups.is_none_or(|groups| groups.remove(entry.number).is_ok()));
            !is_gone
        });
    }

    /// Starts a process with the walls that this spawner has announced, or none: a process with fewer would be taken for an isolated one.
    /// A process that was killed as it was started is named beside the error.
    fn start(
        &mut self,
        request: Option<SpawnRequest>,
        given: Vec<OwnedFd>,
    ) -> Result<Started, (Failed, Option<u32>)> {
        let failed = |step, error| (Failed { step, error }, None);
        let wrong = || failed(SpawnStep::Request, ErrorKind::InvalidInput.into());
        let SpawnRequest { role, allotment } = request.ok_or_else(wrong)?;
        let streams = streams(role, given).ok_or_else(wrong)?;
        // A key's file is the node's own user's.
        let mode = match (role, self.mode) {
            (ProcessRole::KeyAgent, Mode::OwnUser) => Mode::User,
            (_, mode) => mode,
        };
        let memory = if allotment.memory == 0 { allotment.addresses } else { allotment.memory };
        let (number, group) = self.place(role, memory).map_err(|why| (why, None))?;
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
        match self.origin.fork(&plan) {
            Ok(Forked { id, handle }) => {
                self.entries.push(Entry { number, role, handle: Some(handle), has_group });
                Ok(Started { id, isolation: self.isolation(mode, has_group) })
            }
            Err(NotForked { why, dead }) => {
                // Its number and its group are its own until it has ended.
                let id = dead.as_ref().map(|dead| dead.id);
                let handle = dead.map(|dead| dead.handle);
                self.entries.push(Entry { number, role, handle, has_group });
                Err((why, id))
            }
        }
    }

    /// Takes a number for a process, and makes its group where there are groups.
    fn place(&mut self, role: ProcessRole, memory: u64) -> Result<(u32, Option<PathBuf>), Failed> {
        let full = || Failed { step: SpawnStep::Number, error: io::Error::from_raw_os_error(libc::EBUSY) };
        let mut failed = full();
        for _ in 0..GROUPS_TRIED {
            let number = free_number(&self.entries, role).ok_or_else(full)?;
            match self.groups.as_ref().map(|groups| groups.make(number, memory)).transpose() {
                Ok(group) => return Ok((number, group)),
                // What is in it does not end. Its number is taken until it has.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    self.entries.push(Entry { number, role, handle: None, has_group: true });
                    failed = Failed { step: SpawnStep::Group, error };
                }
                Err(error) => return Err(Failed { step: SpawnStep::Group, error }),
            }
        }
        Err(failed)
    }

    /// Says something to the node. Where the system cannot at the moment, it is said a little later: the process that it names runs.
    fn say(&self, answer: &SpawnReply) -> io::Result<()> {
        let bytes = answer.write();
        for _ in 0..PAUSES_MAX {
            match descriptors::send(self.line.as_fd(), &bytes, &[]) {
                Err(error) if passes(&error) => std::thread::sleep(PAUSE),
                said => return said,
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    /// Ends what is left when the node is gone.
    fn end(&mut self) {
        self.entries.iter().filter_map(|entry| entry.handle.as_ref()).for_each(kill);
        let until = Instant::now() + ENDING;
        while !self.entries.is_empty() && Instant::now() < until {
            for entry in &mut self.entries {
                let Some(handle) = &entry.handle else { continue };
                let mut polled = [libc::pollfd { fd: handle.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
                if poll(&mut polled, AGAIN).is_ok_and(|ready| ready > 0) {
                    entry.handle = None;
                }
            }
            self.tidy();
        }
    }
}

/// The lowest number that no process has. The last ones are not for modules: where sessions have taken all others, there is still something to compile with, and to sign.
fn free_number(entries: &[Entry], role: ProcessRole) -> Option<u32> {
    let of_modules = entries.iter().filter(|entry| entry.role == ProcessRole::Module).count();
    if role == ProcessRole::Module
        && u32::try_from(of_modules).map_or(true, |of| of >= PROCESSES_OF_MODULES_MAX)
    {
        return None;
    }
    let taken: BTreeSet<u32> = entries.iter().map(|entry| entry.number).collect();
    (0..PROCESSES_MAX).find(|number| !taken.contains(number))
}

/// Returns true for an error that may pass: a system without memory, or a signal.
fn passes(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::ENOMEM | libc::ENOBUFS))
}

/// The standard streams of a role: processes that stay have a line for standard input, and those that answer once have all three.
fn streams(role: ProcessRole, mut given: Vec<OwnedFd>) -> Option<Streams> {
    match (role, given.len()) {
        (ProcessRole::Module | ProcessRole::KeyAgent, 1) => {
            Some(Streams { input: given.pop(), ..Streams::default() })
        }
        (ProcessRole::Compiler, 3) => {
            let (error, output, input) = (given.pop(), given.pop(), given.pop());
            Some(Streams { input, output, error })
        }
        _ => None,
    }
}

/// Waits for one of these, for so many milliseconds: how many are ready.
fn poll(polled: &mut [libc::pollfd], milliseconds: libc::c_int) -> io::Result<i32> {
    let count = libc::nfds_t::try_from(polled.len()).map_err(io::Error::other)?;
    // SAFETY: the pointer is to so many live entries.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), count, milliseconds) };
    if ready >= 0 {
        return Ok(ready);
    }
    let error = io::Error::last_os_error();
    if error.kind() == ErrorKind::Interrupted { Ok(0) } else { Err(error) }
}

/// Waits for a child of this process that ends by itself, and kills it where it does not.
fn ends_in_order(forked: &Forked) -> io::Result<()> {
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

/// Waits for a child of this process, which has ended or is about to.
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
    fn modules_leave_processes_for_compilers_and_the_key_agent() {
        let entry = |number, role| Entry { number, role, handle: None, has_group: false };
        let mut entries: Vec<Entry> =
            (0..PROCESSES_OF_MODULES_MAX).map(|number| entry(number, ProcessRole::Module)).collect();
        assert_eq!(free_number(&entries[1..], ProcessRole::Module), Some(0), "the lowest that is free");
        assert_eq!(free_number(&entries, ProcessRole::Module), None);
        for number in PROCESSES_OF_MODULES_MAX..PROCESSES_MAX {
            assert_eq!(free_number(&entries, ProcessRole::KeyAgent), Some(number));
            assert_eq!(free_number(&entries, ProcessRole::Compiler), Some(number));
            entries.push(entry(number, ProcessRole::Compiler));
        }
        assert_eq!(free_number(&entries, ProcessRole::Compiler), None);
        // Compilers take no module's place for good.
        entries.remove(0);
        assert_eq!(free_number(&entries, ProcessRole::Module), Some(0));
    }

    #[test]
    fn a_role_gets_the_streams_that_it_has_and_no_others() {
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
