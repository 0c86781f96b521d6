//! Named tables: bytes that an operator or a session shares with other sessions, which only read them.
//!
//! A table has a name and a current version, which is replaced as a whole ([`registry`]). The owner of a table is the
//! operator, or a session with a grant to publish it, of which one module publishes the table ([`publisher`]). Each
//! reading module switches to the newest version between two of its calls ([`reader`]); no module waits for another
//! module. The grants of a session can change while its modules run ([`binding`]).
//!
//! The publishing session's memory is charged for the current version and for the version that is being made. The
//! memory of a reading session is charged for the version that its module sees, even if the session also publishes the
//! table, because the reader may outlive the publisher. Tables of the operator are not charged.

mod binding;
mod file;
mod publisher;
mod reader;
mod reclaimer;
mod registry;

pub(crate) use binding::TableBinding;
pub use file::{TableFileError, read_file};
pub(crate) use publisher::Publisher;
pub use publisher::publisher_without_readers;
pub(crate) use reader::ReadTables;
pub use registry::TableError;
pub(crate) use registry::{PreparedTables, TableClaims, TableFile, TableRegistry};
