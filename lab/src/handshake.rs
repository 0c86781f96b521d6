//! What an association costs: processor time of both sides of a handshake.

use crate::BenchError;
use crate::native::thread_time;
use crate::statistics::Sample;
use crate::table::Table;
use rand_core::OsRng;
use std::hint::black_box;
use std::time::Duration;
use weir_trust::association::{HandshakeError, Initiator, Responder};
use weir_trust::key::Identity;

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
