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

/// A module that calls one host function for each packet, for the count of a call's instructions.
struct CallingModule {
    /// The name of the module.
    name: &'static str,
    /// The type of the imported function, as text of WebAssembly.
    import: &'static str,
    /// Further imports, data and functions.
    more: &'static str,
    /// The code of `weir_packet` with the packet's descriptor in local 0. It leaves nothing on the stack.
    code: &'static str,
}

const CALLING: &[CallingModule] = &[
    CallingModule {
        name: "call-emit",
        import: r#"(import "weir" "emit" (func $call (param i32 i32 i32) (result i32)))"#,
        more: "",
        code: "(drop (call $call (i32.const 0) (i32.const 1024) (i32.const 8)))",
    },
    CallingModule {
        name: "call-find",
        import: r#"(import "weir" "find" (func $call (param i32 i32 i32) (result i64)))
            (import "weir" "find_compile" (func $compile (param i32 i32 i32) (result i32)))"#,
        more: r#"(data (i32.const 1024) "\04\00\00\00weir")
            (func (export "weir_start") (result i32) (call $compile (i32.const 1024) (i32.const 8) (i32.const 0)))"#,
        code: "(drop (call $call (i32.const 0) (i32.load offset=8 (local.get 0)) (i32.const 60)))",
    },
    CallingModule {
        name: "call-hash",
        import: r#"(import "weir" "hash" (func $call (param i32 i32 i64) (result i64)))"#,
        more: "",
        code: "(drop (call $call (i32.load offset=8 (local.get 0)) (i32.const 16) (i64.const 0)))",
    },
    CallingModule {
        name: "call-patch",
        import: r#"(import "weir" "patch" (func $call (param i32 i32 i32 i32) (result i32)))"#,
        more: "",
        code: "(drop (call $call (local.get 0) (i32.const 0) (i32.const 1024) (i32.const 6)))",
    },
    CallingModule {
        name: "call-keep",
        import: r#"(import "weir" "keep" (func $call (param i32) (result i32)))
            (import "weir" "release" (func $release (param i32) (result i32)))"#,
        more: "",
        code: "(drop (call $release (call $call (local.get 0))))",
    },
];

/// The rest of the manifest of a calling module.
const CALLING_MANIFEST: &str = "keep = 64\n[[stream]]\nname = 'rows'\nsummary = 'one row for each call'\n[[stream.field]]\nname = 'value'\ntype = 'u64'\n";

impl Module {
    /// The modules that call one host function for each packet: emit, find, hash, patch, and keep with release.
    pub fn calling() -> Result<Vec<Self>, LabError> {
        CALLING.iter().map(Self::calling_one).collect()
    }

    fn calling_one(calling: &CallingModule) -> Result<Self, LabError> {
        let CallingModule { name, import, more, code } = calling;
        let text = format!(
            r#"(module {import} (memory (export "memory") 1) {more}
                (func (export "weir_packet") (param i32) (result i32) {code} (i32.const 0)))"#
        );
        let manifest = format!(
            "name = '{name}'\nversion = '1'\nabi = 2\nlicense = 'Apache-2.0 OR MIT'\nsummary = 'calls a host function'\nmemory = '64 KiB'\n{CALLING_MANIFEST}"
        );
        Self::of_text(name, &text, &manifest, Class::Empty)
    }

    /// The eight shipped modules whose price is measured.
    pub fn shipped() -> Result<Vec<Self>, LabError> {
        SHIPPED.iter().map(|(name, class)| Self::read(name, *class)).collect()
    }

    /// The shipped modules in C that send, or load the processor.
    pub fn active() -> Result<Vec<Self>, LabError> {
        ACTIVE.iter().map(|name| Self::read(name, Class::Active)).collect()
    }

    /// The module of that name: a shipped one in C, or `empty`.
    pub fn named(name: &str) -> Result<Self, LabError> {
        if name == "empty" {
            return Self::empty();
        }
        if let Some(calling) = CALLING.iter().find(|calling| calling.name == name) {
            return Self::calling_one(calling);
        }
        let class = SHIPPED.iter().find(|(shipped, _)| *shipped == name).map(|(_, class)| *class);
        Self::read(name, class.unwrap_or(Class::Header))
    }

    /// A module that does nothing.
    pub fn empty() -> Result<Self, LabError> {
        Self::of_text("empty", EMPTY_WAT, EMPTY_MANIFEST, Class::Empty)
    }

    /// A module from its text, without a C source of its own.
    fn of_text(name: &str, text: &str, manifest: &str, class: Class) -> Result<Self, LabError> {
        let mut wasm = wat::parse_str(text).context(name)?;
        append_manifest(&mut wasm, manifest);
        Ok(Self {
            name: name.to_owned(),
            source: paths::root().join("lab/native/empty.c"),
            wasm,
            manifest: Manifest::parse(manifest.as_bytes()).context(name)?,
            class,
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
