//! Trying an operator's cases: by the very functions that decide on live requests, on a node that is imagined.

use super::Policy;
use super::case::{Case, CaseSubject, Expect, Somebody};
use crate::control::authority::ceilings::UsageReader;
use crate::control::authority::{Asker, SessionOwner, SharedRights, ceilings, explain, permit};
use crate::control::config::NodeConfiguration;
use crate::control::protocol::{ControlRequest, Explanation, RequestVerdict};
use crate::control::spec::SessionSpec;
use crate::server::daemon::DaemonError;
use crate::server::trust::Trust;
use crate::sessions::workshop::ShippedProfiles;
use rand_core::{CryptoRng, Error, RngCore, impls};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use weir_admission::Name;
use weir_ledger::Digest;
use weir_trust::credential::{Credential, MintError, VerifiedCredential};
use weir_trust::grant::{Grant, NodeName, Second};
use weir_trust::key::Identity;

/// The node that cases are tried on.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    /// What credentials call it.
    pub node: &'a NodeName,
    /// Its configuration, for what interfaces and links it has; where there is none, it has all.
    pub config: Option<&'a NodeConfiguration>,
    /// Modules that come with weir.
    pub shipped: ShippedProfiles,
}

/// What came of a case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// Where it stands: its file,
    pub file: std::path::PathBuf,
    /// and its line there.
    pub line: usize,
    /// What it is called.
    pub name: String,
    /// What came instead of what has to, in words; nothing where it is as it has to be.
    pub wrong: Option<String>,
}

impl Policy {
    /// Tries all cases.
    pub fn try_cases(&self, ground: &Ground<'_>) -> Vec<CaseResult> {
        let tried = |case: &Case| {
            let (file, line, name) = (case.file.clone(), case.line, case.name.clone());
            CaseResult { file, line, name, wrong: self.try_case(case, ground) }
        };
        self.cases.iter().map(tried).collect()
    }

    fn try_case(&self, case: &Case, ground: &Ground<'_>) -> Option<String> {
        let mut world = World::new(self, *ground);
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

    /// The cases that one comes after, and those that they come after, in the order of the file, each once.
    fn before(&self, case: &Case) -> Vec<&Case> {
        let mut wanted: Vec<&str> = case.after.iter().map(String::as_str).collect();
        let mut before = Vec::new();
        // A case comes after earlier ones only.
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

/// A node that is imagined: sessions, and whose they are.
pub struct World<'a> {
    policy: &'a Policy,
    ground: Ground<'a>,
    trust: Trust,
    sessions: BTreeMap<Name, (SessionOwner, SessionSpec)>,
}

impl<'a> World<'a> {
    /// One without sessions.
    pub fn new(policy: &'a Policy, ground: Ground<'a>) -> Self {
        let trust = Trust::new(ground.node.clone(), policy);
        Self { policy, ground, trust, sessions: BTreeMap::new() }
    }

    /// The same, with what a node with this folder of state has been told was taken back.
    ///
    /// # Errors
    /// What it has kept cannot be read, or is damaged.
    pub fn remembering(self, state: &Path) -> Result<Self, DaemonError> {
        let now = Second::of(weir_datapath::moment::wall_clock());
        let (trust, _) = self.trust.remembering([&crate::server::revoked::kept(state)?], now);
        Ok(Self { trust, ..self })
    }

    /// What comes of a case's request.
    fn ask_as(&mut self, case: &Case) -> Result<(), String> {
        let mut trust = match &case.node {
            Some(node) => Trust::new(node.clone(), self.policy),
            None => self.trust.clone(),
        };
        let (credential, holder) = match &case.who {
            CaseSubject::Shown(credential) => (credential.as_ref().clone(), *credential.claimed_holder()),
            CaseSubject::Described { root, chain } => {
                // The root's private key is not here, so somebody else signs in its place, and counts as much as it does. Nobody else ever trusts that one.
                let stand_in = somebody(&format!("in the place of {root}"));
                trust = trust.with_stand_in(root, stand_in.public());
                let credential = minted(&stand_in, chain).map_err(|error| error.to_string())?;
                let holder = *credential.claimed_holder();
                (credential, holder)
            }
        };
        let peer = match &case.by {
            None => holder,
            Some(Somebody::Key(key)) => *key,
            Some(Somebody::Called(name)) => somebody(name).public(),
        };
        let verified = trust.verify(&credential, &peer, case.at).map_err(|refusal| refusal.to_string())?;
        self.ask(&Arc::new(verified), case.ask.clone(), case.body.as_deref(), None)
    }

    /// What a credential allows its holder, and what would come of a request of his.
    pub fn explain(
        &mut self,
        credential: &Credential,
        at: Second,
        ask: Option<(ControlRequest, &[u8])>,
    ) -> Explanation {
        let node = self.ground.node;
        let verified = match self.trust.verify(credential, credential.claimed_holder(), at) {
            Ok(verified) => Arc::new(verified),
            Err(refusal) => return explain::worthless(credential, &refusal, node, at),
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

    /// What comes of a request of a credential's holder; `imagined` is whose the session is that it is about, where it is not there.
    ///
    /// # Errors
    /// Why it is refused.
    fn ask(
        &mut self,
        who: &Arc<VerifiedCredential>,
        ask: ControlRequest,
        body: Option<&[u8]>,
        imagined: Option<SessionOwner>,
    ) -> Result<(), String> {
        let shipped = self.ground.shipped;
        let owner_of = |name: &Name| {
            let there = self.sessions.get(name).map(|(owner, spec)| (owner, spec.share.clone()));
            let imagined = || imagined.as_ref().filter(|owner| owner.name() == *name);
            let (owner, share) = there.or_else(|| Some((imagined()?, Vec::new())))?;
            Some(SharedRights { owner: owner.clone(), share })
        };
        let permitted = permit(&Asker::Holder(Arc::clone(who)), ask, body, &owner_of, &shipped);
        let permitted = permitted.map_err(|refusal| refusal.to_string())?;
        match (permitted.ask, permitted.owner) {
            (ControlRequest::Create(spec), Some(owner)) => {
                if self.sessions.contains_key(&spec.name) {
                    return Err(crate::NodeError::Exists(spec.name).to_string());
                }
                self.hold(&owner, &spec)?;
                self.sessions.insert(spec.name.clone(), (owner, spec));
            }
            (ControlRequest::Change(change), _) => {
                if let Some((owner, spec)) = self.sessions.get(&change.session).cloned() {
                    let spec = spec.changed(&change).map_err(|error| error.to_string())?;
                    self.hold(&owner, &spec)?;
                    self.sessions.insert(spec.name.clone(), (owner, spec));
                }
            }
            (ControlRequest::Close { session }, _) => _ = self.sessions.remove(&session),
            _ => {}
        }
        Ok(())
    }

    fn hold(&self, owner: &SessionOwner, spec: &SessionSpec) -> Result<(), String> {
        if let Some(config) = self.ground.config {
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
        ceilings::hold(owner, spec, others).map_err(|refusal| refusal.to_string())
    }
}

/// Whoever is called so, in whichever case: with a key that anybody can compute, and that nobody trusts.
fn somebody(name: &str) -> Identity {
    Identity::from_seed(&Digest::of(format!("somebody in a case: {name}").as_bytes()).0)
}

/// The credential that is described. The same description makes the same one again, so that cases that come after each other can be about one.
fn minted(root: &Identity, chain: &[(String, Grant)]) -> Result<Credential, MintError> {
    let mut credential: Option<(Credential, Identity)> = None;
    for (number, (to, grant)) in chain.iter().enumerate() {
        let next = somebody(to);
        let mut random = Repeatable::of(&chain[..=number]);
        let passed_on = match &credential {
            None => Credential::mint(root, next.public(), grant.clone(), &mut random)?,
            Some((credential, holder)) => {
                credential.delegate(holder, next.public(), grant.clone(), &mut random)?
            }
        };
        credential = Some((passed_on, next));
    }
    credential.map(|(credential, _)| credential).ok_or(MintError::Token)
}

/// Bytes that are the same each time. What is made of them is for a case, and worth nothing anywhere.
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
