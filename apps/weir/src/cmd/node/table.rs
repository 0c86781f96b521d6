//! `weir table`: publishes, removes and lists named tables.

use super::args::{TableArgs, TableCommand};
use super::{NodeCommandError, execute, fetch_snapshot, show};
use crate::Failure;
use std::io::Write;
use weir_node::control::protocol::ControlRequest;
use weir_node::sessions::tables::{TableFileError, read_file};

/// Carries out a table command.
pub fn table(out: &mut impl Write, args: &TableArgs) -> Result<(), Failure> {
    let node = &args.address.resolve()?;
    match &args.action {
        TableCommand::Put { name, file } => {
            let bytes = read_file(file).map_err(NodeCommandError::from)?;
            execute(out, node, ControlRequest::PutTable { table: name.clone() }, &bytes)
        }
        TableCommand::Remove { name } => {
            execute(out, node, ControlRequest::RemoveTable { table: name.clone() }, &[])
        }
        TableCommand::List => {
            show::print_shared_tables(out, &*fetch_snapshot(node)?)?;
            Ok(())
        }
    }
}

impl From<TableFileError> for NodeCommandError {
    fn from(error: TableFileError) -> Self {
        Self::Table(error)
    }
}
