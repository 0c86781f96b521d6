//! The cost of authorisation: a handshake with credentials of three blocks on both sides, and the decision about a
//! request, on an idle node and on a node with many sessions and a long revocation list. The part `authorise` of the
//! benchmark.

use crate::error::{Context, LabError};
use crate::handshake::MeasuredHandshake;
use crate::statistics::{
    Action, Sample, measure_in_turn, measure_values_in_turn, nanos_per_call, processor_time,
};
use crate::table::{Table, under};
use rand_core::OsRng;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use weir_node::control::policy::{Policy, Root};
use weir_node::control::protocol::{ControlRequest, Explanation};
use weir_node::control::spec::SessionSpec;
use weir_node::server::case_simulation::{CaseEnvironment, SimulatedNode};
use weir_trust::association::Peer;
use weir_trust::credential::{Credential, DelegationId, VerificationContext, VerifiedCredential};
use weir_trust::grant::{Ceilings, CpuShare, Grant, ModuleHash, ModuleSet, Modules, NodeName, UnixSecond};
use weir_trust::key::{Identity, PublicKey};
use weir_trust::revocation::{ListReception, RevocationList, Revocations};
use weir_units::Bytes;

const BENCH: &str = "bench authorise";
/// Repetitions of an action in a round.
const REPETITIONS: u32 = 50;
/// Repetitions of an action in a round on a busy node.
const BUSY_REPETITIONS: u32 = 10;
/// The promised limit of a handshake in milliseconds, both sides together.
const HANDSHAKE_MILLIS_MAX: f64 = 1.2;
/// The promised limit of a decision about a request in milliseconds.
const REQUEST_MILLIS_MAX: f64 = 0.5;
/// Sessions of other holders on a busy node.
const SESSIONS_OF_OTHERS: u16 = 500;
/// Sessions of the client on a busy node, under the credential of its request.
const SESSIONS_OF_CLIENT: u16 = 500;
/// The number of delegations that the root of a busy node has revoked.
const REVOKED: u16 = 1000;
/// The ceilings of a grant for three sessions.
const FEW_SESSIONS: Ceilings = Ceilings {
    cpu: Some(CpuShare(200_000)),
    memory: Some(Bytes(128 << 20)),
    sessions: Some(3),
    ..Ceilings::NONE
};
/// The ceilings of a grant for all sessions of a busy node.
const MANY_SESSIONS: Ceilings = Ceilings {
    cpu: Some(CpuShare(1_000_000_000)),
    memory: Some(Bytes(1 << 50)),
    sessions: Some(1_000_000),
    ..FEW_SESSIONS
};

/// An operator, a client and a node, with the node's view of them.
pub(crate) struct Peers {
    operator: Identity,
    pub(crate) client: Identity,
    pub(crate) node: Identity,
    /// The client's credential of three blocks, encoded.
    pub(crate) clients_credential: Vec<u8>,
    /// The node's credential, likewise.
    pub(crate) nodes_credential: Vec<u8>,
    roots: [PublicKey; 1],
    revocations: Revocations,
    name: NodeName,
    now: UnixSecond,
    module: Vec<u8>,
}

/// The identity with this number, the same in every run.
fn identity_of(number: u16) -> Identity {
    let mut seed = [0; 32];
    let (begin, _) = seed.split_at_mut(2);
    begin.copy_from_slice(&number.to_be_bytes());
    Identity::from_seed(&seed)
}

/// A credential of three blocks: the first holder delegates a quarter of the processor time and some of the packets.
fn three_block_credential(
    operator: &Identity,
    [first, second, last]: [&Identity; 3],
    ceilings: Ceilings,
    module: &[u8],
) -> Result<Credential, LabError> {
    let set = ModuleSet { hashes: [ModuleHash::of_bytes(module)].into(), ..ModuleSet::default() };
    let filter = |text: &str| text.parse().map(|filter| [filter].into());
    let granted = Grant {
        expires: Some(UnixSecond::MAX),
        modules: Modules::from(set),
        filters: filter("tcp or udp").context(BENCH)?,
        ceilings,
        ..Grant::default()
    };
    let cpu = ceilings.cpu.map(|share| CpuShare(share.0 / 4));
    let narrowed = Grant {
        filters: filter("port 443").context(BENCH)?,
        ceilings: Ceilings { cpu, ..Ceilings::default() },
        ..Grant::default()
    };
    let credential = Credential::mint(operator, first.public(), granted, None, &mut OsRng).context(BENCH)?;
    let credential =
        credential.delegate(first, second.public(), narrowed.clone(), None, &mut OsRng).context(BENCH)?;
    credential.delegate(second, last.public(), narrowed, None, &mut OsRng).context(BENCH)
}

impl Peers {
    pub(crate) fn new() -> Result<Self, LabError> {
        let module = vec![0x5a; 64 << 10];
        let operator = identity_of(1);
        let credential = |holders: [u16; 3]| {
            let [first, second, last] = holders.map(identity_of);
            three_block_credential(&operator, [&first, &second, &last], FEW_SESSIONS, &module)
                .map(|credential| credential.as_bytes().to_vec())
        };
        Ok(Self {
            client: identity_of(4),
            node: identity_of(7),
            clients_credential: credential([2, 3, 4])?,
            nodes_credential: credential([5, 6, 7])?,
            roots: [operator.public()],
            revocations: Revocations::default(),
            name: "node".parse().context(BENCH)?,
            now: UnixSecond::default(),
            module,
            operator,
        })
    }

    /// Parses and verifies the credential of a peer.
    fn verified(&self, bytes: &[u8], peer: &PublicKey) -> Result<VerifiedCredential, LabError> {
        let Self { roots, revocations, name, now, .. } = self;
        let context = VerificationContext { roots, revocations, peer, node: name, now: *now };
        Credential::parse(bytes).context(BENCH)?.verify(&context).context(BENCH)
    }

    /// Verifies the credential that a peer presented.
    pub(crate) fn check(&self, peer: &Peer) -> Result<(), LabError> {
        black_box(self.verified(&peer.credentials, &peer.key)?);
        Ok(())
    }

    /// A handshake in which both sides show and verify credentials.
    fn handshake(&self) -> Result<(), LabError> {
        let Self { client, node, clients_credential, nodes_credential, .. } = self;
        let check = &|peer: &Peer| self.check(peer);
        MeasuredHandshake { client, node, clients_credential, nodes_credential, check }.make().map(drop)
    }

    /// The verified credential of the client.
    fn verified_client(&self) -> Result<Arc<VerifiedCredential>, LabError> {
        Ok(Arc::new(self.verified(&self.clients_credential, &self.client.public())?))
    }
}

/// A busy node, and a client's request to create a session on the node.
struct BusyNode<'a> {
    node: SimulatedNode<'a>,
    credential: Credential,
    now: UnixSecond,
    /// The session that each request creates.
    spec: SessionSpec,
}

/// A policy with the operator's root, and many of the operator's credentials revoked.
fn policy(peers: &Peers) -> Result<Policy, LabError> {
    let ids =
        (0..REVOKED).map(|number| DelegationId::of_root(&identity_of(20_000 + number).public())).collect();
    let list = RevocationList::sign(&peers.operator, 1, peers.now, ids).context(BENCH)?;
    let mut policy = Policy::default();
    let key = peers.operator.public();
    policy.roots.push(Root { name: None, key, limit: Grant::default(), file: PathBuf::new() });
    policy.revocations.accept(&list, &ListReception::new(&peers.roots, peers.now)).context(BENCH)?;
    Ok(policy)
}

impl<'a> BusyNode<'a> {
    fn new(policy: &'a Policy, peers: &'a Peers) -> Result<Self, LabError> {
        let Peers { operator, client, module, name, now, .. } = peers;
        let node =
            SimulatedNode::new(policy, CaseEnvironment { node: name, config: None, shipped: |_| None });
        let credential = three_block_credential(
            operator,
            [&identity_of(2), &identity_of(3), client],
            MANY_SESSIONS,
            module,
        )?;
        let mut this = Self { node, credential, now: *now, spec: session()? };
        // Holders alternate, so that the sessions of one holder do not lie together in memory.
        for number in 0..SESSIONS_OF_OTHERS.max(SESSIONS_OF_CLIENT) {
            if number < SESSIONS_OF_OTHERS {
                let holders = [0, 1, 2].map(|index| identity_of(10_000 + 3 * number + index));
                let credential = three_block_credential(operator, holders.each_ref(), MANY_SESSIONS, module)?;
                this.explain(&credential, Some(ControlRequest::Create(this.spec.clone())))?;
            }
            if number < SESSIONS_OF_CLIENT {
                let name = weir_units::Name::new(&format!("other-{number}")).context(BENCH)?;
                let create = ControlRequest::Create(SessionSpec { name, ..this.spec.clone() });
                this.explain(&this.credential.clone(), Some(create))?;
            }
        }
        Ok(this)
    }

    /// Returns the processor time to explain a credential and to decide about a request. Fails if the request is refused.
    fn explain(
        &mut self,
        credential: &Credential,
        request: Option<ControlRequest>,
    ) -> Result<Duration, LabError> {
        let request = request.map(|request| (request, &[][..]));
        let has_request = request.is_some();
        let mut explained = None;
        let taken =
            processor_time(|| explained = Some(black_box(self.node.explain(credential, self.now, request))));
        match explained {
            Some(Explanation { invalid: Some(why), .. }) => Err(LabError::failed(BENCH, why.to_string())),
            Some(Explanation { verdict: Some(verdict), .. }) => match verdict.refused {
                Some(why) => Err(LabError::failed(BENCH, why.to_string())),
                None => Ok(taken),
            },
            _ if has_request => Err(LabError::failed(BENCH, "a request was not decided")),
            _ => Ok(taken),
        }
    }

    /// Returns the processor time of an explanation with a request for one more session, and of one without. The difference
    /// is the time of the decision.
    fn decide(&mut self) -> Result<[Duration; 2], LabError> {
        let credential = self.credential.clone();
        let with = self.explain(&credential, Some(ControlRequest::Create(self.spec.clone())))?;
        let without = self.explain(&credential, None)?;
        self.explain(&credential, Some(ControlRequest::Close { session: self.spec.name.clone() }))?;
        Ok([with, without])
    }
}

/// A request with its name in the table, and the module file that it carries.
type MeasuredRequest<'a> = (&'static str, ControlRequest, Option<&'a [u8]>);

/// The description of the session that the measured requests create.
fn session() -> Result<SessionSpec, LabError> {
    let text = "name = \"study\"\nmemory = \"64 MiB\"\ncpu = [{ period = \"10ms\", slice = \"500us\" }]\nchannel = [{ interface = \"eth0\" }]";
    toml::from_str(text).context(BENCH)
}

fn requests(peers: &Peers) -> Result<[MeasuredRequest<'_>; 2], LabError> {
    let spec = session()?;
    let module = toml::from_str("module = \"theirs.wasm\"").context(BENCH)?;
    let load =
        ControlRequest::Load { session: spec.name.clone(), module, signatures: Vec::new(), replace: None };
    Ok([("a session", ControlRequest::Create(spec), None), ("a module of 64 KiB", load, Some(&peers.module))])
}

/// An action that returns the mean processor time of `act` in milliseconds.
fn repeated<'a>(act: impl Fn() -> Result<(), LabError> + 'a) -> Action<'a> {
    Box::new(move || {
        let mut done = Ok(());
        let nanos = nanos_per_call(REPETITIONS, || {
            if let Err(error) = act() {
                done = Err(error);
            }
        });
        done.map(|()| nanos / 1e6)
    })
}

/// The table of the processor time of authorisation.
pub fn table(rounds: usize) -> Result<String, LabError> {
    let mut peers = Peers::new()?;
    let without_verifying = "decision about each request";
    let with_verifying = "with verifying the credential, as in the first request of a connection";
    let client = peers.verified_client()?;
    let mut names = vec!["handshake, both sides show and verify credentials of three blocks".to_owned()];
    let mut actions = vec![repeated(|| peers.handshake())];
    for (what, request, body) in requests(&peers)? {
        let decide = move |client: &Arc<VerifiedCredential>| {
            weir_node::authorise(client, request.clone(), body)
                .map(|request| _ = black_box(request))
                .context(BENCH)
        };
        let (decide_after_verifying, peers, client) = (decide.clone(), &peers, &client);
        names.push(format!("{what}: {without_verifying}"));
        actions.push(repeated(move || decide(client)));
        names.push(format!("{what}: {with_verifying}"));
        actions.push(repeated(move || decide_after_verifying(&peers.verified_client()?)));
    }
    let mut samples = measure_in_turn(rounds, &mut actions)?;
    drop(actions);
    let policy = policy(&peers)?;
    peers.revocations = policy.revocations.clone();
    let mut busy = BusyNode::new(&policy, &peers)?;
    let mut decided: [Action<'_, [f64; 2]>; 1] = [Box::new(|| {
        let [mut with, mut without, mut verifying] = [Duration::ZERO; 3];
        for _ in 0..BUSY_REPETITIONS {
            let taken = busy.decide()?;
            with += taken[0];
            without += taken[1];
            verifying += processor_time(|| _ = black_box(peers.verified_client().is_ok()));
        }
        let deciding = with.saturating_sub(without);
        Ok([deciding, deciding + verifying]
            .map(|time| time.as_secs_f64() * 1e3 / f64::from(BUSY_REPETITIONS)))
    })];
    let values = measure_values_in_turn(rounds, &mut decided)?;
    for (index, what) in [without_verifying, with_verifying].into_iter().enumerate() {
        names.push(format!("a session on a busy node: {what}"));
        samples.push(values.iter().flatten().map(|value| value[index]).collect::<Sample>());
    }
    let mut table = Table::new("step | ms | quartiles | promised | kept");
    let limits = std::iter::once(HANDSHAKE_MILLIS_MAX).chain(std::iter::repeat(REQUEST_MILLIS_MAX));
    for ((name, sample), limit) in names.iter().zip(&samples).zip(limits) {
        table.row(format_args!("{name} | {} | {}", sample.cells(3), under(limit, sample.median())));
    }
    Ok(format!(
        "Medians of {rounds} rounds of {REPETITIONS} repetitions; credentials of three blocks, {} and {} bytes. A busy node has {SESSIONS_OF_OTHERS} sessions of as many other holders and {SESSIONS_OF_CLIENT} under the credential of the request, and its root has revoked {REVOKED} credentials; the time of a decision there is that of an explanation of the credential with the request, less that of an explanation without ({BUSY_REPETITIONS} times a round).\n\n{table}",
        peers.clients_credential.len(),
        peers.nodes_credential.len(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_promised_is_measured() {
        let text = table(1).unwrap();
        assert!(text.contains("under 1.2") && text.matches("under 0.5").count() == 6, "{text}");
    }

    #[test]
    fn a_credential_of_three_blocks_is_measured_and_refused_to_other_peers() {
        let peers = Peers::new().unwrap();
        assert_eq!(peers.verified_client().unwrap().chain().len(), 3);
        assert!(peers.verified(&peers.clients_credential, &peers.node.public()).is_err());
        let client = peers.verified_client().unwrap();
        let [_, (_, load, _)] = requests(&peers).unwrap();
        assert!(weir_node::authorise(&client, load, Some(b"another one")).is_err());
    }
}
