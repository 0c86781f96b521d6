//! What an association costs: processor time of both sides of a handshake.

use crate::native::thread_time;
use crate::statistics::Sample;
use crate::table::Table;
use crate::{BenchError, place};
use rand_core::OsRng;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weir_remote::{KEEPER, Keeper};
use weir_trust::association::{HandshakeError, Initiator, Responder, Role, Signer, Statement};
use weir_trust::key::{Identity, KeyFile};

/// What each side shows, and how long both may take together then, in ms. Nobody looks into the credentials here.
const SETTINGS: [(&str, usize, Option<f64>); 2] = [
    ("no credentials", 0, Some(0.6)),
    ("1 KiB of credentials on both sides, not looked into", 1 << 10, None),
];
/// Handshakes of a round.
const HANDSHAKES: u32 = 50;

/// Milliseconds of a handshake, by what is shown in it.
///
/// # Errors
/// A handshake fails.
pub fn table(rounds: usize) -> Result<String, BenchError> {
    let mut table =
        Table::new(&["shown", "initiator, ms", "responder, ms", "both, ms", "quartiles", "promised", "kept"]);
    for (shown, bytes, promise) in SETTINGS {
        let credentials = vec![0x5a; bytes];
        let [mut initiator, mut responder, mut both] = [(); 3].map(|()| Sample::default());
        for round in 0..=rounds {
            let (mut here, mut there) = (Duration::ZERO, Duration::ZERO);
            for _ in 0..HANDSHAKES {
                let taken = handshake(&credentials).map_err(|error| failed(&error))?;
                here += taken[0];
                there += taken[1];
            }
            // The first round only warms up.
            if round > 0 {
                let each = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(HANDSHAKES);
                initiator.push(each(here));
                responder.push(each(there));
                both.push(each(here + there));
            }
        }
        let quartiles = both.quartiles();
        table.row([
            shown.to_owned(),
            format!("{:.3}", initiator.median()),
            format!("{:.3}", responder.median()),
            format!("{:.3}", quartiles.median),
            format!("{:.3}–{:.3}", quartiles.lower, quartiles.upper),
            promise.map_or_else(|| "–".to_owned(), |promise| format!("under {promise}")),
            promise.map_or("–", |promise| if quartiles.median < promise { "yes" } else { "no" }).to_owned(),
        ]);
    }
    Ok(format!(
        "Medians of {rounds} rounds of {HANDSHAKES} handshakes; messages go from hand to hand.\n\n{table}"
    ))
}

/// Processor time that the initiator and the responder take.
fn handshake(credentials: &[u8]) -> Result<[Duration; 2], HandshakeError> {
    let (guest, node) = (Identity::from_seed(&[2; 32]), Identity::from_seed(&[1; 32]));
    let begin = thread_time();
    let (initiator, first) = Initiator::begin(Some(node.public()), &mut OsRng)?;
    let sent = thread_time();
    let (responder, second) = Responder::begin(&node, &first, &mut OsRng)?;
    let answered = thread_time();
    let (confirming, third) = initiator.second(&second)?.introduce(&guest, credentials)?;
    let introduced = thread_time();
    let (there, fourth) = responder.third(&third)?.accept(credentials)?;
    let accepted = thread_time();
    let here = confirming.fourth(&fourth)?;
    let done = thread_time();
    black_box((here, there));
    let initiators = [(begin, sent), (answered, introduced), (accepted, done)];
    let responders = [(sent, answered), (introduced, accepted)];
    let sum = |times: &[(Duration, Duration)]| times.iter().map(|(from, to)| to.saturating_sub(*from)).sum();
    Ok([sum(&initiators), sum(&responders)])
}

/// What a node's signature takes on the clock, in microseconds: where its private key is in the same process, and from the process that keeps it.
///
/// # Errors
/// There is no such process.
pub fn keeping(rounds: usize) -> Result<String, BenchError> {
    let folder = tempfile::tempdir().map_err(|error| failed(&error))?;
    let file = folder.path().join("node.key");
    let identity = Identity::from_seed(&[1; 32]);
    std::fs::write(&file, KeyFile::plain(&identity).as_bytes()).map_err(BenchError::file(&file))?;
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, private).map_err(BenchError::file(&file))?;
    let arguments = vec![PathBuf::from(KEEPER), file];
    let keeper = Keeper::start(place::built()?, arguments, |_| {}).map_err(|error| failed(&error))?;
    let statement = Statement::new(Role::Responder, &[2; 32], &[3; 32]);
    let mut table = Table::new(&["the private key is", "a signature, us", "quartiles"]);
    let signers: [(&str, &dyn Signer); 2] =
        [("in the same process", &identity), ("in a process of its own", &keeper)];
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
        table.row([
            place.to_owned(),
            format!("{:.1}", quartiles.median),
            format!("{:.1}–{:.1}", quartiles.lower, quartiles.upper),
        ]);
    }
    Ok(format!("A node signs once in each handshake; on the clock.\n\n{table}"))
}

fn failed(error: &dyn std::fmt::Display) -> BenchError {
    BenchError::Failed { command: "bench handshake".to_owned(), said: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_promised_is_measured() {
        let text = table(1).unwrap();
        for (shown, ..) in SETTINGS {
            assert!(text.contains(shown), "{shown}: {text}");
        }
        assert!(text.contains("under 0.6"), "{text}");
    }
}
