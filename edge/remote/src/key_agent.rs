//! The key agent: the node's private key in a process of its own.
//!
//! An attacker who takes a node over, for instance by a flaw in a sandbox, can read the node's memory and do all that
//! the node can do. The private key is not in that memory: a [helper process](weir_os::helper) reads it from its file,
//! gives up all its other rights, and signs. It signs only one kind of statement: that an X25519 key is the node's own,
//! as the responder of one handshake ([`KeyStatement`]). So the attacker can act as the node as long as they control
//! it, and no longer. The agent signs no credential, no revocation list, and no handshake as a client of another node.
//!
//! Messages have a bounded length. The agent's first message is the byte [`READY`] and its public key, or [`FAILED`]
//! and the reason why it has no key. A request is the bytes of a statement. The answer is [`READY`] and the signature,
//! or [`FAILED`] alone if the agent refuses to sign the statement.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_os::child;
use weir_os::helper::{HelperChannel, HelperLimits, HelperProcess};
use weir_os::private::{self, PrivateError};
use weir_os::{Isolation, Launcher};
use weir_trust::association::{HandshakeRole, KeyStatement, STATEMENT_BYTES, Signer, Unsigned};
use weir_trust::key::{FILE_BYTES_MAX, Identity, KeyFile, KeyFileError, PublicKey, Signature};
use weir_units::Bytes;
use zeroize::Zeroizing;

/// The command-line argument that makes a process of weir a key agent, followed by the key's file. The program must
/// call [`run_key_agent`] for this argument.
pub const KEY_AGENT_ARGUMENT: &str = "key-agent";

/// The first byte of an agent's message that reports success.
const READY: u8 = 1;
/// The first byte of an agent's message that reports a failure.
const FAILED: u8 = 0;
/// An upper bound on the length of a message, in bytes.
const MESSAGE_BYTES_MAX: usize = 1024;
/// The limits of the agent's process: memory for the program itself and for reading a key's file.
const AGENT_LIMITS: HelperLimits = HelperLimits { address_space: Bytes(1 << 30), memory: Bytes(64 << 20) };
/// The time limit for the start of an agent, chosen for slow machines.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit for a signature: at most the time that a handshake may take.
const SIGN_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after a failed start before the next one. Without it, unknown peers, whose handshakes request signatures,
/// would determine how often a process is started.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// The reason why there is no key agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The agent cannot use the key, for the given reason. The operator has to correct the configuration.
    #[error("{0}")]
    Key(String),
    /// The process cannot be started, or has ended.
    #[error("the key agent cannot be started: {0}")]
    Process(#[from] io::Error),
    /// The key's file contains another key than at the start of the node.
    #[error("the node's key file has another key now, {0}: restart the node to use the new key")]
    Changed(PublicKey),
}

/// The reason why the agent cannot use a file.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("{0}")]
    Private(#[from] PrivateError),
    #[error(
        "it is sealed with a passphrase, which cannot be typed when a node starts: create a node's key without one, with `weir key new`, and make its file readable only by the operator"
    )]
    Sealed,
    #[error(transparent)]
    Key(KeyFileError),
}

impl From<KeyFileError> for FileError {
    fn from(error: KeyFileError) -> Self {
        match error {
            KeyFileError::NoPassphrase => Self::Sealed,
            error => Self::Key(error),
        }
    }
}

/// The node's side of the key agent. If the agent has ended, another one is started for the next signature.
#[derive(Debug)]
pub struct KeyAgent {
    launcher: Launcher,
    arguments: Vec<PathBuf>,
    public: PublicKey,
    /// Receives log lines.
    log: fn(&str),
    state: Mutex<State>,
}

/// The state of the agent's process.
#[derive(Debug)]
enum State {
    Running(HelperProcess),
    /// No process is running, and none is started before this time.
    Ended(Instant),
}

impl KeyAgent {
    /// Starts a key agent by `launcher`. For these arguments, the started program must call [`run_key_agent`]. `log`
    /// receives log lines about the end of an agent and its restart.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn start(launcher: Launcher, arguments: Vec<PathBuf>, log: fn(&str)) -> Result<Self, AgentError> {
        let (agent, public) = begin(&launcher, &arguments)?;
        Ok(Self { launcher, arguments, public, log, state: Mutex::new(State::Running(agent)) })
    }

    /// Returns the process id of the agent, if it is running.
    pub fn id(&self) -> Option<u32> {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Running(agent) => Some(agent.id()),
            State::Ended(_) => None,
        }
    }

    /// Returns the isolation of the agent's process, if it is running.
    pub fn isolation(&self) -> Option<Isolation> {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Running(agent) => Some(agent.isolation()),
            State::Ended(_) => None,
        }
    }

    /// Starts a new agent in place of one that has ended. The new agent must have the same key.
    fn restart(&self) -> Result<HelperProcess, AgentError> {
        let (agent, public) = begin(&self.launcher, &self.arguments)?;
        if public == self.public { Ok(agent) } else { Err(AgentError::Changed(public)) }
    }

    /// Has the agent sign a statement. If the agent does not answer, ends it, and has a new agent sign.
    fn sign_or_restart(&self, state: &mut State, statement: &KeyStatement) -> Result<Signature, Unsigned> {
        if let State::Running(agent) = state {
            match sign(agent, statement) {
                Ok(answered) => return answered,
                Err(error) => {
                    let status =
                        agent.end().map_or_else(|error| error.to_string(), |status| status.to_string());
                    (self.log)(&format!("the key agent does not sign: {error} ({status})"));
                    *state = State::Ended(Instant::now());
                }
            }
        }
        if let State::Ended(next_start) = state
            && Instant::now() < *next_start
        {
            return Err(Unsigned);
        }
        let signed = self.restart().and_then(|mut agent| {
            let signed = sign(&mut agent, statement)?;
            *state = State::Running(agent);
            Ok(signed)
        });
        match signed {
            Ok(signed) => {
                (self.log)("the key agent was restarted");
                signed
            }
            Err(error) => {
                *state = State::Ended(Instant::now() + RESTART_PAUSE);
                (self.log)(&format!("no new peer is accepted, because there is no private key: {error}"));
                Err(Unsigned)
            }
        }
    }
}

impl Signer for KeyAgent {
    fn public(&self) -> PublicKey {
        self.public
    }

    fn sign_statement(&self, statement: &KeyStatement) -> Result<Signature, Unsigned> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.sign_or_restart(&mut state, statement)
    }
}

/// Starts an agent's process, and waits for its public key.
fn begin(launcher: &Launcher, arguments: &[PathBuf]) -> Result<(HelperProcess, PublicKey), AgentError> {
    let mut agent = HelperProcess::start(launcher, arguments, AGENT_LIMITS)?;
    let started = agent.receive(MESSAGE_BYTES_MAX, Instant::now() + START_TIMEOUT).and_then(|message| {
        let (kind, rest) = message.split_first().ok_or_else(invalid_answer)?;
        match (*kind, <[u8; 32]>::try_from(rest)) {
            (READY, Ok(key)) => PublicKey::from_bytes(key).map(Ok).map_err(|_| invalid_answer()),
            (FAILED, _) => Ok(Err(AgentError::Key(child::plain(rest)))),
            _ => Err(invalid_answer()),
        }
    });
    let started = started.map_err(|error| match agent.end() {
        Ok(status) => io::Error::other(format!("{error} ({status})")),
        Err(_) => error,
    });
    Ok((agent, started??))
}

/// Requests a signature from the agent. Returns the signature, or the agent's refusal. After an error, no further
/// request may be sent to this agent.
fn sign(agent: &mut HelperProcess, statement: &KeyStatement) -> io::Result<Result<Signature, Unsigned>> {
    match agent.request(statement.as_bytes(), MESSAGE_BYTES_MAX, SIGN_TIMEOUT)?.split_first() {
        Some((&READY, signature)) => {
            signature.try_into().map(|signature| Ok(Signature(signature))).map_err(|_| invalid_answer())
        }
        Some((&FAILED, [])) => Ok(Err(Unsigned)),
        _ => Err(invalid_answer()),
    }
}

fn invalid_answer() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the key agent's answer is invalid")
}

/// Runs the key agent: hides the process, reads the private key from `file`, confines the process, and signs permitted
/// statements until the node is gone.
///
/// # Errors
/// Standard input is not a channel to a node.
pub fn run_key_agent(file: &Path) -> io::Result<()> {
    let mut channel = HelperChannel::from_standard_input()?;
    let failed = |channel: &mut HelperChannel, why: &dyn std::fmt::Display| {
        let text = why.to_string();
        let text = text.as_bytes();
        let sent_len = text.len().min(MESSAGE_BYTES_MAX - 1);
        channel.send(&[&[FAILED], text.get(..sent_len).unwrap_or_default()].concat())
    };
    // Hidden before the key is in memory, so that no other process can read the key there.
    if let Err(error) = weir_os::hide() {
        return failed(&mut channel, &error);
    }
    let identity = match read(file) {
        Ok(identity) => identity,
        Err(error) => return failed(&mut channel, &error),
    };
    if let Err(error) = weir_os::confine_key_agent() {
        return failed(&mut channel, &error);
    }
    channel.send(&[[READY].as_slice(), identity.public().as_bytes()].concat())?;
    while let Some(request) = channel.receive(MESSAGE_BYTES_MAX)? {
        channel.send(&answer(&identity, &request))?;
    }
    Ok(())
}

/// Returns the agent's answer to a request.
fn answer(identity: &Identity, request: &[u8]) -> Vec<u8> {
    // The node is always the responder, so statements of initiators are refused.
    let statement = KeyStatement::read(request, HandshakeRole::Responder);
    match statement.map(|statement| identity.sign_statement(&statement)) {
        Some(Ok(signature)) => [[READY].as_slice(), signature.0.as_slice()].concat(),
        Some(Err(Unsigned)) | None => vec![FAILED],
    }
}

/// Reads the key from a file that only the operator may read.
fn read(path: &Path) -> Result<Identity, FileError> {
    let file = private::open_secret(path)?;
    // Allocated at full size: a buffer that grows would leave copies of the key in freed memory.
    let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX + 1));
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| KeyFileError::NotAKey)?;
    Ok(KeyFile::parse(text)?.open(None)?)
}

const _: () = assert!(STATEMENT_BYTES < MESSAGE_BYTES_MAX && FILE_BYTES_MAX <= MESSAGE_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trust::key::SignatureContext;

    #[test]
    fn only_a_nodes_own_handshake_statements_are_signed() {
        let identity = Identity::from_seed(&[7; 32]);
        let own = KeyStatement::new(HandshakeRole::Responder, &[1; 32], &[2; 32]);
        let answered = answer(&identity, own.as_bytes());
        let (&READY, signature) = answered.split_first().unwrap() else { panic!("it is signed") };
        let signature = Signature(signature.try_into().unwrap());
        assert_eq!(own.verify(identity.public(), &signature), Ok(()));

        // In the other role, or of an unknown version.
        let client = KeyStatement::new(HandshakeRole::Initiator, &[1; 32], &[2; 32]);
        let mut later = *own.as_bytes();
        later[0] += 1;
        // Other things that an identity signs: contexts spelt out, a block of a credential, a statement with bytes
        // before or after it.
        let context = b"weir signature 1\0\x0bassociation".as_slice();
        for other in [
            client.as_bytes().as_slice(),
            &later,
            b"",
            &[0; STATEMENT_BYTES],
            &[context, own.as_bytes()].concat(),
            b"weir signature 1\0\x0arevocation",
            &[own.as_bytes(), [0].as_slice()].concat(),
            &own.as_bytes()[1..],
            &[0xff; MESSAGE_BYTES_MAX],
        ] {
            assert_eq!(answer(&identity, other), [FAILED], "{other:?}");
        }
        // And its signatures are invalid in any other context.
        let elsewhere = SignatureContext::new("revocation list");
        assert!(identity.public().verify(elsewhere, own.as_bytes(), &signature).is_err());
    }
}
