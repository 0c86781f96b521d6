//! Whose credentials count on this node, and who it is itself.

use crate::config::Config;
use crate::daemon::DaemonError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_remote::{KEEPER, Keeper};
use weir_session::Name;
use weir_trust::credential::{Credential, Refusal, Situation, Verified};
use weir_trust::grant::{NodeName, Second};
use weir_trust::key::PublicKey;
use weir_trust::revocation::{LIST_BYTES_MAX, RevocationList, Revocations};

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
    /// The node's private key.
    #[error(transparent)]
    Key(#[from] weir_remote::KeeperError),
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
        beside: impl Fn(&Path) -> PathBuf,
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

/// Who keeps the node's own key, which is in a file that is the operator's alone.
pub(crate) fn keeper(path: &Path) -> Result<Keeper, DaemonError> {
    // The program that runs, also where another one has its name by now.
    let program = PathBuf::from("/proc/self/exe");
    let arguments = vec![PathBuf::from(KEEPER), path.to_owned()];
    Keeper::start(program, arguments, crate::log::say)
        .map_err(|error| DaemonError::Trust { path: path.to_owned(), source: error.into() })
}
