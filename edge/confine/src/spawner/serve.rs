//! The spawner itself: what it does with requests.
//!
//! It reads messages of one length from the node and nothing else. Its own rights are few, too: those in `privileges`, and all system calls but those that
//! neither it nor what it starts needs.

use super::fork::{Forked, Mode, Origin, Plan, kill};
use super::group::Groups;
use super::{ANSWER_BYTES, DEAD_MAX, FAILED, PROCESSES_MAX, REQUEST_BYTES, Role, STARTED, Settings};
use crate::launch::{Allotment, CORE_WORDS, Streams};
use crate::privileges::OfSpawner;
use crate::{ConfineError, Isolation, calls, code, descriptors, hide, privileges};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a process on trial may take.
const TRIAL: Duration = Duration::from_secs(20);
/// A group whose process has just ended may not be empty yet: how long until it is looked again.
const AGAIN: libc::c_int = 20;
/// How long what is left may take to end when the node has.
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
    /// Nothing when it has ended, and only its group is left.
    handle: Option<OwnedFd>,
    has_group: bool,
}

#[derive(Debug)]
struct Server {
    line: OwnedFd,
    origin: Origin,
    first_user: u32,
    mode: Mode,
    groups: Option<Groups>,
    entries: Vec<Entry>,
}

/// What a spawner does: tries which walls there can be, and starts processes as it is told until the node is gone. These are its arguments behind
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
    let groups = Groups::find(&settings.group, std::os::unix::process::parent_id());
    code::seal_program().map_err(ConfineError::Code)?;
    privileges::of_a_spawner(OfSpawner::Trying)?;
    calls::none_of_a_spawner()?;
    let origin = Origin::new(settings.key.as_deref())?;
    let first_user = settings.first_user;
    let mut server = Server { line, origin, first_user, mode: Mode::None, groups, entries: Vec::new() };
    server.try_modes();
    privileges::of_a_spawner(match server.mode {
        Mode::OwnUser => OfSpawner::OwnUsers,
        Mode::User => OfSpawner::Users,
        Mode::Privileged => OfSpawner::Namespaces,
        Mode::None => OfSpawner::Nothing,
    })?;
    server.say(&Ok((0, server.isolation(server.mode, server.groups.is_some()))), &[])?;
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

    /// Starts a process that has nobody to ask it, and waits until it has ended in order: it has put up all of its walls by then.
    fn tries(&self, mode: Mode, allotment: &Allotment, has_group: bool) -> io::Result<()> {
        let groups = self.groups.as_ref().filter(|_| has_group);
        let group = groups.map(|groups| groups.make(0, allotment.memory)).transpose()?;
        let plan = Plan {
            role: Role::Module,
            mode,
            allotment: *allotment,
            streams: &Streams::default(),
            user: self.first_user,
            group: group.as_deref(),
            is_of_parent: false,
        };
        let mut dead = Vec::new();
        let tried = self.origin.fork(&plan, &mut dead).and_then(|forked| ends_in_order(&forked));
        for id in dead {
            _ = wait(id);
        }
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
        loop {
            self.tidy();
            let mut polled =
                vec![libc::pollfd { fd: self.line.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
            let handles =
                self.entries.iter().map(|entry| entry.handle.as_ref().map_or(-1, AsRawFd::as_raw_fd));
            polled.extend(handles.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }));
            let is_left = self.entries.iter().any(|entry| entry.handle.is_none());
            let ready = poll(&mut polled, if is_left { AGAIN } else { -1 })?;
            let (of_line, of_handles) = polled.split_first().ok_or(ErrorKind::InvalidData)?;
            for (entry, polled) in self.entries.iter_mut().zip(of_handles) {
                if polled.revents != 0 {
                    entry.handle = None;
                }
            }
            if ready == 0 || of_line.revents == 0 {
                continue;
            }
            // One more, for which it is refused.
            let mut request = [0; REQUEST_BYTES + 1];
            let (len, given) = descriptors::receive(self.line.as_fd(), &mut request)?;
            if len == 0 {
                return Ok(());
            }
            let mut dead = Vec::new();
            let started = self.start(request.get(..len).unwrap_or_default(), given, &mut dead);
            self.say(&started, &dead)?;
        }
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

    fn start(
        &mut self,
        request: &[u8],
        given: Vec<OwnedFd>,
        dead: &mut Vec<u32>,
    ) -> io::Result<(u32, Isolation)> {
        let (role, allotment) = read(request).ok_or(ErrorKind::InvalidInput)?;
        let streams = streams(role, given).ok_or(ErrorKind::InvalidInput)?;
        let is_free = |number: &u32| self.entries.iter().all(|entry| entry.number != *number);
        let number = (0..PROCESSES_MAX).find(is_free).ok_or(ErrorKind::ResourceBusy)?;
        // A key's file is the node's own user's.
        let mode = match (role, self.mode) {
            (Role::KeyAgent, Mode::OwnUser) => Mode::User,
            (_, mode) => mode,
        };
        let memory = if allotment.memory == 0 { allotment.addresses } else { allotment.memory };
        let group = self.groups.as_ref().and_then(|groups| groups.make(number, memory).ok());
        let has_group = group.is_some();
        let mut failed = io::Error::from(ErrorKind::Unsupported);
        // What went well when it was tried can fail later, as where there are too many of something.
        for (mode, group) in [(mode, group.as_deref()), (mode, None), (Mode::None, None)] {
            let user = self.first_user.saturating_add(number);
            let plan = Plan { role, mode, allotment, streams: &streams, user, group, is_of_parent: true };
            match self.origin.fork(&plan, dead) {
                Ok(Forked { id, handle }) => {
                    // The group is removed when the process ends, also where it is not in it.
                    self.entries.push(Entry { number, handle: Some(handle), has_group });
                    return Ok((id, self.isolation(mode, group.is_some())));
                }
                Err(error) => failed = error,
            }
        }
        if let (Some(groups), Some(_)) = (&self.groups, group) {
            _ = groups.remove(number);
        }
        Err(failed)
    }

    fn say(&self, started: &io::Result<(u32, Isolation)>, dead: &[u32]) -> io::Result<()> {
        let (kind, walls, number) = match started {
            Ok((id, isolation)) => (STARTED, isolation.bits(), *id),
            Err(error) => (FAILED, 0, error.raw_os_error().unwrap_or(libc::EINVAL).unsigned_abs()),
        };
        let mut answer = Vec::with_capacity(ANSWER_BYTES);
        answer.extend([kind, walls]);
        answer.extend(number.to_le_bytes());
        let dead = dead.iter().copied().chain(std::iter::repeat(0)).take(DEAD_MAX);
        answer.extend(dead.flat_map(u32::to_le_bytes));
        descriptors::send(self.line.as_fd(), &answer, &[])
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

/// A request, if it is one.
fn read(request: &[u8]) -> Option<(Role, Allotment)> {
    let (role, allotment) = request.split_first()?;
    Some((Role::of_number(*role)?, Allotment::read(allotment)?))
}

/// What goes where: those that stay have a line for standard input, and those that answer once have all three.
fn streams(role: Role, mut given: Vec<OwnedFd>) -> Option<Streams> {
    match (role, given.len()) {
        (Role::Module | Role::KeyAgent, 1) => Some(Streams { input: given.pop(), ..Streams::default() }),
        (Role::Compiler, 3) => {
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

    fn request(role: u8, more: usize) -> Vec<u8> {
        let mut request = vec![role];
        let cores = [0; CORE_WORDS];
        Allotment { processor: 1, addresses: 2, memory: 3, nice: 4, descriptors: 5, cores }
            .write(&mut request);
        request.resize(request.len() + more, 0);
        request
    }

    #[test]
    fn a_request_names_a_role_and_numbers_and_nothing_else() {
        let (role, allotment) = read(&request(0, 0)).unwrap();
        assert_eq!((role, allotment.addresses, allotment.nice), (Role::Module, 2, 4));
        for cut in 0..REQUEST_BYTES {
            assert!(read(&request(0, 0)[..cut]).is_none(), "{cut}");
        }
        assert!(
            read(&request(0, 1)).is_none()
                && read(&request(3, 0)).is_none()
                && read(&request(255, 0)).is_none()
        );
    }

    #[test]
    fn a_role_gets_the_streams_that_it_has_and_no_others() {
        let nothing =
            |count: usize| (0..count).map(|_| std::fs::File::open("/dev/null").unwrap().into()).collect();
        for role in [Role::Module, Role::Compiler, Role::KeyAgent] {
            let expected = if matches!(role, Role::Module | Role::KeyAgent) { 1 } else { 3 };
            for count in 0..5 {
                assert_eq!(streams(role, nothing(count)).is_some(), count == expected, "{role:?} {count}");
            }
        }
    }
}
