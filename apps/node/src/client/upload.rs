//! Uploads a file in parts. After a broken connection the upload resumes over a new one.

use super::reconnect::{Pauses, reconnect};
use super::{Client, ClientError, reply_kind};
use crate::control::protocol::{ControlRequest, FilePart, PART_BYTES_MAX, Reply};
use std::io::{Read, Write};
use std::time::Duration;
use weir_remote::ConnectError;
use weir_trust::grant::ModuleHash;

/// The maximum number of parts that the node did not accept, or lost after it had received them.
const LOST_MAX: u32 = 8;

/// A step of an upload, for the display of its progress.
#[derive(Debug)]
pub enum UploadStep<'a> {
    /// The node has received a part.
    Progress {
        /// The number of received bytes.
        bytes: usize,
        /// The length of the file.
        total: usize,
    },
    /// The connection has failed.
    Disconnected {
        /// The error of the connection.
        why: &'a ClientError,
        /// The pause until the next connection.
        pause: Duration,
    },
    /// The node has lost received bytes, as after a restart, and the upload continues from an earlier position.
    Restarted {
        /// The number of bytes that the node had received before.
        received_before: usize,
    },
}

/// A file to upload.
#[derive(Debug)]
pub struct Upload<'a> {
    bytes: &'a [u8],
    hash: ModuleHash,
}

/// Returns true if another connection may succeed; false, for example, if the node has another key than expected.
fn is_transient(error: &ClientError) -> bool {
    error.is_unreachable() && !matches!(error, ClientError::Remote(ConnectError::Handshake(_)))
}

impl<'a> Upload<'a> {
    /// Creates the upload of a file. Returns `None` if the file is short enough to be the body of one request.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len() > PART_BYTES_MAX).then(|| Self { bytes, hash: ModuleHash::of_bytes(bytes) })
    }

    /// Returns the hash by which a request names the uploaded file.
    pub fn hash(&self) -> ModuleHash {
        self.hash
    }

    /// Uploads the parts that the node does not have yet. Returns the last connection, for the request that uses the file.
    /// `sleep` waits before each new connection, and `report` is called for each step.
    ///
    /// # Errors
    /// The node cannot be reached for minutes, or refuses the file.
    pub fn send<S: Read + Write>(
        &self,
        connect: &mut dyn FnMut() -> Result<Client<S>, ClientError>,
        sleep: &mut dyn FnMut(Duration),
        report: &mut dyn FnMut(UploadStep<'_>),
    ) -> Result<Client<S>, ClientError> {
        let (mut client, mut pauses) = (connect()?, Pauses::default());
        // The number of bytes that the node has, if known on this connection; its last known value; and the number of
        // parts that were lost.
        let (mut received, mut last, mut lost) = (None, 0, 0);
        loop {
            match self.send_part(&mut client, received) {
                Ok(now) => {
                    if now < last {
                        report(UploadStep::Restarted { received_before: last });
                    }
                    if now > last {
                        pauses = Pauses::default();
                    } else if received.is_some() || now < last {
                        lost += 1;
                    }
                    if lost > LOST_MAX {
                        return Err(ClientError::Lost);
                    }
                    last = now;
                    report(UploadStep::Progress { bytes: now, total: self.bytes.len() });
                    if now >= self.bytes.len() {
                        return Ok(client);
                    }
                    received = Some(now);
                }
                Err(error) if is_transient(&error) => {
                    let mut report =
                        |why: &ClientError, pause| report(UploadStep::Disconnected { why, pause });
                    client = reconnect(connect, sleep, &mut report, is_transient, error, &mut pauses)?;
                    received = None;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends the part that begins at `from`. For `None`, sends an empty part, to learn what the node has. Returns the number
    /// of bytes that the node has received.
    fn send_part<S: Read + Write>(
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
            other => Err(ClientError::UnexpectedReply(reply_kind(&other))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reconnect::PAUSES_TOTAL_MAX;
    use super::*;
    use crate::control::protocol::{RequestLine, Response, VERSION};
    use crate::server::uploads::Uploads;
    use std::cell::RefCell;
    use std::io;
    use std::rc::Rc;
    use std::time::Instant;

    /// A simulated node. Each connection fails after a number of bytes from `breaks`, taken from the end.
    #[derive(Default)]
    struct Node {
        uploads: RefCell<Uploads>,
        breaks: RefCell<Vec<usize>>,
        /// The number of further connections before each of which the node loses all files.
        forgets: RefCell<u32>,
    }

    struct Connection {
        node: Rc<Node>,
        left: usize,
        received: Vec<u8>,
        answers: Vec<u8>,
    }

    impl Connection {
        fn answer(&mut self) {
            let Some(end) = self.received.iter().position(|byte| *byte == b'\n') else { return };
            let message: RequestLine = serde_json::from_slice(&self.received[..end]).unwrap();
            let whole = end + 1 + message.body as usize;
            let Some(body) = self.received.get(end + 1..whole) else { return };
            let ControlRequest::Upload(part) = message.request else { panic!("{message:?}") };
            let reply = match self.node.uploads.borrow().add_part(&[], &part, body, Instant::now()) {
                Ok(bytes) => Reply::Uploaded { bytes },
                Err(error) => Reply::Refused { why: error.to_string() },
            };
            self.answers.extend(serde_json::to_vec(&Response { weir: VERSION, reply }).unwrap());
            self.answers.push(b'\n');
            self.received.drain(..whole);
        }
    }

    impl Write for Connection {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.left);
            self.left -= taken;
            self.received.extend(&bytes[..taken]);
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
        let (received, answers) = (Vec::new(), Vec::new());
        Ok(Client::new(Connection { node: Rc::clone(node), left, received, answers }))
    }

    /// Uploads a file. Returns the result, the reported steps and the pauses.
    fn send(node: &Rc<Node>, file: &[u8]) -> (Result<(), ClientError>, Vec<String>, Vec<Duration>) {
        let (mut told, mut pauses) = (Vec::new(), Vec::new());
        let upload = Upload::new(file).unwrap();
        let sent = upload.send(&mut || connect(node), &mut |pause| pauses.push(pause), &mut |step| {
            told.push(match step {
                UploadStep::Progress { bytes, total } => format!("{bytes} of {total}"),
                UploadStep::Disconnected { .. } => "broken".to_owned(),
                UploadStep::Restarted { received_before } => format!("anew after {received_before}"),
            });
        });
        (sent.map(|_| ()), told, pauses)
    }

    fn long() -> Vec<u8> {
        (0..PART_BYTES_MAX * 5 / 2).map(|at| u8::try_from(at % 253).unwrap()).collect()
    }

    #[test]
    fn a_short_file_is_a_requests_body_and_a_long_one_is_uploaded_in_parts() {
        assert!(Upload::new(&vec![0; PART_BYTES_MAX]).is_none());
        let (node, file) = (Rc::new(Node::default()), long());
        let (sent, told, pauses) = send(&node, &file);
        sent.unwrap();
        assert_eq!(
            told,
            ["0 of 655360", "262144 of 655360", "524288 of 655360", "655360 of 655360"],
            "an answer for each part"
        );
        assert!(pauses.is_empty());
        let hash = ModuleHash::of_bytes(&file);
        assert_eq!(*node.uploads.borrow().complete_file(&[], &hash, Instant::now()).unwrap(), file);
        // A file that the node has is not sent again.
        assert_eq!(send(&node, &file).1, ["655360 of 655360"]);
    }

    #[test]
    fn an_upload_resumes_wherever_the_connection_breaks() {
        let file = long();
        // In a line, in a part, before a reply, or in a reply.
        for at in (0..PART_BYTES_MAX * 3).step_by(9973) {
            let node = Rc::new(Node { breaks: vec![usize::MAX, at].into(), ..Node::default() });
            let (sent, told, _) = send(&node, &file);
            sent.unwrap();
            let hash = ModuleHash::of_bytes(&file);
            assert_eq!(
                *node.uploads.borrow().complete_file(&[], &hash, Instant::now()).unwrap(),
                file,
                "{at}"
            );
            assert!(!told.iter().any(|step| step.starts_with("anew")), "{at}: {told:?}");
        }
    }

    #[test]
    fn pauses_grow_until_there_is_progress_and_end_without_it() {
        // One part arrives, and then some connections fail.
        let enough = PART_BYTES_MAX + 1000;
        let node = Node { breaks: vec![enough, 0, 0, 0, enough, 0, 0, enough].into(), ..Node::default() };
        let (sent, _, pauses) = send(&Rc::new(node), &long());
        sent.unwrap();
        let millis: Vec<u128> = pauses.iter().map(Duration::as_millis).collect();
        assert_eq!(
            millis,
            [200, 400, 800, 200, 400, 800, 1600],
            "the pauses start again after each part that arrived"
        );
        let node = Node { breaks: vec![0; 1000].into(), ..Node::default() };
        let (sent, _, pauses) = send(&Rc::new(node), &long());
        assert!(matches!(sent, Err(ClientError::Gone)));
        assert!(pauses.iter().sum::<Duration>() <= PAUSES_TOTAL_MAX && pauses.len() > 10, "{pauses:?}");
    }

    #[test]
    fn a_file_that_the_node_has_lost_is_sent_again_a_limited_number_of_times() {
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
