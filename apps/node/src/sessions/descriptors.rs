//! Checks of the process's limit on file descriptors. Each session and module takes some descriptors; a reserve is
//! kept for requests.

use crate::sessions::error::NodeError;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};
use weir_netio::file_descriptor_limit;

/// The number of descriptors that sessions and modules cannot take; a quarter of the limit, if that is lower.
/// Connections and requests need them: without a reserve, no client could connect to close a session.
const RESERVE: u64 = 512;

/// The longest wait for the descriptors of sessions that are being closed.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Waits until descriptors are free for a session or module. Receive threads release the memory of closed sessions
/// with a delay. `tidy` closes the released descriptors, and returns true if no more will be released.
///
/// # Errors
///
/// Only reserved descriptors are left.
pub(crate) fn wait_for_free(tidy: impl Fn() -> bool) -> Result<(), NodeError> {
    let begin = Instant::now();
    while check().is_err() {
        // A failed receive thread never releases its memory, so the wait is limited.
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

/// Returns the number of reserved descriptors under this limit.
fn reserve(limit: u64) -> u64 {
    RESERVE.min(limit / 4)
}

/// Returns the maximum number of half-open remote connections: `wanted_max`, but at most half of the reserve, so that
/// a local operator can always connect.
pub(crate) fn half_open_max(wanted_max: usize) -> usize {
    file_descriptor_limit().map_or(wanted_max, |limit| half_of_reserve(limit, wanted_max))
}

fn half_of_reserve(limit: u64, wanted_max: usize) -> usize {
    usize::try_from(reserve(limit) / 2).unwrap_or(wanted_max).min(wanted_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_open_connections_leave_half_of_the_reserve() {
        assert_eq!([256, 1024, 2048, 1 << 20].map(|limit| half_of_reserve(limit, 256)), [32, 128, 256, 256]);
    }
}
