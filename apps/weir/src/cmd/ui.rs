//! `weir ui`: serves the web page of a node to the user's own browser.

use crate::cmd::node::args::NodeAddressArgs;
use crate::cmd::trust::revoke;
use crate::output::signals::Signals;
use crate::{Failure, shipped};
use clap::Args;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_admission::manifest_of;
use weir_node::client::NodeLocation;
use weir_trust::grant::ModuleHash;
use weir_trust::key::Identity;
use weir_trust::revocation::RevokedSet;
use weir_ui::credentials::{UserRevocationList, issuer_at};
use weir_ui::modules::PageModule;
use weir_ui::{RunningUi, UiError, UiOptions};
use weir_units::Escape as _;

/// The interval at which signals are looked at.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// `weir ui`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir ui
  weir ui --node weir-key:…@ix1.example --key me.key --credential me.cred
  weir ui --address

The address in the output opens one browser, once. The page talks to weir on this machine, and weir talks to the node as any
other command does. So the node needs no HTTP port, and the page shows what the credential allows.")]
pub struct UiArgs {
    #[command(flatten)]
    pub address: NodeAddressArgs,
    /// The port on 127.0.0.1 [default: any free port]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// Serve a page that changes nothing, to show it to others
    #[arg(long)]
    pub read_only: bool,
    /// The file of your revocation list; created if missing. With it, the page can revoke what your key has granted or delegated. Each
    /// revocation is added to the file, as by `weir credential revoke --list`, and delivered to the node
    #[arg(long, value_name = "FILE", conflicts_with = "read_only")]
    pub revocation_list: Option<PathBuf>,
    /// Print a new address of each page that is being served, for another browser
    #[arg(long = "address", conflicts_with_all = ["read_only", "port", "revocation_list"])]
    pub prints_address: bool,
}

/// Errors of `weir ui`.
#[derive(Debug, thiserror::Error)]
pub enum UiCommandError {
    /// The page cannot be served.
    #[error(transparent)]
    Page(#[from] UiError),
    /// The folder of sockets is missing.
    #[error(transparent)]
    Folder(#[from] weir_ui::SocketFolderError),
    /// No page is being served.
    #[error("no `weir ui` of yours is running: start one")]
    NotRunning,
    /// A revocation list needs a key.
    #[error(
        "--revocation-list needs the key that signs the list: name a node with --node, and the key with --key"
    )]
    NoKey,
    /// The system's error.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Serves the page until a signal, or prints new addresses of pages.
pub fn ui(out: &mut impl Write, args: &UiArgs) -> Result<(), Failure> {
    if args.prints_address {
        return Ok(print_addresses(out)?);
    }
    let node = args.address.resolve()?;
    let (node_text, node_options) = node_options(&args.address, &node);
    let revocation_list = args.revocation_list.as_deref().map(|file| user_list(&node, file)).transpose()?;
    let options = UiOptions {
        node,
        node_text,
        node_options,
        port: args.port,
        is_read_only: args.read_only,
        program: std::env::current_exe()?,
        modules: modules(),
        revocation_list,
    };
    let folder = weir_ui::socket_folder().ok();
    let page = RunningUi::start(options, folder.as_deref()).map_err(UiCommandError::from)?;
    let mut signals = Signals::default();
    signals.catch().map_err(UiCommandError::from)?;
    // One write, so that a reader of the first line alone does not end the page.
    let text =
        format!("The page is at {}\nThe address opens one browser. Ctrl-C ends the page.\n", page.address());
    out.write_all(text.as_bytes())?;
    out.flush()?;
    while !signals.interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(CHECK_INTERVAL);
    }
    Ok(())
}

/// Returns the user's revocation list, after a check that it is one of the user's own.
fn user_list(node: &NodeLocation, file: &Path) -> Result<UserRevocationList, Failure> {
    revoke::check_list(file, issuer_at(node).ok_or(UiCommandError::NoKey)?)?;
    let extend = |file: &Path, identity: &Identity, issuer, more: &RevokedSet| {
        revoke::extend_list(file, identity, issuer, more).map_err(|error| error.to_string())
    };
    Ok(UserRevocationList { path: file.to_owned(), extend })
}

/// Prints a new address of each page.
fn print_addresses(out: &mut impl Write) -> Result<(), UiCommandError> {
    let pages = weir_ui::request_addresses(&weir_ui::socket_folder()?)?;
    match pages.as_slice() {
        [] => Err(UiCommandError::NotRunning),
        [page] => Ok(writeln!(out, "{}", page.address)?),
        pages => {
            for page in pages {
                writeln!(out, "{}  {}", page.address, page.node.escaped())?;
            }
            Ok(())
        }
    }
}

/// Returns a text that names the node, and the options by which other commands reach the node.
fn node_options(args: &NodeAddressArgs, node: &NodeLocation) -> (String, Vec<OsString>) {
    let mut options: Vec<OsString> = Vec::new();
    let mut add = |option: &str, value: OsString| options.extend([option.into(), value]);
    let text = match node {
        NodeLocation::Local(socket) => {
            add("--socket", socket.into());
            socket.to_string_lossy().into_owned()
        }
        NodeLocation::Remote { addresses, expected, .. } => {
            let address = addresses.first().map(ToString::to_string).unwrap_or_default();
            let keys: Vec<String> = expected.iter().map(ToString::to_string).collect();
            let node =
                if keys.is_empty() { address.clone() } else { format!("{}@{address}", keys.join(",")) };
            add("--node", node.into());
            for (option, file) in [
                ("--key", &args.key),
                ("--credential", &args.credential),
                ("--passphrase-file", &args.passphrase_file),
            ] {
                if let Some(file) = file {
                    add(option, file.into());
                }
            }
            args.node.as_ref().map_or(address, ToString::to_string)
        }
    };
    (text, options)
}

/// Returns the modules that come with weir.
pub(crate) fn modules() -> Vec<PageModule> {
    let module = |shipped: &shipped::ShippedModule| {
        let (manifest, _) = manifest_of(shipped.wasm).ok()?;
        Some(PageModule::new(&manifest, ModuleHash::of_bytes(shipped.wasm), shipped.is_default()))
    };
    shipped::ALL.iter().filter_map(module).collect()
}
