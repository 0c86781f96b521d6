//! Why something cannot be measured.

use std::io;
use std::path::{Path, PathBuf};
use weir_netio::{OpenError, ReadError};
use weir_sandbox::LoadError;
use weir_session::{ManifestError, Refusal};

/// Why a benchmark cannot be run, or failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Memory cannot be mapped.
    #[error("packets cannot be mapped for the native modules: {0}")]
    Map(io::Error),
    /// The capture cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The capture cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The capture is of a kind that the benchmark cannot use.
    #[error("{}: {wanted}", path.display())]
    Capture {
        /// Which.
        path: PathBuf,
        /// What it should be.
        wanted: &'static str,
    },
    /// A shipped module is not admitted.
    #[error("{module}: {refusal}")]
    Refused {
        /// Which module.
        module: String,
        /// Why.
        refusal: Box<Refusal>,
    },
    /// A manifest cannot be read.
    #[error("{module}: {error}")]
    Manifest {
        /// Which module.
        module: String,
        /// Why.
        error: Box<ManifestError>,
    },
    /// A module of the corpus cannot be built.
    #[error("{module}: {error}")]
    Build {
        /// Which module.
        module: String,
        /// Why.
        error: Box<weir_author::BuildError>,
    },
    /// A sandbox cannot be made.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A module does not start in its sandbox, or has faults.
    #[error("{module}: a fault in the sandbox: {fault}")]
    Fault {
        /// Which module.
        module: String,
        /// The first one.
        fault: String,
    },
    /// A program is not there, or does not run.
    #[error("{program}: {source}")]
    Program {
        /// Which.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program failed.
    #[error("{command}: {said}")]
    Failed {
        /// The command.
        command: String,
        /// What it wrote to standard error, or how it ended.
        said: String,
    },
    /// A natively built module cannot be loaded.
    #[error("{}: {said}", path.display())]
    Library {
        /// Its shared object.
        path: PathBuf,
        /// What the loader said.
        said: String,
    },
    /// Sandboxed and native module did different things over the same packets.
    #[error("{module}, round {round}: {one} and {other} differ: {details}")]
    Differ {
        /// Which module.
        module: String,
        /// After how many rounds over the packets, from 0.
        round: usize,
        /// How one was run.
        one: String,
        /// How the other was run.
        other: String,
        /// What each of them did.
        details: String,
    },
    /// A module cannot be changed in a way in which it is to be measured.
    #[error("{module}, {how}: {said}")]
    Variant {
        /// Which module.
        module: String,
        /// Which way.
        how: String,
        /// Why.
        said: String,
    },
    /// A packet used more than the bound of the module that it was given to: the analysis or the meter is wrong.
    #[error("{module}: a packet used {fuel} fuel, its bound is {bound}: {packet:?}")]
    Bound {
        /// Which module.
        module: String,
        /// What it used.
        fuel: u64,
        /// What it should have used at most, by length.
        bound: String,
        /// The packet.
        packet: Box<crate::crafted::Crafted>,
    },
    /// There is no module of that name.
    #[error("there is no module `{0}`")]
    NoModule(String),
    /// The document has no place for a table.
    #[error("{}: there is no `<!-- bench:{section} -->` … `<!-- /bench:{section} -->` to write the table between", path.display())]
    NoPlace {
        /// The document.
        path: PathBuf,
        /// The table.
        section: String,
    },
}

impl BenchError {
    /// For `map_err`: an error of this file.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::File { path: path.to_owned(), source }
    }
}
