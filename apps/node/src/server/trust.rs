//! Whose credentials count on this node, and who it is itself.

use crate::control::config::NodeConfiguration;
use crate::control::policy::Policy;
use crate::server::daemon::DaemonError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use weir_admission::Name;
use weir_os::Launcher;
use weir_remote::{KEEPER, KeyAgent};
use weir_trust::credential::{Credential, CredentialRefusal, Situation, VerifiedCredential};
use weir_trust::grant::{Grant, NodeName, Second};
use weir_trust::key::PublicKey;
use weir_trust::revocation::{Accepted, Reception, RevocationError, RevocationList, Revocations};

/// Whose credentials count on this node, and for how much.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    name: NodeName,
    roots: Vec<PublicKey>,
    /// Those who may ask for all that the operator may.
    operators: Vec<PublicKey>,
    /// What those may grant at most that may not grant everything.
    limits: BTreeMap<PublicKey, Grant>,
    revocations: Revocations,
}

/// Why a file of `[remote]` cannot be used. To blame is the operator.
#[derive(Debug, thiserror::Error)]
pub enum RemoteConfigError {
    /// The node's private key.
    #[error(transparent)]
    Key(#[from] weir_remote::AgentError),
    /// A list that the node itself had kept, by an earlier version.
    #[error(
        "{0}. The node has kept it as it was delivered: remove the file, and have all lists of this root delivered again"
    )]
    Kept(weir_trust::revocation::RevocationError),
    /// The revocations of a root that the node itself had kept.
    #[error("{0}: remove the file, and have all lists of its root delivered again")]
    State(weir_trust::revocation::StateError),
    /// The node's name.
    #[error(
        "the node's name, `{0}`, is none that credentials can have: give it another one with `name` under [remote]"
    )]
    Name(Name),
}

impl Trust {
    /// As a configuration says with its policy; nothing where the node is not reached from elsewhere. `path` is the configuration's file.
    pub(crate) fn of(
        config: &NodeConfiguration,
        policy: &Policy,
        path: &Path,
    ) -> Result<Option<Arc<Self>>, DaemonError> {
        let Some(remote) = &config.remote else { return Ok(None) };
        let name = config.name().map_err(|_| DaemonError::Trust {
            path: path.to_owned(),
            source: RemoteConfigError::Name(config.node.name.clone()),
        })?;
        Ok(Some(Arc::new(Self { operators: remote.operators.clone(), ..Self::new(name, policy) })))
    }

    /// With somebody else who counts as much as a root does.
    pub(crate) fn with_stand_in(mut self, root: &PublicKey, other: PublicKey) -> Self {
        self.limits.insert(other, self.limit(root).clone());
        self.roots.push(other);
        self
    }

    /// On the node of this name.
    pub(crate) fn new(name: NodeName, policy: &Policy) -> Self {
        let limits = policy.roots.iter().map(|root| (root.key, root.limit.clone())).collect();
        let revocations = policy.revocations.clone();
        Self { name, roots: policy.keys(), operators: Vec::new(), limits, revocations }
    }

    /// What a peer's credential is worth now.
    pub(crate) fn verify(
        &self,
        credential: &Credential,
        peer: &PublicKey,
        now: Second,
    ) -> Result<VerifiedCredential, CredentialRefusal> {
        let Self { name, roots, revocations, .. } = self;
        let verified = credential.verify(&Situation { roots, revocations, peer, node: name, now })?;
        verified.within(self.limit(verified.root()), name, now)
    }

    /// What was worth something before is worth now.
    ///
    /// # Errors
    /// It is worth nothing any more.
    pub(crate) fn current(
        &self,
        credential: &Arc<VerifiedCredential>,
        now: Second,
    ) -> Result<Arc<VerifiedCredential>, CredentialRefusal> {
        if !self.roots.contains(credential.root()) {
            return Err(CredentialRefusal::UnknownRoot(*credential.root()));
        }
        let late =
            credential.chain().iter().position(|link| link.grant.expires.is_some_and(|until| now >= until));
        if let Some(block) = late {
            return Err(CredentialRefusal::Expired { block, until: credential.expires(), now });
        }
        if let Some(revoked) = credential.revoked_by(&self.revocations) {
            return Err(revoked);
        }
        let limit = self.limit(credential.root());
        if limit == credential.limit() && now < credential.expires() {
            return Ok(Arc::clone(credential));
        }
        credential.within(limit, &self.name, now).map(Arc::new)
    }

    /// Whether somebody may ask for all that the operator may.
    pub(crate) fn is_operator(&self, key: &PublicKey) -> bool {
        self.operators.contains(key)
    }

    /// What credentials call this node.
    pub(crate) fn name(&self) -> &NodeName {
        &self.name
    }

    /// What a root may grant at most.
    pub(crate) fn limit(&self, root: &PublicKey) -> &Grant {
        static NONE: LazyLock<Grant> = LazyLock::new(Grant::default);
        self.limits.get(root).unwrap_or(&NONE)
    }

    /// The same with a delivered list, and the changes. `shown` is the credential of the deliverer.
    ///
    /// # Errors
    /// The list does not count here.
    pub(crate) fn with_list(
        &self,
        list: &RevocationList,
        shown: Option<&VerifiedCredential>,
        now: Second,
    ) -> Result<(Self, Accepted), RevocationError> {
        let mut revocations = self.revocations.clone();
        let accepted = revocations.accept(list, &Reception { roots: &self.roots, shown, now })?;
        Ok((Self { revocations, ..self.clone() }, accepted))
    }

    /// The same with earlier revocations of the roots that count now, and the number of entries that found no room. The earlier ones come first.
    pub(crate) fn remembering<'a>(
        &self,
        known: impl IntoIterator<Item = &'a Revocations>,
        now: Second,
    ) -> (Self, usize) {
        let mut revocations = Revocations::default();
        let mut left_out = 0;
        for known in known {
            left_out += revocations.absorb(known, &self.roots, now);
        }
        left_out += revocations.absorb(&self.revocations, &self.roots, now);
        (Self { revocations, ..self.clone() }, left_out)
    }

    /// All that is revoked.
    pub(crate) fn revocations(&self) -> &Revocations {
        &self.revocations
    }

    /// The roots whose credentials count.
    pub(crate) fn roots(&self) -> &[PublicKey] {
        &self.roots
    }
}

/// Who keeps the node's own key, which is in a file that is the operator's alone.
pub(crate) fn keeper(path: &Path) -> Result<KeyAgent, DaemonError> {
    let arguments = vec![PathBuf::from(KEEPER), path.to_owned()];
    KeyAgent::start(Launcher::of_process(), arguments, crate::server::log::say)
        .map_err(|error| DaemonError::Trust { path: path.to_owned(), source: error.into() })
}
