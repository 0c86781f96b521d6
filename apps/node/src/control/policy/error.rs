//! Errors of a policy.

use crate::control::renamed_keys::with_advice;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use weir_admission::{Name, ProfileError};
use weir_trust::grant::GrantError;
use weir_trust::revocation::RevocationError;
use weir_units::Shown as _;

/// The first mistake that was found in an operator's policy, with its file and line.
#[derive(Debug)]
pub struct PolicyError {
    /// File or folder of the mistake.
    pub path: PathBuf,
    /// Line, from 1, if it is known.
    pub line: Option<usize>,
    /// The mistake.
    pub wrong: PolicyProblem,
}

/// A mistake in a policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyProblem {
    /// A file or folder cannot be read.
    #[error("{0}")]
    Read(io::Error),
    /// A file is too long.
    #[error("it has more than {0} bytes, the most for such a file")]
    TooLong(usize),
    /// A file has no place in a policy.
    #[error(
        "no part of a policy has this name: a policy has profiles/NAME.toml, roots/NAME.toml, revoked/NAME and cases/NAME.toml. Rename it, or take it out"
    )]
    Stray,
    /// A folder has too many files.
    #[error("it has more than {0} files, the most for such a folder")]
    Many(usize),
    /// The name of a file is not a valid name.
    #[error(
        "the file's name without .toml names what is in it, so it has to be a valid name: lower-case letters, digits, `-` and `_`, such as university.toml. Rename it"
    )]
    Name,
    /// A file is no TOML, or has another structure.
    #[error("{0}")]
    Toml(String),
    /// A profile is invalid.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A revocation list is invalid.
    #[error(transparent)]
    Revocation(#[from] RevocationError),
    /// A grant in the policy is invalid: the limit of a root, or a grant of a test case.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// A grant names a field of packets that cannot be written.
    #[error(transparent)]
    Field(#[from] weir_wire::WriteFieldError),
    /// A grant names an unknown module.
    #[error(
        "`{0}` is neither a module that comes with weir nor the hash of one: write a name that `weir modules` lists, or the 64 digits that `sha256sum FILE` prints"
    )]
    Module(String),
    /// A policy names an unknown profile.
    #[error("there is no profile `{name}`; {}", list_known(.known))]
    NoProfile {
        /// The given name.
        name: Name,
        /// Names of the existing profiles.
        known: Vec<Name>,
    },
    /// Two files have one name or one key.
    #[error("{what} is in {} already: leave it in one of the two", first.shown())]
    Twice {
        /// Name or key.
        what: String,
        /// File that was read first.
        first: PathBuf,
    },
    /// Two test cases of a file have one name.
    #[error("there are two cases called `{}`: give one of them another name", .0.escape_debug())]
    CaseTwice(String),
    /// Under `after` a test case names a case that is not before it in the file.
    #[error("`after` names the case `{}`, but no earlier case of the file has this name", .0.escape_debug())]
    NoCase(String),
    /// The credential of a test case is invalid.
    #[error(transparent)]
    Credential(Box<weir_trust::credential::CredentialRefusal>),
    /// A test case names an unknown root.
    #[error(
        "there is no root `{}`: write the name of a file in roots/ without .toml, or the key of one under `roots` in [remote]", .0.escape_debug()
    )]
    NoRoot(String),
    /// A test case has neither a credential nor a root with grants, or has both, or names too many holders in `to`.
    #[error(
        "the requester is given either by `credential = \"FILE\"`, or by `root` and `grant` (a list: what the root grants, and what is passed on of it), with no more names in `to` than grants"
    )]
    Who,
    /// The policy has neither roots nor operators, so no peer could connect.
    #[error(
        "there is no root of trust, so no peer could connect: write one under `roots` in [remote], or into roots/NAME.toml of the policy's folder; or name `operators` in [remote]"
    )]
    NoRoots,
}

fn list_known(known: &[Name]) -> String {
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

    /// Creates the error for an error of the TOML parser.
    pub(super) fn toml(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let line = error.span().map(|span| line_of(text, span.start));
        Self {
            line,
            ..Self::new(path, PolicyProblem::Toml(weir_units::shown(&with_advice(error.message()))))
        }
    }
}

/// Returns the line of an offset in a text, from 1.
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
