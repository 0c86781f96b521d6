//! The channel between a node and its spawner: requests and answers, each with the number of its request.
//!
//! After a timeout, the answer to the request may still arrive. The node sends its next request only after this late
//! answer has arrived, and ends the process that the late answer names, because no caller uses that process. So no answer
//! is taken for the answer to another request, and a timeout does not break the channel.

use super::ProcessRole;
use crate::launch::{Child, ProcessLimits};
use crate::{Isolation, descriptors};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The bytes of a request: its number, the code of a role, and the limits of the process.
pub(super) const REQUEST_BYTES: usize = 8 + 1 + ProcessLimits::BYTES;
/// The bytes of an answer: the number of the answered request, a kind, the isolation, a process id or the system's error
/// number, and the id of a dead process or 0.
pub(super) const ANSWER_BYTES: usize = 8 + 1 + 1 + 4 + 4;
/// The kind of an answer that names a started process. Any other kind is the [code](SpawnStep::code) of the failed step.
const STARTED: u8 = 0;

/// A step of the start of a process, by which a failed start is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpawnStep {
    /// Reading the request.
    Request,
    /// Finding a free slot, which determines the process's user and control group.
    Slot,
    /// Creating the control group.
    Group,
    /// Creating the process with its namespaces.
    Process,
    /// Mapping the process's user.
    User,
    /// Executing the program.
    Program,
}

impl SpawnStep {
    const ALL: [Self; 6] = [Self::Request, Self::Slot, Self::Group, Self::Process, Self::User, Self::Program];

    /// Returns the step's code in a message. No step has the code 0.
    pub(super) fn code(self) -> u8 {
        let index = Self::ALL.iter().position(|step| *step == self).unwrap_or_default();
        u8::try_from(index).unwrap_or_default() + 1
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code.checked_sub(1)?)).copied()
    }
}

/// A request for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpawnRequest {
    pub(super) role: ProcessRole,
    pub(super) process_limits: ProcessLimits,
}

impl SpawnRequest {
    pub(super) fn write(&self, number: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(REQUEST_BYTES);
        bytes.extend(number.to_le_bytes());
        bytes.push(self.role.code());
        self.process_limits.write(&mut bytes);
        bytes
    }

    /// Decodes the number of a request. Decodes the request, too, if the remaining bytes are valid.
    pub(super) fn read(bytes: &[u8]) -> (u64, Option<Self>) {
        let Some((number, rest)) = bytes.split_first_chunk() else { return (0, None) };
        let decode = || {
            let (role, process_limits) = rest.split_first()?;
            Some(Self {
                role: ProcessRole::from_code(*role)?,
                process_limits: ProcessLimits::read(process_limits)?,
            })
        };
        (u64::from_le_bytes(*number), decode())
    }
}

/// A started process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Started {
    pub(super) id: u32,
    pub(super) isolation: Isolation,
}

/// A process that could not be started.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) step: SpawnStep,
    pub(super) error: io::Error,
}

/// The answer to a request.
#[derive(Debug)]
pub(super) struct SpawnReply {
    /// The number of the request; 0 for the spawner's message at its start.
    pub(super) number: u64,
    pub(super) outcome: Result<Started, Failed>,
    /// The id of a process that was killed during its start. The node, its parent, must wait for it.
    pub(super) dead: Option<u32>,
}

impl SpawnReply {
    pub(super) fn write(&self) -> [u8; ANSWER_BYTES] {
        let (kind, isolation, value) = match &self.outcome {
            Ok(Started { id, isolation }) => (STARTED, isolation.bits(), *id),
            Err(Failed { step, error }) => {
                let fallback = match error.kind() {
                    ErrorKind::TimedOut => libc::ETIMEDOUT,
                    ErrorKind::UnexpectedEof => libc::ESRCH,
                    _ => libc::EINVAL,
                };
                (step.code(), 0, error.raw_os_error().unwrap_or(fallback).unsigned_abs())
            }
        };
        let mut bytes = [0; ANSWER_BYTES];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        (bytes[8], bytes[9]) = (kind, isolation);
        bytes[10..14].copy_from_slice(&value.to_le_bytes());
        bytes[14..].copy_from_slice(&self.dead.unwrap_or_default().to_le_bytes());
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (number, rest) = bytes.split_first_chunk::<8>()?;
        let ([kind, isolation], rest) = rest.split_first_chunk::<2>()?;
        let ([value, dead], []) = rest.as_chunks::<4>() else { return None };
        let (value, dead) = (u32::from_le_bytes(*value), u32::from_le_bytes(*dead));
        let outcome = match *kind {
            STARTED => Ok(Started { id: value, isolation: Isolation::from_bits(*isolation) }),
            kind => {
                let error = io::Error::from_raw_os_error(value.cast_signed());
                Err(Failed { step: SpawnStep::from_code(kind)?, error })
            }
        };
        Some(Self { number: u64::from_le_bytes(*number), outcome, dead: (dead > 0).then_some(dead) })
    }
}

/// The reason why a node gets no answer to a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpawnerChannelError {
    /// The spawner has closed its end.
    #[error("it has ended")]
    Closed,
    /// The spawner has not answered in time.
    #[error("it does not answer in time")]
    TimedOut,
    /// The spawner's message is invalid. The channel has been closed.
    #[error("its answer is invalid")]
    InvalidMessage,
    /// The system's error. If sending the request failed, the channel is unchanged.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The node's end of the channel.
#[derive(Debug)]
pub(super) struct SpawnerChannel {
    socket: OwnedFd,
    /// The number of the last request that was sent.
    number: u64,
    /// True if the answer to request `number` has not arrived yet.
    awaits_answer: bool,
}

impl SpawnerChannel {
    /// Creates a channel to a spawner that has not reported its start yet.
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, number: 0, awaits_answer: true }
    }

    /// Waits for the message that a spawner sends at its start. The isolation in the message is that of the processes that
    /// the spawner will start.
    pub(super) fn begin(&mut self, within: Duration) -> Result<Result<Started, Failed>, SpawnerChannelError> {
        self.receive(within)
    }

    /// Sends a request with these descriptors, and waits for its answer for at most `within`. If the answer to the previous
    /// request has not arrived yet, first waits for that answer for at most `late`.
    pub(super) fn request(
        &mut self,
        request: &SpawnRequest,
        streams: &[BorrowedFd<'_>],
        within: Duration,
        late: Duration,
    ) -> Result<Result<Started, Failed>, SpawnerChannelError> {
        if self.awaits_answer
            && let Ok(Started { id, .. }) = self.receive(late)?
        {
            end_unused(id);
        }
        let number = self.number + 1;
        // The socket transfers whole messages only, so after an error here the spawner has received nothing.
        match descriptors::send_now(self.socket.as_fd(), &request.write(number), streams) {
            Err(error) if is_end(&error) => return Err(SpawnerChannelError::Closed),
            sent => sent?,
        }
        (self.number, self.awaits_answer) = (number, true);
        self.receive(within)
    }

    /// Waits for the answer to request `number`, for at most `within`.
    fn receive(&mut self, within: Duration) -> Result<Result<Started, Failed>, SpawnerChannelError> {
        let until = Instant::now() + within;
        loop {
            wait_for(self.socket.as_fd(), until.saturating_duration_since(Instant::now()))?;
            // One more byte than an answer has, so that a longer message is noticed and refused. Descriptors that come
            // with the message are closed.
            let mut bytes = [0; ANSWER_BYTES + 1];
            let len = match descriptors::receive(self.socket.as_fd(), &mut bytes) {
                Ok((0, _)) => return Err(SpawnerChannelError::Closed),
                Ok((len, _)) => len,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_end(&error) => return Err(SpawnerChannelError::Closed),
                Err(error) => return Err(error.into()),
            };
            let Some(answer) = bytes.get(..len).and_then(SpawnReply::read) else {
                self.close();
                return Err(SpawnerChannelError::InvalidMessage);
            };
            answer.dead.into_iter().for_each(end_unused);
            if answer.number == self.number {
                self.awaits_answer = false;
                return Ok(answer.outcome);
            }
            // A smaller number is that of a request that has timed out. A larger number has not been sent yet, so such an
            // answer is invalid.
            match answer.outcome {
                _ if answer.number > self.number => {
                    self.close();
                    return Err(SpawnerChannelError::InvalidMessage);
                }
                Ok(Started { id, .. }) => end_unused(id),
                Err(_) => {}
            }
        }
    }

    /// Shuts the channel down, upon which the spawner ends its processes and exits. Takes no descriptor, so it works in a
    /// process that has none left.
    pub(super) fn close(&self) {
        // SAFETY: takes no pointers; the socket is open as long as this value exists.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

/// Ends a process that no caller uses, because its answer came too late, and waits for its end.
fn end_unused(id: u32) {
    let mut process = Child::from_id(id, Isolation::NONE);
    // The process may have ended already.
    _ = process.kill();
    _ = process.wait();
}

/// Returns true for the errors of a channel whose other end is closed.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected)
}

/// Creates the two ends of a channel that preserves message boundaries.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the pointer is to two live numbers.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both descriptors are new, and have no other owner.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Waits until the socket is readable or closed.
fn wait_for(socket: BorrowedFd<'_>, within: Duration) -> Result<(), SpawnerChannelError> {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let milliseconds = libc::c_int::try_from(left.as_millis()).unwrap_or(libc::c_int::MAX);
        let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the pointer is to one live entry.
        match unsafe { libc::poll(&raw mut poll, 1, milliseconds) } {
            0 => return Err(SpawnerChannelError::TimedOut),
            1.. => return Ok(()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != ErrorKind::Interrupted {
                    return Err(error.into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::CORE_WORDS;
    use std::fs::File;
    use std::io::Read;
    use std::sync::Mutex;

    const SOON: Duration = Duration::from_millis(50);
    const PATIENCE: Duration = Duration::from_secs(60);

    fn request(role: ProcessRole, address_space: u64) -> SpawnRequest {
        let cores = [0; CORE_WORDS];
        let process_limits =
            ProcessLimits { processor: 1, address_space, memory: 3, nice: 4, descriptors: 5, cores };
        SpawnRequest { role, process_limits }
    }

    /// Receives one request at the spawner's end of a channel. Returns its number, the request and its descriptors.
    fn take(theirs: &OwnedFd) -> (u64, SpawnRequest, Vec<OwnedFd>) {
        let mut bytes = [0; REQUEST_BYTES + 1];
        let (len, given) = descriptors::receive(theirs.as_fd(), &mut bytes).unwrap();
        let (number, request) = SpawnRequest::read(&bytes[..len]);
        (number, request.unwrap(), given)
    }

    fn say(theirs: &OwnedFd, number: u64, outcome: Result<Started, Failed>, given: &[BorrowedFd<'_>]) {
        let answer = SpawnReply { number, outcome, dead: None };
        descriptors::send(theirs.as_fd(), &answer.write(), given).unwrap();
    }

    fn started(id: u32) -> Result<Started, Failed> {
        Ok(Started { id, isolation: Isolation::NAMESPACES })
    }

    /// A channel whose spawner has started.
    fn channel() -> (SpawnerChannel, OwnedFd) {
        let (ours, theirs) = pair().unwrap();
        let mut channel = SpawnerChannel::new(ours);
        say(&theirs, 0, started(0), &[]);
        assert_eq!(channel.begin(PATIENCE).unwrap().unwrap().isolation, Isolation::NAMESPACES);
        (channel, theirs)
    }

    #[test]
    fn a_request_names_a_role_and_numbers_and_nothing_else() {
        let asked = request(ProcessRole::Compiler, 1 << 40);
        assert_eq!(SpawnRequest::read(&asked.write(7)), (7, Some(asked)));
        for cut in 0..REQUEST_BYTES {
            assert_eq!(SpawnRequest::read(&asked.write(7)[..cut]).1, None, "{cut}");
        }
        assert_eq!(SpawnRequest::read(&[asked.write(7), vec![0]].concat()), (7, None));
        for role in [u8::try_from(ProcessRole::ALL.len()).unwrap(), 255] {
            let mut bytes = asked.write(7);
            bytes[8] = role;
            assert_eq!(SpawnRequest::read(&bytes), (7, None), "{role}");
        }
    }

    #[test]
    fn an_answer_reads_as_it_was_written() {
        for step in SpawnStep::ALL {
            let outcome = Err(Failed { step, error: io::Error::from_raw_os_error(libc::ENOSPC) });
            let answer = SpawnReply { number: 1 << 40, outcome, dead: Some(9) };
            let read = SpawnReply::read(&answer.write()).unwrap();
            let failed = read.outcome.unwrap_err();
            assert_eq!((read.number, read.dead, failed.step), (1 << 40, Some(9), step));
            assert_eq!(failed.error.raw_os_error(), Some(libc::ENOSPC));
        }
        let mut bytes = SpawnReply { number: 1, outcome: started(5), dead: None }.write();
        assert_eq!(SpawnReply::read(&bytes).unwrap().outcome.unwrap(), started(5).unwrap());
        assert!(SpawnReply::read(&bytes[..ANSWER_BYTES - 1]).is_none());
        bytes[8] = 7;
        assert!(SpawnReply::read(&bytes).is_none(), "a step that there is not");
    }

    #[test]
    fn a_stale_answer_is_skipped_and_its_process_and_descriptors_are_released() {
        let (mut channel, theirs) = channel();
        let process = request(ProcessRole::Module, 1);
        let late = channel.request(&process, &[], SOON, SOON);
        assert!(matches!(late, Err(SpawnerChannelError::TimedOut)), "{late:?}");
        // No further request is sent until its answer has arrived.
        let late = channel.request(&process, &[], SOON, SOON);
        assert!(matches!(late, Err(SpawnerChannelError::TimedOut)), "{late:?}");
        assert_eq!(take(&theirs).0, 1);

        // The answer arrives, with a process and a descriptor.
        let mut process = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (mut reads, writes) = io::pipe().unwrap();
        say(&theirs, 1, started(process.id()), &[writes.as_fd()]);
        drop(writes);
        let spawner = std::thread::spawn(move || {
            let (number, asked, _) = take(&theirs);
            say(&theirs, number, started(4242), &[]);
            (number, asked)
        });
        let own =
            channel.request(&request(ProcessRole::Compiler, 2), &[], PATIENCE, PATIENCE).unwrap().unwrap();
        assert_eq!(own.id, 4242, "the answer to this request");
        assert_eq!(spawner.join().unwrap(), (2, request(ProcessRole::Compiler, 2)), "the next that was sent");
        assert_eq!(reads.read(&mut [0]).unwrap(), 0, "the descriptor is closed");
        assert!(process.wait().is_err(), "the process is dead, and was waited for");
    }

    #[test]
    fn many_threads_get_their_own_answers_while_some_answers_are_late() {
        let (channel, theirs) = channel();
        const THREADS: u64 = 8;
        const EACH: u64 = 25;
        let spawner = std::thread::spawn(move || {
            let mut late = 0;
            loop {
                let mut bytes = [0; REQUEST_BYTES + 1];
                let (len, _) = descriptors::receive(theirs.as_fd(), &mut bytes).unwrap();
                if len == 0 {
                    return late;
                }
                let (number, request) = SpawnRequest::read(&bytes[..len]);
                let asked = request.unwrap().process_limits.address_space;
                if asked % 10 == 3 {
                    late += 1;
                    std::thread::sleep(2 * SOON);
                }
                // No process of the test has this number, so a stale one cannot be ended.
                let error = io::Error::from_raw_os_error(i32::try_from(asked).unwrap());
                say(&theirs, number, Err(Failed { step: SpawnStep::Program, error }), &[]);
            }
        });
        let channel = Mutex::new(channel);
        let ask = |thread: u64| {
            let mut failed = 0;
            for asked in thread * EACH..(thread + 1) * EACH {
                let is_late = asked % 10 == 3;
                let within = if is_late { SOON } else { PATIENCE };
                let answer = channel.lock().unwrap().request(
                    &request(ProcessRole::Module, asked),
                    &[],
                    within,
                    PATIENCE,
                );
                match answer {
                    Ok(outcome) => {
                        let own = outcome.unwrap_err().error.raw_os_error();
                        assert_eq!(own.map(i64::from), i64::try_from(asked).ok(), "its own");
                    }
                    Err(SpawnerChannelError::TimedOut) if is_late => failed += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            failed
        };
        let failed: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || ask(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        drop(channel);
        assert_eq!((failed, spawner.join().unwrap()), (20, 20));
    }

    #[test]
    fn a_request_that_was_not_sent_leaves_the_channel_unchanged() {
        let (mut channel, theirs) = channel();
        let nothing = File::open("/dev/null").unwrap();
        // More descriptors than fit into a message.
        let refused =
            channel.request(&request(ProcessRole::Module, 1), &[nothing.as_fd(); 4], PATIENCE, PATIENCE);
        assert!(matches!(refused, Err(SpawnerChannelError::System(_))), "{refused:?}");
        // A full socket: the filler reaches the spawner, but is no request.
        while descriptors::send_now(channel.socket.as_fd(), &[0; 4096], &[]).is_ok() {}
        let refused = channel.request(&request(ProcessRole::Module, 1), &[], PATIENCE, PATIENCE);
        assert!(matches!(refused, Err(SpawnerChannelError::System(_))), "{refused:?}");
        let mut filled = [0; 4096];
        // SAFETY: takes no pointers.
        unsafe { libc::fcntl(theirs.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        while descriptors::receive(theirs.as_fd(), &mut filled).is_ok() {}
        // SAFETY: takes no pointers.
        unsafe { libc::fcntl(theirs.as_raw_fd(), libc::F_SETFL, 0) };
        let spawner = std::thread::spawn(move || {
            let (number, _, given) = take(&theirs);
            say(&theirs, number, started(7), &[]);
            (number, given.len())
        });
        let own =
            channel.request(&request(ProcessRole::Module, 2), &[nothing.as_fd(); 3], PATIENCE, PATIENCE);
        assert_eq!(own.unwrap().unwrap().id, 7);
        assert_eq!(spawner.join().unwrap(), (1, 3));
    }

    #[test]
    fn invalid_messages_and_the_peers_end_close_the_channel() {
        let early = SpawnReply { number: 9, outcome: started(0), dead: None }.write();
        for bytes in [&[0; 3][..], &[9; ANSWER_BYTES], &[0; ANSWER_BYTES + 1], &early] {
            let (mut channel, theirs) = channel();
            descriptors::send(theirs.as_fd(), bytes, &[]).unwrap();
            let refused = channel.request(&request(ProcessRole::Module, 1), &[], PATIENCE, PATIENCE);
            assert!(matches!(refused, Err(SpawnerChannelError::InvalidMessage)), "{bytes:?}: {refused:?}");
            take(&theirs);
            assert_eq!(
                descriptors::receive(theirs.as_fd(), &mut [0]).unwrap().0,
                0,
                "the spawner sees the end"
            );
        }
        let (mut channel, theirs) = channel();
        drop(theirs);
        for _ in 0..2 {
            let gone = channel.request(&request(ProcessRole::Module, 1), &[], PATIENCE, PATIENCE);
            assert!(matches!(gone, Err(SpawnerChannelError::Closed)), "{gone:?}");
        }
    }
}
