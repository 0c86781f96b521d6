//! A command as the request that it makes, for those who only want to know what would come of it.

use super::args::{LinkAct, SessionCommand, TableAct};
use super::load::load_of;
use super::session::{change_of, spec_of};
use crate::Failure;
use crate::cli::{Cli, Command};
use clap::Parser;
use weir_node::control::protocol::{ControlRequest, LinkRateChange};
use weir_node::control::spec::SessionSpec;

/// What a command line, without `weir`, asks a node for, and the file that goes with it.
///
/// # Errors
/// It is no command line, or none that asks for anything.
pub fn request(words: &[String]) -> Result<(ControlRequest, Vec<u8>), Failure> {
    let command = Cli::try_parse_from(std::iter::once("weir").chain(words.iter().map(String::as_str)));
    let command = command.unwrap_or_else(|error| crate::hint::exit(&error)).command;
    let ask = match command {
        Command::Load(args) => return load_of(&args),
        Command::Session(args) => match args.act {
            // Its modules are loaded one by one.
            SessionCommand::Create(args) => {
                ControlRequest::Create(SessionSpec { modules: Vec::new(), ..spec_of(&args)? })
            }
            SessionCommand::Change(args) => ControlRequest::Change(change_of(&args)?),
            SessionCommand::Close { name } => ControlRequest::Close { session: name },
            SessionCommand::List | SessionCommand::Show { .. } => ControlRequest::Show,
        },
        Command::Unload(args) => ControlRequest::Unload { session: args.session, module: args.module },
        Command::Follow(args) => {
            ControlRequest::Follow { session: args.session, module: args.module, stream: args.stream }
        }
        Command::Top(_) => ControlRequest::Show,
        Command::Ledger(args) => ControlRequest::Ledger(super::ledger::ask_of(&args)),
        Command::Reload(_) => ControlRequest::Reload,
        Command::Table(args) => match args.act {
            TableAct::Put { name, .. } => ControlRequest::PutTable { table: name },
            TableAct::Remove { name } => ControlRequest::RemoveTable { table: name },
            TableAct::List => ControlRequest::Show,
        },
        Command::Link(args) => match args.act {
            LinkAct::Change { link, rate, reservable } => {
                ControlRequest::Rate(LinkRateChange { link, rate, reservable })
            }
            LinkAct::List | LinkAct::Show { .. } => ControlRequest::Show,
        },
        _ => return Err(Failure::Control(super::NodeCommandError::NoRequest(words.join(" ")))),
    };
    Ok((ask, Vec::new()))
}
