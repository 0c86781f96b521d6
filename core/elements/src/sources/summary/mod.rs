//! Summaries of IP packets as lines of text: a format of Click's tools, with a header that states the fields.

mod fields;
mod form;
mod from;
mod headers;
mod ip_options;
mod md5;
mod options;
mod read_options;
mod record;
mod to;

pub use from::CLASS as FROM;
pub use to::CLASS as TO;
