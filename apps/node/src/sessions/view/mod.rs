//! Views: the part of packets that each holder sees, with the keys of pseudonyms, and the sharing of transformed
//! packets.
//!
//! - [`GrantedVisibility`](crate::control::visibility::GrantedVisibility): the packets that a credential allows. A
//!   filter selects by the view of its author; otherwise its selection would reveal hidden fields.
//! - [`KeyedView`]: a view with the grant of its key. Equal keyed views have equal keys, so all holders under one grant
//!   who have the same view see the same pseudonyms.
//! - [`SelectionKey`]: the key of a selection. Channels with equal keys share a selection, so each packet is transformed
//!   once for all of them.
//! - [`Secret`]: the secret from which all keys of the node are derived.
//! - [`Method`]: the method of anonymisation of earlier starts, so that a change is reported once.

mod keyed_view;
mod method;
mod secret;
mod selections;
mod share;
mod status;

pub(crate) use keyed_view::KeyedView;
pub(crate) use method::Method;
pub(crate) use secret::Secret;
pub use secret::SecretError;
pub(crate) use selections::tables;
pub(crate) use share::{SelectionKey, SharedSelection};
