//! Confines weir's processes before they read untrusted input, starts child processes, and opens private files and
//! sockets.
//!
//! Every process confines itself by two kernel mechanisms: Landlock (files, TCP, signals to other processes) and
//! seccomp (system calls). It also drops the capabilities (capabilities(7)) that it does not need. An attacker who gets
//! native code to run through a flaw in the compiler or the sandbox is still confined.
//!
//! | process | files | system calls | capabilities |
//! |---|---|---|---|
//! | key agent ([`confine_key_agent`]): signs with a key that it has read before it confines itself | none; open descriptors stay open | memory, open descriptors, exit; no other thread, no new code | none |
//! | sandbox process ([`confine_sandbox`]): runs one module | none; open descriptors stay open | those of a compiler, receiving descriptors, and signals to its own threads | none |
//! | compiler ([`confine_compiler`]): compiles one module | none; open descriptors stay open | those of a computing program; all others fail | none |
//! | external compiler ([`confine_external_compiler`]): a program of others that compiles one module | reads and executes its own files and libraries | those of a computing program, and those for loading its own code | none |
//! | [`spawner`]: starts the other processes for a node | all that its user may access | all but those that neither it nor its children need | those for creating namespaces, if it had them at its start |
//! | node ([`confine_node`]): runs modules on live traffic | writes only beneath its own folders, and executes nothing | all but those that no part of a node needs: other processes, their memory, kernel modules, mounts, namespaces, clocks | those for interfaces, if it had them at its start |
//!
//! Both mechanisms apply to the calling thread and all threads that it starts later, so a process confines itself while it
//! has one thread. A node executes nothing: its [`spawner`] starts the other processes, in namespaces of their own where
//! the system allows namespaces. [`Isolation`] describes the isolation of a process.
//!
//! Each of these processes is [hidden](hide) from other processes of its user.
//!
//! In none of these processes can memory be writable and executable at the same time. Where the kernel can seal memory,
//! the code of the program, and of a module in a sandbox process, cannot be made writable again.
//!
//! [`private`] creates files and folders that only their owner may read. [`socket`] binds a node's socket. [`child`] runs a
//! compiler with limits and receives its answer. [`resolve`] returns the addresses of a host name. [`helper`] runs a long-lived helper process, such as the key agent.

mod budget;
mod calls;
pub mod child;
mod clock;
mod code;
mod descriptors;
mod files;
pub mod helper;
mod host_names;
mod isolation;
mod launch;
pub mod lock;
pub mod memory;
pub mod private;
mod privileges;
mod root;
mod signals;
pub mod socket;
pub mod spawner;

pub use budget::{BudgetOrder, CpuBudget, ProcessorBudget, StoppableBudget};
pub use clock::clock_time;
pub use descriptors::has_reader;
pub use files::may_write;
pub use host_names::resolve;
pub use isolation::Isolation;
pub use launch::Launcher;
pub use signals::is_ignored;
use std::ops::Range;
use std::path::{Path, PathBuf};
use weir_units::Escape as _;

/// The part of the requested file confinement that this kernel enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileConfinement {
    /// The kernel enforces the whole confinement.
    Full,
    /// The kernel enforces a part, because it is older than the newest requested feature.
    Partial,
    /// The kernel enforces no part: it has no Landlock, or Landlock is switched off. Only file permissions apply.
    None,
}

/// The reason why a process cannot be confined. The cause is the node, or its system's configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// A folder in which the process is to write cannot be opened.
    #[error("{}: cannot be opened, to allow writing in it: {source}", path.escaped())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: landlock::PathFdError,
    },
    /// Landlock, which restricts access to files, failed.
    #[error("files cannot be closed to this process: {0}")]
    Files(#[from] landlock::RulesetError),
    /// The kernel has no Landlock, without which a program that is not part of weir cannot be kept from files.
    #[error(
        "this kernel has no Landlock (Linux 5.13 and later, CONFIG_SECURITY_LANDLOCK), which this process needs"
    )]
    NoLandlock,
    /// The process cannot be hidden from others.
    #[error("this process cannot be hidden from others: {0}")]
    Hide(std::io::Error),
    /// The code cannot be sealed.
    #[error("the code of this process cannot be sealed: {0}")]
    Code(std::io::Error),
    /// The process cannot enter an empty root.
    #[error("this process cannot enter an empty root: {0}")]
    Root(std::io::Error),
    /// Capabilities cannot be dropped.
    #[error("privileges cannot be given up: {0}")]
    Privileges(rustix::io::Errno),
    /// Seccomp, which restricts system calls, failed.
    #[error("system calls cannot be closed to this process: {0}")]
    Calls(#[from] seccompiler::Error),
}

/// Confines the calling thread to computing: it can open nothing, execute nothing and connect to nothing. Open
/// descriptors, such as standard input and output, stay open. The process is [hidden](hide).
///
/// # Errors
/// [`ConfineError`]. A part of the confinement may be in effect.
pub fn confine_compiler() -> Result<FileConfinement, ConfineError> {
    hide()?;
    let files = leave_file_system()?;
    code::refuse_executable_memory();
    privileges::drop_all()?;
    calls::restrict_compiler()?;
    Ok(files)
}

/// Confines the calling process before it executes a compiler that is not part of weir. From now on the process can read and
/// execute files beneath `readable`, and neither write a file nor connect to anything. Its further restrictions are those of
/// [`confine_compiler`]. Open descriptors stay open. Paths that do not exist are ignored.
///
/// The process keeps the root of its file system, because an empty root would hide the compiler's files. So this function
/// needs Landlock.
///
/// # Errors
/// [`ConfineError`]; [`ConfineError::NoLandlock`] on kernels without Landlock. A part of the confinement may be in effect.
pub fn confine_external_compiler(readable: &[&Path]) -> Result<FileConfinement, ConfineError> {
    hide()?;
    root::keep();
    let files = files::restrict_to_reading(readable)?;
    if files == FileConfinement::None {
        return Err(ConfineError::NoLandlock);
    }
    code::refuse_executable_memory();
    privileges::drop_all()?;
    calls::restrict_external_compiler()?;
    Ok(files)
}

/// Hides the calling process from other processes of its user: these can neither trace it nor read its memory. To be
/// called before the process reads secrets.
///
/// Sets PR_SET_DUMPABLE (prctl(2)). Also sets RLIMIT_CORE, which programs that the process executes inherit, so that no core
/// is dumped.
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

/// Confines the calling thread to signing. The restrictions are those of [`confine_compiler`], and the thread can start
/// no threads. The process is [hidden](hide).
///
/// # Errors
/// [`ConfineError`]. A part of the confinement may be in effect.
pub fn confine_key_agent() -> Result<FileConfinement, ConfineError> {
    hide()?;
    let files = leave_file_system()?;
    code::refuse_executable_memory();
    privileges::drop_all()?;
    calls::restrict_key_agent()?;
    Ok(files)
}

/// Confines the calling thread, and threads that it starts, to running a module that arrives over an open descriptor. The
/// restrictions are those of [`confine_compiler`], except that the process can receive descriptors and load the module's
/// code. The process is [hidden](hide).
///
/// # Errors
/// [`ConfineError`]. A part of the confinement may be in effect.
pub fn confine_sandbox() -> Result<FileConfinement, ConfineError> {
    hide()?;
    let files = leave_file_system()?;
    privileges::drop_all()?;
    calls::restrict_sandbox()?;
    Ok(files)
}

/// Allows a [sandbox process](confine_sandbox) no further code than that loaded at the ranges `code`: from now on no memory
/// of the process becomes executable. The code is sealed where the kernel supports sealing.
///
/// # Errors
/// [`ConfineError`].
pub fn seal_loaded_code(code: &[Range<*const u8>]) -> Result<(), ConfineError> {
    for range in code {
        code::seal_loaded(&(range.start.addr()..range.end.addr())).map_err(ConfineError::Code)?;
    }
    code::refuse_executable_memory();
    calls::forbid_new_code()
}

/// Seals the program's code, and gives up access to all files: by Landlock, and in a process with namespaces of its own
/// also by an empty root.
fn leave_file_system() -> Result<FileConfinement, ConfineError> {
    code::seal_program().map_err(ConfineError::Code)?;
    root::enter_empty()?;
    files::close_all()
}

/// Confines the calling thread, and threads that it starts, to the work of a node. They can write only to the folders and
/// devices `written`, and can execute no program: starting processes is the [`spawner`]'s task.
/// The process is [hidden](hide).
///
/// # Errors
/// [`ConfineError`]. A part of the confinement may be in effect.
pub fn confine_node(written: &[&Path]) -> Result<FileConfinement, ConfineError> {
    hide()?;
    code::seal_program().map_err(ConfineError::Code)?;
    let files = files::restrict_writing(written)?;
    privileges::keep_for_node()?;
    calls::restrict_node()?;
    Ok(files)
}
