//! The modules that are measured.

use crate::{BenchError, place};
use std::path::PathBuf;
use weir_session::{Admitted, Manifest, sources};

/// A module as its source and as what a sandbox loads.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// Its C source.
    pub source: PathBuf,
    /// The module as it is shipped.
    pub wasm: Vec<u8>,
    /// What it says about itself.
    pub manifest: Manifest,
    /// Which promise holds for it.
    pub class: Class,
    /// What it sees of tables that it reads, by their places in the manifest.
    pub tables: Vec<(usize, Vec<u8>)>,
}

/// What the time of a module is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Looks at headers and descriptors.
    Header,
    /// Searches payloads.
    Search,
    /// Sends, or is a load.
    Active,
    /// Does nothing.
    Empty,
}

/// The eight shipped modules and what they do.
const SHIPPED: &[(&str, Class)] = &[
    ("trajectory", Class::Header),
    ("rtt", Class::Header),
    ("lrd", Class::Header),
    ("syn-flood", Class::Header),
    ("port-count", Class::Header),
    ("dscp-mark", Class::Header),
    ("worm", Class::Search),
    ("payload-match", Class::Search),
];

/// Shipped modules in C that do something to the network, or to their neighbours. Their price is not measured.
const ACTIVE: &[&str] = &["arm", "flood", "spin"];

const EMPTY_MANIFEST: &str = "name = 'empty'\nversion = '1'\nabi = 2\nlicense = 'Apache-2.0 OR MIT'\nsummary = 'does nothing'\nmemory = '64 KiB'\n";
const EMPTY_WAT: &str = r#"(module (memory (export "memory") 1)
    (func (export "weir_packet") (param i32) (result i32) (i32.const 0)))"#;

impl Module {
    /// The eight shipped modules.
    ///
    /// # Errors
    /// Where one of their files cannot be read.
    pub fn shipped() -> Result<Vec<Self>, BenchError> {
        SHIPPED.iter().map(|(name, class)| Self::read(name, *class)).collect()
    }

    /// The other shipped modules that there is a C source of.
    ///
    /// # Errors
    /// Where one of their files cannot be read.
    pub fn active() -> Result<Vec<Self>, BenchError> {
        ACTIVE.iter().map(|name| Self::read(name, Class::Active)).collect()
    }

    /// The shipped module of that name, or `empty`.
    ///
    /// # Errors
    /// Where there is none, or its files cannot be read.
    pub fn named(name: &str) -> Result<Self, BenchError> {
        if name == "empty" {
            return Self::empty();
        }
        match SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
            Some((name, class)) => Self::read(name, *class),
            None => Err(BenchError::NoModule(name.to_owned())),
        }
    }

    /// A module that does nothing.
    ///
    /// # Errors
    /// None: its text is constant.
    pub fn empty() -> Result<Self, BenchError> {
        let mut wasm = wat::parse_str(EMPTY_WAT).unwrap_or_default();
        append_manifest(&mut wasm, EMPTY_MANIFEST);
        Ok(Self {
            name: "empty".to_owned(),
            source: place::root().join("lab/native/empty.c"),
            wasm,
            manifest: manifest("empty", EMPTY_MANIFEST.as_bytes())?,
            class: Class::Empty,
            tables: Vec::new(),
        })
    }

    fn read(name: &str, class: Class) -> Result<Self, BenchError> {
        let folder = place::root().join("guest/modules").join(name);
        let read = |file: &str| {
            let path = folder.join(file);
            std::fs::read(&path).map_err(BenchError::file(&path))
        };
        Ok(Self {
            name: name.to_owned(),
            source: folder.join(format!("{name}.c")),
            wasm: read(&format!("{name}.wasm"))?,
            manifest: manifest(name, &read("weir.toml")?)?,
            class,
            tables: Vec::new(),
        })
    }

    /// Admits the module, with the parameters at their defaults.
    ///
    /// # Errors
    /// Where it is refused.
    pub fn admit(&self) -> Result<Admitted, BenchError> {
        Admitted::admit(self.wasm.clone(), &[])
            .map_err(|refusal| BenchError::Refused { module: self.name.clone(), refusal: Box::new(refusal) })
    }

    /// The text of its `module.h`.
    pub fn header(&self) -> String {
        sources::c_header(&self.manifest)
    }
}

fn manifest(name: &str, text: &[u8]) -> Result<Manifest, BenchError> {
    Manifest::parse(text)
        .map_err(|error| BenchError::Manifest { module: name.to_owned(), error: Box::new(error) })
}

/// Appends a custom section with the manifest.
pub(crate) fn append_manifest(wasm: &mut Vec<u8>, manifest: &str) {
    let name = weir_abi::MANIFEST_SECTION.as_bytes();
    let mut section = Vec::new();
    leb128(&mut section, name.len());
    section.extend_from_slice(name);
    section.extend_from_slice(manifest.as_bytes());
    wasm.push(0);
    leb128(wasm, section.len());
    wasm.extend(section);
}

fn leb128(to: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        to.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    to.push(u8::try_from(value).unwrap_or(0));
}
