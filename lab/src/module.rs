//! The modules that the lab measures or runs: those whose price is measured, those that send or load the processor, and
//! an empty one.

use crate::error::{Context, LabError};
use crate::paths;
use std::path::PathBuf;
use weir_admission::{Admitted, Manifest, sources};

/// A module: its C source, and the WebAssembly that a sandbox loads.
#[derive(Clone, Debug)]
pub struct Module {
    /// The name of its folder.
    pub name: String,
    /// The C source.
    pub source: PathBuf,
    /// The WebAssembly binary.
    pub wasm: Vec<u8>,
    /// The manifest: its parameters, streams and tables, among others.
    pub manifest: Manifest,
    /// The module's main work, on which the promise about its price depends.
    pub class: Class,
    /// The contents of the shared tables that it reads: the index in the manifest, and the bytes.
    pub tables: Vec<(usize, Vec<u8>)>,
}

/// The main work of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The module reads headers and descriptors.
    Header,
    /// The module searches payloads.
    Search,
    /// The module sends frames, or loads the processor.
    Active,
    /// The module does nothing.
    Empty,
}

/// The eight shipped modules whose price is measured, with their classes.
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

/// Shipped modules in C that send, or load the processor. Their price is not measured.
const ACTIVE: &[&str] = &["arm", "flood", "spin"];

const EMPTY_MANIFEST: &str = "name = 'empty'\nversion = '1'\nabi = 2\nlicense = 'Apache-2.0 OR MIT'\nsummary = 'does nothing'\nmemory = '64 KiB'\n";
const EMPTY_WAT: &str = r#"(module (memory (export "memory") 1)
    (func (export "weir_packet") (param i32) (result i32) (i32.const 0)))"#;

impl Module {
    /// The eight shipped modules whose price is measured.
    pub fn shipped() -> Result<Vec<Self>, LabError> {
        SHIPPED.iter().map(|(name, class)| Self::read(name, *class)).collect()
    }

    /// The shipped modules in C that send, or load the processor.
    pub fn active() -> Result<Vec<Self>, LabError> {
        ACTIVE.iter().map(|name| Self::read(name, Class::Active)).collect()
    }

    /// The module of that name: one of those whose price is measured, or `empty`.
    pub fn named(name: &str) -> Result<Self, LabError> {
        if name == "empty" {
            return Self::empty();
        }
        match SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
            Some((name, class)) => Self::read(name, *class),
            None => Err(LabError::failed(name, "no module with a measured price has this name")),
        }
    }

    /// A module that does nothing.
    pub fn empty() -> Result<Self, LabError> {
        let mut wasm = wat::parse_str(EMPTY_WAT).unwrap_or_default();
        append_manifest(&mut wasm, EMPTY_MANIFEST);
        Ok(Self {
            name: "empty".to_owned(),
            source: paths::root().join("lab/native/empty.c"),
            wasm,
            manifest: Manifest::parse(EMPTY_MANIFEST.as_bytes()).context("empty")?,
            class: Class::Empty,
            tables: Vec::new(),
        })
    }

    fn read(name: &str, class: Class) -> Result<Self, LabError> {
        let folder = paths::root().join("guest/modules").join(name);
        let read = |file: &str| {
            let path = folder.join(file);
            std::fs::read(&path).map_err(LabError::file(&path))
        };
        Ok(Self {
            name: name.to_owned(),
            source: folder.join(format!("{name}.c")),
            wasm: read(&format!("{name}.wasm"))?,
            manifest: Manifest::parse(&read("weir.toml")?).context(name)?,
            class,
            tables: Vec::new(),
        })
    }

    /// Admits the module, with the parameters at their defaults.
    pub fn admit(&self) -> Result<Admitted, LabError> {
        Admitted::admit(self.wasm.clone(), &[]).context(&self.name)
    }

    /// The text of the module's C header, `module.h`.
    pub fn header(&self) -> String {
        sources::c_header(&self.manifest)
    }
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
