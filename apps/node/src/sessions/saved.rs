//! The form in which a session is saved to the state folder, so that a node restores the session after a restart.
//!
//! Only sessions that were created by requests are saved. The sessions of the configuration are created again from the
//! configuration.

use crate::control::authority::SessionOwner;
use crate::control::quantity;
use crate::control::spec::{LIST_ENTRIES_MAX, ModuleSpec, SessionSpec};
use crate::sessions::error::NodeError;
use crate::sessions::node::{Node, SessionModule, SessionState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use weir_admission::Name;
use weir_trust::credential::{Credential, DelegationId};
use weir_trust::grant::ModuleHash;

/// The version of the format of [`SavedSession`].
pub(crate) const SAVED_FORMAT: u32 = 1;

/// A saved session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedSession {
    /// Version of the format: [`SAVED_FORMAT`].
    pub(crate) weir_session: u32,
    /// The number that the session had when it was created. Sessions are restored in the order of these numbers, which
    /// is the order of creation. A restored session has another number on the node, and is still saved with this
    /// number.
    pub(crate) number: u64,
    /// The owner; `None` for the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<SavedOwner>,
    /// The description without modules. It contains the node's name of the session; the owner's name of the session is
    /// [`SavedOwner::called`].
    pub(crate) session: SessionSpec,
    /// The modules, oldest first.
    #[serde(default)]
    pub(crate) modules: Vec<SavedModule>,
}

/// The owner of a saved session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedOwner {
    /// The credential, as text.
    pub(crate) credential: String,
    /// The name by which the owner calls the session.
    #[serde(with = "quantity::text")]
    pub(crate) called: Name,
    /// Identifiers of the earlier delegations in the credential's chain whose holders had a session when this session
    /// was created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parents: Vec<String>,
}

/// A module of a saved session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedModule {
    /// The description, with the module's name in the session.
    pub(crate) module: ModuleSpec,
    /// Hash of the module's file; `None` for a module that comes with weir.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<ModuleHash>,
    /// Signatures of the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) signatures: Vec<String>,
}

/// The file that a module was loaded from, with its signatures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModuleOrigin {
    /// Hash of the module's file; `None` for a module that comes with weir.
    pub(crate) file: Option<ModuleHash>,
    /// Signatures of the file.
    pub(crate) signatures: Vec<String>,
}

/// The origin of a session, which decides whether the session is saved.
#[derive(Clone, Debug, Default)]
pub(crate) enum SessionOrigin {
    /// The node's configuration.
    #[default]
    Configuration,
    /// A request: the session is saved.
    Request,
    /// A saved session, which stays saved: its [`SavedSession::number`], the modules that are still to be restored,
    /// and the identifiers in [`SavedOwner::parents`].
    Saved(u64, Vec<SavedModule>, BTreeSet<DelegationId>),
}

impl SavedSession {
    /// Returns the identifiers of the owner's delegation chain, root first, as the credential claims them. Empty for the
    /// operator, and for a credential that cannot be parsed.
    pub(crate) fn claimed_chain(&self) -> Vec<DelegationId> {
        let credential = self.owner.as_ref().and_then(|owner| owner.credential.parse::<Credential>().ok());
        credential.map_or_else(Vec::new, |credential| {
            let delegations = credential.claimed_blocks().iter().map(|block| block.id);
            std::iter::once(DelegationId::of_root(credential.claimed_root())).chain(delegations).collect()
        })
    }

    /// Returns true if the session meets the conditions that its parser does not check: format, lengths, and names of
    /// modules.
    pub(crate) fn is_valid(&self) -> bool {
        self.weir_session == SAVED_FORMAT
            && self.modules.len() <= LIST_ENTRIES_MAX
            && self.session.modules.is_empty()
            && self
                .modules
                .iter()
                .all(|module| module.module.name.is_some() && module.signatures.len() <= LIST_ENTRIES_MAX)
    }
}

impl SavedOwner {
    fn new(owner: &SessionOwner, parents: &BTreeSet<DelegationId>) -> Option<Self> {
        let credential = Credential::parse(owner.credential.as_bytes()).ok()?.to_string();
        let parents = parents.iter().map(DelegationId::to_string).collect();
        Some(Self { credential, called: owner.session_name.clone(), parents })
    }
}

fn saved_module(name: &Name, module: &SessionModule) -> Option<SavedModule> {
    // A newer version that may still fail is not what a restart should run.
    let (spec, origin) = match &module.saved_before {
        Some(before) => (&before.spec, &before.origin),
        None => (&module.spec, &module.origin),
    };
    let ModuleOrigin { file, signatures } = origin.clone()?;
    let spec = ModuleSpec { name: Some(name.clone()), ..spec.clone() };
    Some(SavedModule { module: spec, file, signatures })
}

impl SessionState {
    /// Sets the origin of a new session.
    pub(crate) fn set_origin(&mut self, origin: SessionOrigin) {
        match origin {
            SessionOrigin::Configuration => self.saved_as = None,
            SessionOrigin::Request => self.saved_as = Some(self.id),
            SessionOrigin::Saved(number, modules, parents) => {
                // The session keeps its saved number, so the order of creation stays the same over restarts.
                (self.saved_as, self.unrestored) = (Some(number), modules);
                if let Some(owner) = &self.owner {
                    let chain = owner.credential.chain().iter().map(|link| link.id);
                    self.parents.extend(chain.filter(|id| parents.contains(id)));
                }
            }
        }
    }

    /// Returns the session in the form to be saved; `None` for a session that is not saved, or is being closed.
    fn to_saved(&self) -> Option<SavedSession> {
        let number = self.saved_as.filter(|_| !self.is_closing)?;
        let owner = match &self.owner {
            Some(owner) => Some(SavedOwner::new(owner, &self.parents)?),
            None => None,
        };
        let mut session = SessionSpec { modules: Vec::new(), ..self.spec.clone() };
        // If the session's modules have changed the reservation, `retained_memory_max` is the memory ceiling. The
        // ceiling must stay the same after a restart.
        session.memory_max = session.memory_max.or(session.retained_memory_max);
        let mut modules: Vec<(u64, SavedModule)> = self
            .modules
            .iter()
            .filter_map(|(name, module)| Some((module.number, saved_module(name, module)?)))
            .collect();
        modules.sort_by_key(|(number, _)| *number);
        let modules = modules.into_iter().map(|(_, module)| module).chain(self.unrestored.iter().cloned());
        let modules = modules.take(LIST_ENTRIES_MAX).collect();
        Some(SavedSession { weir_session: SAVED_FORMAT, number, owner, session, modules })
    }
}

impl Node {
    /// Returns a session in the form to be saved; `None` for a session that is not saved, or does not exist any more.
    pub(crate) fn saved_session(&self, name: &Name) -> Option<SavedSession> {
        self.sessions.get(name)?.to_saved()
    }

    /// Sets the file that a module was loaded from, so that the module can be saved.
    pub(crate) fn set_module_origin(&mut self, session: &Name, module: &Name, origin: ModuleOrigin) {
        let module = self.sessions.get_mut(session).and_then(|state| state.modules.get_mut(module));
        if let Some(module) = module {
            module.origin = Some(origin);
        }
    }

    /// Removes a module from the modules that are still to be restored. Returns false if it is none of them.
    pub(crate) fn forget_unrestored(&mut self, session: &Name, id: u64, module: &Name) -> bool {
        let Some(state) = self.sessions.get_mut(session).filter(|state| state.id == id) else { return false };
        let before = state.unrestored.len();
        state.unrestored.retain(|saved| saved.module.name.as_ref() != Some(module));
        state.unrestored.len() < before
    }

    /// Checks that a module which is being restored is still to be restored.
    pub(crate) fn check_unrestored(&self, session: &Name, id: u64, module: &Name) -> Result<(), NodeError> {
        let state = self.session_with_id(session, id)?;
        match state.unrestored.iter().any(|saved| saved.module.name.as_ref() == Some(module)) {
            true => Ok(()),
            false => Err(NodeError::NoModule { session: session.clone(), module: module.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn saved(text: &str) -> Result<SavedSession, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_saved_session_reads_as_it_was_written() {
        let spec = "name = \"s\"\nmemory = \"8 MiB\"\nrecords_per_second = 5\nwrites = [\"ttl\"]\n\
                    cpu = [{ period = \"10ms\", slice = \"1ms\" }]\n\
                    channel = [{ interface = \"b\", filter = \"udp\", view = \"payload=none\", queue = 64 }]";
        let module = "module = \"x.wasm\"\nname = \"x\"\nset = { port = 53, list = [1, 2] }";
        let module = SavedModule {
            module: toml::from_str(module).unwrap(),
            file: Some(ModuleHash([7; 32])),
            signatures: vec!["weir-signature:x".to_owned()],
        };
        let owner = SavedOwner {
            credential: "no credential".to_owned(),
            called: Name::new("s").unwrap(),
            parents: Vec::new(),
        };
        let session = SavedSession {
            weir_session: SAVED_FORMAT,
            number: 7,
            owner: Some(owner),
            session: toml::from_str(spec).unwrap(),
            modules: vec![module],
        };
        let text = serde_json::to_string(&session).unwrap();
        assert_eq!(saved(&text).unwrap(), session);
        assert!(session.is_valid() && session.claimed_chain().is_empty());
        let other = SavedSession { weir_session: 2, ..session };
        assert!(!saved(&serde_json::to_string(&other).unwrap()).unwrap().is_valid());
    }

    proptest! {
        #[test]
        fn damaged_text_is_refused_without_a_panic(at in 0_usize..200, byte: u8, cut in 0_usize..200) {
            let text = r#"{"weir_session":1,"number":3,"session":{"name":"s","memory":"8388608","priority":0,"cpu":[],"channel":[{"name":"main","interface":"b"}]},"modules":[{"module":{"name":"x","module":"x.wasm","set":{"port":1}}}]}"#;
            prop_assert!(saved(text).is_ok());
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] = byte;
            if let Ok(read) = serde_json::from_slice::<SavedSession>(&bytes) {
                _ = (read.is_valid(), read.claimed_chain());
            }
            prop_assert!(serde_json::from_slice::<SavedSession>(&text.as_bytes()[..cut]).is_err());
        }
    }
}
