//! The time of a POSIX clock.

use std::io;
use std::time::Duration;

/// Returns the time of a clock.
///
/// # Errors
/// The clock does not exist, or its thread or process is gone.
#[inline]
pub fn clock_time(clock: libc::clockid_t) -> io::Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live local; a clock that does not exist is an error.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Ok(Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default()))
}
