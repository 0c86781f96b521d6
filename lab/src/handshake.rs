//! The cost of an association: processor time of both sides of a handshake, and of the key agent.

use crate::authorising::Peers;
use crate::error::{Context, DebugContext, LabError};
use crate::native::{process_time, thread_time};
use crate::paths;
use crate::statistics::{Action, Sample, all_in_turn, values_in_turn};
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

/// Credentials that each side shows the other.
#[derive(Clone, Copy)]
enum ShownCredentials {
    /// A number of bytes that are not read.
    Bytes(usize),
    /// A credential of three blocks, which the other side verifies.
    Blocks,
}

/// The shown credentials, and the promised limit of the time of all processes together, in ms.
const SETTINGS: [(&str, ShownCredentials, Option<f64>); 3] = [
    ("no credentials", ShownCredentials::Bytes(0), Some(0.6)),
    ("1 KiB of credentials on both sides, not read", ShownCredentials::Bytes(1 << 10), None),
    ("credentials of three blocks on both sides, verified", ShownCredentials::Blocks, Some(1.2)),
];
/// Handshakes of a round.
const HANDSHAKES: u32 = 50;
/// The place of the node's private key. A node keeps it in a key agent, which is a separate process.
const SAME_PROCESS: &str = "in the same process";
const OWN_PROCESS: &str = "in a key agent";

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
        let gone = || LabError::failed("the process with the private key", "ended");
        let id = self.process.id().ok_or_else(gone)?;
        Ok((id, process_time(id).ok_or_else(gone)?))
    }

    /// The agent's processor time during some work.
    fn during(&self, work: impl FnOnce() -> Result<(), LabError>) -> Result<Duration, LabError> {
        let (id, before) = self.time()?;
        work()?;
        match self.time()? {
            (still, after) if still == id => Ok(after.saturating_sub(before)),
            _ => Err(LabError::failed("the process with the private key", "restarted")),
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
    /// Makes a handshake, and returns this thread's processor time for the initiator and for the responder.
    pub(crate) fn make(&self) -> Result<[Duration; 2], LabError> {
        const WHAT: &str = "a handshake";
        let begin = thread_time();
        let (initiator, first) = Initiator::begin(Some(self.node.public()), &mut OsRng).context(WHAT)?;
        let sent = thread_time();
        let (responder, second) = Responder::begin(self.node, &first, &mut OsRng).context(WHAT)?;
        let answered = thread_time();
        let met = initiator.read_second(&second).context(WHAT)?;
        let (confirming, third) = met.introduce(self.client, self.clients_credential).context(WHAT)?;
        let introduced = thread_time();
        let authenticated = responder.read_third(&third).context(WHAT)?;
        (self.check)(authenticated.peer())?;
        let (there, fourth) = authenticated.accept(self.nodes_credential).context(WHAT)?;
        let accepted = thread_time();
        let here = confirming.read_fourth(&fourth).context(WHAT)?;
        (self.check)(here.peer())?;
        let done = thread_time();
        black_box((here, there));
        let initiators = [(begin, sent), (answered, introduced), (accepted, done)];
        let responders = [(sent, answered), (introduced, accepted)];
        let sum =
            |times: &[(Duration, Duration)]| times.iter().map(|(from, to)| to.saturating_sub(*from)).sum();
        Ok([sum(&initiators), sum(&responders)])
    }

    /// Makes the handshakes of a round. Returns milliseconds per handshake of the initiator, the responder, and the key agent if it signs.
    fn round(&self, agent: &TimedKeyAgent, place: &str) -> Result<[f64; 3], LabError> {
        let (mut here, mut there) = (Duration::ZERO, Duration::ZERO);
        let apart = agent.during(|| {
            for _ in 0..HANDSHAKES {
                let taken = self.make()?;
                here += taken[0];
                there += taken[1];
            }
            Ok(())
        })?;
        let apart = if place == OWN_PROCESS { apart } else { Duration::ZERO };
        Ok([here, there, apart].map(|time| time.as_secs_f64() * 1e3 / f64::from(HANDSHAKES)))
    }
}

/// Milliseconds of a handshake, by its credentials and by the place of the node's private key.
fn handshakes(rounds: usize, peers: &Peers, agent: &TimedKeyAgent) -> Result<String, LabError> {
    let unread = [0x5a; 1 << 10];
    let check = |peer: &Peer| peers.check(peer);
    let signers: [(&str, &dyn Signer); 2] = [(SAME_PROCESS, &peers.node), (OWN_PROCESS, &agent.process)];
    let (mut cases, mut actions): (Vec<_>, Vec<Action<'_, [f64; 3]>>) = Default::default();
    for (name, shown, promise) in SETTINGS {
        for (place, node) in signers {
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
            cases.push((name, place, promise));
            actions.push(Box::new(move || handshake.round(agent, place)));
        }
    }
    let mut table = Table::new(
        "shown | the node's private key is | initiator, ms | responder, ms | key agent, ms | all, ms | quartiles | promised | kept",
    );
    for ((shown, place, promise), values) in cases.iter().zip(values_in_turn(rounds, &mut actions)?) {
        let part = |of: usize| values.iter().map(|value| value[of]).collect::<Sample>().median();
        let all: Sample = values.iter().map(|value| value.iter().sum::<f64>()).collect();
        let key_agent = if *place == OWN_PROCESS { format!("{:.3}", part(2)) } else { "–".to_owned() };
        let promised = promise.map_or_else(|| "– | –".to_owned(), |promise| under(promise, all.median()));
        table.row(format_args!(
            "{shown} | {place} | {:.3} | {:.3} | {key_agent} | {} | {promised}",
            part(0),
            part(1),
            all.cells(3)
        ));
    }
    Ok(format!(
        "Medians of {rounds} rounds of {HANDSHAKES} handshakes, all of them in turn; messages are passed in memory. A node's private key is in a key agent, a separate process, whose processor time is included.\n\n{table}"
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
    let [here, apart] =
        all_in_turn(rounds, [Box::new(|| sign(identity)), Box::new(|| sign(&agent.process))])?;
    let mut table = Table::new("the private key is | a signature, us | quartiles");
    table.row(format_args!("{SAME_PROCESS} | {}", here.cells(1)));
    table.row(format_args!("{OWN_PROCESS} | {}", apart.cells(1)));
    Ok(format!("A node signs once per handshake. Wall-clock time.\n\n{table}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The work of the other process.
    #[test]
    #[ignore = "run by the other test, as a process of its own"]
    fn keep_as_a_process_of_its_own() {
        if let Some(file) = std::env::args().next_back().filter(|last| last.ends_with(".key")) {
            weir_remote::run_key_agent(Path::new(&file)).unwrap();
        }
    }

    #[test]
    fn everything_promised_is_measured_with_the_key_here_and_elsewhere() {
        let peers = Peers::new().unwrap();
        // This program again: the test harness takes the path for one more filter.
        let test = "handshake::tests::keep_as_a_process_of_its_own";
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
        let taken = agent.during(|| {
            (0..HANDSHAKES).for_each(|_| sign());
            Ok(())
        });
        assert!(taken.unwrap() > Duration::from_micros(5) * HANDSHAKES);
    }
}
