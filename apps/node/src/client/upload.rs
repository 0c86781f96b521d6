//! A file that is too long for one message, in parts: who sends it goes on where it is, also over another connection.

use super::{Client, ClientError, kind};
use crate::control::protocol::{ControlRequest, FilePart, PART_BYTES_MAX, Reply};
use std::io::{Read, Write};
use std::time::Duration;
use weir_remote::ConnectError;
use weir_trust::grant::ModuleHash;

/// How long is waited before the first new connection; each time it is twice as long,
const PAUSE: Duration = Duration::from_millis(200);
/// up to this.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long is waited in all without getting any further.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often a node may have less than it had, or not take what it should.
const LOST_MAX: u32 = 8;

/// What happens to a file on its way, for whoever waits.
#[derive(Debug)]
pub enum UploadStep<'a> {
    /// So much is there.
    There {
        /// Bytes,
        bytes: usize,
        /// of so many.
        of: usize,
    },
    /// The connection broke.
    Broken {
        /// How.
        why: &'a ClientError,
        /// There will be another one after this.
        pause: Duration,
    },
    /// The node has less of it than it had, as after a start: it is sent again from there on.
    Anew {
        /// So much was there.
        had: usize,
    },
}

/// A file to send.
#[derive(Debug)]
pub struct Upload<'a> {
    bytes: &'a [u8],
    hash: ModuleHash,
}

/// The times to wait for another connection.
#[derive(Debug)]
struct Pauses {
    next: Duration,
    left: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: PAUSE, left: PATIENCE }
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next;
        self.left = self.left.checked_sub(pause)?;
        self.next = (pause * 2).min(PAUSE_MAX);
        Some(pause)
    }
}

/// Whether it is the connection that failed, so that another one may do. Not so where the node is another one than it should be.
fn may_pass(error: &ClientError) -> bool {
    error.is_absence() && !matches!(error, ClientError::Remote(ConnectError::Handshake(_)))
}

impl<'a> Upload<'a> {
    /// Of these bytes; nothing where they are few enough to go with a request.
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len() > PART_BYTES_MAX).then(|| Self { bytes, hash: ModuleHash::of(bytes) })
    }

    /// What a request calls it by that is about it.
    pub fn hash(&self) -> ModuleHash {
        self.hash
    }

    /// Sends what is not there yet. Gives back a connection, after as many as it took; it waits by `sleep` before each new one.
    ///
    /// # Errors
    /// It cannot be reached, also in a while, or does not take it.
    pub fn send<S: Read + Write>(
        &self,
        connect: &mut dyn FnMut() -> Result<Client<S>, ClientError>,
        sleep: &mut dyn FnMut(Duration),
        tell: &mut dyn FnMut(UploadStep<'_>),
    ) -> Result<Client<S>, ClientError> {
        let (mut client, mut pauses) = (connect()?, Pauses::default());
        // What is there as far as is known, and the most that was.
        let (mut there, mut most, mut lost) = (None, 0, 0);
        loop {
            match self.part(&mut client, there) {
                Ok(now) => {
                    if now < most {
                        tell(UploadStep::Anew { had: most });
                    }
                    if now > most {
                        pauses = Pauses::default();
                    } else if there.is_some() || now < most {
                        lost += 1;
                    }
                    if lost > LOST_MAX {
                        return Err(ClientError::Lost);
                    }
                    most = now;
                    tell(UploadStep::There { bytes: now, of: self.bytes.len() });
                    if now >= self.bytes.len() {
                        return Ok(client);
                    }
                    there = Some(now);
                }
                Err(error) if may_pass(&error) => {
                    client = again(connect, sleep, tell, error, &mut pauses)?;
                    there = None;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends the part that begins there; where that is not known, it asks. How much is there then.
    fn part<S: Read + Write>(
        &self,
        client: &mut Client<S>,
        from: Option<usize>,
    ) -> Result<usize, ClientError> {
        let rest = from.and_then(|from| self.bytes.get(from..)).unwrap_or_default();
        let bytes = rest.get(..PART_BYTES_MAX).unwrap_or(rest);
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let part =
            FilePart { file: self.hash, bytes: number(self.bytes.len()), from: number(from.unwrap_or(0)) };
        client.send(ControlRequest::Upload(part), bytes)?;
        match client.receive()? {
            Reply::Uploaded { bytes } => Ok(usize::try_from(bytes).unwrap_or(usize::MAX)),
            other => Err(ClientError::Other(kind(&other))),
        }
    }
}

/// Another connection.
fn again<S>(
    connect: &mut dyn FnMut() -> Result<Client<S>, ClientError>,
    sleep: &mut dyn FnMut(Duration),
    tell: &mut dyn FnMut(UploadStep<'_>),
    mut why: ClientError,
    pauses: &mut Pauses,
) -> Result<Client<S>, ClientError> {
    loop {
        let Some(pause) = pauses.next() else { return Err(why) };
        tell(UploadStep::Broken { why: &why, pause });
        sleep(pause);
        match connect() {
            Err(error) if may_pass(&error) => why = error,
            connected => return connected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::{Ask, Response, VERSION};
    use crate::server::uploads::Uploads;
    use std::cell::RefCell;
    use std::io;
    use std::rc::Rc;
    use std::time::Instant;

    /// A node that takes parts, and its connections, each of which breaks after so many bytes.
    #[derive(Default)]
    struct Node {
        uploads: RefCell<Uploads>,
        breaks: RefCell<Vec<usize>>,
        /// It starts anew after each of so many connections.
        forgets: RefCell<u32>,
    }

    struct Connection {
        node: Rc<Node>,
        left: usize,
        asked: Vec<u8>,
        answers: Vec<u8>,
    }

    impl Connection {
        fn answer(&mut self) {
            let Some(end) = self.asked.iter().position(|byte| *byte == b'\n') else { return };
            let ask: Ask = serde_json::from_slice(&self.asked[..end]).unwrap();
            let whole = end + 1 + ask.body as usize;
            let Some(body) = self.asked.get(end + 1..whole) else { return };
            let ControlRequest::Upload(part) = ask.ask else { panic!("{ask:?}") };
            let reply = match self.node.uploads.borrow().take(&[], &part, body, Instant::now()) {
                Ok(bytes) => Reply::Uploaded { bytes },
                Err(error) => Reply::Refused { why: error.to_string() },
            };
            self.answers.extend(serde_json::to_vec(&Response { weir: VERSION, reply }).unwrap());
            self.answers.push(b'\n');
            self.asked.drain(..whole);
        }
    }

    impl Write for Connection {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.left);
            self.left -= taken;
            self.asked.extend(&bytes[..taken]);
            self.answer();
            if taken == 0 { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(taken) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Connection {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let taken = to.len().min(self.left).min(self.answers.len());
            self.left -= taken;
            to[..taken].copy_from_slice(&self.answers[..taken]);
            self.answers.drain(..taken);
            Ok(taken)
        }
    }

    fn connect(node: &Rc<Node>) -> Result<Client<Connection>, ClientError> {
        let mut forgets = node.forgets.borrow_mut();
        if *forgets > 0 {
            *forgets -= 1;
            node.uploads.take();
        }
        let left = node.breaks.borrow_mut().pop().unwrap_or(usize::MAX);
        let (asked, answers) = (Vec::new(), Vec::new());
        Ok(Client::over(Connection { node: Rc::clone(node), left, asked, answers }))
    }

    /// What was told, and all that was waited.
    fn send(node: &Rc<Node>, file: &[u8]) -> (Result<(), ClientError>, Vec<String>, Vec<Duration>) {
        let (mut told, mut pauses) = (Vec::new(), Vec::new());
        let upload = Upload::of(file).unwrap();
        let sent = upload.send(&mut || connect(node), &mut |pause| pauses.push(pause), &mut |step| {
            told.push(match step {
                UploadStep::There { bytes, of } => format!("{bytes} of {of}"),
                UploadStep::Broken { .. } => "broken".to_owned(),
                UploadStep::Anew { had } => format!("anew after {had}"),
            });
        });
        (sent.map(|_| ()), told, pauses)
    }

    fn long() -> Vec<u8> {
        (0..PART_BYTES_MAX * 5 / 2).map(|at| u8::try_from(at % 253).unwrap()).collect()
    }

    #[test]
    fn what_is_short_goes_with_its_request_and_what_is_long_in_parts() {
        assert!(Upload::of(&vec![0; PART_BYTES_MAX]).is_none());
        let (node, file) = (Rc::new(Node::default()), long());
        let (sent, told, pauses) = send(&node, &file);
        sent.unwrap();
        assert_eq!(
            told,
            ["0 of 655360", "262144 of 655360", "524288 of 655360", "655360 of 655360"],
            "an answer for each part"
        );
        assert!(pauses.is_empty());
        let hash = ModuleHash::of(&file);
        assert_eq!(*node.uploads.borrow().file(&[], &hash, Instant::now()).unwrap(), file);
        // It is there: nothing is sent again.
        assert_eq!(send(&node, &file).1, ["655360 of 655360"]);
    }

    #[test]
    fn wherever_the_connection_breaks_it_goes_on_where_it_was() {
        let file = long();
        // In the middle of a line, of a part, before an answer, in it: wherever.
        for at in (0..PART_BYTES_MAX * 3).step_by(9973) {
            let node = Rc::new(Node { breaks: vec![usize::MAX, at].into(), ..Node::default() });
            let (sent, told, _) = send(&node, &file);
            sent.unwrap();
            let hash = ModuleHash::of(&file);
            assert_eq!(*node.uploads.borrow().file(&[], &hash, Instant::now()).unwrap(), file, "{at}");
            assert!(!told.iter().any(|step| step.starts_with("anew")), "{at}: {told:?}");
        }
    }

    #[test]
    fn pauses_grow_and_end_unless_it_gets_further() {
        // Each time one part arrives, and then nothing for a while.
        let enough = PART_BYTES_MAX + 1000;
        let node = Node { breaks: vec![enough, 0, 0, 0, enough, 0, 0, enough].into(), ..Node::default() };
        let (sent, _, pauses) = send(&Rc::new(node), &long());
        sent.unwrap();
        let millis: Vec<u128> = pauses.iter().map(Duration::as_millis).collect();
        assert_eq!(
            millis,
            [200, 400, 800, 200, 400, 800, 1600],
            "from the beginning after each that arrived"
        );
        let node = Node { breaks: vec![0; 1000].into(), ..Node::default() };
        let (sent, _, pauses) = send(&Rc::new(node), &long());
        assert!(matches!(sent, Err(ClientError::Gone)));
        assert!(pauses.iter().sum::<Duration>() <= PATIENCE && pauses.len() > 10, "{pauses:?}");
    }

    #[test]
    fn a_node_that_has_forgotten_it_gets_it_again_but_not_for_ever() {
        let enough = PART_BYTES_MAX + 1000;
        let breaks = |count| vec![enough; count].into();
        let node = Node { breaks: breaks(1), forgets: 3.into(), ..Node::default() };
        let (sent, told, _) = send(&Rc::new(node), &long());
        sent.unwrap();
        assert_eq!(told[..4], ["0 of 655360", "262144 of 655360", "broken", "anew after 262144"]);
        let node = Node { breaks: breaks(1000), forgets: 1000.into(), ..Node::default() };
        assert!(matches!(send(&Rc::new(node), &long()).0, Err(ClientError::Lost)));
    }
}
