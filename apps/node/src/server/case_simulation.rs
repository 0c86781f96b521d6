//! Simulation of an operator's cases on an imagined node, by the functions that decide on live requests.

use crate::control::ShippedModules;
use crate::control::authority::ceilings::UsageReader;
use crate::control::authority::{Asker, SessionOwner, SharedRights, ceilings, explain, permit};
use crate::control::config::NodeConfiguration;
use crate::control::policy::{Case, CaseKey, CaseSubject, Expect, Policy};
use crate::control::protocol::{ControlRequest, Explanation, RequestVerdict};
use crate::control::spec::SessionSpec;
use crate::server::daemon::DaemonError;
use crate::server::trust::Trust;
use rand_core::{CryptoRng, Error, RngCore, impls};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use weir_admission::Name;
use weir_ledger::Digest;
use weir_trust::credential::{Credential, MintError, VerifiedCredential};
use weir_trust::grant::{Grant, NodeName, Second};
use weir_trust::key::Identity;

/// The environment of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct CaseEnvironment<'a> {
    /// Name of the node in credentials.
    pub node: &'a NodeName,
    /// Configuration with the node's interfaces, links and profiles; without one, every name of them counts as known.
    pub config: Option<&'a NodeConfiguration>,
    /// Modules that come with weir.
    pub shipped: ShippedModules,
}

/// The result of a case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// File of the case.
    pub file: std::path::PathBuf,
    /// Line in the file, from 1.
    pub line: usize,
    /// Name of the case.
    pub name: String,
    /// Difference from the expected result; `None` if there is none.
    pub wrong: Option<String>,
}

impl Policy {
    /// Tries all cases.
    pub fn try_cases(&self, environment: &CaseEnvironment<'_>) -> Vec<CaseResult> {
        let tried = |case: &Case| {
            let (file, line, name) = (case.file.clone(), case.line, case.name.clone());
            CaseResult { file, line, name, wrong: self.try_case(case, environment) }
        };
        self.cases.iter().map(tried).collect()
    }

    fn try_case(&self, case: &Case, environment: &CaseEnvironment<'_>) -> Option<String> {
        let mut world = SimulatedNode::new(self, *environment);
        for before in self.before(case) {
            if let Err(why) = world.ask_as(before) {
                return Some(format!("`{}`, which it comes after, is refused: {why}", before.name));
            }
        }
        match (&case.expect, world.ask_as(case)) {
            (Expect::Allowed, Ok(())) => None,
            (Expect::Allowed, Err(why)) => Some(format!("expected: allowed; came: refused: {why}")),
            (Expect::Refused(text), Ok(())) => Some(format!(
                "expected: refused, with `{}` in the reason; came: allowed",
                weir_units::shown(text)
            )),
            (Expect::Refused(text), Err(why)) if why.contains(text) => None,
            (Expect::Refused(text), Err(why)) => Some(format!(
                "expected: refused, with `{}` in the reason; came: refused, but: {why}",
                weir_units::shown(text)
            )),
        }
    }

    /// Returns the cases that a case follows, directly or indirectly, in the order of the file.
    fn before(&self, case: &Case) -> Vec<&Case> {
        let mut wanted: Vec<&str> = case.after.iter().map(String::as_str).collect();
        let mut before = Vec::new();
        // A case can follow only earlier cases of its file.
        let earlier =
            self.cases.iter().rev().filter(|other| other.file == case.file && other.line < case.line);
        for other in earlier {
            if wanted.contains(&other.name.as_str()) {
                wanted.extend(other.after.iter().map(String::as_str));
                before.push(other);
            }
        }
        before.reverse();
        before
    }
}

/// An imagined node: its sessions and their owners.
pub struct SimulatedNode<'a> {
    policy: &'a Policy,
    environment: CaseEnvironment<'a>,
    trust: Trust,
    sessions: BTreeMap<Name, (SessionOwner, SessionSpec)>,
}

impl<'a> SimulatedNode<'a> {
    /// Creates a node without sessions.
    pub fn new(policy: &'a Policy, environment: CaseEnvironment<'a>) -> Self {
        let trust = Trust::new(environment.node.clone(), policy);
        Self { policy, environment, trust, sessions: BTreeMap::new() }
    }

    /// Adds the revocations that are stored in a node's state folder.
    ///
    /// # Errors
    ///
    /// The stored revocations cannot be read, or are damaged.
    pub fn with_revocations(self, state: &Path) -> Result<Self, DaemonError> {
        let now = Second::of(weir_datapath::clock::wall_clock());
        let (trust, _) =
            self.trust.with_revocations([&crate::server::revocation_files::read_all(state)?], now);
        Ok(Self { trust, ..self })
    }

    /// Makes the request of a case.
    fn ask_as(&mut self, case: &Case) -> Result<(), String> {
        let mut trust = match &case.node {
            Some(node) => Trust::new(node.clone(), self.policy),
            None => self.trust.clone(),
        };
        let (credential, holder) = match &case.who {
            CaseSubject::Shown(credential) => (credential.as_ref().clone(), *credential.claimed_holder()),
            CaseSubject::Described { root, chain } => {
                // The root's private key is not available, so a stand-in key signs, and is trusted in the root's place
                // for this case only.
                let stand_in = named_identity(&format!("in the place of {root}"));
                trust = trust.with_substitute_root(root, stand_in.public());
                let credential = mint_described(&stand_in, chain).map_err(|error| error.to_string())?;
                let holder = *credential.claimed_holder();
                (credential, holder)
            }
        };
        let peer = match &case.by {
            None => holder,
            Some(CaseKey::Key(key)) => *key,
            Some(CaseKey::Called(name)) => named_identity(name).public(),
        };
        let verified = trust.verify(&credential, &peer, case.at).map_err(|refusal| refusal.to_string())?;
        self.ask(&Arc::new(verified), case.ask.clone(), case.body.as_deref(), None)
    }

    /// Explains the rights of a credential, and the result of a request.
    pub fn explain(
        &mut self,
        credential: &Credential,
        at: Second,
        ask: Option<(ControlRequest, &[u8])>,
    ) -> Explanation {
        let node = self.environment.node;
        let verified = match self.trust.verify(credential, credential.claimed_holder(), at) {
            Ok(verified) => Arc::new(verified),
            Err(refusal) => return explain::invalid(credential, &refusal, node, at),
        };
        let sessions = self.sessions.values().map(|(owner, spec)| (owner, spec));
        let explained = explain::explanation(&verified, sessions, node, at, UsageReader::Operator);
        let verdict = ask.map(|(ask, body)| {
            let body = Some(body).filter(|body| !body.is_empty());
            let imagined = SessionOwner::imagined(&verified, &ask);
            RequestVerdict { refused: self.ask(&verified, ask, body, imagined).err() }
        });
        Explanation { verdict, ..explained }
    }

    /// Makes a request of a credential's holder. If the session of the request does not exist, `imagined` counts as its
    /// owner.
    ///
    /// # Errors
    ///
    /// The reason of the refusal.
    fn ask(
        &mut self,
        who: &Arc<VerifiedCredential>,
        ask: ControlRequest,
        body: Option<&[u8]>,
        imagined: Option<SessionOwner>,
    ) -> Result<(), String> {
        let shipped = self.environment.shipped;
        let owner_of = |name: &Name| {
            let known = self.sessions.get(name).map(|(owner, spec)| (owner, spec.share.clone()));
            let imagined = || imagined.as_ref().filter(|owner| owner.name() == *name);
            let (owner, share) = known.or_else(|| Some((imagined()?, Vec::new())))?;
            Some(SharedRights { owner: owner.clone(), share })
        };
        let permitted = permit(&Asker::Holder(Arc::clone(who)), ask, body, &owner_of, &shipped);
        let permitted = permitted.map_err(|refusal| refusal.to_string())?;
        match (permitted.ask, permitted.owner) {
            (ControlRequest::Create(spec), Some(owner)) => {
                if self.sessions.contains_key(&spec.name) {
                    return Err(crate::NodeError::Exists(spec.name).to_string());
                }
                self.check(&owner, &spec)?;
                self.sessions.insert(spec.name.clone(), (owner, spec));
            }
            (ControlRequest::Change(change), _) => {
                if let Some((owner, spec)) = self.sessions.get(&change.session).cloned() {
                    let spec = spec.changed(&change).map_err(|error| error.to_string())?;
                    self.check(&owner, &spec)?;
                    self.sessions.insert(spec.name.clone(), (owner, spec));
                }
            }
            (ControlRequest::Close { session }, _) => _ = self.sessions.remove(&session),
            _ => {}
        }
        Ok(())
    }

    fn check(&self, owner: &SessionOwner, spec: &SessionSpec) -> Result<(), String> {
        if let Some(config) = self.environment.config {
            let interfaces: Vec<String> = config.interfaces.iter().map(|it| it.name.clone()).collect();
            let profiles: Vec<Name> = self.policy.profiles.keys().cloned().collect();
            let links: Vec<String> = config.links.iter().map(|link| link.interface.clone()).collect();
            let checked = spec.check(&interfaces, &profiles);
            checked
                .and_then(|()| spec.check_links(&links, &config.outgoing()))
                .map_err(|error| error.to_string())?;
        }
        let others = self.sessions.iter().filter(|(name, _)| **name != spec.name);
        let others = others.map(|(_, (owner, spec))| (owner, spec));
        ceilings::check(owner, spec, others).map_err(|refusal| refusal.to_string())
    }
}

/// Returns the key of a named person, the same in every case. Anyone can compute it, and no node trusts it.
fn named_identity(name: &str) -> Identity {
    Identity::from_seed(&Digest::of(format!("somebody in a case: {name}").as_bytes()).0)
}

/// Creates the described credential. Equal descriptions give equal credentials, so that cases can build on each other.
fn mint_described(root: &Identity, chain: &[(String, Grant)]) -> Result<Credential, MintError> {
    let mut credential: Option<(Credential, Identity)> = None;
    for (number, (to, grant)) in chain.iter().enumerate() {
        let next = named_identity(to);
        let mut random = Repeatable::of(&chain[..=number]);
        let passed_on = match &credential {
            None => Credential::mint(root, next.public(), grant.clone(), None, &mut random)?,
            Some((credential, holder)) => {
                credential.delegate(holder, next.public(), grant.clone(), None, &mut random)?
            }
        };
        credential = Some((passed_on, next));
    }
    credential.map(|(credential, _)| credential).ok_or(MintError::Token)
}

/// Deterministic bytes in place of randomness. Keys made of them are worth nothing outside a case.
struct Repeatable {
    seed: Digest,
    count: u64,
}

impl Repeatable {
    fn of(chain: &[(String, Grant)]) -> Self {
        Self { seed: Digest::of(format!("{chain:?}").as_bytes()), count: 0 }
    }
}

impl RngCore for Repeatable {
    fn next_u32(&mut self) -> u32 {
        impls::next_u32_via_fill(self)
    }

    fn next_u64(&mut self) -> u64 {
        impls::next_u64_via_fill(self)
    }

    fn fill_bytes(&mut self, to: &mut [u8]) {
        for part in to.chunks_mut(32) {
            self.count += 1;
            let bytes = Digest::of(&[&self.seed.0[..], &self.count.to_be_bytes()].concat()).0;
            part.copy_from_slice(bytes.get(..part.len()).unwrap_or_default());
        }
    }

    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), Error> {
        self.fill_bytes(to);
        Ok(())
    }
}

impl CryptoRng for Repeatable {}
