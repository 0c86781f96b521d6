//! What a process of weir gives up, for good, before it looks at what strangers wrote.
//!
//! Two walls of the kernel, which any process may put around itself: Landlock (files, TCP, signals to others) and seccomp (system calls); and the
//! privileges that root has and it does not need. Whoever finds a fault in the compiler or in the sandbox, and gets native code to run by it, is still inside.
//!
//! | process | files | system calls | capabilities |
//! |---|---|---|---|
//! | [`keeper`]: signs with a key that it has read before | none at all; what is open stays open | those for memory, for what is open, and to end; no other thread, no code but its own; others cannot look into its memory | none |
//! | [`ward`]: runs one module in a process of its own | none at all; what is open stays open | as a compiler, and to take descriptors and signal its own threads; others cannot look into its memory | none |
//! | [`compiler`]: compiles one module | none at all; what is open stays open | those of a program that computes; all others fail | none |
//! | [`spawner`]: starts the others for a node | as its user | all but those that neither it nor what it starts needs | those for user namespaces, of what it had |
//! | [`node`]: runs modules on live traffic | writes only beneath its own folders, and executes nothing | all but those that nothing in a node needs: other processes, their memory, kernel modules, mounts, namespaces, clocks | those for interfaces, of what it had |
//!
//! Both hold for the calling thread and all threads that it starts from then on: so they are put up while there is one. A node executes nothing at all: its
//! [`spawner`] starts the other processes, in namespaces of their own where the system allows that ([`Isolation`] says which walls a process has).
//!
//! In none of them can memory be written and executed at the same time. The code of the program, and of a module in a process of its own, cannot be made
//! writable again where the kernel can seal it.
//!
//! [`private`] is how files and folders are made that only their owner may see, and [`socket`] how a node's socket is.
//!
//! [`child`] starts a compiler, with limits, and takes its answer; [`companion`] starts a process that stays, as a keeper does.

mod calls;
pub mod child;
mod code;
pub mod companion;
mod descriptors;
mod files;
mod isolation;
mod launch;
pub mod lock;
pub mod memory;
mod meter;
pub mod private;
mod privileges;
mod root;
mod signals;
pub mod socket;
pub mod spawner;

pub use files::may_write;
pub use isolation::Isolation;
pub use launch::Launcher;
pub use meter::{CpuBudget, CpuMeter, MeterOrder};
pub use signals::is_ignored;
use std::ops::Range;
use std::path::{Path, PathBuf};
use weir_units::Shown as _;

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
    #[error("{}: cannot be opened, to allow that it is written in: {source}", path.shown())]
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
    /// Code can be changed.
    #[error("the code of this process cannot be sealed: {0}")]
    Code(std::io::Error),
    /// The process cannot leave the system's files.
    #[error("this process cannot enter an empty root: {0}")]
    Root(std::io::Error),
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
    let files = leave()?;
    code::no_more();
    privileges::none()?;
    calls::only_computing()?;
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

/// Confines the calling thread to what signing takes: what a [`compiler`] may, but it starts no threads and makes no code. The process is [hidden](hide).
///
/// # Errors
/// [`ConfineError`]. Some of it may hold already.
pub fn keeper() -> Result<Files, ConfineError> {
    hide()?;
    let files = leave()?;
    code::no_more();
    privileges::none()?;
    calls::only_signing()?;
    Ok(files)
}

/// Confines the calling thread, and those that it starts, to what running a module takes that is given to it through what is open: what a [`compiler`] may,
/// and to take descriptors. The process is [hidden](hide).
///
/// # Errors
/// [`ConfineError`]. Some of it may hold already.
pub fn ward() -> Result<Files, ConfineError> {
    hide()?;
    let files = leave()?;
    privileges::none()?;
    calls::only_running()?;
    Ok(files)
}

/// Closes a [`ward`] for good to code beside that which has been loaded at `code`, which is sealed where the kernel can: from now on nothing becomes
/// executable in any of its threads.
///
/// # Errors
/// [`ConfineError`].
pub fn code_is_loaded(code: Range<*const u8>) -> Result<(), ConfineError> {
    code::seal_loaded(&(code.start.addr()..code.end.addr())).map_err(ConfineError::Code)?;
    code::no_more();
    calls::no_new_code()
}

/// Seals the program's code, and leaves all files: by an empty root where the process has been given namespaces of its own, and by Landlock.
fn leave() -> Result<Files, ConfineError> {
    code::seal_program().map_err(ConfineError::Code)?;
    root::enter()?;
    files::none()
}

/// Confines the calling thread, and those that it starts, to what a node does: it writes beneath these folders and to these devices, and starts
/// no program: for that it has its [`spawner`].
///
/// # Errors
/// [`ConfineError`]. Some of it may hold already.
pub fn node(written: &[&Path]) -> Result<Files, ConfineError> {
    hide()?;
    code::seal_program().map_err(ConfineError::Code)?;
    let files = files::own(written)?;
    privileges::of_a_node()?;
    calls::none_of_others()?;
    Ok(files)
}
