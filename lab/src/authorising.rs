//! What it costs to find out what somebody may do: credentials of three blocks on both sides of a handshake, and what a node does with a request before anything is
//! done of it.

use crate::BenchError;
use crate::native::thread_time;
use crate::statistics::Sample;
use crate::table::Table;
use rand_core::OsRng;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;
use weir_node::protocol::Request;
use weir_node::spec::SessionSpec;
use weir_trust::association::{Initiator, Responder};
use weir_trust::credential::{Credential, Situation, Verified};
use weir_trust::grant::{Ceilings, CpuShare, Grant, ModuleHash, ModuleSet, Modules, NodeName, Second};
use weir_trust::key::{Identity, PublicKey};
use weir_trust::revocation::Revocations;
use weir_units::Bytes;

/// How often each is done in a round.
const TIMES: u32 = 50;
/// What was promised, in ms.
const BOTH_MAX: f64 = 1.2;
const REQUEST_MAX: f64 = 0.5;

/// People, and what a node knows of them.
struct Scene {
    guest: Identity,
    node: Identity,
    /// Of an operator, a researcher and a student, as bytes: the guest's, and another chain's for the node.
    guests: Vec<u8>,
    nodes: Vec<u8>,
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

impl Scene {
    fn new() -> Result<Self, BenchError> {
        let person = |seed: u8| Identity::from_seed(&[seed; 32]);
        let module = vec![0x5a; 64 << 10];
        let operator = person(1);
        let chain = |seeds: [u8; 3]| -> Result<Vec<u8>, BenchError> {
            let [first, second, last] = seeds.map(person);
            let wrong = |error: weir_trust::credential::MintError| failed(&error);
            let ceilings = Ceilings {
                cpu: Some(CpuShare(200_000)),
                memory: Some(Bytes(128 << 20)),
                sessions: Some(3),
                ..Ceilings::default()
            };
            let set = ModuleSet { hashes: [ModuleHash::of(&module)].into(), ..ModuleSet::default() };
            let filter = |text: &str| text.parse().map(|filter| [filter].into());
            let granted = Grant {
                expires: Some(Second::MAX),
                modules: Modules::from(set),
                filters: filter("tcp or udp").map_err(|error| failed(&error))?,
                ceilings,
                ..Grant::default()
            };
            let narrowed = Grant {
                filters: filter("port 443").map_err(|error| failed(&error))?,
                ceilings: Ceilings { cpu: Some(CpuShare(50_000)), ..Ceilings::default() },
                ..Grant::default()
            };
            let credential =
                Credential::mint(&operator, first.public(), granted, &mut OsRng).map_err(wrong)?;
            let credential =
                credential.delegate(&first, second.public(), narrowed.clone(), &mut OsRng).map_err(wrong)?;
            let credential =
                credential.delegate(&second, last.public(), narrowed, &mut OsRng).map_err(wrong)?;
            Ok(credential.as_bytes().to_vec())
        };
        Ok(Self {
            guest: person(4),
            node: person(7),
            guests: chain([2, 3, 4])?,
            nodes: chain([5, 6, 7])?,
            roots: [operator.public()],
            revocations: Revocations::default(),
            name: "node".parse().map_err(|error: weir_trust::grant::NodeNameError| failed(&error))?,
            now: Second::default(),
            module,
        })
    }

    /// What somebody's bytes are worth.
    fn verified(&self, bytes: &[u8], peer: &PublicKey) -> Result<Verified, BenchError> {
        let Self { roots, revocations, name, now, .. } = self;
        let situation = Situation { roots, revocations, peer, node: name, now: *now };
        let credential = Credential::parse(bytes).map_err(|error| failed(&error))?;
        credential.verify(&situation).map_err(|error| failed(&error))
    }

    /// An association whose both sides have shown what they may do, and have looked at what the other has shown.
    fn meet(&self) -> Result<(), BenchError> {
        let wrong = |error: weir_trust::association::HandshakeError| failed(&error);
        let (initiator, first) = Initiator::begin(Some(self.node.public()), &mut OsRng).map_err(wrong)?;
        let (responder, second) = Responder::begin(&self.node, &first, &mut OsRng).map_err(wrong)?;
        let met = initiator.second(&second).map_err(wrong)?;
        let (confirming, third) = met.introduce(&self.guest, &self.guests).map_err(wrong)?;
        let authenticated = responder.third(&third).map_err(wrong)?;
        let peer = authenticated.peer();
        black_box(self.verified(&peer.credentials, &peer.key)?);
        let (there, fourth) = authenticated.accept(&self.nodes).map_err(wrong)?;
        let here = confirming.fourth(&fourth).map_err(wrong)?;
        black_box(self.verified(&here.peer().credentials, &here.peer().key)?);
        black_box((here, there));
        Ok(())
    }

    /// What is known of the guest when he asks.
    fn guest(&self) -> Result<Arc<Verified>, BenchError> {
        Ok(Arc::new(self.verified(&self.guests, &self.guest.public())?))
    }
}

/// What is asked for, in words and as a request, and the file that comes with it.
type Case<'a> = (&'static str, Request, Option<&'a [u8]>);

fn requests(scene: &Scene) -> Result<[Case<'_>; 2], BenchError> {
    let parsed = |text: &str| toml::from_str::<SessionSpec>(text).map_err(|error| failed(&error));
    let spec = parsed(
        "name = \"study\"\nmemory = \"64 MiB\"\ncpu = [{ period = \"10ms\", slice = \"500us\" }]\nchannel = [{ interface = \"eth0\" }]",
    )?;
    let module = toml::from_str("module = \"theirs.wasm\"").map_err(|error| failed(&error))?;
    let load = Request::Load { session: spec.name.clone(), module, signatures: Vec::new() };
    Ok([("a session", Request::Create(spec), None), ("a module of 64 KiB", load, Some(&scene.module))])
}

/// Milliseconds of processor time.
///
/// # Errors
/// Something is refused that should not be.
pub fn table(rounds: usize) -> Result<String, BenchError> {
    let scene = Scene::new()?;
    let mut table = Table::new(&["what", "ms", "quartiles", "promised", "kept"]);
    let mut add = |what: String, most: f64, act: &dyn Fn() -> Result<(), BenchError>| {
        let mut sample = Sample::default();
        for round in 0..=rounds {
            let begin = thread_time();
            for _ in 0..TIMES {
                act()?;
            }
            // The first round only warms up.
            if round > 0 {
                let taken: Duration = thread_time().saturating_sub(begin);
                sample.push(taken.as_secs_f64() * 1e3 / f64::from(TIMES));
            }
        }
        let quartiles = sample.quartiles();
        table.row([
            what,
            format!("{:.3}", quartiles.median),
            format!("{:.3}–{:.3}", quartiles.lower, quartiles.upper),
            format!("under {most}"),
            if quartiles.median < most { "yes" } else { "no" }.to_owned(),
        ]);
        Ok::<(), BenchError>(())
    };
    add(
        "handshake with credentials of three blocks, both sides, which look at them".to_owned(),
        BOTH_MAX,
        &|| scene.meet(),
    )?;
    let guest = scene.guest()?;
    for (what, request, body) in requests(&scene)? {
        let decide = |guest: &Arc<Verified>| {
            let decided = weir_node::authorise(guest, request.clone(), body);
            decided.map(|request| _ = black_box(request)).map_err(|error| failed(&error))
        };
        add(format!("{what}: what is decided for each request"), REQUEST_MAX, &|| decide(&guest))?;
        add(
            format!("{what}: with the credential, as in the first request of a connection"),
            REQUEST_MAX,
            &|| decide(&scene.guest()?),
        )?;
    }
    Ok(format!(
        "Medians of {rounds} rounds of {TIMES} times each; credentials of three blocks, {} and {} bytes.\n\n{table}",
        scene.guests.len(),
        scene.nodes.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_promised_is_measured() {
        let text = table(1).unwrap();
        assert!(text.contains("under 1.2") && text.matches("under 0.5").count() == 4, "{text}");
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
