//! The node's trust: roots, their limits, revocations, operators, and the key agent with its own key.

use crate::control::config::NodeConfiguration;
use crate::control::policy::Policy;
use crate::server::daemon::DaemonError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use weir_admission::Name;
use weir_os::Launcher;
use weir_remote::{KEY_AGENT_ARGUMENT, KeyAgent};
use weir_trust::credential::{Credential, CredentialRefusal, VerificationContext, VerifiedCredential};
use weir_trust::grant::{Grant, NodeName, UnixSecond};
use weir_trust::key::PublicKey;
use weir_trust::revocation::{Accepted, ListReception, RevocationError, RevocationList, Revocations};

/// The roots of trust of a node, with their limits and revocations, and the node's operators.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    name: NodeName,
    roots: Vec<PublicKey>,
    /// The keys with the rights of the operator.
    operators: Vec<PublicKey>,
    /// The limits of roots; a root without an entry can grant everything.
    limits: BTreeMap<PublicKey, Grant>,
    revocations: Revocations,
}

/// The error of a file that `[remote]` names, or that the node has stored for remote access.
#[derive(Debug, thiserror::Error)]
pub enum RemoteConfigError {
    /// The node's private key cannot be used.
    #[error(transparent)]
    Key(#[from] weir_remote::AgentError),
    /// A list that an earlier version of the node stored is damaged.
    #[error("{0}. The node has stored this file: remove it, and have all lists of this root delivered again")]
    StoredList(weir_trust::revocation::RevocationError),
    /// The stored revocations of a root are damaged.
    #[error("{0}: remove the file, and have all lists of its root delivered again")]
    StoredRevocations(weir_trust::revocation::StateError),
    /// The node's name cannot be used in credentials.
    #[error(
        "the node's name, `{0}`, cannot be used in credentials: set another one with `name` under [remote]"
    )]
    Name(Name),
}

impl Trust {
    /// Creates the trust of a configuration and its policy; `None` without remote access. `path` is the configuration's
    /// file.
    pub(crate) fn from_config(
        config: &NodeConfiguration,
        policy: &Policy,
        path: &Path,
    ) -> Result<Option<Arc<Self>>, DaemonError> {
        let Some(remote) = &config.remote else { return Ok(None) };
        let name = config.credential_name().map_err(|_| DaemonError::Trust {
            path: path.to_owned(),
            source: RemoteConfigError::Name(config.node.name.clone()),
        })?;
        Ok(Some(Arc::new(Self { operators: remote.operators.clone(), ..Self::new(name, policy) })))
    }

    /// Adds a key as a root with the limit of another root.
    pub(crate) fn with_substitute_root(mut self, root: &PublicKey, other: PublicKey) -> Self {
        self.limits.insert(other, self.limit(root).clone());
        self.roots.push(other);
        self
    }

    /// Creates the trust of a policy on the node of this name, without operators.
    pub(crate) fn new(name: NodeName, policy: &Policy) -> Self {
        let limits = policy.roots.iter().map(|root| (root.key, root.limit.clone())).collect();
        let revocations = policy.revocations.clone();
        Self { name, roots: policy.keys(), operators: Vec::new(), limits, revocations }
    }

    /// Verifies a peer's credential, and narrows it to the limit of its root.
    pub(crate) fn verify(
        &self,
        credential: &Credential,
        peer: &PublicKey,
        now: UnixSecond,
    ) -> Result<VerifiedCredential, CredentialRefusal> {
        let Self { name, roots, revocations, .. } = self;
        let verified =
            credential.verify(&VerificationContext { roots, revocations, peer, node: name, now })?;
        verified.limited_to(self.limit(verified.root()), name, now)
    }

    /// Verifies again a credential that was valid before, and narrows it to the present limit of its root.
    ///
    /// # Errors
    /// The credential has expired, was revoked, or its root is not trusted any more.
    pub(crate) fn current(
        &self,
        credential: &Arc<VerifiedCredential>,
        now: UnixSecond,
    ) -> Result<Arc<VerifiedCredential>, CredentialRefusal> {
        if !self.roots.contains(credential.root()) {
            return Err(CredentialRefusal::UnknownRoot(*credential.root()));
        }
        let expired_block =
            credential.chain().iter().position(|link| link.grant.expires.is_some_and(|until| now >= until));
        if let Some(block) = expired_block {
            return Err(CredentialRefusal::Expired { block, until: credential.expires(), now });
        }
        if let Some(revoked) = credential.revoked_by(&self.revocations) {
            return Err(revoked);
        }
        let limit = self.limit(credential.root());
        if limit == credential.limit() && now < credential.expires() {
            return Ok(Arc::clone(credential));
        }
        credential.limited_to(limit, &self.name, now).map(Arc::new)
    }

    /// Returns true if a key has the rights of the operator.
    pub(crate) fn is_operator(&self, key: &PublicKey) -> bool {
        self.operators.contains(key)
    }

    /// Returns the node's name in credentials.
    pub(crate) fn name(&self) -> &NodeName {
        &self.name
    }

    /// Returns the limit of a root's grants.
    pub(crate) fn limit(&self, root: &PublicKey) -> &Grant {
        static NO_LIMIT: LazyLock<Grant> = LazyLock::new(Grant::default);
        self.limits.get(root).unwrap_or(&NO_LIMIT)
    }

    /// Returns a copy to which a delivered list is applied, and the changes. `credential` is that of the client who delivers
    /// the list.
    ///
    /// # Errors
    /// The list is not accepted on this node.
    pub(crate) fn with_list(
        &self,
        list: &RevocationList,
        credential: Option<&VerifiedCredential>,
        now: UnixSecond,
    ) -> Result<(Self, Accepted), RevocationError> {
        let mut revocations = self.revocations.clone();
        let accepted = revocations.accept(list, &ListReception { roots: &self.roots, credential, now })?;
        Ok((Self { revocations, ..self.clone() }, accepted))
    }

    /// Returns a copy to which known revocations of the trusted roots are added, and the number of entries that are left out.
    /// If there are too many entries, those of `known` take precedence over the present ones.
    pub(crate) fn with_revocations<'a>(
        &self,
        known: impl IntoIterator<Item = &'a Revocations>,
        now: UnixSecond,
    ) -> (Self, usize) {
        let mut revocations = Revocations::default();
        let mut left_out = 0;
        for known in known {
            left_out += revocations.merge(known, &self.roots, now);
        }
        left_out += revocations.merge(&self.revocations, &self.roots, now);
        (Self { revocations, ..self.clone() }, left_out)
    }

    /// Returns all revocations.
    pub(crate) fn revocations(&self) -> &Revocations {
        &self.revocations
    }

    /// Returns the keys of the trusted roots.
    pub(crate) fn roots(&self) -> &[PublicKey] {
        &self.roots
    }
}

/// Starts the key agent, which reads the node's private key from this file.
pub(crate) fn start_key_agent(path: &Path) -> Result<KeyAgent, DaemonError> {
    let arguments = vec![PathBuf::from(KEY_AGENT_ARGUMENT), path.to_owned()];
    KeyAgent::start(Launcher::of_process(), arguments, crate::log::info)
        .map_err(|error| DaemonError::Trust { path: path.to_owned(), source: error.into() })
}
