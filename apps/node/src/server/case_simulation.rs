//! Tries the test cases of a policy on a simulated node: requests with their expected results. The functions that decide on
//! live requests decide on these requests, too.

use crate::control::ShippedModules;
use crate::control::authority::ceilings::UsageAudience;
use crate::control::authority::{Requester, SessionOwner, SharedRights, ceilings, explain, permit};
use crate::control::config::NodeConfiguration;
use crate::control::policy::{Case, CaseCredential, CaseKey, Expect, Policy};
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
use weir_trust::grant::{Grant, NodeName, UnixSecond};
use weir_trust::key::Identity;

/// The environment of a simulated node.
#[derive(Clone, Copy, Debug)]
pub struct CaseEnvironment<'a> {
    /// Name of the node in credentials.
    pub node: &'a NodeName,
    /// Configuration with the node's interfaces, links and profiles. Without a configuration, all their names are accepted.
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
    /// Difference between the expected and the actual result; `None` if the case holds.
    pub difference: Option<String>,
}

impl Policy {
    /// Tries all test cases of the policy.
    pub fn try_cases(&self, environment: &CaseEnvironment<'_>) -> Vec<CaseResult> {
        let tried = |case: &Case| {
            let (file, line, name) = (case.file.clone(), case.line, case.name.clone());
            CaseResult { file, line, name, difference: self.try_case(case, environment) }
        };
        self.cases.iter().map(tried).collect()
    }

    fn try_case(&self, case: &Case, environment: &CaseEnvironment<'_>) -> Option<String> {
        let mut node = SimulatedNode::new(self, *environment);
        for before in self.prerequisites(case) {
            if let Err(why) = node.apply_case(before) {
                return Some(format!(
                    "`{}`, an earlier case that this case needs, is refused: {why}",
                    before.name
                ));
            }
        }
        match (&case.expect, node.apply_case(case)) {
            (Expect::Allowed, Ok(())) => None,
            (Expect::Allowed, Err(why)) => Some(format!("expected: allowed; came: refused: {why}")),
            (Expect::Refused(text), Ok(())) => Some(format!(
                "expected: refused, with `{}` in the reason; came: allowed",
                weir_units::escaped(text)
            )),
            (Expect::Refused(text), Err(why)) if why.contains(text) => None,
            (Expect::Refused(text), Err(why)) => Some(format!(
                "expected: refused, with `{}` in the reason; came: refused, but: {why}",
                weir_units::escaped(text)
            )),
        }
    }

    /// Returns the cases that a case follows, directly or indirectly, in the order of the file.
    fn prerequisites(&self, case: &Case) -> Vec<&Case> {
        let mut wanted: Vec<&str> = case.after.iter().map(String::as_str).collect();
        let mut prerequisites = Vec::new();
        // A case can follow only earlier cases of its file.
        let earlier =
            self.cases.iter().rev().filter(|other| other.file == case.file && other.line < case.line);
        for other in earlier {
            if wanted.contains(&other.name.as_str()) {
                wanted.extend(other.after.iter().map(String::as_str));
                prerequisites.push(other);
            }
        }
        prerequisites.reverse();
        prerequisites
    }
}

/// A simulated node: its policy, and the sessions that requests have created, with their owners.
pub struct SimulatedNode<'a> {
    policy: &'a Policy,
    environment: CaseEnvironment<'a>,
    trust: Trust,
    sessions: BTreeMap<Name, (SessionOwner, SessionSpec)>,
}

impl<'a> SimulatedNode<'a> {
    /// Creates a simulated node without sessions.
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
        let now = UnixSecond::containing(weir_datapath::clock::wall_clock());
        let (trust, _) =
            self.trust.with_revocations([&crate::server::revocation_files::read_all(state)?], now);
        Ok(Self { trust, ..self })
    }

    /// Decides and applies the request of a case.
    fn apply_case(&mut self, case: &Case) -> Result<(), String> {
        let mut trust = match &case.node {
            Some(node) => Trust::new(node.clone(), self.policy),
            None => self.trust.clone(),
        };
        let (credential, holder) = match &case.credential {
            CaseCredential::FromFile(credential) => {
                (credential.as_ref().clone(), *credential.claimed_holder())
            }
            CaseCredential::Described { root, chain } => {
                // The root's private key is not available, so a stand-in key signs, and is trusted in the root's place
                // for this case only.
                let stand_in = named_identity(&format!("in the place of {root}"));
                trust = trust.with_substitute_root(root, stand_in.public());
                let credential = mint_described(&stand_in, chain).map_err(|error| error.to_string())?;
                let holder = *credential.claimed_holder();
                (credential, holder)
            }
        };
        let peer = match &case.requester {
            None => holder,
            Some(CaseKey::Key(key)) => *key,
            Some(CaseKey::Called(name)) => named_identity(name).public(),
        };
        let verified = trust.verify(&credential, &peer, case.at).map_err(|refusal| refusal.to_string())?;
        self.apply_request(&Arc::new(verified), case.request.clone(), case.body.as_deref(), None)
    }

    /// Explains the rights of a credential, and the result of a request.
    pub fn explain(
        &mut self,
        credential: &Credential,
        at: UnixSecond,
        request: Option<(ControlRequest, &[u8])>,
    ) -> Explanation {
        let node = self.environment.node;
        let verified = match self.trust.verify(credential, credential.claimed_holder(), at) {
            Ok(verified) => Arc::new(verified),
            Err(refusal) => return explain::invalid(credential, &refusal, node, at),
        };
        let sessions = self.sessions.values().map(|(owner, spec)| (owner, spec));
        let explained = explain::explanation(&verified, sessions, node, at, UsageAudience::Operator);
        let verdict = request.map(|(request, body)| {
            let body = Some(body).filter(|body| !body.is_empty());
            let hypothetical_owner = SessionOwner::hypothetical(&verified, &request);
            RequestVerdict { refused: self.apply_request(&verified, request, body, hypothetical_owner).err() }
        });
        Explanation { verdict, ..explained }
    }

    /// Decides on a request of a credential's holder, and applies it to the simulated sessions. If the session of the request
    /// does not exist, it is treated as one that belongs to `hypothetical_owner`.
    ///
    /// # Errors
    ///
    /// The reason of the refusal.
    fn apply_request(
        &mut self,
        holder: &Arc<VerifiedCredential>,
        request: ControlRequest,
        body: Option<&[u8]>,
        hypothetical_owner: Option<SessionOwner>,
    ) -> Result<(), String> {
        let shipped = self.environment.shipped;
        let rights_over = |name: &Name| {
            let known = self.sessions.get(name).map(|(owner, spec)| (owner, spec.share.clone()));
            let hypothetical_owner = || hypothetical_owner.as_ref().filter(|owner| owner.name() == *name);
            let (owner, share) = known.or_else(|| Some((hypothetical_owner()?, Vec::new())))?;
            Some(SharedRights { owner: owner.clone(), share })
        };
        let permitted = permit(&Requester::Holder(Arc::clone(holder)), request, body, &rights_over, &shipped);
        let permitted = permitted.map_err(|refusal| refusal.to_string())?;
        match (permitted.request, permitted.owner) {
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

    /// Checks a session, as a node does: against the configuration, and against the ceilings of its owner's delegation
    /// chain. A ceiling is the most of a resource that all sessions under a delegation may have together.
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

/// Returns the key pair of a name in a case, the same in every case. Anyone can compute it, and no node trusts it.
fn named_identity(name: &str) -> Identity {
    Identity::from_seed(&Digest::of_bytes(format!("somebody in a case: {name}").as_bytes()).0)
}

/// Creates the described credential. Equal descriptions give equal credentials, so that cases can build on each other.
fn mint_described(root: &Identity, chain: &[(String, Grant)]) -> Result<Credential, MintError> {
    let mut credential: Option<(Credential, Identity)> = None;
    for (number, (to, grant)) in chain.iter().enumerate() {
        let next = named_identity(to);
        let mut random = DeterministicRng::from_chain(&chain[..=number]);
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

/// A deterministic generator in place of randomness. Its keys are predictable, and are used only in cases.
struct DeterministicRng {
    seed: Digest,
    count: u64,
}

impl DeterministicRng {
    fn from_chain(chain: &[(String, Grant)]) -> Self {
        Self { seed: Digest::of_bytes(format!("{chain:?}").as_bytes()), count: 0 }
    }
}

impl RngCore for DeterministicRng {
    fn next_u32(&mut self) -> u32 {
        impls::next_u32_via_fill(self)
    }

    fn next_u64(&mut self) -> u64 {
        impls::next_u64_via_fill(self)
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(32) {
            self.count += 1;
            let digest = Digest::of_bytes(&[&self.seed.0[..], &self.count.to_be_bytes()].concat()).0;
            part.copy_from_slice(digest.get(..part.len()).unwrap_or_default());
        }
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.fill_bytes(bytes);
        Ok(())
    }
}

impl CryptoRng for DeterministicRng {}
