//! Why an experiment cannot be done.

use crate::BenchError;
use std::io;
use weir_netio::LiveError;
use weir_node::client::ClientError;

/// Why an experiment cannot be done. That it did not show what it should is no error, but a [`Verdict`](super::Verdict).
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// As the benchmarks have it.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// An interface cannot be used.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The node refused, or does not answer.
    #[error(transparent)]
    Node(#[from] ClientError),
    /// The node did not start, or ended before it should.
    #[error("the node {what}: {said}")]
    Ended {
        /// What became of it.
        what: String,
        /// The end of what it has said.
        said: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {seconds} s: {said}")]
    Late {
        /// What.
        what: &'static str,
        /// How long it was waited for.
        seconds: u64,
        /// What is known of it.
        said: String,
    },
    /// The system does not let the experiment do something.
    #[error("{what}: {source}")]
    System {
        /// What.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// There is no such experiment.
    #[error("there is no figure `{0}`: `weir-lab list` says which there are")]
    Unknown(String),
    /// Network namespaces cannot be made.
    #[error(
        "experiments need root, unshare(1) and ip(8): their traffic runs in a network namespace of its own"
    )]
    NoNamespace,
    /// A drawing failed.
    #[error("{name} cannot be drawn: {said}")]
    Draw {
        /// Which.
        name: String,
        /// Why.
        said: String,
    },
    /// What was measured is not enough to say anything.
    #[error("there is nothing to judge: {0}")]
    Nothing(String),
}

impl FigureError {
    /// For `map_err`: an error of the system.
    pub fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
