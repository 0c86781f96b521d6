//! Graphs of packet-processing elements, in the language of Click.
//!
//! - [`language`] reads configurations: declarations, connections and compound elements. It writes them flat.
//! - [`arguments`] parses the arguments of an element's configuration, with the argument types of Click.
//! - [`engine`] connects elements, and takes packets through them.
//! - [`control`] is the protocol by which other programs call the handlers of a running graph.
//! - [`drawing`] draws graphs, as SVG or in the language of Graphviz.
//!
//! All are pure: files, the clock, names of hosts and the set of element classes come from the caller, as traits.

#![forbid(unsafe_code)]

mod annotations;
pub mod arguments;
pub mod control;
pub mod drawing;
pub mod engine;
mod landmark;
pub mod language;
mod nearest;

pub use landmark::Landmark;
pub use nearest::nearest;
