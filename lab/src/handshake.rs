//! The cost of an association: processor time of both sides of a handshake, and of the key agent. The part `handshake` of
//! the benchmark.

use crate::authorising::Peers;
use crate::error::{Context, DebugContext, LabError};
use crate::native::{process_time, thread_time};
use crate::paths;
use crate::statistics::{Action, Sample, measure_all_in_turn, measure_values_in_turn};
use crate::table::{Table, under};
use rand_core::OsRng;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weir_remote::{KEY_AGENT_ARGUMENT, KeyAgent};
use weir_sandbox::Launcher;
use weir_trust::association::{HandshakeRole, Initiator, KeyStatement, Peer, Responder, Signer};
use weir_trust::key::{Identity, KeyFile};

/// The credentials that each side shows the other side.
#[derive(Clone, Copy)]
enum ShownCredentials {
    /// This number of bytes, which the other side does not read.
    Bytes(usize),
    /// A credential of three blocks, which the other side verifies.
    Blocks,
}

/// The measured handshakes: name, shown credentials, and the promised limit of the processor time of all processes together,
/// in ms.
const SETTINGS: [(&str, ShownCredentials, Option<f64>); 3] = [
    ("no credentials", ShownCredentials::Bytes(0), Some(0.6)),
    ("1 KiB of credentials on both sides, not read", ShownCredentials::Bytes(1 << 10), None),
    ("credentials of three blocks on both sides, verified", ShownCredentials::Blocks, Some(1.2)),
];
/// The number of handshakes, or signatures, in a round.
const HANDSHAKES: u32 = 50;
/// The name of the case in which this process has the node's private key.
const SAME_PROCESS: &str = "in the same process";
/// The name of the case in which a key agent, a separate process, has the node's private key, as on a real node.
const KEY_AGENT: &str = "in a key agent";

/// The tables of the cost of handshakes and of signatures.
pub fn tables(rounds: usize) -> Result<String, LabError> {
    let peers = Peers::new()?;
    let agent = TimedKeyAgent::start(&paths::built_weir()?, &[KEY_AGENT_ARGUMENT], &peers.node)?;
    Ok(format!("{}\n{}", handshakes(rounds, &peers, &agent)?, signatures(rounds, &peers.node, &agent)?))
}

/// A key agent whose processor time is measured.
struct TimedKeyAgent {
    process: KeyAgent,
    /// The folder of the key file, which a restarted agent reads again.
    _folder: TempDir,
}

/// Writes a private key to a file that only its owner can read.
pub(crate) fn write_key(folder: &Path, identity: &Identity) -> Result<PathBuf, LabError> {
    let file = folder.join("node.key");
    std::fs::write(&file, KeyFile::plain(identity).as_bytes()).map_err(LabError::file(&file))?;
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, private).map_err(LabError::file(&file))?;
    Ok(file)
}

impl TimedKeyAgent {
    /// Starts `program` with these arguments and a key file.
    fn start(program: &Path, arguments: &[&str], identity: &Identity) -> Result<Self, LabError> {
        let folder = tempfile::tempdir().context("making a folder")?;
        let file = write_key(folder.path(), identity)?;
        let arguments = arguments.iter().map(PathBuf::from).chain([file]).collect();
        let process =
            KeyAgent::start(Launcher::from(program), arguments, |_| {}).context("starting the key agent")?;
        Ok(Self { process, _folder: folder })
    }

    /// The agent's process number, and its processor time so far.
    fn time(&self) -> Result<(u32, Duration), LabError> {
        let ended = || LabError::failed("the key agent", "the process has ended");
        let id = self.process.id().ok_or_else(ended)?;
        Ok((id, process_time(id).ok_or_else(ended)?))
    }

    /// Runs `work`, and returns the agent's processor time meanwhile.
    fn time_during(&self, work: impl FnOnce() -> Result<(), LabError>) -> Result<Duration, LabError> {
        let (id, before) = self.time()?;
        work()?;
        match self.time()? {
            (same, after) if same == id => Ok(after.saturating_sub(before)),
            _ => Err(LabError::failed("the key agent", "the process was restarted during the measurement")),
        }
    }
}

/// The two sides of a handshake: their identities, their credentials, and the check of the other side's credentials.
pub(crate) struct MeasuredHandshake<'a> {
    pub(crate) client: &'a Identity,
    pub(crate) node: &'a dyn Signer,
    pub(crate) clients_credential: &'a [u8],
    pub(crate) nodes_credential: &'a [u8],
    pub(crate) check: &'a dyn Fn(&Peer) -> Result<(), LabError>,
}

impl MeasuredHandshake<'_> {
    /// Makes a handshake. Returns the processor time of this thread for the initiator and for the responder.
    pub(crate) fn make(&self) -> Result<[Duration; 2], LabError> {
        const WHAT: &str = "a handshake";
        let begin = thread_time();
        let (initiator, first) = Initiator::begin(Some(self.node.public()), &mut OsRng).context(WHAT)?;
        let first_sent = thread_time();
        let (responder, second) = Responder::begin(self.node, &first, &mut OsRng).context(WHAT)?;
        let second_sent = thread_time();
        let with_second = initiator.read_second(&second).context(WHAT)?;
        let (confirming, third) =
            with_second.introduce(self.client, self.clients_credential).context(WHAT)?;
        let third_sent = thread_time();
        let authenticated = responder.read_third(&third).context(WHAT)?;
        (self.check)(authenticated.peer())?;
        let (responder_stream, fourth) = authenticated.accept(self.nodes_credential).context(WHAT)?;
        let fourth_sent = thread_time();
        let initiator_stream = confirming.read_fourth(&fourth).context(WHAT)?;
        (self.check)(initiator_stream.peer())?;
        let done = thread_time();
        black_box((initiator_stream, responder_stream));
        let initiators = [(begin, first_sent), (second_sent, third_sent), (fourth_sent, done)];
        let responders = [(first_sent, second_sent), (third_sent, fourth_sent)];
        let sum =
            |times: &[(Duration, Duration)]| times.iter().map(|(from, to)| to.saturating_sub(*from)).sum();
        Ok([sum(&initiators), sum(&responders)])
    }

    /// Makes the handshakes of a round. Returns the milliseconds per handshake of the initiator, the responder, and the key
    /// agent if it signs.
    fn round(&self, agent: &TimedKeyAgent, key_place: &str) -> Result<[f64; 3], LabError> {
        let (mut initiator, mut responder) = (Duration::ZERO, Duration::ZERO);
        let agent_time = agent.time_during(|| {
            for _ in 0..HANDSHAKES {
                let taken = self.make()?;
                initiator += taken[0];
                responder += taken[1];
            }
            Ok(())
        })?;
        let agent_time = if key_place == KEY_AGENT { agent_time } else { Duration::ZERO };
        Ok([initiator, responder, agent_time].map(|time| time.as_secs_f64() * 1e3 / f64::from(HANDSHAKES)))
    }
}

/// The table of the milliseconds of a handshake, by its credentials and by the place of the node's private key.
fn handshakes(rounds: usize, peers: &Peers, agent: &TimedKeyAgent) -> Result<String, LabError> {
    let unread = [0x5a; 1 << 10];
    let check = |peer: &Peer| peers.check(peer);
    let signers: [(&str, &dyn Signer); 2] = [(SAME_PROCESS, &peers.node), (KEY_AGENT, &agent.process)];
    let (mut cases, mut actions): (Vec<_>, Vec<Action<'_, [f64; 3]>>) = Default::default();
    for (name, shown, promise) in SETTINGS {
        for (key_place, node) in signers {
            let client = &peers.client;
            let handshake = match shown {
                ShownCredentials::Bytes(len) => {
                    let shown = unread.get(..len).unwrap_or(&unread);
                    let check = &|_: &Peer| Ok(());
                    MeasuredHandshake {
                        client,
                        node,
                        clients_credential: shown,
                        nodes_credential: shown,
                        check,
                    }
                }
                ShownCredentials::Blocks => MeasuredHandshake {
                    client,
                    node,
                    clients_credential: &peers.clients_credential,
                    nodes_credential: &peers.nodes_credential,
                    check: &check,
                },
            };
            cases.push((name, key_place, promise));
            actions.push(Box::new(move || handshake.round(agent, key_place)));
        }
    }
    let mut table = Table::new(
        "shown | the node's private key is | initiator, ms | responder, ms | key agent, ms | all, ms | quartiles | promised | kept",
    );
    for ((shown, key_place, promise), values) in
        cases.iter().zip(measure_values_in_turn(rounds, &mut actions)?)
    {
        let median = |part: usize| values.iter().map(|value| value[part]).collect::<Sample>().median();
        let all: Sample = values.iter().map(|value| value.iter().sum::<f64>()).collect();
        let key_agent = if *key_place == KEY_AGENT { format!("{:.3}", median(2)) } else { "–".to_owned() };
        let promised = promise.map_or_else(|| "– | –".to_owned(), |promise| under(promise, all.median()));
        table.row(format_args!(
            "{shown} | {key_place} | {:.3} | {:.3} | {key_agent} | {} | {promised}",
            median(0),
            median(1),
            all.cells(3)
        ));
    }
    Ok(format!(
        "Medians of {rounds} interleaved rounds of {HANDSHAKES} handshakes; messages are passed in memory. A node's private key is in a key agent, a separate process, whose processor time is included.\n\n{table}"
    ))
}

/// The table of the wall-clock time of a node's signature, by the place of its private key.
fn signatures(rounds: usize, identity: &Identity, agent: &TimedKeyAgent) -> Result<String, LabError> {
    let statement = KeyStatement::new(HandshakeRole::Responder, &[2; 32], &[3; 32]);
    let sign = |signer: &dyn Signer| {
        let begin = Instant::now();
        for _ in 0..HANDSHAKES {
            black_box(signer.sign_statement(&statement)).debug_context("a signature")?;
        }
        Ok(begin.elapsed().as_secs_f64() * 1e6 / f64::from(HANDSHAKES))
    };
    let [same_process, key_agent] =
        measure_all_in_turn(rounds, [Box::new(|| sign(identity)), Box::new(|| sign(&agent.process))])?;
    let mut table = Table::new("the private key is | a signature, us | quartiles");
    table.row(format_args!("{SAME_PROCESS} | {}", same_process.cells(1)));
    table.row(format_args!("{KEY_AGENT} | {}", key_agent.cells(1)));
    Ok(format!("A node signs once per handshake. Wall-clock time.\n\n{table}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The work of the key agent's process.
    #[test]
    #[ignore = "run by the other test, in a separate process"]
    fn run_a_key_agent_in_this_process() {
        if let Some(file) = std::env::args().next_back().filter(|last| last.ends_with(".key")) {
            weir_remote::run_key_agent(Path::new(&file)).unwrap();
        }
    }

    #[test]
    fn each_kind_of_handshake_is_measured_with_both_places_of_the_key() {
        let peers = Peers::new().unwrap();
        // This program runs itself again. The test harness takes the path of the key for one more filter.
        let test = "handshake::tests::run_a_key_agent_in_this_process";
        let arguments = ["--ignored", "--nocapture", "--exact", test];
        let agent = TimedKeyAgent::start(&std::env::current_exe().unwrap(), &arguments, &peers.node).unwrap();
        let text = handshakes(1, &peers, &agent).unwrap();
        for (shown, ..) in SETTINGS {
            assert_eq!(text.matches(shown).count(), 2, "{shown}: {text}");
        }
        for promise in ["under 0.6", "under 1.2"] {
            assert_eq!(text.matches(promise).count(), 2, "{promise}: {text}");
        }
        // The agent signs and answers by system calls, so a process without processor time is the wrong process.
        let sign = || {
            _ = agent.process.sign_statement(&KeyStatement::new(HandshakeRole::Responder, &[2; 32], &[3; 32]))
        };
        let taken = agent.time_during(|| {
            (0..HANDSHAKES).for_each(|_| sign());
            Ok(())
        });
        assert!(taken.unwrap() > Duration::from_micros(5) * HANDSHAKES);
    }
}
