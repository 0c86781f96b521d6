//! weir: runs untrusted packet-processing modules on real traffic.
//!
//! This file parses the command line, calls the code of the subcommand, and turns its error into a message and an exit
//! status.

#![forbid(unsafe_code)]

mod amounts;
mod calibrated_profile;
mod cli;
mod click;
mod cmd;
#[cfg(test)]
mod document_tests;
mod json;
mod local_time;
mod module_arg;
mod modules;
mod output;
mod shipped;
mod trust_files;
mod usage_hint;

use clap::{CommandFactory, Parser};
use cli::{Cli, Command};
use std::io::Write;
use std::process::ExitCode;
use weir_units::{Escape as _, escaped_lines};

/// The error of a command, as printed to the user.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Run(#[from] cmd::run::RunError),
    #[error(transparent)]
    Module(#[from] module_arg::ModuleArgError),
    #[error(transparent)]
    Profile(#[from] calibrated_profile::ProfileFileError),
    #[error(transparent)]
    Check(#[from] cmd::check::CheckError),
    #[error(transparent)]
    CompileCommand(#[from] cmd::compile::CompileCommandError),
    #[error(transparent)]
    Calibrate(#[from] cmd::calibrate::CalibrateError),
    #[error(transparent)]
    Node(#[from] weir_node::server::daemon::DaemonError),
    #[error(transparent)]
    Extcap(#[from] cmd::extcap::ExtcapError),
    #[error(transparent)]
    Graph(#[from] cmd::graph::GraphCommandError),
    #[error(transparent)]
    Schema(#[from] cmd::schema::SchemaError),
    #[error(transparent)]
    NodeCommand(#[from] cmd::node::NodeCommandError),
    #[error(transparent)]
    Trust(#[from] cmd::trust::SigningError),
    #[error(transparent)]
    Policy(#[from] cmd::policy::Error),
    #[error(transparent)]
    Spawner(#[from] weir_node::ServeError),
    #[error(transparent)]
    New(#[from] weir_author::NewError),
    #[error(transparent)]
    Make(#[from] cmd::build::MakeError),
    #[error(transparent)]
    Test(#[from] cmd::test::TestError),
    #[error(transparent)]
    Compile(#[from] weir_sandbox::CompileError),
    #[error(transparent)]
    SandboxProcess(#[from] weir_node::SandboxProcessError),
    #[error("{}: the manual pages cannot be written: {source}", dir.escaped())]
    Man { dir: std::path::PathBuf, source: std::io::Error },
    #[error(transparent)]
    Ui(#[from] cmd::ui::UiCommandError),
    #[error(transparent)]
    Confine(#[from] weir_os::ConfineError),
    #[error("standard output: {0}")]
    Output(#[from] std::io::Error),
}

impl Failure {
    /// Returns the exit status: 2 for wrong usage, 3 if modules failed, otherwise 1.
    fn exit_code(&self) -> ExitCode {
        let usage = match self {
            Self::Run(error) if error.is_of_modules() => return ExitCode::from(3),
            Self::Run(error) => error.is_usage(),
            Self::Module(error) => error.is_usage(),
            Self::Profile(_) => true,
            Self::Test(error) => error.is_usage(),
            Self::CompileCommand(error) => error.is_usage(),
            Self::NodeCommand(error) => error.is_usage(),
            Self::Extcap(error) => error.is_usage(),
            Self::Schema(_) => true,
            Self::Graph(error) => error.is_usage(),
            _ => false,
        };
        ExitCode::from(if usage { 2 } else { 1 })
    }
}

fn main() -> ExitCode {
    weir_netio::make_file_size_limit_an_error();
    let result = if click::is_called() {
        click::run_as_click()
    } else {
        let cli = Cli::try_parse().unwrap_or_else(|error| usage_hint::exit(&error));
        dispatch(cli.command)
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe closed it early, which is not an error.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            // The message of a compiler has several lines, which may contain a module's source.
            let _ = writeln!(std::io::stderr(), "weir: {}", escaped_lines(&failure.to_string()));
            failure.exit_code()
        }
    }
}

/// Returns true for a command that can have private keys, secrets or other users' traffic in its memory.
fn holds_secrets(command: &Command) -> bool {
    // The listed commands hold none: they stay open to debuggers, for users who run, write or measure modules.
    !matches!(
        command,
        Command::Run(_)
            | Command::Modules { .. }
            | Command::Schema(_)
            | Command::Graph(_)
            | Command::Calibrate(_)
            | Command::Check(_)
            | Command::Compile(_)
            | Command::New { .. }
            | Command::Build { .. }
            | Command::Test(_)
            | Command::Pack { .. }
            | Command::Man { .. }
            | Command::Completions { .. }
    )
}

/// Carries out a command.
fn dispatch(command: Command) -> Result<(), Failure> {
    if holds_secrets(&command) {
        weir_os::hide()?;
    }
    let mut out = std::io::stdout().lock();
    match command {
        Command::Run(args) => {
            drop(out);
            cmd::run::run(&args)?;
        }
        Command::Modules { semantics: true, .. } => modules::show_semantics(&mut out)?,
        Command::Modules { name, .. } => modules::show(&mut out, name.as_deref())?,
        Command::Graph(command) => cmd::graph::graph(&mut out, &command)?,
        Command::Schema(args) => cmd::schema::schema(&mut out, &args)?,
        Command::Calibrate(args) => cmd::calibrate::calibrate(&mut out, &args)?,
        Command::Check(args) => cmd::check::check(&mut out, &args)?,
        Command::Compile(args) => cmd::compile::compile(&mut out, &args)?,
        Command::Node { config } => {
            drop(out);
            let calibration = calibrated_profile::calibration();
            let shipped = |name: &str| shipped::find(name).map(|shipped| shipped.wasm);
            weir_node::server::daemon::run(weir_node::server::daemon::Setup {
                config,
                calibration,
                shipped,
            })?;
        }
        Command::Config(cmd::node::args::ConfigCommand::Check { file }) => {
            cmd::node::check_config(&mut out, &file)?
        }
        Command::Session(args) => cmd::node::session(&mut out, &args)?,
        Command::Table(args) => cmd::node::table(&mut out, &args)?,
        Command::Link(args) => cmd::node::link(&mut out, &args)?,
        Command::Load(args) => cmd::node::load(&mut out, &args)?,
        Command::Unload(args) => cmd::node::unload(&mut out, &args)?,
        Command::Follow(args) => {
            drop(out);
            cmd::node::follow(&args)?;
        }
        Command::Records(args) => cmd::node::records(&mut out, &args)?,
        Command::Extcap(args) => cmd::extcap::extcap(&mut out, &args)?,
        Command::Reload(args) => cmd::node::reload(&mut out, &args)?,
        Command::Ledger(args) => cmd::node::ledger(&mut out, &args)?,
        Command::Key(command) => cmd::trust::key(&mut out, &command)?,
        Command::Grant(args) => cmd::trust::grant(&mut out, &args)?,
        Command::Delegate(args) => cmd::trust::delegate(&mut out, &args)?,
        Command::Sign(args) => cmd::trust::sign(&mut out, &args)?,
        Command::Credential(command) => cmd::trust::credential(&mut out, &command)?,
        Command::Policy(command) => cmd::policy::policy(&mut out, &command)?,
        Command::Top(args) => {
            drop(out);
            cmd::node::top(&args)?;
        }
        Command::Ui(args) => cmd::ui::ui(&mut out, &args)?,
        Command::New { path, lang } => {
            let lang = match lang {
                cli::LanguageArg::C => weir_author::ModuleLanguage::C,
                cli::LanguageArg::Rust => weir_author::ModuleLanguage::Rust,
            };
            let created = weir_author::new(&path, lang)?;
            writeln!(out, "{} is ready in {}:", created.name, created.dir.escaped())?;
            for file in &created.files {
                writeln!(out, "  {}", file.escaped())?;
            }
            writeln!(out, "\nNext: weir build {0} && weir test {0}", created.dir.escaped())?;
        }
        Command::Build { dir } => cmd::build::build(&mut out, &dir)?,
        Command::Pack { wasm, manifest, output } => {
            cmd::build::pack(&mut out, &wasm, &manifest, output.as_deref())?;
        }
        Command::Test(args) => cmd::test::test(&mut out, &args)?,
        Command::CompileCranelift => {
            drop(out);
            weir_sandbox::compile_child()?;
        }
        Command::CompileLlvm => {
            drop(out);
            weir_sandbox::compile_llvm_child()?;
        }
        Command::VersionLlvm => {
            drop(out);
            weir_sandbox::llvm_version_child()?;
        }
        Command::KeepKey { file } => {
            drop(out);
            weir_node::run_key_agent(&file)?;
        }
        Command::RunModule => {
            drop(out);
            weir_node::sandbox_child()?;
        }
        Command::StartProcesses { settings } => {
            drop(out);
            weir_node::start_processes(&settings)?;
        }
        Command::Man { dir } => {
            std::fs::create_dir_all(&dir)
                .and_then(|()| clap_mangen::generate_to(Cli::command(), &dir))
                .map_err(|source| Failure::Man { dir, source })?;
        }
        Command::Completions { shell } => {
            // The generator panics if writing fails, so it writes to memory.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "weir", &mut script);
            out.write_all(&script)?;
        }
    }
    Ok(())
}

impl From<trust_files::TrustFileError> for Failure {
    fn from(error: trust_files::TrustFileError) -> Self {
        Self::Trust(error.into())
    }
}
