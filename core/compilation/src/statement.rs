//! Statements about machine code: in-toto Statements v1 (<https://github.com/in-toto/attestation>, spec/v1).
//!
//! The subject is an object file. There are two predicates:
//!
//! - [`Compilation`]: SLSA Provenance v1 (<https://slsa.dev/spec/v1.0/provenance>), build type [`BUILD_TYPE`]. Everything that
//!   determines the object file is an external parameter or a dependency.
//! - [`Bounds`]: the bounds of a module's calls in fuel, and its stack; predicate type [`BOUNDS_TYPE`].
//!
//! The text is determined by the values: no time, no host and no path is in it.

use crate::envelope::ENVELOPE_BYTES_MAX;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_trust::digest::Sha256Digest;
use weir_units::escaped_prefix;

/// The type of all statements.
pub const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
/// The type of the predicate [`Compilation`].
pub const PROVENANCE_TYPE: &str = "https://slsa.dev/provenance/v1";
/// The build type of [`Compilation`].
pub const BUILD_TYPE: &str = "urn:weir:compilation:1";
/// The type of the predicate [`Bounds`].
pub const BOUNDS_TYPE: &str = "urn:weir:bounds:1";
/// The most dependencies, parameters, calls or isolated accesses of a statement.
const ITEMS_MAX: usize = 20_000;

/// A statement about one object file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement<P> {
    /// The name of the object file.
    pub name: String,
    /// The digest of the object file.
    pub object: Sha256Digest,
    /// The statement's content.
    pub predicate: P,
}

/// The reason why a payload is not the statement that a node looks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// A payload longer than an envelope.
    #[error("the statement has {0} bytes; {ENVELOPE_BYTES_MAX} is the most")]
    TooLong(usize),
    /// Bytes that are no such statement.
    #[error("the record is no statement of this kind: {0}")]
    Json(String),
    /// A statement, build or predicate of another type.
    #[error("the record's {what} is `{}`; expected `{expected}`", .found.escape_debug())]
    Type {
        /// The kind of type.
        what: &'static str,
        /// The type.
        found: String,
        /// The legal type.
        expected: &'static str,
    },
    /// No subject, or several.
    #[error("the record has {0} subjects; expected one, the object file")]
    Subjects(usize),
    /// A list with too many items.
    #[error("the record has {count} {what}; {ITEMS_MAX} is the most")]
    TooMany {
        /// The kind of items.
        what: &'static str,
        /// Their number.
        count: usize,
    },
}

/// The content of a statement.
pub trait Predicate: Serialize + DeserializeOwned {
    /// The type of the predicate.
    const TYPE: &'static str;

    /// Checks what the types of the fields do not.
    ///
    /// # Errors
    /// [`StatementError::Type`] and [`StatementError::TooMany`].
    fn check(&self) -> Result<(), StatementError>;
}

#[derive(Serialize, Deserialize)]
struct StatementJson<P> {
    #[serde(rename = "_type")]
    ty: String,
    subject: Vec<ResourceDescriptor>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    predicate: P,
}

/// A file with its digest: a ResourceDescriptor of in-toto.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceDescriptor {
    /// The name, which is for readers.
    pub name: String,
    /// The digest.
    pub digest: Sha256,
}

/// A set of digests (DigestSet of in-toto), of which weir reads that of SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sha256 {
    /// The SHA-256 digest.
    #[serde(with = "digest_text")]
    pub sha256: Sha256Digest,
}

/// Digests as JSON strings.
mod digest_text {
    use serde::{Deserialize as _, Deserializer, Serializer};
    use weir_trust::digest::Sha256Digest;

    pub(super) fn serialize<S: Serializer>(digest: &Sha256Digest, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(digest)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Sha256Digest, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl ResourceDescriptor {
    /// Returns the descriptor of a file.
    pub fn new(name: impl Into<String>, digest: Sha256Digest) -> Self {
        Self { name: name.into(), digest: Sha256 { sha256: digest } }
    }
}

impl<P: Predicate> Statement<P> {
    /// Returns the statement as JSON. The same values give the same text.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Borrowed<'a, P> {
            #[serde(rename = "_type")]
            ty: &'a str,
            subject: [ResourceDescriptor; 1],
            #[serde(rename = "predicateType")]
            predicate_type: &'a str,
            predicate: &'a P,
        }
        let json = Borrowed {
            ty: STATEMENT_TYPE,
            subject: [ResourceDescriptor::new(self.name.clone(), self.object)],
            predicate_type: P::TYPE,
            predicate: &self.predicate,
        };
        // Strings, numbers and lists always have a text.
        serde_json::to_string(&json).unwrap_or_default()
    }

    /// Reads a statement. Fields that weir does not know are ignored, as the specification demands.
    ///
    /// # Errors
    /// [`StatementError`].
    pub fn parse(payload: &[u8]) -> Result<Self, StatementError> {
        #[derive(Deserialize)]
        struct Types {
            #[serde(rename = "_type")]
            ty: String,
            #[serde(rename = "predicateType")]
            predicate_type: String,
        }
        if payload.len() > ENVELOPE_BYTES_MAX {
            return Err(StatementError::TooLong(payload.len()));
        }
        let failed = |error: serde_json::Error| StatementError::Json(error.to_string());
        // A statement of another type has other fields, so the types come first.
        let types: Types = serde_json::from_slice(payload).map_err(failed)?;
        expect("type", &types.ty, STATEMENT_TYPE)?;
        expect("predicate type", &types.predicate_type, P::TYPE)?;
        let StatementJson { subject, predicate, .. }: StatementJson<P> =
            serde_json::from_slice(payload).map_err(failed)?;
        let count = subject.len();
        let [subject] =
            <[ResourceDescriptor; 1]>::try_from(subject).map_err(|_| StatementError::Subjects(count))?;
        predicate.check()?;
        Ok(Self { name: subject.name, object: subject.digest.sha256, predicate })
    }
}

fn expect(what: &'static str, found: &str, expected: &'static str) -> Result<(), StatementError> {
    if found == expected {
        return Ok(());
    }
    Err(StatementError::Type { what, found: found.chars().take(80).collect(), expected })
}

fn limit(what: &'static str, count: usize) -> Result<(), StatementError> {
    if count > ITEMS_MAX { Err(StatementError::TooMany { what, count }) } else { Ok(()) }
}

/// The compilation of an object file: SLSA Provenance v1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compilation {
    #[serde(rename = "buildDefinition")]
    build: BuildDefinition,
    #[serde(rename = "runDetails")]
    run: RunDetails,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct BuildDefinition {
    #[serde(rename = "buildType")]
    build_type: String,
    #[serde(rename = "externalParameters")]
    inputs: Inputs,
    #[serde(rename = "resolvedDependencies")]
    dependencies: Vec<ResourceDescriptor>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RunDetails {
    builder: Builder,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Builder {
    /// The program that calls the compiler.
    id: String,
}

/// The inputs that determine the text for LLVM, and that text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inputs {
    /// The module.
    pub module: ResourceDescriptor,
    /// The settings of the module's parameters, as texts. Other parameters have their defaults.
    pub parameters: BTreeMap<String, Vec<String>>,
    /// The customisation type: the digest of the operator's profile in canonical form.
    pub customisation_type: Sha256,
    /// The instance of the customisation type: the digest of the profile by which the module was admitted. A node narrows the
    /// operator's profile to the longest time for which a module may keep a core.
    pub customisation_instance: Sha256,
    /// The tier: `proved`, `supervised`, `metered` or `unmetered`.
    pub tier: String,
    /// The kind of calls: `suspendable` in a node, `to-completion` in `weir run`.
    pub calls: String,
    /// The compiler of the machine code: `llvm`.
    pub back_end: String,
    /// The version of the cost table, by which the loader has placed charges.
    pub cost_table: u32,
    /// The nanoseconds that 1000 units of fuel can take on the node, by which limits became fuel.
    pub nanoseconds_per_1000_fuel: u64,
    /// The target triple.
    pub target: String,
    /// The level of CPU features, such as `x86-64-v3`.
    pub features: String,
    /// The accesses to memory that are isolated from the optimiser, because the verifier rejected them otherwise.
    pub isolated_accesses: Isolated,
    /// The text for LLVM: what weir makes of all other inputs.
    pub text: Sha256,
}

/// Accesses to memory, by their offsets in the rewritten module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolated {
    /// No access.
    None,
    /// The accesses at these offsets.
    At(Vec<u32>),
    /// All accesses.
    All,
}

impl Compilation {
    /// Returns the predicate for a compilation by a builder, such as `weir 0.1.0`, with these files.
    pub fn new(builder: String, inputs: Inputs, dependencies: Vec<ResourceDescriptor>) -> Self {
        Self {
            build: BuildDefinition { build_type: BUILD_TYPE.to_owned(), inputs, dependencies },
            run: RunDetails { builder: Builder { id: builder } },
        }
    }

    /// Returns the inputs.
    pub fn inputs(&self) -> &Inputs {
        &self.build.inputs
    }

    /// Returns the files of weir and of the compiler.
    pub fn dependencies(&self) -> &[ResourceDescriptor] {
        &self.build.dependencies
    }

    /// Returns the program that called the compiler.
    pub fn builder(&self) -> &str {
        &self.run.builder.id
    }
}

impl Predicate for Compilation {
    const TYPE: &'static str = PROVENANCE_TYPE;

    fn check(&self) -> Result<(), StatementError> {
        expect("build type", &self.build.build_type, BUILD_TYPE)?;
        limit("dependencies", self.build.dependencies.len())?;
        limit("parameters", self.build.inputs.parameters.len())?;
        match &self.build.inputs.isolated_accesses {
            Isolated::At(offsets) => limit("isolated accesses", offsets.len()),
            Isolated::None | Isolated::All => Ok(()),
        }
    }
}

/// The bounds of a module's calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bounds {
    /// The version of the cost table that counts the fuel.
    pub cost_table: u32,
    /// The tier.
    pub tier: String,
    /// The bounds in fuel, by entry point.
    pub calls: BTreeMap<String, StatedBound>,
    /// The most bytes of stack of a call in machine code; `None` with recursion.
    pub stack_bytes: Option<u64>,
    /// The most bytes of private memory.
    pub memory_bytes: u64,
}

/// The bound of an entry point, in fuel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatedBound {
    /// The part that does not depend on the packet's length.
    pub constant: u64,
    /// The part for each 1024 bytes of the packet.
    pub per_kib: u64,
}

impl Predicate for Bounds {
    const TYPE: &'static str = BOUNDS_TYPE;

    fn check(&self) -> Result<(), StatementError> {
        limit("calls", self.calls.len())
    }
}

/// The first field in which a stated predicate differs from the one that a reader makes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record states `{field}` as {stated}, and here it is {own}")]
pub struct FieldDifference {
    /// The field.
    pub field: String,
    /// The stated value, as JSON, escaped and cut.
    pub stated: String,
    /// The reader's value, as JSON, escaped and cut.
    pub own: String,
}

/// The longest value in a [`FieldDifference`], in characters.
const SHOWN_MAX: usize = 200;

/// Returns the first field in which a statement differs from that of the compilation here.
pub fn difference<T: Serialize>(stated: &T, own: &T) -> Option<FieldDifference> {
    let fields = |of: &T| serde_json::to_value(of).unwrap_or_default();
    let (stated, own) = (fields(stated), fields(own));
    let differing = own.as_object()?.iter().find(|(name, value)| stated.get(name.as_str()) != Some(value));
    let (field, own) = differing?;
    let stated = stated.get(field).cloned().unwrap_or_default();
    let shown = |value: &serde_json::Value| escaped_prefix(&value.to_string(), SHOWN_MAX);
    Some(FieldDifference { field: field.clone(), stated: shown(&stated), own: shown(own) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn digest(number: u8) -> Sha256Digest {
        Sha256Digest([number; 32])
    }

    fn compilation() -> Statement<Compilation> {
        let inputs = Inputs {
            module: ResourceDescriptor::new("rtt 1.0.0", digest(1)),
            parameters: BTreeMap::from([("ports".to_owned(), vec!["53".to_owned(), "443".to_owned()])]),
            customisation_type: Sha256 { sha256: digest(2) },
            customisation_instance: Sha256 { sha256: digest(3) },
            tier: "proved".to_owned(),
            calls: "suspendable".to_owned(),
            back_end: "llvm".to_owned(),
            cost_table: 3,
            nanoseconds_per_1000_fuel: 260,
            target: "x86_64-unknown-linux-gnu".to_owned(),
            features: "x86-64-v3".to_owned(),
            isolated_accesses: Isolated::At(vec![7, 9]),
            text: Sha256 { sha256: digest(4) },
        };
        let files =
            vec![ResourceDescriptor::new("weir", digest(5)), ResourceDescriptor::new("clang-19", digest(6))];
        let predicate = Compilation::new("urn:weir:0.1.0".to_owned(), inputs, files);
        Statement { name: "node.o".to_owned(), object: digest(7), predicate }
    }

    fn bounds() -> Statement<Bounds> {
        let calls = BTreeMap::from([("weir_packet".to_owned(), StatedBound { constant: 80, per_kib: 3 })]);
        let predicate = Bounds {
            cost_table: 3,
            tier: "proved".to_owned(),
            calls,
            stack_bytes: Some(160),
            memory_bytes: 65_536,
        };
        Statement { name: "node.o".to_owned(), object: digest(7), predicate }
    }

    #[test]
    fn statements_are_written_and_read_again() {
        let (compilation, bounds) = (compilation(), bounds());
        assert_eq!(Statement::parse(compilation.to_json().as_bytes()), Ok(compilation.clone()));
        assert_eq!(Statement::parse(bounds.to_json().as_bytes()), Ok(bounds));
        for isolated in [Isolated::None, Isolated::All] {
            let mut other = compilation.clone();
            other.predicate.build.inputs.isolated_accesses = isolated;
            assert_eq!(Statement::parse(other.to_json().as_bytes()), Ok(other));
        }
    }

    #[test]
    fn the_fields_are_those_of_in_toto_and_slsa() {
        let json: serde_json::Value = serde_json::from_str(&compilation().to_json()).unwrap();
        assert_eq!(json["_type"], "https://in-toto.io/Statement/v1");
        assert_eq!(json["predicateType"], "https://slsa.dev/provenance/v1");
        assert_eq!(json["subject"][0]["name"], "node.o");
        assert_eq!(json["subject"][0]["digest"]["sha256"], "07".repeat(32));
        let build = &json["predicate"]["buildDefinition"];
        assert_eq!(build["buildType"], BUILD_TYPE);
        assert_eq!(build["externalParameters"]["module"]["name"], "rtt 1.0.0");
        assert_eq!(build["resolvedDependencies"][1]["name"], "clang-19");
        assert_eq!(json["predicate"]["runDetails"]["builder"]["id"], "urn:weir:0.1.0");
    }

    #[test]
    fn bad_statements_are_refused_with_the_reason() {
        let parse = |text: &str| Statement::<Compilation>::parse(text.as_bytes()).unwrap_err().to_string();
        let good = compilation().to_json();
        assert!(parse("{}").contains("_type"));
        assert!(parse(&bounds().to_json()).contains("predicate type is `urn:weir:bounds:1`"));
        assert!(parse(&good.replacen("Statement/v1", "Statement/v2", 1)).contains("Statement/v2"));
        assert!(parse(&good.replacen("compilation:1", "compilation:2", 1)).contains("compilation:2"));
        let subject = r#"{"name":"node.o","digest":{"sha256":"0707070707070707070707070707070707070707070707070707070707070707"}}"#;
        assert!(good.contains(subject));
        assert!(parse(&good.replacen(subject, &format!("{subject},{subject}"), 1)).contains("2 subjects"));
        assert!(parse(&good.replacen(subject, "", 1)).contains("0 subjects"));
        assert!(parse(&good.replacen("sha256", "sha512", 1)).contains("sha256"));
        assert!(parse(&good.replacen("0707", "07", 1)).contains("64 hexadecimal"));
        assert!(parse(&good.replacen(r#""tier":"#, r#""tier":"proved","tier":"#, 1)).contains("duplicate"));
        let mut many = compilation();
        many.predicate.build.inputs.isolated_accesses = Isolated::At(vec![0; ITEMS_MAX + 1]);
        assert!(parse(&many.to_json()).contains("isolated accesses"));
        assert!(parse(&" ".repeat(ENVELOPE_BYTES_MAX + 1)).contains("is the most"));
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let good = compilation().to_json();
        let more = good.replacen(r#""predicateType""#, r#""later":{"a":[1]},"predicateType""#, 1);
        assert_eq!(Statement::parse(more.as_bytes()), Ok(compilation()));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(
            edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        ) {
            let mut bytes = compilation().to_json().into_bytes();
            for (at, byte) in edits {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            _ = Statement::<Compilation>::parse(&bytes);
            _ = Statement::<Bounds>::parse(&bytes);
        }
    }
}
