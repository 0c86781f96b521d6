//! Views: what of its packets a channel shows, to whom by which key, and who shares what is made for that.
//!
//! - [`Bounds`]: what a credential makes of a channel. A filter selects by what whoever wrote it may see: what it selects would tell him else of what is hidden from him.
//! - [`KeyedView`]: a view, and for whom. The same one has the same key, so that addresses have one pseudonym for all who see the same.
//! - [`SelectionKey`]: what a selection is of. All channels of which that is the same have one selection: each packet is transformed once for all of them.
//! - [`Secret`]: from what all keys of the node are derived.
//! - [`Method`]: the construction that earlier starts of the node used, so that a change is said once.

mod bounds;
mod lens;
mod method;
mod secret;
mod selections;
mod share;
mod shots;

pub(crate) use bounds::Bounds;
pub(crate) use lens::KeyedView;
pub(crate) use method::Method;
pub(crate) use secret::Secret;
pub use secret::SecretError;
pub(crate) use selections::tables;
pub(crate) use share::{SelectionKey, SharedSelection};
