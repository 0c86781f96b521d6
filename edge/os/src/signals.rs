//! Signals of this process.

/// Returns true if a signal is ignored: nohup(1) ignores SIGHUP, and a shell ignores SIGINT for its background jobs.
/// A program that catches signals for a clean exit should leave such a signal ignored.
pub fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: sigaction is a plain C struct for which all zeros are a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action the call changes nothing, and writes the present one to a struct of ours.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}
