//! `weir table`: named tables are published, taken away and listed.

use super::args::{TableAct, TableCommand};
use super::{NodeCommandError, look, order, show};
use crate::Failure;
use std::io::Write;
use weir_node::control::protocol::ControlRequest;
use weir_node::sessions::tables::{TableFileError, read_file};

/// Does what is asked with a table.
pub fn table(out: &mut impl Write, args: &TableCommand) -> Result<(), Failure> {
    let node = &args.place.whereabouts()?;
    match &args.act {
        TableAct::Put { name, file } => {
            let bytes = read_file(file).map_err(NodeCommandError::from)?;
            order(out, node, ControlRequest::PutTable { table: name.clone() }, &bytes)
        }
        TableAct::Remove { name } => {
            order(out, node, ControlRequest::RemoveTable { table: name.clone() }, &[])
        }
        TableAct::List => {
            show::tables(out, &*look(node)?)?;
            Ok(())
        }
    }
}

impl From<TableFileError> for NodeCommandError {
    fn from(error: TableFileError) -> Self {
        Self::Table(error)
    }
}
