//! A node's client, over the node's local socket or the network.
//!
//! The protocol is that of [`crate::control::protocol`]. [`encode`] and [`decode`] are pure functions; [`Client`] connects
//! them to a stream. [`Upload`] sends a long file in parts, and [`RecordsFetch`] fetches one.

mod delivery;
pub mod followed;
pub mod rates;
mod reconnect;
mod records;
mod upload;
pub mod watch;

pub use delivery::deliver_list;
pub use records::{
    LISTED_FILES_MAX, ListedRecords, RecordsFetch, RecordsFetchError, RecordsFetched, RecordsList,
};
pub use upload::{Upload, UploadStep};

use crate::control::protocol::{
    ANSWER_BYTES_MAX, ControlRequest, LINE_BYTES_MAX, Reply, RequestLine, Response, VERSION, body_of,
};
use serde::Deserialize;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_remote::{ConnectError, SecureStream};
use weir_trust::association::HandshakeError;
use weir_trust::grant::ModuleHash;
use weir_trust::key::{Identity, PublicKey};
use weir_units::{Bytes, Escape as _, display_among, escaped};

/// The default path of a node's local socket.
pub const SOCKET: &str = "/run/weir/node.sock";
/// The timeout for a reply. It is long, since closing a session waits for its modules, and loading a module waits for the
/// compiler.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout for connecting to a remote node, with the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The first pause before a refused connection is retried. Each pause is twice as long as the one before, up to
/// [`RETRY_PAUSE_MAX`].
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause before a refused connection is retried.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// The default TCP port of a remote node.
pub const PORT: u16 = 7353;

/// The maximum length of a request's line.
const LINE_MAX: Bytes = Bytes(LINE_BYTES_MAX as u64);

/// The error of a request, or of a connection to a node.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No node listens at the socket.
    #[error(
        "no node listens at {}: start one with `weir node -c node.toml`, or name a running node's socket with --socket PATH (or WEIR_SOCKET)",
        .0.escaped()
    )]
    NoNode(PathBuf),
    /// The socket's permissions do not admit this user.
    #[error("you may not connect to the node at {}: {who} may", .socket.escaped())]
    Permission {
        /// The socket.
        socket: PathBuf,
        /// The user and group that the socket admits.
        who: SocketAccess,
    },
    /// The socket cannot be reached for another reason.
    #[error("{}: {source}", .socket.escaped())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The name of a remote node has no address.
    #[error("the node's name has no address")]
    NoAddress,
    /// A remote node cannot be reached, or does not have the expected key.
    #[error(transparent)]
    Remote(#[from] weir_remote::ConnectError),
    /// The node has closed the connection.
    #[error(
        "the node closed the connection before it had answered: see its log, and `weir session list` when it runs again"
    )]
    Gone,
    /// The node has not answered in time.
    #[error("the node has not answered for {} s: it may still execute the request; see its log", .0.as_secs())]
    Timeout(Duration),
    /// The node speaks another version of the protocol.
    #[error(
        "the node speaks version {0} of the protocol, but this weir speaks version {VERSION}: use the weir that the node was started with"
    )]
    Version(u32),
    /// The received bytes are no reply.
    #[error("the reply is not that of a node: {0}")]
    InvalidReply(String),
    /// The reply is of a kind that does not answer the request. Contains a description of the kind.
    #[error("the node's reply does not fit the request: it is {0}")]
    UnexpectedReply(&'static str),
    /// The reply is too long.
    #[error("the node's answer is longer than {0}")]
    AnswerTooLong(Bytes),
    /// The request's line is too long. Contains the length of the line.
    #[error("the request has {}, but the maximum is {limit}", display_among(*.0, &[LINE_MAX]), limit = display_among(LINE_MAX, &[*.0]))]
    RequestTooLong(Bytes),
    /// The file is too long.
    #[error("the file has {length}, but the maximum for a {kind} is {maximum}", length = display_among(*length, &[*maximum]), maximum = display_among(*maximum, &[*length]))]
    BodyTooLong {
        /// The length of the file.
        length: Bytes,
        /// The maximum length.
        maximum: Bytes,
        /// The kind of file, such as `module`.
        kind: &'static str,
    },
    /// An upload failed because the node has repeatedly lost the parts that it had received.
    #[error(
        "the node has repeatedly lost the received part of the file: it has no memory for it, or restarts; see its log, or try again later"
    )]
    Lost,
    /// The node refused the request. Contains the node's reason.
    #[error("{0}")]
    Refused(String),
    /// The connection has failed.
    #[error("the connection to the node broke: {0}")]
    Io(io::Error),
}

impl ClientError {
    /// Returns true if the same request may succeed soon: the node was not reached, or its quotas were used up.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Remote(error) => !matches!(error, ConnectError::Handshake(_)),
            Self::Refused(why) => ["try again", "that is the most", "which is the maximum"]
                .iter()
                .any(|text| why.contains(text)),
            error => error.is_unreachable(),
        }
    }

    /// Returns true if the node was not reached or the connection failed, so that another connection may succeed.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::NoNode(_)
                | Self::Connect { .. }
                | Self::Remote(_)
                | Self::Gone
                | Self::Timeout(_)
                | Self::Io(_)
        )
    }
}

/// The users who may connect to a socket: its owner, and a group with write permission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    user: Option<String>,
    group: Option<String>,
}

impl fmt::Display for SocketAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.user, &self.group) {
            (None, _) => f.write_str("its operator"),
            (Some(user), None) => write!(f, "only user {user}"),
            (Some(user), Some(group)) => write!(f, "user {user} and the members of group {group}"),
        }
    }
}

impl SocketAccess {
    /// Reads the owner and the permissions of a socket.
    fn from_socket(socket: &Path) -> Self {
        let Ok(meta) = socket.metadata() else { return Self::default() };
        let name = |file: &str, id: u32| name_of_id(&std::fs::read_to_string(file).unwrap_or_default(), id);
        let group = (meta.mode() & 0o020 != 0).then(|| name("/etc/group", meta.gid()));
        Self { user: Some(name("/etc/passwd", meta.uid())), group }
    }
}

/// Looks up the name of a user or group number in the contents of a passwd(5) or group(5) file. Returns the number itself
/// if it has no name.
fn name_of_id(contents: &str, id: u32) -> String {
    let number = id.to_string();
    let name_if_same_id = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        (fields.nth(1)? == number).then_some(name)
    };
    contents.lines().find_map(name_if_same_id).map_or(number.clone(), |name| escaped(&name))
}

/// Encodes a request: its line, followed by the body's bytes.
///
/// # Errors
/// The line or the body is longer than a node accepts.
pub fn encode(request: ControlRequest, body: &[u8]) -> Result<Vec<u8>, ClientError> {
    let (kind, bytes_max) = body_of(&request);
    let too_long = || ClientError::BodyTooLong {
        length: Bytes(body.len() as u64),
        maximum: Bytes(bytes_max as u64),
        kind,
    };
    if body.len() > bytes_max {
        return Err(too_long());
    }
    let message =
        RequestLine { body: u32::try_from(body.len()).map_err(|_| too_long())?, ..RequestLine::new(request) };
    let mut bytes = encode_line(&message)?;
    bytes.extend_from_slice(body);
    Ok(bytes)
}

fn encode_line(message: &RequestLine) -> Result<Vec<u8>, ClientError> {
    let mut bytes =
        serde_json::to_vec(message).map_err(|error| ClientError::InvalidReply(error.to_string()))?;
    bytes.push(b'\n');
    if bytes.len() > LINE_BYTES_MAX {
        return Err(ClientError::RequestTooLong(Bytes(bytes.len() as u64)));
    }
    Ok(bytes)
}

/// Reads and decodes the next reply.
///
/// # Errors
/// The source ends or fails, or the bytes are no reply of this version.
pub fn decode(source: &mut impl BufRead) -> Result<Reply, ClientError> {
    decode_within(source, ANSWER_BYTES_MAX)
}

/// Reads and decodes the next reply, of at most `bytes_max` bytes.
fn decode_within(source: &mut impl BufRead, bytes_max: usize) -> Result<Reply, ClientError> {
    #[derive(Deserialize)]
    struct ReplyVersion {
        weir: u32,
    }
    let mut line = Vec::new();
    // One byte more than the maximum, so that a longer line is noticed.
    let read_max = bytes_max as u64 + 1;
    source.by_ref().take(read_max).read_until(b'\n', &mut line).map_err(connection_error)?;
    if line.len() > bytes_max {
        return Err(ClientError::AnswerTooLong(Bytes(bytes_max as u64)));
    }
    if line.pop() != Some(b'\n') {
        return Err(ClientError::Gone);
    }
    let invalid_reply = |error: serde_json::Error| ClientError::InvalidReply(escaped(&error.to_string()));
    // The version is checked first, because other versions may have other replies.
    let version: ReplyVersion = serde_json::from_slice(&line).map_err(invalid_reply)?;
    if version.weir != VERSION {
        return Err(ClientError::Version(version.weir));
    }
    Ok(serde_json::from_slice::<Response>(&line).map_err(invalid_reply)?.reply)
}

fn connection_error(error: io::Error) -> ClientError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::Timeout(REPLY_TIMEOUT),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            ClientError::Gone
        }
        _ => ClientError::Io(error),
    }
}

/// The address of a node, with the keys to reach it.
#[derive(Debug)]
pub enum NodeLocation {
    /// A node on this machine, by the path of its local socket.
    Local(PathBuf),
    /// A remote node.
    Remote {
        /// The node's addresses, which are tried in order.
        addresses: Vec<SocketAddr>,
        /// The expected keys, tried in order: the node has to prove one of them. An empty list accepts any key. While the
        /// key of a node is being replaced, the list has the old and the new key.
        expected: Vec<PublicKey>,
        /// The client's key pair.
        identity: Box<Identity>,
        /// The client's credential; empty for operators.
        credential: Vec<u8>,
    },
}

/// The stream of a connection to a node.
#[derive(Debug)]
pub enum NodeStream {
    /// A connection to the local socket.
    Local(UnixStream),
    /// An encrypted connection to a remote node.
    Remote {
        /// The encrypted stream.
        stream: Box<SecureStream>,
        /// The timeout for a reply; `None` waits without limit.
        reply_timeout: Option<Duration>,
    },
}

impl Read for NodeStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Local(stream) => stream.read(bytes),
            Self::Remote { stream, reply_timeout } => {
                stream.set_deadline(reply_timeout.map(|reply_timeout| Instant::now() + reply_timeout));
                stream.read(bytes)
            }
        }
    }
}

impl Write for NodeStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Local(stream) => stream.write(bytes),
            Self::Remote { stream, .. } => {
                stream.set_deadline(Some(Instant::now() + REPLY_TIMEOUT));
                stream.write(bytes)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Local(stream) => stream.flush(),
            Self::Remote { stream, .. } => stream.flush(),
        }
    }
}

/// A connection to a node.
#[derive(Debug)]
pub struct Client<S = NodeStream> {
    stream: BufReader<S>,
    /// The longest reply, in bytes.
    reply_bytes_max: usize,
}

impl Client {
    /// Connects to a node.
    ///
    /// # Errors
    /// The node cannot be reached, or refuses the connection.
    pub fn connect_to(node: &NodeLocation) -> Result<Self, ClientError> {
        match node {
            NodeLocation::Local(socket) => Self::connect_local(socket),
            NodeLocation::Remote { addresses, expected, identity, credential } => {
                let mut last_error = ClientError::NoAddress;
                let begin = Instant::now();
                let mut pause = RETRY_PAUSE;
                for address in addresses {
                    let mut keys = expected.iter().copied();
                    let mut key = keys.next();
                    loop {
                        match weir_remote::connect(*address, identity, key, credential, CONNECT_TIMEOUT) {
                            Ok(stream) => {
                                let (stream, reply_timeout) = (Box::new(stream), Some(REPLY_TIMEOUT));
                                return Ok(Self::new(NodeStream::Remote { stream, reply_timeout }));
                            }
                            // A node closes connections of unauthenticated peers that come too often.
                            Err(ConnectError::Closed(_)) if begin.elapsed() + pause < CONNECT_TIMEOUT => {
                                std::thread::sleep(pause);
                                pause = (pause * 2).min(RETRY_PAUSE_MAX);
                            }
                            // The node has another key than the expected one. The client has disclosed nothing to it.
                            Err(ConnectError::Handshake(HandshakeError::Unexpected { .. }))
                                if keys.len() > 0 =>
                            {
                                key = keys.next();
                            }
                            Err(error) => {
                                last_error = error.into();
                                break;
                            }
                        }
                    }
                }
                Err(last_error)
            }
        }
    }

    /// Connects to the node that listens at a local socket.
    ///
    /// # Errors
    /// No node listens, or its socket does not admit this user.
    pub fn connect_local(socket: &Path) -> Result<Self, ClientError> {
        let connect_error = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NoNode(socket.to_owned())
            }
            io::ErrorKind::PermissionDenied => {
                ClientError::Permission { socket: socket.to_owned(), who: SocketAccess::from_socket(socket) }
            }
            _ => ClientError::Connect { socket: socket.to_owned(), source },
        };
        let stream = UnixStream::connect(socket).map_err(connect_error)?;
        stream
            .set_read_timeout(Some(REPLY_TIMEOUT))
            .and_then(|()| stream.set_write_timeout(Some(REPLY_TIMEOUT)))
            .map_err(connect_error)?;
        Ok(Self::new(NodeStream::Local(stream)))
    }

    /// Removes the timeout for replies, for requests with a stream of replies.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove_reply_timeout(&mut self) -> Result<(), ClientError> {
        match self.stream.get_mut() {
            NodeStream::Local(stream) => stream.set_read_timeout(None).map_err(ClientError::Io),
            NodeStream::Remote { reply_timeout, .. } => {
                *reply_timeout = None;
                Ok(())
            }
        }
    }
}

impl<S: Read + Write> Client<S> {
    /// Creates a client over a connected stream.
    pub fn new(stream: S) -> Self {
        Self { stream: BufReader::new(stream), reply_bytes_max: ANSWER_BYTES_MAX }
    }

    /// Limits the length of further replies to less than [`ANSWER_BYTES_MAX`].
    pub fn limit_replies(&mut self, bytes_max: usize) {
        self.reply_bytes_max = bytes_max.min(ANSWER_BYTES_MAX);
    }

    /// Sends a request, without waiting for the reply.
    ///
    /// # Errors
    /// The request is too long, or cannot be sent.
    pub fn send(&mut self, request: ControlRequest, body: &[u8]) -> Result<(), ClientError> {
        self.write(&encode(request, body)?)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let stream = self.stream.get_mut();
        match stream.write_all(bytes).and_then(|()| stream.flush()) {
            Ok(()) => Ok(()),
            // A node may have sent the reason before it closed the connection.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => match self.decode() {
                Ok(Reply::Refused { why }) => Err(ClientError::Refused(escaped(&why))),
                Err(error @ ClientError::Version(_)) => Err(error),
                _ => Err(ClientError::Gone),
            },
            Err(error) => Err(connection_error(error)),
        }
    }

    fn decode(&mut self) -> Result<Reply, ClientError> {
        decode_within(&mut self.stream, self.reply_bytes_max)
    }

    /// Receives the next reply. A refusal is an error.
    ///
    /// # Errors
    /// No valid reply arrives, or the node refuses the request.
    pub fn receive(&mut self) -> Result<Reply, ClientError> {
        match self.decode()? {
            Reply::Refused { why } => Err(ClientError::Refused(without_control_characters(&why))),
            reply => Ok(reply),
        }
    }

    /// Sends a request and waits until it is executed. Returns the node's notes.
    ///
    /// # Errors
    /// The node refuses the request, which is then not executed. After another error, the request may or may not have been
    /// executed.
    pub fn execute(&mut self, request: ControlRequest, body: &[u8]) -> Result<Vec<String>, ClientError> {
        self.send(request, body)?;
        self.receive_done()
    }

    /// Executes a request with a file that was [uploaded](Upload) before.
    ///
    /// # Errors
    /// The node refuses the request, which is then not executed. After another error, the request may or may not have been
    /// executed.
    pub fn execute_with_file(
        &mut self,
        request: ControlRequest,
        file: ModuleHash,
    ) -> Result<Vec<String>, ClientError> {
        self.write(&encode_line(&RequestLine { file: Some(file), ..RequestLine::new(request) })?)?;
        self.receive_done()
    }

    fn receive_done(&mut self) -> Result<Vec<String>, ClientError> {
        match self.receive()? {
            Reply::Done { notes } => Ok(notes.iter().map(|note| without_control_characters(note)).collect()),
            other => Err(ClientError::UnexpectedReply(reply_kind(&other))),
        }
    }
}

/// Returns a description of a reply's kind.
pub fn reply_kind(reply: &Reply) -> &'static str {
    match reply {
        Reply::Done { .. } => "a confirmation",
        Reply::Refused { .. } => "a refusal",
        Reply::Snapshot(_) => "a snapshot",
        Reply::Followed { .. } => "a list of followed modules",
        Reply::Record(_) => "a record",
        Reply::Uploaded { .. } => "the progress of an upload",
        Reply::Explained(_) => "an explanation of a credential",
        Reply::Entries { .. } => "entries of the ledger",
        Reply::Missed { .. } => "a number of missed records",
        Reply::Revocations(_) => "a list of revocations",
        Reply::Credentials(_) => "a tree of credentials",
        Reply::RecordFiles { .. } => "a list of record files",
        Reply::RecordPart { .. } => "a part of a record file",
        Reply::RecordsSent { .. } => "the end of a record file",
        Reply::RecordsGone => "the absence of a record file",
    }
}

/// Removes control characters other than newlines, as a node's texts can contain untrusted input.
fn without_control_characters(text: &str) -> String {
    text.chars().filter(|c| *c == '\n' || weir_units::is_plain(*c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::{ModuleStatus, SessionStatus, Snapshot};
    use weir_admission::{MODULE_BYTES_MAX, Name};

    /// A stream with prepared replies, which records the sent bytes.
    struct ScriptedStream {
        answers: io::Cursor<Vec<u8>>,
        sent: Vec<u8>,
        bytes_max: usize,
    }

    impl Read for ScriptedStream {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.answers.read(to)
        }
    }

    impl Write for ScriptedStream {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.sent.len() + bytes.len() > self.bytes_max {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.sent.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn client(answers: &str) -> Client<ScriptedStream> {
        let answers = io::Cursor::new(answers.as_bytes().to_vec());
        Client::new(ScriptedStream { answers, sent: Vec::new(), bytes_max: usize::MAX })
    }

    #[test]
    fn a_request_is_a_line_and_its_body() {
        let mut client = client("{\"weir\":1,\"reply\":{\"done\":{\"notes\":[\"a\\u001b[2J\"]}}}\n");
        let table = Name::new("a").unwrap();
        let notes = client.execute(ControlRequest::PutTable { table }, b"\0asm").unwrap();
        assert_eq!(notes, ["a[2J"]);
        let sent = &client.stream.get_ref().sent;
        assert_eq!(sent, b"{\"weir\":1,\"request\":{\"put-table\":{\"table\":\"a\"}},\"body\":4}\n\0asm");
    }

    #[test]
    fn a_request_or_body_that_is_too_long_is_not_sent() {
        let mut module: crate::control::spec::ModuleSpec = toml::from_str("module = \"a\"").unwrap();
        let (session, signatures) = (Name::new("a").unwrap(), Vec::new());
        let load = ControlRequest::Load { session, module: module.clone(), signatures, replace: None };
        let error = encode(load, &vec![0; MODULE_BYTES_MAX + 1]).unwrap_err();
        assert!(matches!(error, ClientError::BodyTooLong { kind: "module", .. }));
        // A request without a file accepts no body.
        assert!(matches!(
            encode(ControlRequest::Show, &[0]),
            Err(ClientError::BodyTooLong { kind: "request", .. })
        ));
        let mut spec = crate::control::spec::SessionSpec::new(Name::new("a").unwrap());
        module.module = "x".repeat(LINE_BYTES_MAX);
        spec.modules.push(module);
        assert!(matches!(encode(ControlRequest::Create(spec), &[]), Err(ClientError::RequestTooLong(_))));
    }

    #[test]
    fn invalid_and_unexpected_replies_have_distinct_errors() {
        for (answer, says) in [
            ("", "closed the connection"),
            ("{\"weir\":1,\"reply\":", "closed the connection"),
            ("\n", "the reply is not that of a node"),
            ("\0\u{7f}\n", "the reply is not that of a node"),
            ("HTTP/1.1 400 Bad Request\r\n", "the reply is not that of a node"),
            ("{\"weir\":1}\n", "missing field `reply`"),
            ("{\"weir\":1,\"reply\":\"moo\"}\n", "unknown variant `moo`"),
            ("{\"weir\":-1,\"reply\":\"moo\"}\n", "the reply is not that of a node"),
            ("{\"weir\":2,\"reply\":\"moo\"}\n", "version 2 of the protocol, but this weir speaks version 1"),
            (
                "{\"weir\":1,\"reply\":{\"missed\":{\"module\":0,\"stream\":0,\"rows\":1}}}\n",
                "does not fit the request: it is a number of missed records",
            ),
            ("{\"weir\":1,\"reply\":{\"refused\":{\"why\":\"no room\\nat all\"}}}\n", "no room\nat all"),
        ] {
            let error = client(answer).execute(ControlRequest::Reload, &[]).unwrap_err().to_string();
            assert!(error.contains(says), "{answer:?}: {error}");
        }
        let deep = "[".repeat(LINE_BYTES_MAX - 1) + "\n";
        assert!(matches!(client(&deep).receive(), Err(ClientError::InvalidReply(_))));
        let long = "x".repeat(ANSWER_BYTES_MAX) + "\n";
        assert!(matches!(client(&long).receive(), Err(ClientError::AnswerTooLong(_))));
    }

    #[test]
    fn a_node_with_thousands_of_sessions_can_be_shown() {
        let module = ModuleStatus { name: "a-module-of-somebody".repeat(2), ..ModuleStatus::default() };
        let session = SessionStatus { modules: vec![module; 10], ..SessionStatus::default() };
        let snapshot = Snapshot { sessions: vec![session; 4096], ..Snapshot::default() };
        let answer = Response { weir: VERSION, reply: Reply::Snapshot(Box::new(snapshot)) };
        let line = serde_json::to_string(&answer).unwrap() + "\n";
        assert!(line.len() > LINE_BYTES_MAX, "{}", line.len());
        assert_eq!(client(&line).receive().unwrap(), answer.reply);
    }

    #[test]
    fn a_refusal_is_read_even_if_the_node_has_closed_the_connection() {
        let mut client = client("{\"weir\":1,\"reply\":{\"refused\":{\"why\":\"too large\"}}}\n");
        client.stream.get_mut().bytes_max = 10;
        let error = client.execute(ControlRequest::Reload, &[]).unwrap_err();
        assert!(matches!(&error, ClientError::Refused(why) if why == "too large"), "{error}");
    }

    #[test]
    fn the_error_of_a_missing_socket_says_how_to_start_a_node() {
        let error = Client::connect_local(Path::new("/nowhere/node.sock")).unwrap_err();
        assert!(error.is_unreachable() && error.to_string().contains("`weir node -c node.toml`"), "{error}");
    }

    #[test]
    fn users_and_groups_of_a_socket_are_shown_by_name() {
        let file = "root:x:0:\nweir:x:987:a,b\nbad\n";
        assert_eq!((name_of_id(file, 987).as_str(), name_of_id(file, 5).as_str()), ("weir", "5"));
        let who =
            |group: Option<&str>| SocketAccess { user: Some("root".into()), group: group.map(str::to_owned) };
        assert_eq!(who(None).to_string(), "only user root");
        assert_eq!(who(Some("weir")).to_string(), "user root and the members of group weir");
    }
}
