//! An operator's own cases: who asks for what, and what has to come of it.

use super::error::line_of;
use super::grant::GrantText;
use super::{Policy, PolicyError, PolicyProblem};
use crate::control::protocol::ControlRequest;
use crate::control::quantity::QuantityText;
use crate::sessions::workshop::ShippedProfiles;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use weir_admission::MODULE_BYTES_MAX;
use weir_trust::credential::{CREDENTIAL_BYTES_MAX, Credential};
use weir_trust::grant::{Grant, NodeName, Second};
use weir_trust::key::PublicKey;

/// A case of the operator's.
#[derive(Clone, Debug)]
pub struct Case {
    /// The file that it stands in, and
    pub file: PathBuf,
    /// its line there, from 1.
    pub line: usize,
    /// What it is called.
    pub name: String,
    pub(super) who: CaseSubject,
    /// By another key than that of the credential's holder.
    pub(super) by: Option<Somebody>,
    /// When.
    pub(super) at: Second,
    /// At which node; at that of the configuration where nothing is said.
    pub(super) node: Option<NodeName>,
    /// Cases of the same file whose requests were fulfilled before.
    pub(super) after: Vec<String>,
    pub(super) ask: ControlRequest,
    pub(super) body: Option<Vec<u8>>,
    pub(super) expect: Expect,
}

/// By what right somebody asks.
#[derive(Clone, Debug)]
pub(super) enum CaseSubject {
    /// By a credential.
    Shown(Box<Credential>),
    /// By one that a root would have granted to the first of these, who has passed it on to the next.
    Described { root: PublicKey, chain: Vec<(String, Grant)> },
}

/// Whose key it is: a real one, or that of somebody who is only called something.
#[derive(Clone, Debug)]
pub(super) enum Somebody {
    Key(PublicKey),
    Called(String),
}

/// What has to come of a case.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expect {
    /// The request is permitted.
    Allowed,
    /// It is refused, with a reason that contains this.
    Refused(String),
}

/// `cases/NAME.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CasesText {
    #[serde(default, rename = "case")]
    cases: Vec<toml::Spanned<CaseText>>,
}

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
    by: Option<String>,
    at: QuantityText<Second>,
    node: Option<QuantityText<NodeName>>,
    #[serde(default)]
    after: Vec<String>,
    ask: ControlRequest,
    expect: Expect,
}

impl Case {
    /// Reads a file of cases. Roots have been read before.
    pub(super) fn read(
        policy: &mut Policy,
        file: &Path,
        text: &str,
        shipped: ShippedProfiles,
    ) -> Result<Vec<Self>, PolicyError> {
        let read: CasesText = toml::from_str(text).map_err(|error| PolicyError::toml(file, text, &error))?;
        let mut cases: Vec<Self> = Vec::new();
        for case in read.cases {
            let line = line_of(text, case.span().start);
            let wrong = |wrong| PolicyError { line: Some(line), ..PolicyError::new(file, wrong) };
            let case = Self::of(policy, file, line, case.into_inner(), shipped)?;
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

    fn of(
        policy: &mut Policy,
        file: &Path,
        line: usize,
        text: CaseText,
        shipped: ShippedProfiles,
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
                        // A root's grant always ends; this one then, where nothing is said.
                        grant.expires = grant.expires.or(Some(Second::MAX));
                    }
                    chain.push((to, grant));
                }
                CaseSubject::Described { root: key, chain }
            }
            _ => return Err(wrong(PolicyProblem::Who)),
        };
        let by = text.by.map(|by| match by.parse() {
            Ok(key) => Somebody::Key(key),
            Err(_) => Somebody::Called(by),
        });
        let body = match &text.ask {
            ControlRequest::Load { module, .. } if shipped(&module.module).is_none() => {
                let path = beside(Path::new(&module.module));
                Some(policy.file(&path, MODULE_BYTES_MAX)?)
            }
            _ => None,
        };
        let (name, file, at, node) = (text.name, file.to_owned(), text.at.0, text.node.map(|node| node.0));
        let (after, ask, expect) = (text.after, text.ask, text.expect);
        Ok(Self { file, line, name, who, by, at, node, after, ask, body, expect })
    }
}
