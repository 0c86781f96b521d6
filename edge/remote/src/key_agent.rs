//! A private key in a process of its own.
//!
//! Whoever takes a node over, by a flaw in a sandbox say, can do what the node can and read what is in its memory. Its private key is not: a
//! [companion](weir_os::companion) reads it from its file, gives everything else up, and signs. Not whatever it is shown: only that an X25519 key is the
//! node's own, as the side that is connected to, in one handshake ([`KeyStatement`]). So who has the node can be it for as long as he has it; he cannot take its
//! identity with him, and cannot have it sign a credential, a revocation list, or itself as a client of another node.
//!
//! Messages are fixed in length. The keeper begins with the byte [`READY`] and its public key, or with [`FAILED`] and why there is none. A question is a
//! statement's bytes; the answer is [`READY`] and the signature, or [`FAILED`] alone where it is no statement that this keeper signs.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_os::child;
use weir_os::companion::{HelperChannel, HelperLimits, HelperProcess};
use weir_os::private::{self, PrivateError};
use weir_os::{Isolation, Launcher};
use weir_trust::association::{HandshakeRole, KeyStatement, STATEMENT_BYTES, Signer, Unsigned};
use weir_trust::key::{FILE_BYTES_MAX, Identity, KeyFile, KeyFileError, PublicKey, Signature};
use weir_units::Bytes;
use zeroize::Zeroizing;

/// The argument that makes a process of weir a keeper; the file follows it. It has to answer it with [`keep`].
pub const KEEPER: &str = "keep-key";

const READY: u8 = 1;
const FAILED: u8 = 0;
/// Longer than any message.
const MESSAGE_BYTES: usize = 1024;
/// What the program itself takes, and room for reading a file.
const ROOM: HelperLimits = HelperLimits { addresses: Bytes(1 << 30), memory: Bytes(64 << 20) };
/// How long a keeper may take to begin, on the slowest of machines,
const BEGINNING: Duration = Duration::from_secs(30);
/// and to sign. A handshake takes no longer.
const SIGNING: Duration = Duration::from_secs(5);
/// Where none could be started it is not tried again for so long: strangers decide on how often somebody asks.
const PAUSE: Duration = Duration::from_secs(1);

/// Why there is no keeper.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The key cannot be used. To blame is the operator; these are the keeper's words.
    #[error("{0}")]
    Key(String),
    /// The system gives no process, or it ends.
    #[error("the process that is to keep the private key cannot be started: {0}")]
    Process(#[from] io::Error),
    /// Its key is another one than before.
    #[error("the file has another key now, {0}: a node is who it was until it is started anew")]
    Changed(PublicKey),
}

/// Why the keeper itself cannot use a file.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("{0}")]
    Private(#[from] PrivateError),
    #[error(
        "it is sealed with a passphrase, and nobody is there to type one when a node starts: make a node's key without one, with `weir key new`, and let its file be the operator's alone"
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

/// Who keeps a node's private key, from the node's side. One that ends is started anew when it is needed next.
#[derive(Debug)]
pub struct KeyAgent {
    launcher: Launcher,
    arguments: Vec<PathBuf>,
    public: PublicKey,
    tell: fn(&str),
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Here(HelperProcess),
    /// There is none, and when to try again.
    Gone(Instant),
}

impl KeyAgent {
    /// Starts a process by `launcher`, which answers these arguments with [`keep`]. `tell` is told when a keeper ends, and what becomes of it.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn start(launcher: Launcher, arguments: Vec<PathBuf>, tell: fn(&str)) -> Result<Self, AgentError> {
        let (companion, public) = begin(&launcher, &arguments)?;
        Ok(Self { launcher, arguments, public, tell, state: Mutex::new(State::Here(companion)) })
    }

    /// The process's number, as long as there is one.
    pub fn id(&self) -> Option<u32> {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Here(companion) => Some(companion.id()),
            State::Gone(_) => None,
        }
    }

    /// The walls around the process, as long as there is one.
    pub fn isolation(&self) -> Option<Isolation> {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Here(companion) => Some(companion.isolation()),
            State::Gone(_) => None,
        }
    }

    /// Another one in the place of one that is gone.
    fn renew(&self) -> Result<HelperProcess, AgentError> {
        let (companion, public) = begin(&self.launcher, &self.arguments)?;
        if public == self.public { Ok(companion) } else { Err(AgentError::Changed(public)) }
    }

    /// Has a statement signed, by another keeper where the first one does not answer.
    fn ask(&self, state: &mut State, statement: &KeyStatement) -> Result<Signature, Unsigned> {
        if let State::Here(companion) = state {
            match sign(companion, statement) {
                Ok(answered) => return answered,
                Err(error) => {
                    let how = companion.end().map_or_else(|error| error.to_string(), |how| how.to_string());
                    (self.tell)(&format!(
                        "the process that keeps the node's private key does not sign: {error} ({how})"
                    ));
                    *state = State::Gone(Instant::now());
                }
            }
        }
        if let State::Gone(until) = state
            && Instant::now() < *until
        {
            return Err(Unsigned);
        }
        let signed = self.renew().and_then(|mut companion| {
            let signed = sign(&mut companion, statement)?;
            *state = State::Here(companion);
            Ok(signed)
        });
        match signed {
            Ok(signed) => {
                (self.tell)("the node's private key is kept by another process now");
                signed
            }
            Err(error) => {
                *state = State::Gone(Instant::now() + PAUSE);
                (self.tell)(&format!("nobody new is let in, as there is no private key: {error}"));
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
        self.ask(&mut state, statement)
    }
}

/// Starts a process that keeps the key.
fn begin(launcher: &Launcher, arguments: &[PathBuf]) -> Result<(HelperProcess, PublicKey), AgentError> {
    let mut companion = HelperProcess::start(launcher, arguments, ROOM)?;
    let heard = companion.hear(MESSAGE_BYTES, Instant::now() + BEGINNING).and_then(|message| {
        let (kind, rest) = message.split_first().ok_or_else(nonsense)?;
        match (*kind, <[u8; 32]>::try_from(rest)) {
            (READY, Ok(key)) => PublicKey::from_bytes(key).map(Ok).map_err(|_| nonsense()),
            (FAILED, _) => Ok(Err(AgentError::Key(child::plain(rest)))),
            _ => Err(nonsense()),
        }
    });
    let heard = heard.map_err(|error| match companion.end() {
        Ok(how) => io::Error::other(format!("{error} ({how})")),
        Err(_) => error,
    });
    Ok((companion, heard??))
}

/// A keeper's signature; or that it does not sign this. An error is one after which it is not to be asked any more.
fn sign(companion: &mut HelperProcess, statement: &KeyStatement) -> io::Result<Result<Signature, Unsigned>> {
    match companion.ask(statement.as_bytes(), MESSAGE_BYTES, SIGNING)?.split_first() {
        Some((&READY, signature)) => {
            signature.try_into().map(|signature| Ok(Signature(signature))).map_err(|_| nonsense())
        }
        Some((&FAILED, [])) => Ok(Err(Unsigned)),
        _ => Err(nonsense()),
    }
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what it says is nothing that a keeper says")
}

/// What a keeper does: hides, reads the private key in this file, gives up everything else, and signs what may be signed until nobody asks any more.
///
/// # Errors
/// Nobody has started it who could ask.
pub fn keep(file: &Path) -> io::Result<()> {
    let mut line = HelperChannel::of_standard_input()?;
    let failed = |line: &mut HelperChannel, why: &dyn std::fmt::Display| {
        let text = why.to_string();
        let text = text.as_bytes();
        let most = text.len().min(MESSAGE_BYTES - 1);
        line.say(&[&[FAILED], text.get(..most).unwrap_or_default()].concat())
    };
    // Before there is anything to see.
    if let Err(error) = weir_os::hide() {
        return failed(&mut line, &error);
    }
    let identity = match read(file) {
        Ok(identity) => identity,
        Err(error) => return failed(&mut line, &error),
    };
    if let Err(error) = weir_os::keeper() {
        return failed(&mut line, &error);
    }
    line.say(&[[READY].as_slice(), identity.public().as_bytes()].concat())?;
    while let Some(question) = line.hear(MESSAGE_BYTES)? {
        line.say(&answer(&identity, &question))?;
    }
    Ok(())
}

/// What a keeper says to a question.
fn answer(identity: &Identity, question: &[u8]) -> Vec<u8> {
    // A node is connected to: it has nothing to say as the other side.
    let statement = KeyStatement::read(question, HandshakeRole::Responder);
    match statement.map(|statement| identity.sign_statement(&statement)) {
        Some(Ok(signature)) => [[READY].as_slice(), signature.0.as_slice()].concat(),
        Some(Err(Unsigned)) | None => vec![FAILED],
    }
}

/// The key in a file that is the operator's alone.
fn read(path: &Path) -> Result<Identity, FileError> {
    let file = private::open_secret(path)?;
    // Where it does not have to grow: what is moved is left behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX + 1));
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| KeyFileError::NotAKey)?;
    Ok(KeyFile::parse(text)?.open(None)?)
}

const _: () = assert!(STATEMENT_BYTES < MESSAGE_BYTES && FILE_BYTES_MAX <= MESSAGE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trust::key::SignatureContext;

    #[test]
    fn nothing_is_signed_but_what_a_node_says_of_itself_in_a_handshake() {
        let identity = Identity::from_seed(&[7; 32]);
        let own = KeyStatement::new(HandshakeRole::Responder, &[1; 32], &[2; 32]);
        let answered = answer(&identity, own.as_bytes());
        let (&READY, signature) = answered.split_first().unwrap() else { panic!("it is signed") };
        let signature = Signature(signature.try_into().unwrap());
        assert_eq!(own.verify(identity.public(), &signature), Ok(()));

        // In the other role, or of a version that this weir does not know.
        let client = KeyStatement::new(HandshakeRole::Initiator, &[1; 32], &[2; 32]);
        let mut later = *own.as_bytes();
        later[0] += 1;
        // What an identity signs elsewhere: contexts spelt out, a block of a credential, a statement in front of something else or behind it.
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
            &[0xff; MESSAGE_BYTES],
        ] {
            assert_eq!(answer(&identity, other), [FAILED], "{other:?}");
        }
        // And what it signs is nothing in any other context.
        let elsewhere = SignatureContext::new("revocation list");
        assert!(identity.public().verify(elsewhere, own.as_bytes(), &signature).is_err());
    }
}
