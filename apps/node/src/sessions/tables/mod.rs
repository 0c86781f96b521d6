//! Named tables: bytes that an operator or a session shares with others, who only read.
//!
//! A table is a name with a version that holds, whole, until another one takes its place ([`shelf`]). One party publishes it: the operator, or one session,
//! which was given the name; [`publisher`] is what its module does that by. Each module that reads it moves on to the newest version between two of its calls
//! ([`reader`]); nobody waits for anybody. What a session may read and publish can change while its modules run ([`binding`]).
//!
//! Who pays for the memory: whoever publishes, for the version that holds and the one that is made; and a reader, for the version of a session that it sees,
//! even of its own, because it may be the last one that does. What the operator publishes is the operator's.

mod attic;
mod binding;
mod file;
mod grant;
mod publisher;
mod reader;
mod shelf;

pub(crate) use binding::TableBinding;
pub use file::{TableFileError, read_file};
pub use grant::TableGrant;
pub(crate) use publisher::Publisher;
pub use publisher::alone;
pub(crate) use reader::Readings;
pub use shelf::TableError;
pub(crate) use shelf::{Arranged, TableClaims, TableFile, TableRegistry};
