//! Translates a command line to the request that it would send to a node. `weir credential explain` sends this request
//! to be evaluated only.

use super::args::{LinkCommand, SessionCommand, TableCommand};
use super::load::load_request;
use super::session::{change_request, session_spec};
use crate::Failure;
use crate::cli::{Cli, Command};
use clap::Parser;
use weir_node::control::protocol::{ControlRequest, LinkRateChange};
use weir_node::control::spec::SessionSpec;

/// Returns the request that a command line (without `weir`) would send to a node, and the request's body: the module's
/// bytes for `load`.
///
/// # Errors
/// The words are not a command line, or the command sends no request.
pub fn request(words: &[String]) -> Result<(ControlRequest, Vec<u8>), Failure> {
    let command = Cli::try_parse_from(std::iter::once("weir").chain(words.iter().map(String::as_str)));
    let command = command.unwrap_or_else(|error| crate::usage_hint::exit(&error)).command;
    let request = match command {
        Command::Load(args) => return load_request(&args),
        Command::Session(args) => match args.action {
            // The modules of a new session are loaded by separate requests.
            SessionCommand::Create(args) => {
                ControlRequest::Create(SessionSpec { modules: Vec::new(), ..session_spec(&args)? })
            }
            SessionCommand::Change(args) => ControlRequest::Change(change_request(&args)?),
            SessionCommand::Close { name } => ControlRequest::Close { session: name },
            SessionCommand::List | SessionCommand::Show { .. } => ControlRequest::Show,
        },
        Command::Unload(args) => ControlRequest::Unload { session: args.session, module: args.module },
        Command::Follow(args) => super::follow_request(&args).map_err(Failure::NodeCommand)?,
        Command::Records(args) => ControlRequest::Records(super::records::first_request(&args)),
        Command::Top(_) => ControlRequest::Show,
        Command::Ledger(args) => ControlRequest::Ledger(super::ledger::ledger_request(&args)),
        Command::Reload(_) => ControlRequest::Reload,
        Command::Table(args) => match args.action {
            TableCommand::Put { name, .. } => ControlRequest::PutTable { table: name },
            TableCommand::Remove { name } => ControlRequest::RemoveTable { table: name },
            TableCommand::List => ControlRequest::Show,
        },
        Command::Link(args) => match args.action {
            LinkCommand::Change { link, rate, reservable } => {
                ControlRequest::Rate(LinkRateChange { link, rate, reservable })
            }
            LinkCommand::List | LinkCommand::Show { .. } => ControlRequest::Show,
        },
        _ => return Err(Failure::NodeCommand(super::NodeCommandError::NoRequest(words.join(" ")))),
    };
    Ok((request, Vec::new()))
}
