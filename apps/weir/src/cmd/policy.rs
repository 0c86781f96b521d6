//! `weir policy`: what an operator's policy says, whether it contradicts itself, and whether it comes to what its cases say.

use crate::Failure;
use crate::shipped;
use clap::{ArgGroup, Args, Subcommand};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use weir_node::control::config::{CONFIG_BYTES_MAX, NodeConfigError, NodeConfiguration};
use weir_node::control::policy::{Ground, Policy, PolicyError, Root};
use weir_trust::explain;
use weir_trust::grant::{NodeName, Second};
use weir_units::Shown as _;

/// `weir policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Say in words what a policy allows, and find what contradicts itself
    #[command(after_help = "\
Examples:
  weir policy check policy.d
  weir policy check -c node.toml          with what the node's configuration says, and for its interfaces

Exit status: 0 when the policy can be used; 1 when it cannot, or contradicts itself.")]
    Check(Which),
    /// Try the cases in a policy's folder: who asks for what, and what has to come of it
    #[command(after_help = "\
A case is a part of a file cases/NAME.toml in the policy's folder:

  [[case]]
  name = \"the university's students see nothing but eth0\"
  root = \"university\"                                     # of roots/university.toml; or credential = \"FILE\"
  grant = [{ memory = \"64 MiB\" }, { memory = \"8 MiB\" }]   # what it grants, and what is passed on of that
  at = \"2026-12-01\"                                       # when
  ask = { create = { name = \"s\", memory = \"8 MiB\", channel = [{ interface = \"eth1\" }] } }
  expect = { refused = \"interfaces\" }                     # or expect = \"allowed\"

A node tries them itself when it starts, and before it reads its configuration again: where one does not hold it does not start, and nothing changes. \
docs/SHARING.md has all keys.

Exit status: 0 when all cases hold; 1 when not.")]
    Test(Which),
}

/// Which policy.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true))]
pub struct Which {
    /// The policy's folder
    #[arg(value_name = "DIR", group = "which")]
    dir: Option<PathBuf>,
    /// The policy of the node with this configuration
    #[arg(short, long, value_name = "FILE", group = "which")]
    config: Option<PathBuf>,
}

/// Why a policy is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The policy cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The configuration cannot be used.
    #[error("{}: {source}", path.shown())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: NodeConfigError,
    },
    /// What credentials would call the node is no name for that.
    #[error("{}: {source}: give the node another one with `name` under [remote]", path.shown())]
    Name {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: weir_trust::grant::NodeNameError,
    },
    /// Something in it contradicts itself.
    #[error("{} in the policy", if *.0 == 1 { "1 contradiction".to_owned() } else { format!("{} contradictions", .0) })]
    Contradictions(usize),
    /// Cases do not hold.
    #[error("{failed} of {of} {} {}", if *.of == 1 { "case" } else { "cases" }, if *.failed == 1 { "does not hold" } else { "do not hold" })]
    Cases {
        /// So many,
        failed: usize,
        /// of so many.
        of: usize,
    },
}

/// A policy with the configuration that it is of, where there is one.
pub struct Read {
    /// What it says.
    pub policy: Policy,
    /// The configuration.
    pub config: Option<NodeConfiguration>,
    /// What credentials call the node.
    pub node: NodeName,
}

/// `weir policy`.
pub fn policy(out: &mut impl Write, act: &PolicyCommand) -> Result<(), Failure> {
    match act {
        PolicyCommand::Check(which) => check(out, &which.read()?),
        PolicyCommand::Test(which) => test(out, &which.read()?),
    }
}

impl Which {
    fn read(&self) -> Result<Read, Failure> {
        match (&self.config, &self.dir) {
            (Some(config), _) => of_config(config),
            (None, dir) => {
                let dir = dir.as_deref().unwrap_or(Path::new("."));
                let policy = Policy::read(dir, shipped_bytes).map_err(Error::Policy)?;
                let node = "node".parse().map_err(|source| Error::Name { path: dir.to_owned(), source })?;
                Ok(Read { policy, config: None, node })
            }
        }
    }
}

/// The bytes of a module that comes with weir.
pub fn shipped_bytes(name: &str) -> Option<&'static [u8]> {
    shipped::find(name).map(|shipped| shipped.wasm)
}

/// The policy of a node, by the file of its configuration.
pub fn of_config(path: &Path) -> Result<Read, Failure> {
    let text = crate::cmd::node::read(path, CONFIG_BYTES_MAX)?;
    let wrong = |source| Error::Config { path: path.to_owned(), source };
    let config = NodeConfiguration::parse(&text).map_err(wrong)?;
    let policy = Policy::of(&config, path, shipped_bytes).map_err(Error::Policy)?;
    let node = config.name().map_err(|source| Error::Name { path: path.to_owned(), source })?;
    Ok(Read { policy, config: Some(config), node })
}

/// The time.
pub fn now() -> Second {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Second::new(since.as_secs()).unwrap_or(Second::MAX)
}

fn check(out: &mut impl Write, Read { policy, config, node }: &Read) -> Result<(), Failure> {
    for name in policy.profiles.keys() {
        writeln!(out, "profile `{name}`: {}", users(policy, config.as_ref(), name))?;
    }
    for root in &policy.roots {
        says(out, root)?;
    }
    for (root, revoked) in policy.revocations.roots() {
        let (number, count) = (revoked.sequence(), revoked.live());
        writeln!(out, "revocation list {number} of {root}: {count} taken back")?;
    }
    match policy.cases.len() {
        0 => writeln!(out, "no cases: what the policy has to come to is nowhere said")?,
        1 => writeln!(out, "1 case, which `weir policy test` tries")?,
        count => writeln!(out, "{count} cases, which `weir policy test` tries")?,
    }
    let findings = policy.findings(config.as_ref().map(|config| (config, node)), now());
    for finding in &findings {
        let kind = if finding.is_contradiction { "" } else { "warning: " };
        let _ = writeln!(io::stderr(), "weir: {}: {kind}{}", finding.file.shown(), finding.what);
    }
    match findings.iter().filter(|finding| finding.is_contradiction).count() {
        0 => Ok(()),
        count => Err(Error::Contradictions(count).into()),
    }
}

/// Who may have modules admitted by a profile.
fn users(policy: &Policy, config: Option<&NodeConfiguration>, profile: &weir_admission::Name) -> String {
    let may = |root: &&Root| root.limit.profiles.as_ref().is_none_or(|names| names.contains(profile));
    let mut users: Vec<String> = policy.roots.iter().filter(may).map(Root::shown).collect();
    let sessions = config.map(|config| &config.sessions).into_iter().flatten();
    let named = sessions.into_iter().filter(|session| session.profile.as_ref() == Some(profile));
    users.extend(named.map(|session| format!("session `{}`", session.name)));
    if users.is_empty() {
        "of nobody but the operator".to_owned()
    } else {
        format!("for {}", users.join(", "))
    }
}

/// What the credentials of a root allow at most, in words.
fn says(out: &mut impl Write, root: &Root) -> io::Result<()> {
    let words = explain::grant(&root.limit, false);
    let who = if root.name.is_some() { format!("{}, {}", root.shown(), root.key) } else { root.shown() };
    if words.is_empty() {
        return writeln!(out, "{who}: its credentials count for whatever they say");
    }
    writeln!(out, "{who}: all its credentials together give at most")?;
    for (part, words) in words {
        writeln!(out, "    {:<20} {words}", format!("{part}:"))?;
    }
    Ok(())
}

fn test(out: &mut impl Write, Read { policy, config, node }: &Read) -> Result<(), Failure> {
    let ground = Ground { node, config: config.as_ref(), shipped: shipped_bytes };
    let trials = policy.try_cases(&ground);
    for trial in &trials {
        let (file, line, name) = (trial.file.shown(), trial.line, weir_units::shown(&trial.name));
        match &trial.wrong {
            None => writeln!(out, "ok      {file}:{line}: {name}")?,
            Some(what) => writeln!(out, "FAILED  {file}:{line}: {name}\n        {what}")?,
        }
    }
    let failed = trials.iter().filter(|trial| trial.wrong.is_some()).count();
    if failed > 0 {
        return Err(Error::Cases { failed, of: trials.len() }.into());
    }
    match trials.len() {
        0 => writeln!(out, "no cases: what the policy has to come to is nowhere said")?,
        1 => writeln!(out, "1 case holds")?,
        count => writeln!(out, "{count} cases hold")?,
    }
    Ok(())
}
