//! `weir policy`: describes an operator's policy, finds contradictions, and runs its test cases.

use crate::Failure;
use crate::shipped;
use clap::{ArgGroup, Args, Subcommand};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use weir_compilation::compiler_keys::CompilerKey;
use weir_node::control::config::{CONFIG_BYTES_MAX, NodeConfigError, NodeConfiguration};
use weir_node::control::policy::{Policy, PolicyError, Root};
use weir_node::server::case_simulation::CaseEnvironment;
use weir_trust::explain;
use weir_trust::grant::{NodeName, UnixSecond};
use weir_units::Escape as _;

/// `weir policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Describe in words what a policy allows, and find contradictions
    #[command(after_help = "\
Examples:
  weir policy check policy.d
  weir policy check -c node.toml          with the node's configuration and interfaces

Exit status: 0 when the policy can be used; 1 when it cannot, or contradicts itself.")]
    Check(PolicyArgs),
    /// Run the test cases in a policy's folder: requests and their expected outcomes
    #[command(after_help = "\
A case is a part of a file cases/NAME.toml in the policy's folder:

  [[case]]
  name = \"the university's students see nothing but eth0\"
  root = \"university\"                                     # of roots/university.toml; or credential = \"FILE\"
  grant = [{ memory = \"64 MiB\" }, { memory = \"8 MiB\" }]   # the grant, and each delegation of it
  at = \"2026-12-01\"                                       # when
  request = { create = { name = \"s\", memory = \"8 MiB\", channel = [{ interface = \"eth1\" }] } }
  expect = { refused = \"interfaces\" }                     # or expect = \"allowed\"

A node runs the cases when it starts, and before it reloads its configuration: if one fails, it does not start, or keeps the old configuration. \
docs/reference/CREDENTIALS.md has all keys.

Exit status: 0 when all cases hold; 1 when not.")]
    Test(PolicyArgs),
}

/// Options that choose the policy.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true))]
pub struct PolicyArgs {
    /// The policy's folder
    #[arg(value_name = "DIR", group = "which")]
    dir: Option<PathBuf>,
    /// The policy of the node with this configuration
    #[arg(short, long, value_name = "FILE", group = "which")]
    config: Option<PathBuf>,
}

/// Errors of a policy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The policy cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The configuration cannot be used.
    #[error("{}: {source}", path.escaped())]
    Config {
        /// The file.
        path: PathBuf,
        /// The error in the file.
        source: NodeConfigError,
    },
    /// The node's name in credentials is not valid.
    #[error("{}: {source}: give the node another name, by `name` under [remote]", path.escaped())]
    Name {
        /// The file.
        path: PathBuf,
        /// The error in the name.
        source: weir_trust::grant::NodeNameError,
    },
    /// The policy contradicts itself, in this number of findings.
    #[error("{} in the policy", if *.0 == 1 { "1 contradiction".to_owned() } else { format!("{} contradictions", .0) })]
    Contradictions(usize),
    /// Test cases failed.
    #[error("{failed} of {total} {} {}", if *.total == 1 { "case" } else { "cases" }, if *.failed == 1 { "does not hold" } else { "do not hold" })]
    Cases {
        /// The number of failed cases.
        failed: usize,
        /// The number of all cases.
        total: usize,
    },
}

/// A policy that has been read, with the configuration of its node if the command names one.
pub struct LoadedPolicy {
    /// The policy.
    pub policy: Policy,
    /// The configuration of the node.
    pub config: Option<NodeConfiguration>,
    /// The node's name in credentials; `node` without a configuration.
    pub node: NodeName,
}

/// Carries out a policy command.
pub fn policy(out: &mut impl Write, command: &PolicyCommand) -> Result<(), Failure> {
    match command {
        PolicyCommand::Check(args) => check(out, &args.read()?),
        PolicyCommand::Test(args) => test(out, &args.read()?),
    }
}

impl PolicyArgs {
    fn read(&self) -> Result<LoadedPolicy, Failure> {
        match (&self.config, &self.dir) {
            (Some(config), _) => read_with_config(config),
            (None, dir) => {
                let dir = dir.as_deref().unwrap_or(Path::new("."));
                let policy = Policy::read(dir, shipped_bytes).map_err(Error::Policy)?;
                let node = "node".parse().map_err(|source| Error::Name { path: dir.to_owned(), source })?;
                Ok(LoadedPolicy { policy, config: None, node })
            }
        }
    }
}

/// Returns the WebAssembly binary of a shipped module; `None` for any other name.
pub fn shipped_bytes(name: &str) -> Option<&'static [u8]> {
    shipped::find(name).map(|shipped| shipped.wasm)
}

/// Reads a node's configuration file and its policy.
pub fn read_with_config(path: &Path) -> Result<LoadedPolicy, Failure> {
    let text = crate::cmd::node::read(path, CONFIG_BYTES_MAX)?;
    let config_error = |source| Error::Config { path: path.to_owned(), source };
    let config = NodeConfiguration::parse(&text).map_err(config_error)?;
    let policy = Policy::from_config(&config, path, shipped_bytes).map_err(Error::Policy)?;
    let node = config.credential_name().map_err(|source| Error::Name { path: path.to_owned(), source })?;
    Ok(LoadedPolicy { policy, config: Some(config), node })
}

/// Returns the current time, in seconds of Unix time.
pub fn now() -> UnixSecond {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    UnixSecond::new(since.as_secs()).unwrap_or(UnixSecond::MAX)
}

/// Prints a description of a policy to `out`, and its contradictions and warnings to standard error.
///
/// # Errors
/// The policy contradicts itself, or the output cannot be written.
fn check(out: &mut impl Write, LoadedPolicy { policy, config, node }: &LoadedPolicy) -> Result<(), Failure> {
    for name in policy.profiles.keys() {
        writeln!(out, "profile `{name}`: {}", users(policy, config.as_ref(), name))?;
    }
    for root in &policy.roots {
        describe_root(out, root)?;
    }
    for (_, compiler) in &policy.compilers {
        describe_compiler(out, compiler)?;
    }
    for (root, revoked) in policy.revocations.roots() {
        let (number, count) = (revoked.sequence(), revoked.entry_count());
        writeln!(out, "revocation list {number} of {root}: {count} revoked")?;
    }
    match policy.cases.len() {
        0 => writeln!(out, "no test cases")?,
        1 => writeln!(out, "1 test case, run by `weir policy test`")?,
        count => writeln!(out, "{count} test cases, run by `weir policy test`")?,
    }
    let findings = policy.findings(config.as_ref().map(|config| (config, node)), now());
    for finding in &findings {
        let kind = if finding.is_contradiction { "" } else { "warning: " };
        let _ = writeln!(io::stderr(), "weir: {}: {kind}{}", finding.file.escaped(), finding.what);
    }
    match findings.iter().filter(|finding| finding.is_contradiction).count() {
        0 => Ok(()),
        count => Err(Error::Contradictions(count).into()),
    }
}

/// Names the roots and sessions whose modules may be admitted by a profile.
fn users(policy: &Policy, config: Option<&NodeConfiguration>, profile: &weir_admission::Name) -> String {
    let allows_profile =
        |root: &&Root| root.limit.profiles.as_ref().is_none_or(|names| names.contains(profile));
    let mut users: Vec<String> = policy.roots.iter().filter(allows_profile).map(Root::in_words).collect();
    let sessions = config.map(|config| &config.sessions).into_iter().flatten();
    let with_profile = sessions.into_iter().filter(|session| session.profile.as_ref() == Some(profile));
    users.extend(with_profile.map(|session| format!("session `{}`", session.name)));
    if users.is_empty() { "for the operator only".to_owned() } else { format!("for {}", users.join(", ")) }
}

/// Prints a compiler key, and what it is trusted for.
fn describe_compiler(out: &mut impl Write, compiler: &CompilerKey) -> io::Result<()> {
    let statements: Vec<String> = compiler.trusted_for.iter().map(ToString::to_string).collect();
    write!(out, "compiler {}: its machine code is trusted for {}", compiler.key, statements.join(" and "))?;
    if let Some(expires) = compiler.expires {
        write!(out, " until {expires}")?;
    }
    match compiler.revoked_by {
        Some(root) => writeln!(out, "; lists of {root} can revoke it"),
        None => writeln!(out, "; no revocation list can revoke it"),
    }
}

/// Prints the limits that the policy sets to the credentials of a root.
fn describe_root(out: &mut impl Write, root: &Root) -> io::Result<()> {
    let words = explain::grant(&root.limit, false);
    let name =
        if root.name.is_some() { format!("{}, {}", root.in_words(), root.key) } else { root.in_words() };
    if words.is_empty() {
        return writeln!(out, "{name}: its credentials have no limit");
    }
    writeln!(out, "{name}: the limit of all its credentials together")?;
    for (part, words) in words {
        writeln!(out, "    {:<20} {words}", format!("{part}:"))?;
    }
    Ok(())
}

/// Runs the test cases of a policy and prints their results.
fn test(out: &mut impl Write, LoadedPolicy { policy, config, node }: &LoadedPolicy) -> Result<(), Failure> {
    let environment = CaseEnvironment { node, config: config.as_ref(), shipped: shipped_bytes };
    let trials = policy.try_cases(&environment);
    for trial in &trials {
        let (file, line, name) = (trial.file.escaped(), trial.line, weir_units::escaped(&trial.name));
        match &trial.difference {
            None => writeln!(out, "ok      {file}:{line}: {name}")?,
            Some(difference) => writeln!(out, "FAILED  {file}:{line}: {name}\n        {difference}")?,
        }
    }
    let failed = trials.iter().filter(|trial| trial.difference.is_some()).count();
    if failed > 0 {
        return Err(Error::Cases { failed, total: trials.len() }.into());
    }
    match trials.len() {
        0 => writeln!(out, "no test cases")?,
        1 => writeln!(out, "1 case holds")?,
        count => writeln!(out, "{count} cases hold")?,
    }
    Ok(())
}
