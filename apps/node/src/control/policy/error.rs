//! Why a policy cannot be used.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use weir_admission::{Name, ProfileError};
use weir_trust::grant::GrantError;
use weir_trust::revocation::RevocationError;
use weir_units::Shown as _;

/// Why a policy cannot be used: the first thing that is wrong, and where. To blame is the operator.
#[derive(Debug)]
pub struct PolicyError {
    /// The file or folder.
    pub path: PathBuf,
    /// Line, from 1, where it is known.
    pub line: Option<usize>,
    /// What is wrong there.
    pub wrong: PolicyProblem,
}

/// What can be wrong with a policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyProblem {
    /// It cannot be read.
    #[error("{0}")]
    Read(io::Error),
    /// It is longer than what is read of it.
    #[error("it has more than {0} bytes, the most for such a file")]
    TooLong(usize),
    /// A file that belongs nowhere.
    #[error(
        "nothing in a policy is called so: it has profiles/NAME.toml, roots/NAME.toml, revoked/NAME and cases/NAME.toml. Rename it, or take it out"
    )]
    Stray,
    /// More files than are looked at.
    #[error("it has more than {0} files, the most for such a folder")]
    Many(usize),
    /// A file whose name cannot be that of what is in it.
    #[error(
        "the file's name without .toml is the name of what is in it, so it has to be one: lower-case letters, digits, `-` and `_`, such as university.toml. Rename it"
    )]
    Name,
    /// Not TOML, or not this shape of it.
    #[error("{0}")]
    Toml(String),
    /// A profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A list of what was taken back.
    #[error(transparent)]
    Revocation(#[from] RevocationError),
    /// A limit that cannot be.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// A field that cannot be written.
    #[error(transparent)]
    Field(#[from] weir_wire::WriteFieldError),
    /// A module that nobody knows.
    #[error(
        "`{0}` is neither a module that comes with weir nor the hash of one: write a name that `weir modules` lists, or the 64 digits that `sha256sum FILE` prints"
    )]
    Module(String),
    /// A profile that there is not.
    #[error("there is no profile `{name}`; {}", there(.known))]
    NoProfile {
        /// As it was named.
        name: Name,
        /// Those that there are.
        known: Vec<Name>,
    },
    /// Two of one name, or one key twice.
    #[error("{what} is in {} already: leave it in one of the two", first.shown())]
    Twice {
        /// What.
        what: String,
        /// The file that was read before.
        first: PathBuf,
    },
    /// Two cases of one name.
    #[error("there are two cases called `{}`: give one of them another name", .0.escape_debug())]
    CaseTwice(String),
    /// A case that comes after one that there is not.
    #[error("there is no case `{}` before this one in the file, after which it could come", .0.escape_debug())]
    NoCase(String),
    /// A case whose credential is none.
    #[error(transparent)]
    Credential(Box<weir_trust::credential::CredentialRefusal>),
    /// A case of a root that there is not.
    #[error(
        "there is no root `{}`: write the name of a file in roots/ without .toml, or the key of one under `roots` in [remote]", .0.escape_debug()
    )]
    NoRoot(String),
    /// A case that does not say who asks.
    #[error(
        "who asks is said either by `credential = \"FILE\"`, or by `root` and `grant` (a list: what the root grants, and what is passed on of it), with no more names in `to` than grants"
    )]
    Who,
    /// Nobody's credentials would count.
    #[error(
        "there is no root of trust, so nobody could be let in: write one under `roots` in [remote], or into roots/NAME.toml of the policy's folder; or name `operators` in [remote]"
    )]
    NoRoots,
}

fn there(known: &[Name]) -> String {
    if known.is_empty() {
        return "there are none: write one into profiles/NAME.toml of the policy's folder".to_owned();
    }
    let known: Vec<&str> = known.iter().map(Name::as_str).collect();
    format!("there is {}", known.join(", "))
}

impl PolicyError {
    pub(super) fn new(path: &Path, wrong: impl Into<PolicyProblem>) -> Self {
        Self { path: path.to_owned(), line: None, wrong: wrong.into() }
    }

    /// What TOML's reader says of a text.
    pub(super) fn toml(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let line = error.span().map(|span| line_of(text, span.start));
        Self { line, ..Self::new(path, PolicyProblem::Toml(weir_units::shown(error.message()))) }
    }
}

/// The line of a place in a text, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.shown())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.wrong)
    }
}

impl std::error::Error for PolicyError {}
