//! The limit of the process's file descriptors, of which each session takes some.

use crate::sessions::error::NodeError;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};
use weir_netio::file_descriptor_limit;

/// The number of descriptors that sessions and modules cannot take, or a quarter of the limit if that is less. Connections
/// and requests need them: without a reserve, no client could ask the node to close a session.
const RESERVE: u64 = 512;

/// The longest wait for the descriptors of sessions that are being closed.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Waits until descriptors are free for a session or module. `tidy` closes unused descriptors, and returns true if none is
/// left to close: receive threads release the memory of closed sessions with a delay.
///
/// # Errors
///
/// Only reserved descriptors are left.
pub(crate) fn wait_for_free(tidy: impl Fn() -> bool) -> Result<(), NodeError> {
    let begin = Instant::now();
    while check().is_err() {
        // A receive thread that has failed never releases its memory, so the wait is limited.
        if tidy() || begin.elapsed() >= WAIT_MAX {
            return check();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Checks that descriptors are free for a session or module.
///
/// # Errors
///
/// Only reserved descriptors are left.
pub(crate) fn check() -> Result<(), NodeError> {
    let Ok(limit) = file_descriptor_limit() else { return Ok(()) };
    // A new descriptor has the lowest free number (open(2)).
    let next = io::stdin().as_fd().try_clone_to_owned();
    let next = next.map(|next| u64::try_from(next.as_raw_fd()).unwrap_or(u64::MAX));
    match next {
        Ok(next) if next < limit - reserve(limit) => Ok(()),
        _ => Err(NodeError::Descriptors { limit }),
    }
}

/// The number of reserved descriptors at this limit.
fn reserve(limit: u64) -> u64 {
    RESERVE.min(limit / 4)
}

/// The maximum number of half-open remote connections: `most`, but at most half of the reserve, so that a local operator
/// can always connect.
pub(crate) fn half_open(most: usize) -> usize {
    file_descriptor_limit().map_or(most, |limit| half_of_reserve(limit, most))
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
