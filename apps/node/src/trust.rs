//! Whose credentials count on this node, and who it is itself.

use crate::config::Config;
use crate::daemon::DaemonError;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use weir_session::Name;
use weir_trust::credential::{Credential, Refusal, Situation, Verified};
use weir_trust::grant::{NodeName, Second};
use weir_trust::key::{FILE_BYTES_MAX, Identity, KeyFile, PublicKey};
use weir_trust::revocation::{LIST_BYTES_MAX, RevocationList, Revocations};
use zeroize::Zeroizing;

/// Whose credentials count on this node.
#[derive(Debug)]
pub(crate) struct Trust {
    name: NodeName,
    roots: Vec<PublicKey>,
    revocations: Revocations,
}

/// Why a file of `[remote]` cannot be used. To blame is the operator.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A private key.
    #[error(transparent)]
    Key(#[from] weir_trust::key::KeyFileError),
    /// One that others can read.
    #[error(
        "others than its owner can read it: `chmod 600` it, and if they may have read it make a new one with `weir key new`"
    )]
    Open,
    /// A list of what was taken back.
    #[error(transparent)]
    Revocation(#[from] weir_trust::revocation::RevocationError),
    /// The node's name.
    #[error(
        "the node's name, `{0}`, is none that credentials can have: give it another one with `name` under [remote]"
    )]
    Name(Name),
}

impl Trust {
    /// As the configuration says; nothing where it says nothing. `beside` finds its files, `read` reads them.
    pub(crate) fn load(
        config: &Config,
        beside: impl Fn(&Path) -> std::path::PathBuf,
        mut read: impl FnMut(&Path, usize) -> Result<String, DaemonError>,
    ) -> Result<Option<Arc<Self>>, DaemonError> {
        let Some(remote) = &config.remote else { return Ok(None) };
        let name = match &remote.name {
            Some(name) => name.clone(),
            None => config.node.name.as_str().parse().map_err(|_| DaemonError::Trust {
                path: beside(Path::new("")),
                source: TrustError::Name(config.node.name.clone()),
            })?,
        };
        let mut revocations = Revocations::default();
        for file in &remote.revocations {
            let path = beside(file);
            let text = read(&path, LIST_BYTES_MAX)?;
            let wrong =
                |source| DaemonError::Trust { path: path.clone(), source: TrustError::Revocation(source) };
            let list: RevocationList = text.parse().map_err(wrong)?;
            revocations.accept(list, &remote.roots).map_err(wrong)?;
        }
        Ok(Some(Arc::new(Self { name, roots: remote.roots.clone(), revocations })))
    }

    /// What a peer's credential is worth now.
    pub(crate) fn verify(
        &self,
        credential: &Credential,
        peer: &PublicKey,
        now: Second,
    ) -> Result<Verified, Refusal> {
        let Self { name, roots, revocations } = self;
        credential.verify(&Situation { roots, revocations, peer, node: name, now })
    }

    /// Why what was worth something is not any more; nothing where it still is.
    pub(crate) fn end_of(&self, credential: &Verified, now: Second) -> Option<Refusal> {
        if !self.roots.contains(credential.root()) {
            return Some(Refusal::UnknownRoot(*credential.root()));
        }
        let late =
            credential.chain().iter().position(|link| link.grant.expires.is_some_and(|until| now >= until));
        if let Some(block) = late {
            return Some(Refusal::Expired { block, until: credential.expires(), now });
        }
        credential.revoked_by(&self.revocations)
    }
}

/// The node's own key, from a file that is the operator's alone.
pub(crate) fn identity(path: &Path) -> Result<Identity, DaemonError> {
    let wrong = |source| DaemonError::Trust { path: path.to_owned(), source };
    let failed = |source| DaemonError::Read { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
        return Err(wrong(TrustError::Open));
    }
    let mut text = Zeroizing::new(String::new());
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(failed)?;
    KeyFile::parse(&text).and_then(|file| file.open(None)).map_err(|error| wrong(error.into()))
}
