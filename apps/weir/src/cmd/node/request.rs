//! A command as the request that it makes, for those who only want to know what would come of it.

use super::args::{Act, LinkAct, TableAct};
use super::load::load_of;
use super::session::{change_of, spec_of};
use crate::Failure;
use crate::cli::{Cli, Command};
use clap::Parser;
use weir_node::control::protocol::{Rate, Request};
use weir_node::control::spec::SessionSpec;

/// What a command line, without `weir`, asks a node for, and the file that goes with it.
///
/// # Errors
/// It is no command line, or none that asks for anything.
pub fn request(words: &[String]) -> Result<(Request, Vec<u8>), Failure> {
    let command = Cli::try_parse_from(std::iter::once("weir").chain(words.iter().map(String::as_str)));
    let command = command.unwrap_or_else(|error| crate::hint::exit(&error)).command;
    let ask = match command {
        Command::Load(args) => return load_of(&args),
        Command::Session(args) => match args.act {
            // Its modules are loaded one by one.
            Act::Create(args) => Request::Create(SessionSpec { modules: Vec::new(), ..spec_of(&args)? }),
            Act::Change(args) => Request::Change(change_of(&args)?),
            Act::Close { name } => Request::Close { session: name },
            Act::List | Act::Show { .. } => Request::Show,
        },
        Command::Unload(args) => Request::Unload { session: args.session, module: args.module },
        Command::Follow(args) => {
            Request::Follow { session: args.session, module: args.module, stream: args.stream }
        }
        Command::Top(_) => Request::Show,
        Command::Ledger(args) => Request::Ledger(super::ledger::ask_of(&args)),
        Command::Reload(_) => Request::Reload,
        Command::Table(args) => match args.act {
            TableAct::Put { name, .. } => Request::PutTable { table: name },
            TableAct::Remove { name } => Request::RemoveTable { table: name },
            TableAct::List => Request::Show,
        },
        Command::Link(args) => match args.act {
            LinkAct::Change { link, rate, reservable } => Request::Rate(Rate { link, rate, reservable }),
            LinkAct::List | LinkAct::Show { .. } => Request::Show,
        },
        _ => return Err(Failure::Control(super::NodeError::NoRequest(words.join(" ")))),
    };
    Ok((ask, Vec::new()))
}
