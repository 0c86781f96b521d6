//! The followed modules as the node describes them, and the messages that arrive about their records.

use crate::client::{Client, ClientError, reply_kind};
use crate::control::protocol::{FollowedModule, FollowedStream, Reply};
use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use weir_admission::{DeclaredStream, Manifest, ManifestError, Name, NameError};
use weir_trust::grant::{ModuleHash, NodeName};
use weir_units::{Escape as _, bytes_of_hex};

/// The longest reply that is accepted. A reply with a record is shorter, even if all its texts have the greatest
/// length.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// The most messages that wait while rows are printed and written. Further ones wait on the node, which counts those that it drops.
const EVENTS_MAX: usize = 64;

/// Errors of a node's description of modules, and of records that do not fit it.
#[derive(Debug, thiserror::Error)]
pub enum FollowedError {
    /// The reply is of another kind.
    #[error(transparent)]
    Reply(#[from] ClientError),
    /// The name of the node or of a module is not valid.
    #[error("the node sent the name `{}`: {error}", name.escape_debug())]
    Name {
        /// The name.
        name: String,
        /// The fault of the name.
        error: String,
    },
    /// The hash of a module is not valid.
    #[error("the node sent an invalid hash of module {module}")]
    Digest {
        /// The module.
        module: Name,
    },
    /// Two modules have the same name.
    #[error("the node sent two modules with the name {0}")]
    Twice(Name),
    /// The manifest of a module is not valid.
    #[error("the node sent a manifest of module {module} that is not valid: {error}")]
    Manifest {
        /// The module.
        module: Name,
        /// The fault of the manifest.
        error: ManifestError,
    },
    /// A record or a number of missed records belongs to no followed module.
    #[error("the node sent records of module {}, stream {}, but its modules have no such stream", .0.module, .0.stream)]
    NoStream(FollowedStream),
    /// A row does not have the lengths that the manifest states.
    #[error(
        "the node sent a row of {0} that does not fit the module's manifest; the records until then are kept"
    )]
    Row(String),
    /// The thread that receives records cannot be started.
    #[error("there is no thread to receive records: {0}")]
    Thread(io::Error),
}

/// A followed module.
#[derive(Debug)]
pub struct ModuleInSession {
    /// Name in the session.
    pub name: Name,
    /// Hash of the module's bytes.
    pub digest: ModuleHash,
    /// The module's manifest.
    pub manifest: Manifest,
}

/// The followed modules.
#[derive(Debug)]
pub struct Followed {
    /// Name of the node.
    pub node: NodeName,
    /// The modules, by their index in [`FollowedStream`].
    pub modules: Vec<ModuleInSession>,
}

impl Followed {
    /// Reads the node's description of the followed modules.
    ///
    /// # Errors
    /// The reply is another one, or the description is not valid.
    pub fn from_reply(reply: Reply) -> Result<Self, FollowedError> {
        let Reply::Followed { node, modules } = reply else {
            return Err(ClientError::UnexpectedReply(reply_kind(&reply)).into());
        };
        let node = node.parse().map_err(|error: <NodeName as std::str::FromStr>::Err| {
            FollowedError::Name { name: node.chars().take(80).collect(), error: error.to_string() }
        })?;
        let mut names = BTreeSet::new();
        let module = |module: &FollowedModule| {
            let name = Name::new(&module.name).map_err(|error: NameError| FollowedError::Name {
                name: module.name.chars().take(80).collect(),
                error: error.to_string(),
            })?;
            if !names.insert(name.clone()) {
                return Err(FollowedError::Twice(name));
            }
            let digest = module.digest.parse();
            let digest = digest.map_err(|_| FollowedError::Digest { module: name.clone() })?;
            let manifest = Manifest::parse(module.manifest.as_bytes())
                .map_err(|error| FollowedError::Manifest { module: name.clone(), error })?;
            Ok(ModuleInSession { name, digest, manifest })
        };
        Ok(Self { node, modules: modules.iter().map(module).collect::<Result<_, _>>()? })
    }

    /// Returns the label of each module, with its manifest.
    pub fn labels(&self) -> Vec<(String, &Manifest)> {
        self.modules.iter().map(|module| (module.name.to_string(), &module.manifest)).collect()
    }

    /// Returns the name of a stream: `MODULE.STREAM`.
    ///
    /// # Errors
    /// There is no such stream.
    pub fn stream_name(&self, stream: FollowedStream) -> Result<String, FollowedError> {
        let (module, declared) = self.declared(stream)?;
        Ok(format!("{}.{}", module.name, declared.name))
    }

    /// Checks the lengths of a row and of its tail.
    ///
    /// # Errors
    /// There is no such stream, or a field lies outside the row or the tail.
    pub fn check(&self, stream: FollowedStream, row: &[u8], tail: &[u8]) -> Result<(), FollowedError> {
        let (_, declared) = self.declared(stream)?;
        if declared.fits(row, tail) {
            return Ok(());
        }
        Err(FollowedError::Row(self.stream_name(stream)?))
    }

    fn declared(&self, stream: FollowedStream) -> Result<(&ModuleInSession, &DeclaredStream), FollowedError> {
        let module = self.modules.get(usize::from(stream.module));
        let found = module
            .and_then(|module| Some((module, module.manifest.streams.get(usize::from(stream.stream))?)));
        found.ok_or(FollowedError::NoStream(stream))
    }
}

/// A message about the records of a module.
#[derive(Debug)]
pub enum FollowEvent {
    /// A record. Its lengths are not checked yet.
    Row {
        /// The stream.
        stream: FollowedStream,
        /// The row.
        row: Vec<u8>,
        /// The bytes of its `string` and `bytes` fields.
        tail: Vec<u8>,
    },
    /// Records that the node could not send in time.
    Missed {
        /// The stream.
        stream: FollowedStream,
        /// Their number.
        rows: u64,
    },
    /// All followed modules have ended.
    End {
        /// Notes of the node.
        notes: Vec<String>,
    },
}

/// Receives messages in a thread of their own, so that the caller also notices signals and a closed standard output. The last
/// message is an end or an error.
///
/// # Errors
/// The thread cannot be started, or the connection has failed.
pub fn receive(mut client: Client) -> Result<Receiver<Result<FollowEvent, ClientError>>, FollowedError> {
    client.remove_reply_timeout()?;
    client.limit_replies(REPLY_BYTES_MAX);
    let (sender, events) = sync_channel(EVENTS_MAX);
    let receive = move || {
        loop {
            let event = client.receive().and_then(event);
            let is_last = !matches!(event, Ok(FollowEvent::Row { .. } | FollowEvent::Missed { .. }));
            if sender.send(event).is_err() || is_last {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("weir-follow".to_owned())
        .spawn(receive)
        .map_err(FollowedError::Thread)?;
    Ok(events)
}

fn event(reply: Reply) -> Result<FollowEvent, ClientError> {
    let bytes = |digits: &str| {
        bytes_of_hex(digits).ok_or_else(|| {
            ClientError::InvalidReply("a row is not written in hexadecimal digits".escaped().to_string())
        })
    };
    match reply {
        Reply::Record(row) => {
            Ok(FollowEvent::Row { stream: row.stream, row: bytes(&row.row)?, tail: bytes(&row.tail)? })
        }
        Reply::Missed { stream, rows } => Ok(FollowEvent::Missed { stream, rows }),
        Reply::Done { notes } => Ok(FollowEvent::End { notes }),
        other => Err(ClientError::UnexpectedReply(reply_kind(&other))),
    }
}
