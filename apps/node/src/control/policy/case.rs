//! Test cases of an operator's policy: requests with their expected results.

use super::error::line_of;
use super::grant::GrantText;
use super::{Policy, PolicyError, PolicyProblem};
use crate::control::ShippedModules;
use crate::control::protocol::ControlRequest;
use crate::control::quantity::AsText;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use weir_admission::MODULE_BYTES_MAX;
use weir_trust::credential::{CREDENTIAL_BYTES_MAX, Credential};
use weir_trust::grant::{Grant, NodeName, UnixSecond};
use weir_trust::key::PublicKey;

/// A test case of the operator's policy: a request at a given time, with its expected result.
#[derive(Clone, Debug)]
pub struct Case {
    /// File of the case.
    pub file: PathBuf,
    /// Line in the file, from 1.
    pub line: usize,
    /// Name, unique in the file.
    pub name: String,
    pub(crate) credential: CaseCredential,
    /// Key of the requester; `None` for the credential's holder.
    pub(crate) requester: Option<CaseKey>,
    /// Time of the request.
    pub(crate) at: UnixSecond,
    /// Name of the node at which the request is made; by default the configured node.
    pub(crate) node: Option<NodeName>,
    /// Names of earlier cases of the file, whose requests are made first.
    pub(crate) after: Vec<String>,
    pub(crate) request: ControlRequest,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) expect: Expect,
}

/// The credential of a case's requester.
#[derive(Clone, Debug)]
pub(crate) enum CaseCredential {
    /// A credential from a file.
    FromFile(Box<Credential>),
    /// A credential that the root would grant to the first holder of the chain, and each holder delegates to the next.
    Described { root: PublicKey, chain: Vec<(String, Grant)> },
}

/// The key of a requester: a real key, or a key that is derived from a name.
#[derive(Clone, Debug)]
pub(crate) enum CaseKey {
    Key(PublicKey),
    Called(String),
}

/// The expected result of a case.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expect {
    /// The request is permitted.
    Allowed,
    /// The request is refused, with a reason that contains this text.
    Refused(String),
}

/// Contents of `cases/NAME.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CasesText {
    #[serde(default, rename = "case")]
    cases: Vec<toml::Spanned<CaseText>>,
}

/// A `[[case]]` of a file of cases.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseText {
    name: String,
    credential: Option<PathBuf>,
    root: Option<String>,
    #[serde(default)]
    grant: Vec<GrantText>,
    #[serde(default)]
    to: Vec<String>,
    requester: Option<String>,
    at: AsText<UnixSecond>,
    node: Option<AsText<NodeName>>,
    #[serde(default)]
    after: Vec<String>,
    request: ControlRequest,
    expect: Expect,
}

impl Case {
    /// Parses a file of cases. The roots of the policy must have been read before.
    pub(super) fn read(
        policy: &mut Policy,
        file: &Path,
        text: &str,
        shipped: ShippedModules,
    ) -> Result<Vec<Self>, PolicyError> {
        let read: CasesText = toml::from_str(text).map_err(|error| PolicyError::toml(file, text, &error))?;
        let mut cases: Vec<Self> = Vec::new();
        for case in read.cases {
            let line = line_of(text, case.span().start);
            let wrong = |wrong| PolicyError { line: Some(line), ..PolicyError::new(file, wrong) };
            let case = Self::from_text(policy, file, line, case.into_inner(), shipped)?;
            if cases.iter().any(|before| before.name == case.name) {
                return Err(wrong(PolicyProblem::DuplicateCase(case.name)));
            }
            if let Some(missing) =
                case.after.iter().find(|name| cases.iter().all(|before| before.name != **name))
            {
                return Err(wrong(PolicyProblem::UnknownCase(missing.clone())));
            }
            cases.push(case);
        }
        Ok(cases)
    }

    fn from_text(
        policy: &mut Policy,
        file: &Path,
        line: usize,
        text: CaseText,
        shipped: ShippedModules,
    ) -> Result<Self, PolicyError> {
        let wrong = |wrong| PolicyError { line: Some(line), ..PolicyError::new(file, wrong) };
        let beside = |path: &Path| file.parent().map_or_else(|| path.to_owned(), |folder| folder.join(path));
        let credential = match (&text.credential, &text.root) {
            (Some(path), None) if text.grant.is_empty() && text.to.is_empty() => {
                let path = beside(path);
                let read = policy.read_text(&path, 2 * CREDENTIAL_BYTES_MAX)?;
                let parsed = read.trim().parse();
                CaseCredential::FromFile(Box::new(parsed.map_err(|refusal| {
                    PolicyError::new(&path, PolicyProblem::Credential(Box::new(refusal)))
                })?))
            }
            (None, Some(root)) if !text.grant.is_empty() && text.to.len() <= text.grant.len() => {
                let key =
                    policy.root_key(root).ok_or_else(|| wrong(PolicyProblem::UnknownRoot(root.clone())))?;
                let mut chain = Vec::new();
                for (number, grant) in text.grant.iter().enumerate() {
                    let to = text.to.get(number).cloned().unwrap_or_else(|| format!("holder {}", number + 1));
                    let mut grant = grant.grant(shipped).map_err(wrong)?;
                    if number == 0 {
                        // The grant of a root needs an expiry date, so it gets the latest one by default.
                        grant.expires = grant.expires.or(Some(UnixSecond::MAX));
                    }
                    chain.push((to, grant));
                }
                CaseCredential::Described { root: key, chain }
            }
            _ => return Err(wrong(PolicyProblem::AmbiguousRequester)),
        };
        let requester = text.requester.map(|requester| match requester.parse() {
            Ok(key) => CaseKey::Key(key),
            Err(_) => CaseKey::Called(requester),
        });
        let body = match &text.request {
            ControlRequest::Load { module, .. } if shipped(&module.module).is_none() => {
                let path = beside(Path::new(&module.module));
                Some(policy.read_file(&path, MODULE_BYTES_MAX)?)
            }
            _ => None,
        };
        let (name, file, at, node) = (text.name, file.to_owned(), text.at.0, text.node.map(|node| node.0));
        let (after, request, expect) = (text.after, text.request, text.expect);
        Ok(Self { file, line, name, credential, requester, at, node, after, request, body, expect })
    }
}
