//! `weir table`: named tables are published, taken away and listed.

use super::args::{Table, TableAct};
use super::{NodeError, look, order, show};
use crate::Failure;
use std::io::Write;
use weir_node::control::protocol::Request;
use weir_node::sessions::tables::{FileError, read_file};

/// Does what is asked with a table.
pub fn table(out: &mut impl Write, args: &Table) -> Result<(), Failure> {
    let node = &args.place.whereabouts()?;
    match &args.act {
        TableAct::Put { name, file } => {
            let bytes = read_file(file).map_err(NodeError::from)?;
            order(out, node, Request::PutTable { table: name.clone() }, &bytes)
        }
        TableAct::Remove { name } => order(out, node, Request::RemoveTable { table: name.clone() }, &[]),
        TableAct::List => {
            show::tables(out, &*look(node)?)?;
            Ok(())
        }
    }
}

impl From<FileError> for NodeError {
    fn from(error: FileError) -> Self {
        Self::Table(error)
    }
}
