//! A node's client: asks over the node's socket or over a network, and reads what it answers.
//!
//! What is said is [`crate::control::protocol`]'s. [`encode`] and [`decode`] are pure; [`Client`] puts a stream between them. [`Upload`] sends a long file in parts.

mod upload;

pub use upload::{Upload, UploadStep};

use crate::control::protocol::{
    ANSWER_BYTES_MAX, Ask, ControlRequest, LINE_BYTES_MAX, Reply, Response, VERSION, body_of,
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
use weir_trust::grant::ModuleHash;
use weir_trust::key::{Identity, PublicKey};
use weir_units::{Bytes, Shown as _, beside, shown};

/// Where a node listens whose configuration says nothing else.
pub const SOCKET: &str = "/run/weir/node.sock";
/// How long a node may take for an answer. Closing a session waits for its modules, loading one for its compiler.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take to reach a node elsewhere, and to find out who it is.
const REACHING: Duration = Duration::from_secs(10);
/// The first pause before a client that is held off tries again. Each later one is twice as long, up to [`AGAIN_MAX`].
const AGAIN: Duration = Duration::from_millis(200);
/// The longest pause of a client that is held off.
const AGAIN_MAX: Duration = Duration::from_secs(1);
/// The port of a node of which only the host is said.
pub const PORT: u16 = 7353;

/// The longest request.
const LINE_MAX: Bytes = Bytes(LINE_BYTES_MAX as u64);

/// Why there is no answer, or not the one that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error(
        "no node listens at {}: start one with `weir node -c node.toml`, or name the socket of the one that runs with --socket PATH (or WEIR_SOCKET)",
        .0.shown()
    )]
    Nobody(PathBuf),
    /// The system lets somebody else in.
    #[error("the node at {} does not let you in: {who} may ask it", .socket.shown())]
    Permission {
        /// The socket.
        socket: PathBuf,
        /// Who is let in, as far as the socket says.
        who: SocketAccess,
    },
    /// The socket cannot be reached for another reason.
    #[error("{}: {source}", .socket.shown())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A node elsewhere has no address.
    #[error("the node's name has no address")]
    NoAddress,
    /// A node elsewhere cannot be reached, or is not who it should be.
    #[error(transparent)]
    Remote(#[from] weir_remote::ConnectError),
    /// The node went away.
    #[error(
        "the node went away before it had answered: see its log, and `weir session list` when it is there again"
    )]
    Gone,
    /// The node says nothing.
    #[error("the node has not answered for {} s: it may still do what it was asked; see its log", .0.as_secs())]
    Late(Duration),
    /// It speaks another version of the protocol.
    #[error(
        "the node speaks version {0} of the protocol, this weir version {VERSION}: use the weir that the node was started from"
    )]
    Version(u32),
    /// What came is no answer.
    #[error("what answers is no node, or a broken one: {0}")]
    NoAnswer(String),
    /// An answer of a kind that was not asked for.
    #[error("the node answered something else than it was asked: {0}")]
    Other(&'static str),
    /// An answer without an end.
    #[error("the node's answer is longer than {}", Bytes(ANSWER_BYTES_MAX as u64))]
    AnswerTooLong,
    /// The request does not fit.
    #[error("the request has {}, and {limit} is the most", beside(*.0, &[LINE_MAX]), limit = beside(LINE_MAX, &[*.0]))]
    AskTooLong(Bytes),
    /// The file does not fit.
    #[error("the file has {has}, and {most} is the most for a {what}", has = beside(*has, &[*most]), most = beside(*most, &[*has]))]
    BodyTooLong {
        /// What it has.
        has: Bytes,
        /// What it may have.
        most: Bytes,
        /// What it is.
        what: &'static str,
    },
    /// A file does not arrive, as the node has less and less of it.
    #[error(
        "the node has lost what was there of the file again and again: it has no room for it, or does not stay up; see its log, or try again later"
    )]
    Lost,
    /// The node did not do it, and says why.
    #[error("{0}")]
    Refused(String),
    /// The connection broke.
    #[error("the connection to the node broke: {0}")]
    Io(io::Error),
}

impl ClientError {
    /// Returns true if the same request may succeed a moment later: the node was not reached, or had no room.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Remote(error) => !matches!(error, ConnectError::Handshake(_)),
            Self::Refused(why) => why.contains("try again") || why.contains("that is the most"),
            error => error.is_absence(),
        }
    }

    /// Whether the node is not there, or not any more, so that trying again may help.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::Nobody(_)
                | Self::Connect { .. }
                | Self::Remote(_)
                | Self::Gone
                | Self::Late(_)
                | Self::Io(_)
        )
    }
}

/// Who may connect to a socket: its owner, and the group that can write it.
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
    fn of(socket: &Path) -> Self {
        let Ok(meta) = socket.metadata() else { return Self::default() };
        let name = |file: &str, id: u32| name_in(&std::fs::read_to_string(file).unwrap_or_default(), id);
        let group = (meta.mode() & 0o020 != 0).then(|| name("/etc/group", meta.gid()));
        Self { user: Some(name("/etc/passwd", meta.uid())), group }
    }
}

/// The name that belongs to a number in passwd(5) or group(5); the number where it has none.
fn name_in(file: &str, id: u32) -> String {
    let number = id.to_string();
    let fields = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        (fields.nth(1)? == number).then_some(name)
    };
    file.lines().find_map(fields).map_or(number.clone(), |name| shown(&name))
}

/// A request as it is sent: its line, and the body's bytes.
///
/// # Errors
/// The line or the body is longer than a node takes.
pub fn encode(ask: ControlRequest, body: &[u8]) -> Result<Vec<u8>, ClientError> {
    let (what, most) = body_of(&ask);
    let too_long =
        || ClientError::BodyTooLong { has: Bytes(body.len() as u64), most: Bytes(most as u64), what };
    if body.len() > most {
        return Err(too_long());
    }
    let ask = Ask { body: u32::try_from(body.len()).map_err(|_| too_long())?, ..Ask::new(ask) };
    let mut bytes = line(&ask)?;
    bytes.extend_from_slice(body);
    Ok(bytes)
}

fn line(ask: &Ask) -> Result<Vec<u8>, ClientError> {
    let mut bytes = serde_json::to_vec(ask).map_err(|error| ClientError::NoAnswer(error.to_string()))?;
    bytes.push(b'\n');
    if bytes.len() > LINE_BYTES_MAX {
        return Err(ClientError::AskTooLong(Bytes(bytes.len() as u64)));
    }
    Ok(bytes)
}

/// The next answer.
///
/// # Errors
/// The source ends or fails, or what comes is no answer of this version.
pub fn decode(source: &mut impl BufRead) -> Result<Reply, ClientError> {
    #[derive(Deserialize)]
    struct Spoken {
        weir: u32,
    }
    let mut line = Vec::new();
    let most = ANSWER_BYTES_MAX as u64 + 1;
    source.by_ref().take(most).read_until(b'\n', &mut line).map_err(broken)?;
    if line.len() > ANSWER_BYTES_MAX {
        return Err(ClientError::AnswerTooLong);
    }
    if line.pop() != Some(b'\n') {
        return Err(ClientError::Gone);
    }
    let no_answer = |error: serde_json::Error| ClientError::NoAnswer(shown(&error.to_string()));
    // The version first: what else another one says is not known here.
    let spoken: Spoken = serde_json::from_slice(&line).map_err(no_answer)?;
    if spoken.weir != VERSION {
        return Err(ClientError::Version(spoken.weir));
    }
    Ok(serde_json::from_slice::<Response>(&line).map_err(no_answer)?.reply)
}

fn broken(error: io::Error) -> ClientError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::Late(PATIENCE),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            ClientError::Gone
        }
        _ => ClientError::Io(error),
    }
}

/// Where a node is, and how one gets to it.
#[derive(Debug)]
pub enum Whereabouts {
    /// On this machine, at its own socket.
    Here(PathBuf),
    /// Elsewhere.
    There {
        /// Its addresses, of which the first that answers is taken.
        addresses: Vec<SocketAddr>,
        /// Who it has to be; whoever answers where nothing is said.
        expected: Option<PublicKey>,
        /// Who asks.
        identity: Box<Identity>,
        /// By what right.
        credential: Vec<u8>,
    },
}

/// What a node is spoken with over.
#[derive(Debug)]
pub enum Wire {
    /// Its own socket.
    Here(UnixStream),
    /// An association with it.
    There {
        /// Which.
        stream: Box<SecureStream>,
        /// How long an answer may take.
        patience: Option<Duration>,
    },
}

impl Read for Wire {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Here(stream) => stream.read(bytes),
            Self::There { stream, patience } => {
                stream.set_deadline(patience.map(|patience| Instant::now() + patience));
                stream.read(bytes)
            }
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Here(stream) => stream.write(bytes),
            Self::There { stream, .. } => {
                stream.set_deadline(Some(Instant::now() + PATIENCE));
                stream.write(bytes)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Here(stream) => stream.flush(),
            Self::There { stream, .. } => stream.flush(),
        }
    }
}

/// A connection to a node.
#[derive(Debug)]
pub struct Client<S = Wire> {
    stream: BufReader<S>,
}

impl Client {
    /// Connects to a node.
    ///
    /// # Errors
    /// It is not there, or does not let the caller in.
    pub fn to(node: &Whereabouts) -> Result<Self, ClientError> {
        match node {
            Whereabouts::Here(socket) => Self::connect(socket),
            Whereabouts::There { addresses, expected, identity, credential } => {
                let mut failed = ClientError::NoAddress;
                let begin = Instant::now();
                let mut pause = AGAIN;
                for address in addresses {
                    loop {
                        match weir_remote::connect(*address, identity, *expected, credential, REACHING) {
                            Ok(stream) => {
                                let (stream, patience) = (Box::new(stream), Some(PATIENCE));
                                return Ok(Self::over(Wire::There { stream, patience }));
                            }
                            // So a node holds off those who come too often, of whom it does not yet know who they are.
                            Err(ConnectError::Closed(_)) if begin.elapsed() + pause < REACHING => {
                                std::thread::sleep(pause);
                                pause = (pause * 2).min(AGAIN_MAX);
                            }
                            Err(error) => {
                                failed = error.into();
                                break;
                            }
                        }
                    }
                }
                Err(failed)
            }
        }
    }

    /// Connects to the node that listens there.
    ///
    /// # Errors
    /// There is none, or it does not let the caller in.
    pub fn connect(socket: &Path) -> Result<Self, ClientError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::Nobody(socket.to_owned())
            }
            io::ErrorKind::PermissionDenied => {
                ClientError::Permission { socket: socket.to_owned(), who: SocketAccess::of(socket) }
            }
            _ => ClientError::Connect { socket: socket.to_owned(), source },
        };
        let stream = UnixStream::connect(socket).map_err(failed)?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
            .map_err(failed)?;
        Ok(Self::over(Wire::Here(stream)))
    }

    /// Waits for answers as long as it takes: for what comes when it comes.
    ///
    /// # Errors
    /// The system refuses.
    pub fn wait_forever(&mut self) -> Result<(), ClientError> {
        match self.stream.get_mut() {
            Wire::Here(stream) => stream.set_read_timeout(None).map_err(ClientError::Io),
            Wire::There { patience, .. } => {
                *patience = None;
                Ok(())
            }
        }
    }
}

impl<S: Read + Write> Client<S> {
    /// Over a stream that is there.
    pub fn over(stream: S) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    /// Asks, without waiting for the answer.
    ///
    /// # Errors
    /// The request is too long, or cannot be sent.
    pub fn send(&mut self, ask: ControlRequest, body: &[u8]) -> Result<(), ClientError> {
        self.put(&encode(ask, body)?)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let stream = self.stream.get_mut();
        match stream.write_all(bytes).and_then(|()| stream.flush()) {
            Ok(()) => Ok(()),
            // A node that takes no more has perhaps said why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => match decode(&mut self.stream) {
                Ok(Reply::Refused { why }) => Err(ClientError::Refused(shown(&why))),
                Err(error @ ClientError::Version(_)) => Err(error),
                _ => Err(ClientError::Gone),
            },
            Err(error) => Err(broken(error)),
        }
    }

    /// The next answer; a refusal is an error.
    ///
    /// # Errors
    /// There is no answer, or the node refused.
    pub fn receive(&mut self) -> Result<Reply, ClientError> {
        match decode(&mut self.stream)? {
            Reply::Refused { why } => Err(ClientError::Refused(plain(&why))),
            reply => Ok(reply),
        }
    }

    /// Asks for something to be done. Gives back what the node has to say beside that it is done.
    ///
    /// # Errors
    /// It was not done, or nobody knows.
    pub fn order(&mut self, ask: ControlRequest, body: &[u8]) -> Result<Vec<String>, ClientError> {
        self.send(ask, body)?;
        self.done()
    }

    /// Asks for something to be done with a file that was [sent](Upload) before.
    ///
    /// # Errors
    /// As [`Self::order`].
    pub fn order_with(&mut self, ask: ControlRequest, file: ModuleHash) -> Result<Vec<String>, ClientError> {
        self.put(&line(&Ask { file: Some(file), ..Ask::new(ask) })?)?;
        self.done()
    }

    fn done(&mut self) -> Result<Vec<String>, ClientError> {
        match self.receive()? {
            Reply::Done { notes } => Ok(notes.iter().map(|note| plain(note)).collect()),
            other => Err(ClientError::Other(kind(&other))),
        }
    }
}

/// What an answer is, in words.
pub fn kind(reply: &Reply) -> &'static str {
    match reply {
        Reply::Done { .. } => "that it is done",
        Reply::Refused { .. } => "a refusal",
        Reply::Snapshot(_) => "how things are",
        Reply::Record(_) => "a record",
        Reply::Uploaded { .. } => "how much of a file is there",
        Reply::Explained(_) => "what a credential allows",
        Reply::Entries { .. } => "what the ledger says",
        Reply::Missed { .. } => "that records were missed",
        Reply::Revocations(_) => "what is revoked",
    }
}

/// A text of several lines for a terminal, all of it: a node's reasons can hold what strangers wrote.
fn plain(text: &str) -> String {
    text.chars().filter(|c| *c == '\n' || weir_units::is_plain(*c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::{ModuleStatus, SessionStatus, Snapshot};
    use weir_admission::{MODULE_BYTES_MAX, Name};

    /// Answers what it was told to, and remembers what it was asked.
    struct Script {
        answers: io::Cursor<Vec<u8>>,
        asked: Vec<u8>,
        most: usize,
    }

    impl Read for Script {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.answers.read(to)
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.asked.len() + bytes.len() > self.most {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.asked.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn client(answers: &str) -> Client<Script> {
        let answers = io::Cursor::new(answers.as_bytes().to_vec());
        Client::over(Script { answers, asked: Vec::new(), most: usize::MAX })
    }

    #[test]
    fn a_request_is_a_line_and_its_body() {
        let mut client = client("{\"weir\":1,\"reply\":{\"done\":{\"notes\":[\"a\\u001b[2J\"]}}}\n");
        let table = Name::new("a").unwrap();
        let notes = client.order(ControlRequest::PutTable { table }, b"\0asm").unwrap();
        assert_eq!(notes, ["a[2J"]);
        let asked = &client.stream.get_ref().asked;
        assert_eq!(asked, b"{\"weir\":1,\"ask\":{\"put-table\":{\"table\":\"a\"}},\"body\":4}\n\0asm");
    }

    #[test]
    fn what_does_not_fit_is_not_sent() {
        let mut module: crate::control::spec::ModuleSpec = toml::from_str("module = \"a\"").unwrap();
        let (session, signatures) = (Name::new("a").unwrap(), Vec::new());
        let load = ControlRequest::Load { session, module: module.clone(), signatures };
        let error = encode(load, &vec![0; MODULE_BYTES_MAX + 1]).unwrap_err();
        assert!(matches!(error, ClientError::BodyTooLong { what: "module", .. }));
        // Where no file belongs to it, none is too long.
        assert!(matches!(
            encode(ControlRequest::Show, &[0]),
            Err(ClientError::BodyTooLong { what: "request", .. })
        ));
        let mut spec = crate::control::spec::SessionSpec::new(Name::new("a").unwrap());
        module.module = "x".repeat(LINE_BYTES_MAX);
        spec.modules.push(module);
        assert!(matches!(encode(ControlRequest::Create(spec), &[]), Err(ClientError::AskTooLong(_))));
    }

    #[test]
    fn answers_that_are_none_are_told_apart() {
        for (answer, says) in [
            ("", "went away"),
            ("{\"weir\":1,\"reply\":", "went away"),
            ("\n", "no node, or a broken one"),
            ("\0\u{7f}\n", "no node, or a broken one"),
            ("HTTP/1.1 400 Bad Request\r\n", "no node, or a broken one"),
            ("{\"weir\":1}\n", "missing field `reply`"),
            ("{\"weir\":1,\"reply\":\"moo\"}\n", "unknown variant `moo`"),
            ("{\"weir\":-1,\"reply\":\"moo\"}\n", "no node, or a broken one"),
            ("{\"weir\":2,\"reply\":\"moo\"}\n", "version 2 of the protocol, this weir version 1"),
            (
                "{\"weir\":1,\"reply\":{\"missed\":{\"rows\":1}}}\n",
                "something else than it was asked: that records were missed",
            ),
            ("{\"weir\":1,\"reply\":{\"refused\":{\"why\":\"no room\\nat all\"}}}\n", "no room\nat all"),
        ] {
            let error = client(answer).order(ControlRequest::Reload, &[]).unwrap_err().to_string();
            assert!(error.contains(says), "{answer:?}: {error}");
        }
        let deep = "[".repeat(LINE_BYTES_MAX - 1) + "\n";
        assert!(matches!(client(&deep).receive(), Err(ClientError::NoAnswer(_))));
        let long = "x".repeat(ANSWER_BYTES_MAX) + "\n";
        assert!(matches!(client(&long).receive(), Err(ClientError::AnswerTooLong)));
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
    fn a_node_that_takes_no_more_is_heard_all_the_same() {
        let mut client = client("{\"weir\":1,\"reply\":{\"refused\":{\"why\":\"too large\"}}}\n");
        client.stream.get_mut().most = 10;
        let error = client.order(ControlRequest::Reload, &[]).unwrap_err();
        assert!(matches!(&error, ClientError::Refused(why) if why == "too large"), "{error}");
    }

    #[test]
    fn a_socket_that_is_not_there_says_how_to_start_a_node() {
        let error = Client::connect(Path::new("/nowhere/node.sock")).unwrap_err();
        assert!(error.is_absence() && error.to_string().contains("`weir node -c node.toml`"), "{error}");
    }

    #[test]
    fn who_may_ask_has_names() {
        let file = "root:x:0:\nweir:x:987:a,b\nbad\n";
        assert_eq!((name_in(file, 987).as_str(), name_in(file, 5).as_str()), ("weir", "5"));
        let who =
            |group: Option<&str>| SocketAccess { user: Some("root".into()), group: group.map(str::to_owned) };
        assert_eq!(who(None).to_string(), "only user root");
        assert_eq!(who(Some("weir")).to_string(), "user root and the members of group weir");
    }
}
