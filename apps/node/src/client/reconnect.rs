//! New connections after a connection to a node has failed.

use super::{Client, ClientError};
use std::time::Duration;

/// The pause before the first new connection. Each pause is twice as long as the one before, up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(200);
/// The longest pause before a new connection.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The maximum sum of the pauses after one step forward and before the next one.
pub(super) const PAUSES_TOTAL_MAX: Duration = Duration::from_secs(180);

/// The pauses before new connections. The iterator ends when the sum of the pauses reaches its maximum.
#[derive(Debug)]
pub(super) struct Pauses {
    next: Duration,
    remaining: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: PAUSE, remaining: PAUSES_TOTAL_MAX }
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next;
        self.remaining = self.remaining.checked_sub(pause)?;
        self.next = (pause * 2).min(PAUSE_MAX);
        Some(pause)
    }
}

/// Tries new connections until one succeeds or the pauses are used up. `why` is the error of the previous connection.
/// Errors for which `is_transient` is false end the attempts.
pub(super) fn reconnect<S>(
    connect: &mut dyn FnMut() -> Result<Client<S>, ClientError>,
    sleep: &mut dyn FnMut(Duration),
    report: &mut dyn FnMut(&ClientError, Duration),
    is_transient: fn(&ClientError) -> bool,
    mut why: ClientError,
    pauses: &mut Pauses,
) -> Result<Client<S>, ClientError> {
    loop {
        let Some(pause) = pauses.next() else { return Err(why) };
        report(&why, pause);
        sleep(pause);
        match connect() {
            Err(error) if is_transient(&error) => why = error,
            connected => return connected,
        }
    }
}
