//! Arguments of elements: splitting a configuration into arguments, and Click's types of arguments.
//!
//! An element reads its arguments in order with [`ElementArguments`]. Errors are collected, and [`ElementArguments::end`] returns all
//! of them, so an element reads all arguments first:
//!
//! ```
//! use weir_graph::arguments::{ArgumentContext, ElementArguments, NoNames};
//! use weir_graph::Landmark;
//! # fn main() {
//! let context = ArgumentContext {
//!     element: "limiter",
//!     class: "Limiter",
//!     landmark: &Landmark { file: "router.click".into(), line: 7 },
//!     names: &NoNames,
//! };
//! let mut args = ElementArguments::new("200, ACTIVE false, BURTS 3", &context);
//! let capacity: u32 = args.either("CAPACITY").within(1..=1000).or(100);
//! let is_active = args.keyword("ACTIVE").or(true);
//! let burst: Option<u64> = args.keyword("BURST").optional();
//! let errors = args.end().unwrap_err();
//! assert_eq!((capacity, is_active, burst), (200, false, None));
//! assert_eq!(
//!     errors.to_string(),
//!     "router.click:7: While configuring 'limiter :: Limiter':\n  BURTS: unknown argument (did you mean BURST?)"
//! );
//! # }
//! ```
//!
//! [`ElementArguments::positional`] reads the next argument without a keyword, [`ElementArguments::keyword`] one with this keyword, and
//! [`ElementArguments::either`] both, as most elements of Click do. Each returns a [`Reading`], whose last call gives the value:
//! `required`, `or`, or `optional`. After an error these return a placeholder, which is never used because
//! [`ElementArguments::end`] fails.

mod addresses;
mod annotations;
mod error;
mod integers;
mod names;
mod number;
pub mod protocols;
mod reading;
mod strings;
pub mod text;
mod times;
mod value;

pub use addresses::{EthernetAddress, Ipv4Prefix, Ipv6Prefix};
pub use annotations::AnnotationField;
pub use error::{ArgumentError, ArgumentErrors, ArgumentFault};
pub use integers::FixedDecimal;
pub use names::{ArgumentNames, ElementReference, IpProtocol, NoNames, PatternReference, TcpPort, UdpPort};
pub use number::parse_unsigned;
pub use reading::{ArgumentContext, ElementArguments, Reading};
pub use strings::{ByteString, FileName, RawArgument, WordArgument};
pub use value::{ArgumentValue, read_value};

/// Splits an argument into its keyword and the text after it, if it has a keyword.
pub fn split_keyword(argument: &str) -> Option<(&str, &str)> {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.' | '?' | '!');
    if !argument.starts_with(is_first) {
        return None;
    }
    let end = argument.find(|c| !is_inner(c))?;
    let (keyword, rest) = argument.split_at(end);
    let value = rest.trim_ascii_start();
    (value.len() < rest.len() && !value.is_empty()).then_some((keyword, value))
}
