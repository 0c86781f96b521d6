//! What a process of weir gives up, for good, before it looks at what strangers wrote.
//!
//! Two walls of the kernel, which any process may put around itself: Landlock (files, TCP, signals to others) and seccomp (system calls); and the
//! privileges that root has and it does not need. Whoever finds a fault in the compiler or in the sandbox, and gets native code to run by it, is still inside.
//!
//! | process | files | system calls | capabilities |
//! |---|---|---|---|
//! | [`translator`]: reads what is open and writes what is open; the base of a keeper | none at all; what is open stays open | those for memory, for what is open, and to end; no other thread, no code but its own; it ends (SIGSYS) where it would open a file or make a socket | none |
//! | [`keeper`]: signs with a key that it has read before | as a translator | as a translator; others cannot look into its memory | none |
//! | [`ward`]: runs one module in a process of its own | none at all; what is open stays open | as a compiler, and to take descriptors and signal its own threads; others cannot look into its memory | none |
//! | [`compiler`]: compiles one module | none at all; what is open stays open | those of a program that computes; all others fail | none |
//! | [`node`]: runs modules on live traffic | writes only beneath its own folders, and starts no program of the system but itself and what is beneath /lib | all but those that nothing in a node needs: other processes' memory, kernel modules, mounts, namespaces, clocks | those for interfaces and for its folders, of what it had |
//!
//! Both hold for the calling thread and all threads that it starts from then on: so they are put up while there is one. They hold for whatever a process
//! executes, too. That is why it is not closed more tightly what a node executes: whoever runs code in it can have it do anything that another program
//! could, and can run a program from memory or by the system's loader; that program is inside the same walls.
//!
//! [`private`] is how files and folders are made that only their owner may see, and [`socket`] how a node's socket is.
//!
//! [`child`] starts a translator or a compiler, with limits, and takes its answer; [`companion`] starts a process that stays, as a keeper does.

mod calls;
pub mod child;
pub mod companion;
mod descriptors;
mod files;
pub mod private;
mod privileges;
pub mod socket;

use std::path::{Path, PathBuf};

/// How much of what was asked for this kernel can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// All of it.
    Held,
    /// The kernel is older than some of it.
    HeldInPart,
    /// It knows no Landlock, or has it switched off. Files are what the system's own rights say.
    Open,
}

/// Why a wall could not be put up. To blame is the node, or how its system is set up.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// A folder that is to be written in.
    #[error("{}: cannot be opened, to allow that it is written in: {source}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: landlock::PathFdError,
    },
    /// Landlock refuses.
    #[error("files cannot be closed to this process: {0}")]
    Files(#[from] landlock::RulesetError),
    /// Others could look into this process.
    #[error("this process cannot be hidden from others: {0}")]
    Hide(std::io::Error),
    /// Capabilities cannot be given up.
    #[error("privileges cannot be given up: {0}")]
    Privileges(rustix::io::Errno),
    /// Seccomp refuses.
    #[error("system calls cannot be closed to this process: {0}")]
    Calls(#[from] seccompiler::Error),
}

/// Confines the calling thread to computing: from now on it opens nothing, executes nothing and reaches nobody. What is open, as its standard input and
/// output, stays so.
///
/// # Errors
/// [`ConfineError`]. Some of it may hold already.
pub fn compiler() -> Result<Files, ConfineError> {
    hide()?;
    let files = files::none()?;
    privileges::none()?;
    calls::only_computing()?;
    Ok(files)
}

/// Confines the calling thread to turning what is open for reading into what is open for writing: what a [`compiler`] may, but it starts no threads and
/// makes no code, and is killed by SIGSYS where it would open a file or make a socket, as to look up a name.
///
/// # Errors
/// [`ConfineError`]. Some of it may hold already.
pub fn translator() -> Result<Files, ConfineError> {
    hide()?;
    let files = files::none()?;
    privileges::none()?;
    calls::only_memory()?;
    Ok(files)
}

/// Hides the calling process from others of its user, before it reads what they are not to know: they can neither trace it nor read its memory, and it
/// leaves no image of that when it ends (PR_SET_DUMPABLE in prctl(2), and RLIMIT_CORE, which holds for what it executes, too).
///
/// # Errors
/// [`ConfineError::Hide`].
pub fn hide() -> Result<(), ConfineError> {
    child::set_limits(&[(libc::RLIMIT_CORE, 0, 0)]).map_err(ConfineError::Hide)?;
    // SAFETY: takes no pointers.
    match unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(ConfineError::Hide(std::io::Error::last_os_error())),
    }
}

/// Confines the calling thread to what a [`translator`] may.
///
/// # Errors
/// [`ConfineError`]. Some of it may hold already.
pub fn keeper() -> Result<Files, ConfineError> {
    translator()
}

/// Confines the calling thread, and those that it starts, to what running a module takes that is given to it through what is open: what a [`compiler`] may,
/// and to take descriptors. The process is [hidden](hide).
///
/// # Errors
/// [`ConfineError`]. Some of it may hold already.
pub fn ward() -> Result<Files, ConfineError> {
    hide()?;
    let files = files::none()?;
    privileges::none()?;
    calls::only_running()?;
    Ok(files)
}

/// Confines the calling thread, and those that it starts, to what a node does: it writes beneath these folders and to these devices, and starts
/// no program of the system but itself.
///
/// # Errors
/// [`ConfineError`]. Some of it may hold already.
pub fn node(written: &[&Path]) -> Result<Files, ConfineError> {
    hide()?;
    let files = files::own(written)?;
    privileges::of_a_node()?;
    calls::none_of_others()?;
    Ok(files)
}
