//! The line between a node and its spawner: requests and answers, each with the number of its request.
//!
//! A request that times out leaves its answer owed. The node asks for nothing more until that answer has come, and ends the process that it names: nothing uses it.
//! So no answer is taken for that to another request, and a failed request costs the line nothing.

use super::ProcessRole;
use crate::launch::{Allotment, Child};
use crate::{Isolation, descriptors};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The bytes of a request: its number, a role and an allotment.
pub(super) const REQUEST_BYTES: usize = 8 + 1 + Allotment::BYTES;
/// The bytes of an answer: the number of its request, a kind, walls, a process or an error of the system, and a process that is dead.
pub(super) const ANSWER_BYTES: usize = 8 + 1 + 1 + 4 + 4;
/// The kind of an answer that names a process. Others are the number of the step that failed.
const STARTED: u8 = 0;

/// The step of a start that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpawnStep {
    /// The request is read.
    Request,
    /// A number is chosen.
    Number,
    /// The control group is made.
    Group,
    /// The process is made, with its namespaces.
    Process,
    /// Its user is mapped.
    User,
    /// The program is executed.
    Program,
}

impl SpawnStep {
    const ALL: [Self; 6] =
        [Self::Request, Self::Number, Self::Group, Self::Process, Self::User, Self::Program];

    pub(super) fn number(self) -> u8 {
        let at = Self::ALL.iter().position(|step| *step == self).unwrap_or_default();
        u8::try_from(at).unwrap_or_default() + 1
    }

    pub(super) fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number.checked_sub(1)?)).copied()
    }
}

/// A request for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpawnRequest {
    pub(super) role: ProcessRole,
    pub(super) allotment: Allotment,
}

impl SpawnRequest {
    pub(super) fn write(&self, number: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(REQUEST_BYTES);
        bytes.extend(number.to_le_bytes());
        bytes.push(self.role.number());
        self.allotment.write(&mut bytes);
        bytes
    }

    /// The number of a request, and the request, where these bytes are one.
    pub(super) fn read(bytes: &[u8]) -> (u64, Option<Self>) {
        let Some((number, rest)) = bytes.split_first_chunk() else { return (0, None) };
        let read = || {
            let (role, allotment) = rest.split_first()?;
            Some(Self { role: ProcessRole::of_number(*role)?, allotment: Allotment::read(allotment)? })
        };
        (u64::from_le_bytes(*number), read())
    }
}

/// A process that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Started {
    pub(super) id: u32,
    pub(super) isolation: Isolation,
}

/// A process that was not started.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) step: SpawnStep,
    pub(super) error: io::Error,
}

/// The answer to a request.
#[derive(Debug)]
pub(super) struct SpawnReply {
    /// The number of the request; 0 for what a spawner says when it begins.
    pub(super) number: u64,
    pub(super) outcome: Result<Started, Failed>,
    /// A process that was killed as it was started. Its parent has to wait for it.
    pub(super) dead: Option<u32>,
}

impl SpawnReply {
    pub(super) fn write(&self) -> [u8; ANSWER_BYTES] {
        let (kind, walls, value) = match &self.outcome {
            Ok(Started { id, isolation }) => (STARTED, isolation.bits(), *id),
            Err(Failed { step, error }) => {
                let by_kind = match error.kind() {
                    ErrorKind::TimedOut => libc::ETIMEDOUT,
                    ErrorKind::UnexpectedEof => libc::ESRCH,
                    _ => libc::EINVAL,
                };
                (step.number(), 0, error.raw_os_error().unwrap_or(by_kind).unsigned_abs())
            }
        };
        let mut bytes = [0; ANSWER_BYTES];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        (bytes[8], bytes[9]) = (kind, walls);
        bytes[10..14].copy_from_slice(&value.to_le_bytes());
        bytes[14..].copy_from_slice(&self.dead.unwrap_or_default().to_le_bytes());
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (number, rest) = bytes.split_first_chunk::<8>()?;
        let ([kind, walls], rest) = rest.split_first_chunk::<2>()?;
        let ([value, dead], []) = rest.as_chunks::<4>() else { return None };
        let (value, dead) = (u32::from_le_bytes(*value), u32::from_le_bytes(*dead));
        let outcome = match *kind {
            STARTED => Ok(Started { id: value, isolation: Isolation::from_bits(*walls) }),
            kind => {
                let error = io::Error::from_raw_os_error(value.cast_signed());
                Err(Failed { step: SpawnStep::of_number(kind)?, error })
            }
        };
        Some(Self { number: u64::from_le_bytes(*number), outcome, dead: (dead > 0).then_some(dead) })
    }
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpawnerChannelError {
    /// The spawner has closed its end.
    #[error("it has ended")]
    Gone,
    /// It has not answered in time.
    #[error("it does not answer in time")]
    Late,
    /// It said something that is no answer. The line is closed.
    #[error("it says what is no answer")]
    Nonsense,
    /// The system refuses. A request that was not sent is not owed.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The node's end of the line.
#[derive(Debug)]
pub(super) struct SpawnerChannel {
    socket: OwnedFd,
    /// The number of the last request that was sent.
    number: u64,
    /// Its answer has not come yet.
    is_owed: bool,
}

impl SpawnerChannel {
    /// The line to a spawner that has yet to say that it has begun.
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, number: 0, is_owed: true }
    }

    /// Waits for the beginning: the walls that there can be.
    pub(super) fn begin(&mut self, within: Duration) -> Result<Result<Started, Failed>, SpawnerChannelError> {
        self.hear(within)
    }

    /// Sends a request with these descriptors, and waits for its answer. An answer that is owed from before is waited for first, for as long as `late`.
    pub(super) fn ask(
        &mut self,
        request: &SpawnRequest,
        given: &[BorrowedFd<'_>],
        within: Duration,
        late: Duration,
    ) -> Result<Result<Started, Failed>, SpawnerChannelError> {
        if self.is_owed
            && let Ok(Started { id, .. }) = self.hear(late)?
        {
            end(id);
        }
        let number = self.number + 1;
        // What fails here was not sent: a message is sent as a whole.
        match descriptors::send_now(self.socket.as_fd(), &request.write(number), given) {
            Err(error) if is_end(&error) => return Err(SpawnerChannelError::Gone),
            sent => sent?,
        }
        (self.number, self.is_owed) = (number, true);
        self.hear(within)
    }

    /// Waits for the answer that is owed.
    fn hear(&mut self, within: Duration) -> Result<Result<Started, Failed>, SpawnerChannelError> {
        let until = Instant::now() + within;
        loop {
            wait_for(self.socket.as_fd(), until.saturating_duration_since(Instant::now()))?;
            // One more byte, for which an answer is refused. Descriptors that come with it are closed.
            let mut bytes = [0; ANSWER_BYTES + 1];
            let len = match descriptors::receive(self.socket.as_fd(), &mut bytes) {
                Ok((0, _)) => return Err(SpawnerChannelError::Gone),
                Ok((len, _)) => len,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_end(&error) => return Err(SpawnerChannelError::Gone),
                Err(error) => return Err(error.into()),
            };
            let Some(answer) = bytes.get(..len).and_then(SpawnReply::read) else {
                self.close();
                return Err(SpawnerChannelError::Nonsense);
            };
            answer.dead.into_iter().for_each(end);
            if answer.number == self.number {
                self.is_owed = false;
                return Ok(answer.outcome);
            }
            // An answer to an earlier request is stale. One to a later request cannot be.
            match answer.outcome {
                _ if answer.number > self.number => {
                    self.close();
                    return Err(SpawnerChannelError::Nonsense);
                }
                Ok(Started { id, .. }) => end(id),
                Err(_) => {}
            }
        }
    }

    /// Closes the line, for which no descriptor is needed. A spawner ends by that, in order.
    pub(super) fn close(&self) {
        // SAFETY: takes no pointers; the socket is open as long as this is there.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

/// Ends a process that nothing uses.
fn end(id: u32) {
    let mut process = Child::of(id, Isolation::NONE);
    // It may be dead.
    _ = process.kill();
    _ = process.wait();
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected)
}

/// Two ends of a line that keeps messages apart.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the pointer is to two live numbers.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both are new, and of no other owner.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Waits until there is something to read.
fn wait_for(socket: BorrowedFd<'_>, within: Duration) -> Result<(), SpawnerChannelError> {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let milliseconds = libc::c_int::try_from(left.as_millis()).unwrap_or(libc::c_int::MAX);
        let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the pointer is to one live entry.
        match unsafe { libc::poll(&raw mut poll, 1, milliseconds) } {
            0 => return Err(SpawnerChannelError::Late),
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

    fn request(role: ProcessRole, addresses: u64) -> SpawnRequest {
        let cores = [0; CORE_WORDS];
        let allotment = Allotment { processor: 1, addresses, memory: 3, nice: 4, descriptors: 5, cores };
        SpawnRequest { role, allotment }
    }

    /// The spawner's end: it takes one request, with its number.
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

    /// A line whose spawner has begun.
    fn line() -> (SpawnerChannel, OwnedFd) {
        let (ours, theirs) = pair().unwrap();
        let mut line = SpawnerChannel::new(ours);
        say(&theirs, 0, started(0), &[]);
        assert_eq!(line.begin(PATIENCE).unwrap().unwrap().isolation, Isolation::NAMESPACES);
        (line, theirs)
    }

    #[test]
    fn a_request_names_a_role_and_numbers_and_nothing_else() {
        let asked = request(ProcessRole::Compiler, 1 << 40);
        assert_eq!(SpawnRequest::read(&asked.write(7)), (7, Some(asked)));
        for cut in 0..REQUEST_BYTES {
            assert_eq!(SpawnRequest::read(&asked.write(7)[..cut]).1, None, "{cut}");
        }
        assert_eq!(SpawnRequest::read(&[asked.write(7), vec![0]].concat()), (7, None));
        for role in [3, 255] {
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
    fn a_stale_answer_is_skipped_and_what_comes_with_it_is_ended_and_closed() {
        let (mut line, theirs) = line();
        let ward = request(ProcessRole::Module, 1);
        let late = line.ask(&ward, &[], SOON, SOON);
        assert!(matches!(late, Err(SpawnerChannelError::Late)), "{late:?}");
        // Until its answer comes nothing more is asked.
        let late = line.ask(&ward, &[], SOON, SOON);
        assert!(matches!(late, Err(SpawnerChannelError::Late)), "{late:?}");
        assert_eq!(take(&theirs).0, 1);

        // Now it comes, with a process and a descriptor.
        let mut process = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (mut reads, writes) = io::pipe().unwrap();
        say(&theirs, 1, started(process.id()), &[writes.as_fd()]);
        drop(writes);
        let spawner = std::thread::spawn(move || {
            let (number, asked, _) = take(&theirs);
            say(&theirs, number, started(4242), &[]);
            (number, asked)
        });
        let own = line.ask(&request(ProcessRole::Compiler, 2), &[], PATIENCE, PATIENCE).unwrap().unwrap();
        assert_eq!(own.id, 4242, "the answer to this request");
        assert_eq!(spawner.join().unwrap(), (2, request(ProcessRole::Compiler, 2)), "the next that was sent");
        assert_eq!(reads.read(&mut [0]).unwrap(), 0, "the descriptor is closed");
        assert!(process.wait().is_err(), "the process is dead, and was waited for");
    }

    #[test]
    fn many_threads_get_their_own_answers_while_some_answers_are_late() {
        let (line, theirs) = line();
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
                let asked = request.unwrap().allotment.addresses;
                if asked % 10 == 3 {
                    late += 1;
                    std::thread::sleep(2 * SOON);
                }
                // No process of this number is the test's own, so a stale one cannot be ended.
                let error = io::Error::from_raw_os_error(i32::try_from(asked).unwrap());
                say(&theirs, number, Err(Failed { step: SpawnStep::Program, error }), &[]);
            }
        });
        let line = Mutex::new(line);
        let ask = |thread: u64| {
            let mut failed = 0;
            for asked in thread * EACH..(thread + 1) * EACH {
                let is_late = asked % 10 == 3;
                let within = if is_late { SOON } else { PATIENCE };
                let answer =
                    line.lock().unwrap().ask(&request(ProcessRole::Module, asked), &[], within, PATIENCE);
                match answer {
                    Ok(outcome) => {
                        let own = outcome.unwrap_err().error.raw_os_error();
                        assert_eq!(own.map(i64::from), i64::try_from(asked).ok(), "its own");
                    }
                    Err(SpawnerChannelError::Late) if is_late => failed += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            failed
        };
        let failed: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || ask(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        drop(line);
        assert_eq!((failed, spawner.join().unwrap()), (20, 20));
    }

    #[test]
    fn a_request_that_was_not_sent_leaves_the_line_as_it_is() {
        let (mut line, theirs) = line();
        let nothing = File::open("/dev/null").unwrap();
        // More descriptors than go with a message.
        let refused = line.ask(&request(ProcessRole::Module, 1), &[nothing.as_fd(); 4], PATIENCE, PATIENCE);
        assert!(matches!(refused, Err(SpawnerChannelError::System(_))), "{refused:?}");
        // No room in the socket: what fills it is in the spawner's way and not in the line's account.
        while descriptors::send_now(line.socket.as_fd(), &[0; 4096], &[]).is_ok() {}
        let refused = line.ask(&request(ProcessRole::Module, 1), &[], PATIENCE, PATIENCE);
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
        let own = line.ask(&request(ProcessRole::Module, 2), &[nothing.as_fd(); 3], PATIENCE, PATIENCE);
        assert_eq!(own.unwrap().unwrap().id, 7);
        assert_eq!(spawner.join().unwrap(), (1, 3));
    }

    #[test]
    fn nonsense_and_an_end_close_the_line() {
        let early = SpawnReply { number: 9, outcome: started(0), dead: None }.write();
        for bytes in [&[0; 3][..], &[9; ANSWER_BYTES], &[0; ANSWER_BYTES + 1], &early] {
            let (mut line, theirs) = line();
            descriptors::send(theirs.as_fd(), bytes, &[]).unwrap();
            let refused = line.ask(&request(ProcessRole::Module, 1), &[], PATIENCE, PATIENCE);
            assert!(matches!(refused, Err(SpawnerChannelError::Nonsense)), "{bytes:?}: {refused:?}");
            take(&theirs);
            assert_eq!(
                descriptors::receive(theirs.as_fd(), &mut [0]).unwrap().0,
                0,
                "the spawner sees the end"
            );
        }
        let (mut line, theirs) = line();
        drop(theirs);
        for _ in 0..2 {
            let gone = line.ask(&request(ProcessRole::Module, 1), &[], PATIENCE, PATIENCE);
            assert!(matches!(gone, Err(SpawnerChannelError::Gone)), "{gone:?}");
        }
    }
}
