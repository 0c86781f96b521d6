//! The error type of the benchmark and the experiments, and traits that name the failed step.

use std::error::Error;
use std::fmt::{Debug, Display};
use std::io;
use std::path::Path;
use weir_netio::{CaptureReadError, LiveError, OpenError};
use weir_node::client::ClientError;
use weir_sandbox::LoadError;

type Cause = Box<dyn Error + Send + Sync>;

/// The reason why a measurement or an experiment cannot be carried out. A measured value that misses its limit is no error:
/// a [`Criterion`](crate::criterion::Criterion) in the result reports it.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A step failed: reading a file, running a program, loading a module, or talking to the node.
    #[error("{what}: {cause}")]
    Failed { what: String, cause: Cause },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Read(#[from] CaptureReadError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error(transparent)]
    Node(#[from] ClientError),
    #[error("{module}: {error}")]
    Build { module: String, error: Box<weir_author::BuildError> },
    /// Two builds of a module gave different output in one round of a comparison, in which both get the same packets. `one`
    /// and `other` name the builds; rounds count from 0.
    #[error("{module}, round {round}: the output of {one} and that of {other} differ: {details}")]
    Differ { module: String, round: usize, one: String, other: String, details: String },
    /// A packet used more than the bound of the module: the analysis or the meter is wrong.
    #[error("{module}: a packet used {fuel} fuel, its bound is {bound}: {packet:?}")]
    Bound { module: String, fuel: u64, bound: String, packet: Box<crate::crafted::CraftedPacket> },
    /// The measured values do not suffice to check the criteria.
    #[error("the criteria cannot be checked: {0}")]
    NoData(String),
    #[error("there is no figure `{0}`: `weir-lab list` lists the figures")]
    UnknownFigure(String),
    #[error("root, unshare(1) and ip(8) are needed: the traffic runs in a network namespace of its own")]
    NoNamespace,
}

impl LabError {
    pub fn failed(what: impl Display, cause: impl Into<Cause>) -> Self {
        Self::Failed { what: what.to_string(), cause: cause.into() }
    }

    /// A function for `map_err` that adds the path of the file to an error.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |error| Self::failed(path.display(), error)
    }
}

/// Adds the step in which an error occurred.
pub trait Context<T> {
    fn context(self, what: impl Display) -> Result<T, LabError>;
}

impl<T, E: Into<Cause>> Context<T> for Result<T, E> {
    fn context(self, what: impl Display) -> Result<T, LabError> {
        self.map_err(|error| LabError::failed(what, error))
    }
}

/// As [`Context`], for errors that implement only `Debug`.
pub trait DebugContext<T> {
    fn debug_context(self, what: impl Display) -> Result<T, LabError>;
}

impl<T, E: Debug> DebugContext<T> for Result<T, E> {
    fn debug_context(self, what: impl Display) -> Result<T, LabError> {
        self.map_err(|error| LabError::failed(what, format!("{error:?}")))
    }
}
