//! Signals of this process.

/// Returns true where a signal is ignored, as nohup(1) leaves SIGHUP and a shell SIGINT for what it starts in the background. A program that is to end in
/// order by a signal leaves such a signal ignored.
pub fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: sigaction is a plain C struct for which all zeros are a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action the call changes nothing, and writes the present one to a struct of ours.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}
