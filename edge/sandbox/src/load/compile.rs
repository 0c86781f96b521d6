//! The limits of compilers, and their processes.
//!
//! A module determines how much time and memory its compilation takes. Untrusted modules are therefore compiled in a
//! [child](weir_os::child) that is killed when it exceeds its limits of time and memory. Before the child reads the module, it
//! gives up all other rights. An attacker who takes over the compiler can only compute until the time is over, and answer with
//! other code.

use std::io;
use weir_os::child::{self, ChildError, ChildLimits, ChildReply, Cores};
use weir_os::{Launcher, ProcessorBudget};
use weir_units::{Bytes, Nanos};

/// Largest code that is accepted from a child, in bytes.
const CODE_MAX: usize = 256 << 20;

/// The wall-clock time limit as a multiple of the limit of processor time. It is large, because a compiler has the lowest
/// priority on its cores.
const WALL_TIME_FACTOR: u64 = 30;

/// The limits of a compiler child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileLimits {
    /// Limit of processor time, rounded up to whole seconds.
    pub time: Nanos,
    /// Limit of address space.
    pub memory: Bytes,
    /// The cores that the child may run on; `None` for those of the calling thread.
    pub cores: Option<Cores>,
}

impl Default for CompileLimits {
    /// Limits of about a thousand times the needs of the shipped modules.
    fn default() -> Self {
        Self { time: Nanos(10 * Nanos::SECOND.0), memory: Bytes(2 << 30), cores: None }
    }
}

/// The reason why a compilation failed.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The module cannot be compiled.
    #[error("{0}")]
    Module(String),
    /// Compiling the module takes more time or memory than the limits.
    #[error("compiling it takes more than {} of processor time or {} of memory, and was stopped; smaller functions would help", .0.time, .0.memory)]
    Limits(CompileLimits),
    /// All compilations of one request together exceed their budget of processor time.
    #[error(
        "the modules of this request take more than {0} of processor time to compile: load fewer modules in one request, or use smaller functions"
    )]
    Budget(Nanos),
    /// The compilation was preempted by other requests.
    #[error("the compilation was preempted by others with larger or less used CPU shares: try again")]
    Preempted,
    /// The child process failed. The cause is the machine, not the module.
    #[error("no process to compile in: {0}")]
    Process(#[from] io::Error),
}

/// Asks a compiler in a child process. Charges the child's processor time to the budget, also on failure.
pub(crate) fn ask(
    launcher: &Launcher,
    arguments: &[&str],
    question: &[u8],
    limits: CompileLimits,
    budget: &mut dyn ProcessorBudget,
) -> Result<ChildReply, CompileError> {
    let (left, limit) = (budget.left(), budget.limit());
    if left == Nanos(0) {
        return Err(CompileError::Budget(limit));
    }
    let child_limits = ChildLimits {
        processor: limits.time.min(left),
        time: Nanos(limits.time.0.saturating_mul(WALL_TIME_FACTOR)),
        memory: limits.memory,
        answer: CODE_MAX,
        cores: limits.cores,
    };
    let asked = child::request(launcher, arguments, question, &child_limits, budget);
    asked.answer.map_err(|error| match error {
        ChildError::TimeLimit(_) if left < limits.time => CompileError::Budget(limit),
        // A child that gets no further memory is killed by a signal.
        ChildError::TimeLimit(_) | ChildError::Killed(_) => CompileError::Limits(limits),
        ChildError::Preempted => CompileError::Preempted,
        ChildError::Process(error) => CompileError::Process(error),
        ChildError::AnswerTooLong(_) => CompileError::Process(io::Error::other(error)),
    })
}
