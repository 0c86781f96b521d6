//! What an association costs: processor time of both sides of a handshake, and of the process that keeps the node's private key.

use crate::authorising::Scene;
use crate::native::{process_time, thread_time};
use crate::statistics::Sample;
use crate::table::Table;
use crate::{BenchError, place};
use rand_core::OsRng;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weir_remote::{KEEPER, Keeper};
use weir_sandbox::Launcher;
use weir_trust::association::{HandshakeError, Initiator, Peer, Responder, Role, Signer, Statement};
use weir_trust::key::{Identity, KeyFile};

/// What each side shows the other.
#[derive(Clone, Copy)]
enum Shown {
    /// So many bytes, which nobody looks into.
    Bytes(usize),
    /// A credential of three blocks, which the other side verifies.
    Blocks,
}

/// What is shown, and how long all who take part may take together then, in ms.
const SETTINGS: [(&str, Shown, Option<f64>); 3] = [
    ("no credentials", Shown::Bytes(0), Some(0.6)),
    ("1 KiB of credentials on both sides, not looked into", Shown::Bytes(1 << 10), None),
    ("credentials of three blocks on both sides, looked at", Shown::Blocks, Some(1.2)),
];
/// Handshakes of a round.
const HANDSHAKES: u32 = 50;
/// Where the node's private key is: a node has it in a process of its own.
const HERE: &str = "in the same process";
const APART: &str = "in a process of its own";

/// What handshakes take, and what of that it is that the private key is elsewhere.
///
/// # Errors
/// A handshake fails, or there is no process for the key.
pub fn tables(rounds: usize) -> Result<String, BenchError> {
    let scene = Scene::new()?;
    let kept = Kept::by(&place::built()?, &[KEEPER], &scene.node)?;
    Ok(format!("{}\n{}", handshakes(rounds, &scene, &kept)?, keeping(rounds, &scene.node, &kept)?))
}

/// A node's private key, in a file and with its keeper.
struct Kept {
    keeper: Keeper,
    /// Where the file is: a keeper that has to be started anew reads it again.
    _folder: TempDir,
}

impl Kept {
    /// `program` answers these arguments, and a file behind them, as a keeper.
    fn by(program: &Path, arguments: &[&str], identity: &Identity) -> Result<Self, BenchError> {
        let folder = tempfile::tempdir().map_err(|error| failed(&error))?;
        let file = folder.path().join("node.key");
        std::fs::write(&file, KeyFile::plain(identity).as_bytes()).map_err(BenchError::file(&file))?;
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, private).map_err(BenchError::file(&file))?;
        let arguments = arguments.iter().map(PathBuf::from).chain([file]).collect();
        let keeper =
            Keeper::start(Launcher::from(program), arguments, |_| {}).map_err(|error| failed(&error))?;
        Ok(Self { keeper, _folder: folder })
    }

    /// The processor time that its process has had, and which one that is.
    fn time(&self) -> Result<(u32, Duration), BenchError> {
        let gone = || failed(&"the process that keeps the private key has ended");
        let id = self.keeper.id().ok_or_else(gone)?;
        Ok((id, process_time(id).ok_or_else(gone)?))
    }

    /// The processor time that it takes while something is done.
    fn during(&self, work: impl FnOnce() -> Result<(), BenchError>) -> Result<Duration, BenchError> {
        let (id, before) = self.time()?;
        work()?;
        match self.time()? {
            (still, after) if still == id => Ok(after.saturating_sub(before)),
            _ => Err(failed(&"the process that keeps the private key was started anew")),
        }
    }
}

/// Two who meet: who they are, what they show each other, and what they do with what they are shown.
pub(crate) struct Meeting<'a> {
    pub(crate) guest: &'a Identity,
    /// Who signs for the node.
    pub(crate) node: &'a dyn Signer,
    pub(crate) guests: &'a [u8],
    pub(crate) nodes: &'a [u8],
    pub(crate) look: &'a dyn Fn(&Peer) -> Result<(), BenchError>,
}

impl Meeting<'_> {
    /// A handshake. Says which processor time of this thread the initiator and the responder have taken.
    pub(crate) fn meet(&self) -> Result<[Duration; 2], BenchError> {
        let wrong = |error: HandshakeError| failed(&error);
        let begin = thread_time();
        let (initiator, first) = Initiator::begin(Some(self.node.public()), &mut OsRng).map_err(wrong)?;
        let sent = thread_time();
        let (responder, second) = Responder::begin(self.node, &first, &mut OsRng).map_err(wrong)?;
        let answered = thread_time();
        let met = initiator.second(&second).map_err(wrong)?;
        let (confirming, third) = met.introduce(self.guest, self.guests).map_err(wrong)?;
        let introduced = thread_time();
        let authenticated = responder.third(&third).map_err(wrong)?;
        (self.look)(authenticated.peer())?;
        let (there, fourth) = authenticated.accept(self.nodes).map_err(wrong)?;
        let accepted = thread_time();
        let here = confirming.fourth(&fourth).map_err(wrong)?;
        (self.look)(here.peer())?;
        let done = thread_time();
        black_box((here, there));
        let initiators = [(begin, sent), (answered, introduced), (accepted, done)];
        let responders = [(sent, answered), (introduced, accepted)];
        let sum =
            |times: &[(Duration, Duration)]| times.iter().map(|(from, to)| to.saturating_sub(*from)).sum();
        Ok([sum(&initiators), sum(&responders)])
    }
}

/// One way to meet, measured.
struct Contender<'a> {
    shown: &'static str,
    promise: Option<f64>,
    place: &'static str,
    meeting: Meeting<'a>,
    initiator: Sample,
    responder: Sample,
    /// Nothing where the node's private key is in the same process.
    keeper: Option<Sample>,
    all: Sample,
}

impl Contender<'_> {
    /// Handshakes one after the other. The first round only warms up.
    fn round(&mut self, kept: &Kept, is_measured: bool) -> Result<(), BenchError> {
        let (mut here, mut there) = (Duration::ZERO, Duration::ZERO);
        let apart = kept.during(|| {
            for _ in 0..HANDSHAKES {
                let taken = self.meeting.meet()?;
                here += taken[0];
                there += taken[1];
            }
            Ok(())
        })?;
        if is_measured {
            let each = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(HANDSHAKES);
            self.initiator.push(each(here));
            self.responder.push(each(there));
            let apart = if let Some(keeper) = &mut self.keeper {
                keeper.push(each(apart));
                apart
            } else {
                // It is not asked.
                Duration::ZERO
            };
            self.all.push(each(here + there + apart));
        }
        Ok(())
    }
}

/// Milliseconds of a handshake, by what is shown in it and by where the node's private key is.
fn handshakes(rounds: usize, scene: &Scene, kept: &Kept) -> Result<String, BenchError> {
    let unread = [0x5a; 1 << 10];
    let look = |peer: &Peer| scene.look(peer);
    let signers: [(&str, &dyn Signer); 2] = [(HERE, &scene.node), (APART, &kept.keeper)];
    let mut contenders = Vec::new();
    for (shown, what, promise) in SETTINGS {
        for (place, node) in signers {
            let guest = &scene.guest;
            let meeting = match what {
                Shown::Bytes(len) => {
                    let shown = unread.get(..len).unwrap_or(&unread);
                    Meeting { guest, node, guests: shown, nodes: shown, look: &|_| Ok(()) }
                }
                Shown::Blocks => {
                    Meeting { guest, node, guests: &scene.guests, nodes: &scene.nodes, look: &look }
                }
            };
            let [initiator, responder, all] = [(); 3].map(|()| Sample::default());
            let keeper = (place == APART).then(Sample::default);
            contenders.push(Contender { shown, promise, place, meeting, initiator, responder, keeper, all });
        }
    }
    for round in 0..=rounds {
        contenders.iter_mut().try_for_each(|contender| contender.round(kept, round > 0))?;
    }
    let mut table = Table::new(&[
        "shown",
        "the node's private key is",
        "initiator, ms",
        "responder, ms",
        "keeper, ms",
        "all, ms",
        "quartiles",
        "promised",
        "kept",
    ]);
    for Contender { shown, promise, place, initiator, responder, keeper, all, .. } in &contenders {
        let quartiles = all.quartiles();
        table.row([
            (*shown).to_owned(),
            (*place).to_owned(),
            format!("{:.3}", initiator.median()),
            format!("{:.3}", responder.median()),
            keeper.as_ref().map_or_else(|| "–".to_owned(), |keeper| format!("{:.3}", keeper.median())),
            format!("{:.3}", quartiles.median),
            quartiles.spread(3),
            promise.map_or_else(|| "–".to_owned(), |promise| format!("under {promise}")),
            promise.map_or("–", |promise| if quartiles.median < promise { "yes" } else { "no" }).to_owned(),
        ]);
    }
    Ok(format!(
        "Medians of {rounds} rounds of {HANDSHAKES} handshakes, all of them in turn; messages go from hand to hand. A node has its private key in a process of its own, the keeper, whose processor time is counted with that of both sides.\n\n{table}"
    ))
}

/// What a node's signature takes on the clock, in microseconds: where its private key is in the same process, and from the process that keeps it.
fn keeping(rounds: usize, identity: &Identity, kept: &Kept) -> Result<String, BenchError> {
    let statement = Statement::new(Role::Responder, &[2; 32], &[3; 32]);
    let mut table = Table::new(&["the private key is", "a signature, us", "quartiles"]);
    let signers: [(&str, &dyn Signer); 2] = [(HERE, identity), (APART, &kept.keeper)];
    for (place, signer) in signers {
        let mut sample = Sample::default();
        for round in 0..=rounds {
            let begin = Instant::now();
            for _ in 0..HANDSHAKES {
                black_box(signer.sign_statement(&statement)).map_err(|error| failed(&error))?;
            }
            if round > 0 {
                sample.push(begin.elapsed().as_secs_f64() * 1e6 / f64::from(HANDSHAKES));
            }
        }
        let quartiles = sample.quartiles();
        table.row([place.to_owned(), format!("{:.1}", quartiles.median), quartiles.spread(1)]);
    }
    Ok(format!("A node signs once in each handshake; on the clock.\n\n{table}"))
}

fn failed(error: &dyn std::fmt::Display) -> BenchError {
    BenchError::Failed { command: "a handshake".to_owned(), said: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the other process does.
    #[test]
    #[ignore = "run by the other test, as a process of its own"]
    fn keep_as_a_process_of_its_own() {
        if let Some(file) = std::env::args().next_back().filter(|last| last.ends_with(".key")) {
            weir_remote::keep(Path::new(&file)).unwrap();
        }
    }

    #[test]
    fn everything_promised_is_measured_with_the_key_here_and_elsewhere() {
        let scene = Scene::new().unwrap();
        // This program once more: the test harness takes the path for one more filter.
        let test = "handshake::tests::keep_as_a_process_of_its_own";
        let arguments = ["--ignored", "--nocapture", "--exact", test];
        let kept = Kept::by(&std::env::current_exe().unwrap(), &arguments, &scene.node).unwrap();
        let text = handshakes(1, &scene, &kept).unwrap();
        for (shown, ..) in SETTINGS {
            assert_eq!(text.matches(shown).count(), 2, "{shown}: {text}");
        }
        for promise in ["under 0.6", "under 1.2"] {
            assert_eq!(text.matches(promise).count(), 2, "{promise}: {text}");
        }
        // A keeper signs and is asked by system calls: that it takes no time can only be that the clock is another one's.
        let sign = || _ = kept.keeper.sign_statement(&Statement::new(Role::Responder, &[2; 32], &[3; 32]));
        let taken = kept.during(|| {
            (0..HANDSHAKES).for_each(|_| sign());
            Ok(())
        });
        assert!(taken.unwrap() > Duration::from_micros(5) * HANDSHAKES);
    }
}
