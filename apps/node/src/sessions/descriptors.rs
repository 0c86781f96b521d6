//! Descriptors: a process can have only so many, and each session takes some.

use crate::error::NodeError;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};
use weir_netio::descriptor_limit;

/// So many, or a quarter of all, are not for sessions and modules: who asks the node something needs one, and what it does needs some for a while.
/// Without, it could not even be asked to close a session.
const RESERVE: u64 = 512;

/// What takes some waits so long for those of sessions that were closed just now.
const PATIENCE: Duration = Duration::from_secs(2);

/// Before a session or a module takes some. Where they are short, `tidy` lets go of those that nobody has a use for any more, and says whether that is all:
/// receivers of packets leave the memory of closed sessions behind when they look up next.
///
/// # Errors
///
/// Only those are left that are not for them.
pub(crate) fn spare(tidy: impl Fn() -> bool) -> Result<(), NodeError> {
    let begin = Instant::now();
    while check().is_err() {
        // A receiver that has failed never lets go of anything.
        if tidy() || begin.elapsed() >= PATIENCE {
            return check();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The same without waiting for anybody, and nothing is let go of.
///
/// # Errors
///
/// Only those are left that are not for sessions and modules.
pub(crate) fn check() -> Result<(), NodeError> {
    let Ok(limit) = descriptor_limit() else { return Ok(()) };
    // The system gives the lowest that is free.
    let next = io::stdin().as_fd().try_clone_to_owned();
    let next = next.map(|next| u64::try_from(next.as_raw_fd()).unwrap_or(u64::MAX));
    match next {
        Ok(next) if next < limit - reserve(limit) => Ok(()),
        _ => Err(NodeError::Descriptors { limit }),
    }
}

/// Descriptors that sessions and modules leave free, of so many.
fn reserve(limit: u64) -> u64 {
    RESERVE.min(limit / 4)
}

/// The most connections whose peers are not known, if there are to be `most`: half of the reserve, so that the operator always has one.
pub(crate) fn half_open(most: usize) -> usize {
    descriptor_limit().map_or(most, |limit| half_of_reserve(limit, most))
}

fn half_of_reserve(limit: u64, most: usize) -> usize {
    usize::try_from(reserve(limit) / 2).unwrap_or(most).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_open_connections_leave_half_of_the_reserve() {
        assert_eq!([256, 1024, 2048, 1 << 20].map(|limit| half_of_reserve(limit, 256)), [32, 128, 256, 256]);
    }
}
