//! Views of packets: the keys of their pseudonyms, and selections, by which channels share transformed packets.
//!
//! - [`GrantedVisibility`](crate::control::visibility::GrantedVisibility): the packets and fields that a credential
//!   allows. Each filter is applied to packets in the view of the filter's author: otherwise its selection would
//!   reveal fields that are hidden from the author.
//! - [`KeyedView`]: a view with the grant on which its key depends. Equal keyed views have equal keys, so all holders
//!   under one grant of a root who have the same view see the same pseudonyms.
//! - [`SelectionKey`]: the key of a selection. Channels with equal keys share a selection, so each packet is transformed
//!   once for all of these channels.
//! - [`Secret`]: the secret from which the keys of all views are derived.
//! - [`Method`]: the method of anonymisation that the node noted earlier. A change of the method is logged once.

mod keyed_view;
mod method;
mod secret;
mod selection_key;
mod selections;
mod status;

pub(crate) use keyed_view::KeyedView;
pub(crate) use method::Method;
pub(crate) use secret::Secret;
pub use secret::SecretError;
pub(crate) use selection_key::{SelectionKey, SharedSelection};
pub(crate) use selections::take_table_memory;
