//! Test cases of an operator's policy: requests with their expected results.

use super::error::line_of;
use super::grant::GrantText;
use super::{Policy, PolicyError, PolicyProblem};
use crate::control::ShippedModules;
use crate::control::protocol::ControlRequest;
use crate::control::quantity::QuantityText;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use weir_admission::MODULE_BYTES_MAX;
use weir_trust::credential::{CREDENTIAL_BYTES_MAX, Credential};
use weir_trust::grant::{Grant, NodeName, Second};
use weir_trust::key::PublicKey;

/// A test case of the operator's policy: a request with its expected result.
#[derive(Clone, Debug)]
pub struct Case {
    /// File of the case.
    pub file: PathBuf,
    /// Line in the file, from 1.
    pub line: usize,
    /// Name, unique in the file.
    pub name: String,
    pub(crate) who: CaseSubject,
    /// Key of the requester; `None` for the credential's holder.
    pub(crate) by: Option<CaseKey>,
    /// Time of the request.
    pub(crate) at: Second,
    /// Node of the request; by default that of the configuration.
    pub(crate) node: Option<NodeName>,
    /// Earlier cases of the file whose requests are made first.
    pub(crate) after: Vec<String>,
    pub(crate) ask: ControlRequest,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) expect: Expect,
}

/// The credential of a case.
#[derive(Clone, Debug)]
pub(crate) enum CaseSubject {
    /// A credential from a file.
    Shown(Box<Credential>),
    /// A credential that a root would grant to the first holder, who delegates it to the next.
    Described { root: PublicKey, chain: Vec<(String, Grant)> },
}

/// The key of a requester: a real one, or one derived from a name.
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

/// A `[[case]]` of such a file.
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
    at: QuantityText<Second>,
    node: Option<QuantityText<NodeName>>,
    #[serde(default)]
    after: Vec<String>,
    request: ControlRequest,
    expect: Expect,
}

impl Case {
    /// Reads a file of cases. The roots of the policy must have been read before.
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
                return Err(wrong(PolicyProblem::CaseTwice(case.name)));
            }
            if let Some(missing) =
                case.after.iter().find(|name| cases.iter().all(|before| before.name != **name))
            {
                return Err(wrong(PolicyProblem::NoCase(missing.clone())));
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
        let who = match (&text.credential, &text.root) {
            (Some(path), None) if text.grant.is_empty() && text.to.is_empty() => {
                let path = beside(path);
                let read = policy.text(&path, 2 * CREDENTIAL_BYTES_MAX)?;
                let credential = read.trim().parse();
                CaseSubject::Shown(Box::new(credential.map_err(|refusal| {
                    PolicyError::new(&path, PolicyProblem::Credential(Box::new(refusal)))
                })?))
            }
            (None, Some(root)) if !text.grant.is_empty() && text.to.len() <= text.grant.len() => {
                let key =
                    policy.root_called(root).ok_or_else(|| wrong(PolicyProblem::NoRoot(root.clone())))?;
                let mut chain = Vec::new();
                for (number, grant) in text.grant.iter().enumerate() {
                    let to = text.to.get(number).cloned().unwrap_or_else(|| format!("holder {}", number + 1));
                    let mut grant = grant.grant(shipped).map_err(wrong)?;
                    if number == 0 {
                        // The grant of a root needs an expiry date, so it gets the latest one by default.
                        grant.expires = grant.expires.or(Some(Second::MAX));
                    }
                    chain.push((to, grant));
                }
                CaseSubject::Described { root: key, chain }
            }
            _ => return Err(wrong(PolicyProblem::Who)),
        };
        let by = text.requester.map(|by| match by.parse() {
            Ok(key) => CaseKey::Key(key),
            Err(_) => CaseKey::Called(by),
        });
        let body = match &text.request {
            ControlRequest::Load { module, .. } if shipped(&module.module).is_none() => {
                let path = beside(Path::new(&module.module));
                Some(policy.file(&path, MODULE_BYTES_MAX)?)
            }
            _ => None,
        };
        let (name, file, at, node) = (text.name, file.to_owned(), text.at.0, text.node.map(|node| node.0));
        let (after, ask, expect) = (text.after, text.request, text.expect);
        Ok(Self { file, line, name, who, by, at, node, after, ask, body, expect })
    }
}
