//! The language of Click configurations.
//!
//! [`parse`] reads a configuration, or an archive that contains one, and expands its compound elements. The result is a
//! [`FlatConfiguration`]: elements with the text of their configurations, and connections between their ports. The
//! manual of the language is docs/CLICK.md.
//!
//! ```
//! use weir_graph::language::{AnyClass, ConfigurationSource, FlatLayout, parse};
//! let source = ConfigurationSource {
//!     name: "router.click",
//!     bytes: b"elementclass Buffer { $size | input -> Queue($size) -> output }
//!              FromDevice(eth0) -> b :: Buffer(20) -> Discard;",
//! };
//! let flat = parse(&source, &[], &AnyClass)?;
//! assert_eq!(flat.elements[2].to_string(), "b/Queue@1 :: Queue(20)");
//! assert_eq!(
//!     flat.to_text(FlatLayout::Plain),
//!     "FromDevice@1 :: FromDevice(eth0);\nDiscard@3 :: Discard;\nb/Queue@1 :: Queue(20);\n\n\
//!      FromDevice@1 -> b/Queue@1\n    -> Discard@3;\n"
//! );
//! # Ok::<(), weir_graph::language::LanguageErrors>(())
//! ```
//!
//! # Steps
//!
//! 1. [`scanner`] splits the text into tokens and configuration strings.
//! 2. [`parser`] builds a [`body::Body`] for the file and for each definition of a compound element.
//! 3. [`flatten`] makes an instance of a body for each use of its class, and [`variables`] substitutes its parameters.
//! 4. [`tunnels`] follows connections through the inputs and outputs of compound elements.
//!
//! Errors of the second step are all collected, and prevent the later steps. Work and memory are bounded by
//! [`limits`], so untrusted configurations can be read.

mod archive;
mod body;
mod environment;
mod error;
mod flatten;
mod landmark;
pub mod limits;
mod parser;
mod scanner;
mod token;
mod tunnels;
mod unparse;
mod variables;

pub use crate::landmark::Landmark;
pub use archive::{ArchiveMember, is_archive, read_archive, write_archive};
pub use environment::{AnyClass, ClassStatus, LanguageEnvironment, LibraryText};
pub use error::{ArchiveFault, LanguageError, LanguageErrors, LanguageFault, LanguageNote};
pub use unparse::FlatLayout;

use crate::arguments::text::uncomment;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A file with a configuration.
#[derive(Clone, Copy, Debug)]
pub struct ConfigurationSource<'s> {
    /// The name for messages.
    pub name: &'s str,
    /// The content: a configuration, or an archive whose member `config` is one.
    pub bytes: &'s [u8],
}

/// A package or a property that a configuration requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// `require(package NAME)`.
    Package(String),
    /// `require(compact_config)`.
    CompactConfiguration,
}

/// An element of a flat configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementDeclaration {
    /// The name, such as `outer/inner` for the component of a compound element.
    pub name: Arc<str>,
    /// The class, which is no compound element.
    pub class: Arc<str>,
    /// The configuration after substitution, with its comments.
    pub configuration: Arc<str>,
    /// The place of the declaration.
    pub landmark: Landmark,
}

impl fmt::Display for ElementDeclaration {
    /// Writes `NAME :: CLASS(CONFIGURATION)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} :: {}", self.name, self.class)?;
        if self.configuration.is_empty() { Ok(()) } else { write!(f, "({})", self.configuration) }
    }
}

/// A connection of a flat configuration, as the index of an element and its port on both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementConnection {
    /// The element and its output.
    pub from: (usize, u32),
    /// The element and its input.
    pub to: (usize, u32),
    /// The place of the arrow.
    pub landmark: Landmark,
}

/// A compound element, which was replaced by its components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompoundDeclaration {
    /// The name.
    pub name: Arc<str>,
    /// The class; `None` for one without a name.
    pub class: Option<Arc<str>>,
    /// The index of the compound element around this one.
    pub parent: Option<usize>,
    /// The elements that are directly inside, without those of compound elements inside.
    pub elements: Range<usize>,
}

/// A configuration without compound elements.
#[derive(Clone, Debug, Default)]
pub struct FlatConfiguration {
    /// The elements: those of the file in their order, then for each compound element in turn its components.
    pub elements: Vec<ElementDeclaration>,
    /// The compound elements that were replaced, each behind the one around it.
    pub compounds: Vec<CompoundDeclaration>,
    /// The connections in the order of the text, each once.
    pub connections: Vec<ElementConnection>,
    /// The requirements in their order.
    pub requirements: Vec<Requirement>,
    /// The text, without its libraries.
    pub text: Arc<str>,
    /// The members of the archive, without the configuration.
    pub members: Vec<ArchiveMember>,
    /// The warnings.
    pub warnings: Vec<LanguageError>,
}

/// Parses a configuration and expands its compound elements. `definitions` are variables of the whole configuration, as
/// names without `$` and values; they take precedence over `define`.
///
/// # Errors
///
/// All errors of the text; if there are none, all errors of the expansion.
pub fn parse(
    source: &ConfigurationSource<'_>,
    definitions: &[(String, String)],
    environment: &dyn LanguageEnvironment,
) -> Result<FlatConfiguration, LanguageErrors> {
    let of_file = |fault| {
        let errors = vec![LanguageError::of_file(source.name.into(), fault)];
        LanguageErrors { errors, ..LanguageErrors::default() }
    };
    for (name, value) in definitions {
        let is_whole = scanner::configuration_comments(value).is_some() && uncomment(value) == *value;
        if !is_whole || !token::is_variable_name(name) {
            return Err(of_file(LanguageFault::BrokenSubstitution(format!("{name}={value}"))));
        }
    }
    let mut members = Vec::new();
    let mut bytes = source.bytes;
    let configuration;
    if is_archive(bytes) {
        members = read_archive(bytes).map_err(|fault| of_file(LanguageFault::Archive(fault)))?;
        let index = members.iter().position(|member| member.name == archive::CONFIGURATION_MEMBER);
        let index = index.ok_or_else(|| of_file(LanguageFault::Archive(ArchiveFault::NoConfiguration)))?;
        configuration = members.remove(index).data;
        bytes = &configuration;
    }
    let mut parser = parser::LanguageParser::new(environment);
    let text = String::from_utf8_lossy(bytes).into();
    parser.define_globals(definitions);
    parser.parse_file(&ConfigurationSource { name: source.name, bytes });
    parser.finish();
    if !parser.report.errors.is_empty() {
        return Err(parser.report);
    }
    let flat = flatten::flatten(parser)?;
    Ok(FlatConfiguration { members, text, ..flat })
}
