//! Errors of a policy.

use crate::control::renamed_keys::with_advice;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use weir_admission::{Name, ProfileError};
use weir_trust::grant::GrantError;
use weir_trust::key::PublicKey;
use weir_trust::revocation::RevocationError;
use weir_units::Escape as _;

/// The first mistake found in an operator's policy, with its file and line.
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
    #[error("the file has more than {0} bytes, the maximum length of such a file")]
    TooLong(usize),
    /// The name of a file or folder is not that of a part of a policy.
    #[error(
        "no part of a policy has this name: a policy has profiles/NAME.toml, roots/NAME.toml, compilers/NAME.toml, revoked/NAME and cases/NAME.toml. Rename the file, or remove it"
    )]
    UnknownFile,
    /// A folder has too many files.
    #[error("the folder has more than {0} files, the maximum for such a folder")]
    TooManyFiles(usize),
    /// The name of a file is not a valid name.
    #[error(
        "the file's name without .toml must be a valid name: lower-case letters, digits, `-` and `_`, beginning with a letter, at most {} characters, such as university.toml. Rename the file",
        Name::MAX
    )]
    InvalidFileName,
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
        "`{0}` is neither the name of a module that comes with weir nor the hash of a module: write a name that `weir modules` lists, or the 64 digits that `sha256sum FILE` prints"
    )]
    UnknownModule(String),
    /// A policy names an unknown profile.
    #[error("there is no profile `{name}`; {}", list_known(.known))]
    UnknownProfile {
        /// The given name.
        name: Name,
        /// Names of the existing profiles.
        known: Vec<Name>,
    },
    /// Two files define the same profile, or roots or compilers with the same key.
    #[error("{what} is in {} already: remove it from one of the two files", first.escaped())]
    Duplicate {
        /// The profile, or the root's key.
        what: String,
        /// File that was read first.
        first: PathBuf,
    },
    /// Two test cases of a file have one name.
    #[error("there are two cases called `{}`: give one of them another name", .0.escape_debug())]
    DuplicateCase(String),
    /// A test case names under `after` a case that does not precede it in the file.
    #[error("`after` names the case `{}`, but no earlier case of the file has this name", .0.escape_debug())]
    UnknownCase(String),
    /// The credential of a test case is invalid.
    #[error(transparent)]
    Credential(Box<weir_trust::credential::CredentialRefusal>),
    /// A test case names an unknown root.
    #[error(
        "there is no root `{}`: write the name of a file in roots/ without .toml, or a key that is under `roots` in [remote]", .0.escape_debug()
    )]
    UnknownRoot(String),
    /// A compiler key names a key that is no root of trust.
    #[error(
        "`revoked_by` is {0}, which is no root of trust: write a key that is under `roots` in [remote], or in a file of roots/"
    )]
    RevokedByUnknown(PublicKey),
    /// A compiler names the root that can revoke it, but the node takes no revocation lists.
    #[error(
        "`revoked_by` has no effect without [remote], because a node without remote access takes no revocation lists: write [remote], or leave out `revoked_by` and remove the key by hand"
    )]
    RevokedByWithoutRemote,
    /// A test case does not state its requester, or states it both by a credential and by a root with grants. Or it
    /// names more holders in `to` than grants.
    #[error(
        "the requester is given either by `credential = \"FILE\"`, or by `root` and `grant` (a list: the root's grant first, then the grant of each delegation), with no more names in `to` than grants"
    )]
    AmbiguousRequester,
    /// The policy has neither roots nor operators, so no peer could connect.
    #[error(
        "there is no root of trust, so no peer could connect: write a root's key under `roots` in [remote], or into roots/NAME.toml of the policy's folder; or name `operators` in [remote]"
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
            ..Self::new(path, PolicyProblem::Toml(weir_units::escaped(&with_advice(error.message()))))
        }
    }
}

/// Returns the line of an offset in a text, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.escaped())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.wrong)
    }
}

impl std::error::Error for PolicyError {}
