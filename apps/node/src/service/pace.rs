//! How often somebody from elsewhere may ask: each request takes the node a moment, whatever comes of it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_trust::credential::PrefixId;
use weir_trust::gate::{Rate, Rates};
use weir_units::Nanos;

/// Requests in a second of whoever shares one grant of the operator's, and of each of them.
const EACH_SECOND: u32 = 100;
/// How many of them can come at once after a while without. A file of 8 MiB comes in 32.
const AT_ONCE: u32 = 400;
/// Of how many it is remembered how often they asked.
const REMEMBERED: usize = 4096;

/// Who has asked how often.
#[derive(Debug)]
pub(super) struct Pace {
    begun: Instant,
    rates: Mutex<Rates<PrefixId>>,
}

/// Somebody asks more often than he is answered. Nothing is wrong with what was asked; it is to be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "more is asked than is answered under this credential, or those that share a grant with it ({EACH_SECOND} requests a second, and {AT_ONCE} at once): try again in {} s",
    .after.as_secs() + 1
)]
pub(super) struct TooOften {
    after: Duration,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        let every = Nanos(Nanos::SECOND.0 / u64::from(EACH_SECOND));
        Self { begun: now, rates: Mutex::new(Rates::new(Rate { every, burst: AT_ONCE }, REMEMBERED)) }
    }

    /// Whether whoever asks by this line may do so now. What is refused counts for nothing. The operator may always.
    pub(super) fn take(&self, line: &[PrefixId], now: Instant) -> Result<(), TooOften> {
        let now = now.saturating_duration_since(self.begun).as_nanos();
        let now = Nanos(u64::try_from(now).unwrap_or(u64::MAX));
        let who = [line.first(), line.last().filter(|last| line.first() != Some(*last))];
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let after = who.iter().flatten().map(|who| rates.wait(who, now)).max().unwrap_or_default();
        if after > Nanos(0) {
            return Err(TooOften { after: Duration::from_nanos(after.0) });
        }
        for who in who.into_iter().flatten() {
            rates.take(*who, now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: char) -> PrefixId {
        format!("weir-id:{}", digit.to_string().repeat(32)).parse().unwrap()
    }

    #[test]
    fn who_asks_too_often_is_told_when_to_ask_again_and_takes_nothing_from_others() {
        let begin = Instant::now();
        let pace = Pace::new(begin);
        let (first, other) = ([id('a')], [id('b')]);
        let asked = |line: &[PrefixId], at: Duration| pace.take(line, begin + at);
        let answered = (0..2 * AT_ONCE).filter(|_| asked(&first, Duration::ZERO).is_ok()).count();
        assert_eq!(answered, AT_ONCE as usize);
        let error = asked(&first, Duration::ZERO).unwrap_err();
        assert_eq!(error.after, Duration::from_secs(1) / EACH_SECOND);
        assert!(
            error.to_string().contains("100 requests a second")
                && error.to_string().ends_with("try again in 1 s")
        );
        // When he is told to, he can.
        assert_eq!(asked(&first, error.after), Ok(()));
        assert!(asked(&first, error.after).is_err());
        assert_eq!(asked(&other, Duration::ZERO), Ok(()));
        // The operator has no line.
        assert!((0..2 * AT_ONCE).all(|_| asked(&[], Duration::ZERO).is_ok()));
    }

    #[test]
    fn passing_a_right_on_is_no_way_to_ask_more_often() {
        let begin = Instant::now();
        let pace = Pace::new(begin);
        let delegates = ['b', 'c', 'd'].map(|own| [id('a'), id('f'), id(own)]);
        let asked = (0..3 * AT_ONCE).zip(delegates.iter().cycle());
        assert_eq!(asked.filter(|(_, line)| pace.take(*line, begin).is_ok()).count(), AT_ONCE as usize);
        assert!(pace.take(&[id('e')], begin).is_ok());
    }
}
