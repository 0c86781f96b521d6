//! The disposition of a signal in this process.

/// Returns true if this process ignores a signal. nohup(1) makes a program ignore SIGHUP, and a shell makes background jobs
/// ignore SIGINT. A program that catches signals for a clean exit should not catch a signal that it was started to ignore.
pub fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: sigaction is a plain C struct for which all zeros are a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action the call changes nothing, and writes the present one to a live local.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}
