//! What it costs to find out what somebody may do: credentials of three blocks on both sides of a handshake, and what a node does with a request before anything is
//! done of it; on a node where nobody else is, and on one with many sessions and long lists of what was taken back.

use crate::BenchError;
use crate::handshake::Meeting;
use crate::native::thread_time;
use crate::statistics::Sample;
use crate::table::{Table, yes_or_no};
use rand_core::OsRng;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use weir_node::policy::{Ground, Policy, Root, World};
use weir_node::protocol::{Explanation, Request};
use weir_node::spec::SessionSpec;
use weir_trust::association::Peer;
use weir_trust::credential::{Credential, PrefixId, Situation, Verified};
use weir_trust::grant::{Ceilings, CpuShare, Grant, ModuleHash, ModuleSet, Modules, NodeName, Second};
use weir_trust::key::{Identity, PublicKey};
use weir_trust::revocation::{Reception, RevocationList, Revocations};
use weir_units::Bytes;

/// How often each is done in a round,
const TIMES: u32 = 50;
/// and on a busy node, where each is done with two others that are not measured.
const BUSY_TIMES: u32 = 10;
/// What was promised, in ms.
const BOTH_MAX: f64 = 1.2;
const REQUEST_MAX: f64 = 0.5;
/// A busy node: sessions of others, each of another party; sessions under the very credential by which is asked, which count for each of its blocks; and what the root has
/// taken back.
const OF_OTHERS: u16 = 500;
const OF_THE_SAME: u16 = 500;
const REVOKED: u16 = 1000;
/// What three sessions have, and what many have.
const FEW: Ceilings = Ceilings {
    cpu: Some(CpuShare(200_000)),
    memory: Some(Bytes(128 << 20)),
    sessions: Some(3),
    ..Ceilings::NONE
};
const MANY: Ceilings = Ceilings {
    cpu: Some(CpuShare(1_000_000_000)),
    memory: Some(Bytes(1 << 50)),
    sessions: Some(1_000_000),
    ..FEW
};

/// People, and what a node knows of them.
pub(crate) struct Scene {
    operator: Identity,
    pub(crate) guest: Identity,
    pub(crate) node: Identity,
    /// Of an operator, a researcher and a student, as bytes: the guest's, and another chain's for the node.
    pub(crate) guests: Vec<u8>,
    pub(crate) nodes: Vec<u8>,
    roots: [PublicKey; 1],
    revocations: Revocations,
    name: NodeName,
    now: Second,
    module: Vec<u8>,
}

/// What can go wrong here is a fault of the benchmark's.
fn failed(error: &dyn std::fmt::Display) -> BenchError {
    BenchError::Failed { command: "bench authorise".to_owned(), said: error.to_string() }
}

fn person(number: u16) -> Identity {
    let mut seed = [0; 32];
    let (begin, _) = seed.split_at_mut(2);
    begin.copy_from_slice(&number.to_be_bytes());
    Identity::from_seed(&seed)
}

/// What an operator grants to the first, who passes a quarter of the processor time and some of the packets on to the second, who passes that on to the last.
fn chain(
    operator: &Identity,
    [first, second, last]: [&Identity; 3],
    ceilings: Ceilings,
    module: &[u8],
) -> Result<Credential, BenchError> {
    let wrong = |error: weir_trust::credential::MintError| failed(&error);
    let set = ModuleSet { hashes: [ModuleHash::of(module)].into(), ..ModuleSet::default() };
    let filter = |text: &str| text.parse().map(|filter| [filter].into());
    let granted = Grant {
        expires: Some(Second::MAX),
        modules: Modules::from(set),
        filters: filter("tcp or udp").map_err(|error| failed(&error))?,
        ceilings,
        ..Grant::default()
    };
    let cpu = ceilings.cpu.map(|share| CpuShare(share.0 / 4));
    let narrowed = Grant {
        filters: filter("port 443").map_err(|error| failed(&error))?,
        ceilings: Ceilings { cpu, ..Ceilings::default() },
        ..Grant::default()
    };
    let credential = Credential::mint(operator, first.public(), granted, &mut OsRng).map_err(wrong)?;
    let credential =
        credential.delegate(first, second.public(), narrowed.clone(), &mut OsRng).map_err(wrong)?;
    credential.delegate(second, last.public(), narrowed, &mut OsRng).map_err(wrong)
}

impl Scene {
    pub(crate) fn new() -> Result<Self, BenchError> {
        let module = vec![0x5a; 64 << 10];
        let operator = person(1);
        let credential = |people: [u16; 3]| {
            let [first, second, last] = people.map(person);
            chain(&operator, [&first, &second, &last], FEW, &module).map(|made| made.as_bytes().to_vec())
        };
        Ok(Self {
            guest: person(4),
            node: person(7),
            guests: credential([2, 3, 4])?,
            nodes: credential([5, 6, 7])?,
            roots: [operator.public()],
            revocations: Revocations::default(),
            name: "node".parse().map_err(|error: weir_trust::grant::NodeNameError| failed(&error))?,
            now: Second::default(),
            module,
            operator,
        })
    }

    /// What somebody's bytes are worth.
    fn verified(&self, bytes: &[u8], peer: &PublicKey) -> Result<Verified, BenchError> {
        let Self { roots, revocations, name, now, .. } = self;
        let situation = Situation { roots, revocations, peer, node: name, now: *now };
        let credential = Credential::parse(bytes).map_err(|error| failed(&error))?;
        credential.verify(&situation).map_err(|error| failed(&error))
    }

    /// Looks at what somebody has shown.
    pub(crate) fn look(&self, peer: &Peer) -> Result<(), BenchError> {
        black_box(self.verified(&peer.credentials, &peer.key)?);
        Ok(())
    }

    /// An association whose both sides have shown what they may do, and have looked at what the other has shown.
    fn meet(&self) -> Result<(), BenchError> {
        let Self { guest, node, guests, nodes, .. } = self;
        let meeting = Meeting { guest, node, guests, nodes, look: &|peer| self.look(peer) };
        meeting.meet().map(drop)
    }

    /// What is known of the guest when he asks.
    fn guest(&self) -> Result<Arc<Verified>, BenchError> {
        Ok(Arc::new(self.verified(&self.guests, &self.guest.public())?))
    }
}

/// What a root has taken back and what sessions there are, as it is on a busy node.
struct Busy<'a> {
    world: World<'a>,
    guest: Credential,
    now: Second,
    ask: SessionSpec,
}

/// A policy by which the operator's credentials count, but for those that she has taken back.
fn policy(scene: &Scene) -> Result<Policy, BenchError> {
    let ids = (0..REVOKED).map(|number| PrefixId::of_root(&person(20_000 + number).public())).collect();
    let list = RevocationList::sign(&scene.operator, 1, scene.now, ids).map_err(|error| failed(&error))?;
    let mut policy = Policy::default();
    let key = scene.operator.public();
    policy.roots.push(Root { name: None, key, limit: Grant::default(), file: PathBuf::new() });
    policy
        .revocations
        .accept(&list, &Reception::new(&scene.roots, scene.now))
        .map_err(|error| failed(&error))?;
    Ok(policy)
}

impl<'a> Busy<'a> {
    fn new(policy: &'a Policy, scene: &'a Scene) -> Result<Self, BenchError> {
        let Scene { operator, guest, module, name, now, .. } = scene;
        let world = World::new(policy, Ground { node: name, config: None, shipped: |_| None });
        let credential = chain(operator, [&person(2), &person(3), guest], MANY, module)?;
        let mut this = Self { world, guest: credential, now: *now, ask: session()? };
        // One after the other in turn, so that they do not lie in memory by whose they are.
        for number in 0..OF_OTHERS.max(OF_THE_SAME) {
            if number < OF_OTHERS {
                let people = [0, 1, 2].map(|place| person(10_000 + 3 * number + place));
                let credential = chain(operator, people.each_ref(), MANY, module)?;
                this.asked(&credential, Some(Request::Create(this.ask.clone())))?;
            }
            if number < OF_THE_SAME {
                let name = weir_units::Name::new(&format!("other-{number}"));
                let name = name.map_err(|error| failed(&error))?;
                let create = Request::Create(SessionSpec { name, ..this.ask.clone() });
                this.asked(&this.guest.clone(), Some(create))?;
            }
        }
        Ok(this)
    }

    /// Processor time of the explanation of a credential, and of what would come of a request of its holder's, which is permitted.
    fn asked(&mut self, credential: &Credential, ask: Option<Request>) -> Result<Duration, BenchError> {
        let ask = ask.map(|ask| (ask, &[][..]));
        let is_asked = ask.is_some();
        let begin = thread_time();
        let explained = black_box(self.world.explain(credential, self.now, ask));
        let taken = thread_time().saturating_sub(begin);
        match explained {
            Explanation { worthless: Some(why), .. } => Err(failed(&why)),
            Explanation { verdict: Some(verdict), .. } => match verdict.refused {
                Some(why) => Err(failed(&why)),
                None => Ok(taken),
            },
            Explanation { verdict: None, .. } if is_asked => Err(failed(&"nothing came of a request")),
            Explanation { .. } => Ok(taken),
        }
    }

    /// What an explanation takes with a request for one more session of the guest's, which is closed again, and without it: the difference is what it takes to decide on
    /// the request.
    fn decide(&mut self) -> Result<[Duration; 2], BenchError> {
        let guest = self.guest.clone();
        let with = self.asked(&guest, Some(Request::Create(self.ask.clone())))?;
        let without = self.asked(&guest, None)?;
        self.asked(&guest, Some(Request::Close { session: self.ask.name.clone() }))?;
        Ok([with, without])
    }
}

/// What is asked for, in words and as a request, and the file that comes with it.
type Case<'a> = (&'static str, Request, Option<&'a [u8]>);

/// What is asked for.
fn session() -> Result<SessionSpec, BenchError> {
    let text = "name = \"study\"\nmemory = \"64 MiB\"\ncpu = [{ period = \"10ms\", slice = \"500us\" }]\nchannel = [{ interface = \"eth0\" }]";
    toml::from_str(text).map_err(|error| failed(&error))
}

fn requests(scene: &Scene) -> Result<[Case<'_>; 2], BenchError> {
    let spec = session()?;
    let module = toml::from_str("module = \"theirs.wasm\"").map_err(|error| failed(&error))?;
    let load = Request::Load { session: spec.name.clone(), module, signatures: Vec::new() };
    Ok([("a session", Request::Create(spec), None), ("a module of 64 KiB", load, Some(&scene.module))])
}

/// Rows of one promise each.
struct Rows(Table);

impl Rows {
    fn add(&mut self, what: String, most: f64, sample: &Sample) {
        let quartiles = sample.quartiles();
        self.0.row([
            what,
            format!("{:.3}", quartiles.median),
            quartiles.spread(3),
            format!("under {most}"),
            yes_or_no(quartiles.median < most),
        ]);
    }
}

fn milliseconds(time: Duration, times: u32) -> f64 {
    time.as_secs_f64() * 1e3 / f64::from(times)
}

/// What something takes, in milliseconds.
fn sample(rounds: usize, act: &dyn Fn() -> Result<(), BenchError>) -> Result<Sample, BenchError> {
    let mut sample = Sample::default();
    for round in 0..=rounds {
        let begin = thread_time();
        for _ in 0..TIMES {
            act()?;
        }
        // The first round only warms up.
        if round > 0 {
            sample.push(milliseconds(thread_time().saturating_sub(begin), TIMES));
        }
    }
    Ok(sample)
}

/// Milliseconds of processor time.
///
/// # Errors
/// Something is refused that should not be.
pub fn table(rounds: usize) -> Result<String, BenchError> {
    let mut scene = Scene::new()?;
    let mut rows = Rows(Table::new(&["what", "ms", "quartiles", "promised", "kept"]));
    let [each, first] =
        ["what is decided for each request", "with the credential, as in the first request of a connection"];
    rows.add(
        "handshake with credentials of three blocks, both sides, which look at them".to_owned(),
        BOTH_MAX,
        &sample(rounds, &|| scene.meet())?,
    );
    let guest = scene.guest()?;
    for (what, request, body) in requests(&scene)? {
        let decide = |guest: &Arc<Verified>| {
            let decided = weir_node::authorise(guest, request.clone(), body);
            decided.map(|request| _ = black_box(request)).map_err(|error| failed(&error))
        };
        rows.add(format!("{what}: {each}"), REQUEST_MAX, &sample(rounds, &|| decide(&guest))?);
        rows.add(format!("{what}: {first}"), REQUEST_MAX, &sample(rounds, &|| decide(&scene.guest()?))?);
    }
    let policy = policy(&scene)?;
    scene.revocations = policy.revocations.clone();
    let mut busy = Busy::new(&policy, &scene)?;
    let [mut decided, mut with_credential] = [(); 2].map(|()| Sample::default());
    for round in 0..=rounds {
        let [mut with, mut without, mut verifying] = [Duration::ZERO; 3];
        for _ in 0..BUSY_TIMES {
            let taken = busy.decide()?;
            with += taken[0];
            without += taken[1];
            let begin = thread_time();
            black_box(scene.guest()?);
            verifying += thread_time().saturating_sub(begin);
        }
        let deciding = with.saturating_sub(without);
        if round > 0 {
            decided.push(milliseconds(deciding, BUSY_TIMES));
            with_credential.push(milliseconds(deciding + verifying, BUSY_TIMES));
        }
    }
    rows.add(format!("a session on a busy node: {each}"), REQUEST_MAX, &decided);
    rows.add(format!("a session on a busy node: {first}"), REQUEST_MAX, &with_credential);
    Ok(format!(
        "Medians of {rounds} rounds of {TIMES} times each; credentials of three blocks, {} and {} bytes. A busy node has {OF_OTHERS} sessions of as many other parties and {OF_THE_SAME} under the credential by which is asked, and its root has taken back {REVOKED} credentials; what it decides there is what an explanation of the credential takes more with the request than without ({BUSY_TIMES} times a round).\n\n{}",
        scene.guests.len(),
        scene.nodes.len(),
        rows.0
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
    fn what_is_measured_is_three_blocks_and_would_be_refused_to_others() {
        let scene = Scene::new().unwrap();
        assert_eq!(scene.guest().unwrap().chain().len(), 3);
        assert!(scene.verified(&scene.guests, &scene.node.public()).is_err());
        let guest = scene.guest().unwrap();
        let [_, (_, load, _)] = requests(&scene).unwrap();
        assert!(weir_node::authorise(&guest, load, Some(b"another one")).is_err());
    }
}
