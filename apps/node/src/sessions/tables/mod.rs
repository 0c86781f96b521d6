//! Named tables: bytes that an operator or a session shares with other sessions, which only read them.
//!
//! A table is a name with a current version, which is replaced as a whole ([`registry`]). It has one owner, the
//! operator or a session that was granted the name, and a module of that session publishes it ([`publisher`]). Each
//! reading module switches to the newest version between two of its calls ([`reader`]); no module waits for another.
//! The tables that a session may read and publish can change while its modules run ([`binding`]).
//!
//! The publishing session's memory is charged for the current version and for the version that is being made. A reading
//! session is charged for the version that it sees, even of its own table, because it may be the last reader. Tables of the
//! operator are not charged.

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
pub(crate) use reader::Readings;
pub use registry::TableError;
pub(crate) use registry::{PreparedTables, TableClaims, TableFile, TableRegistry};
