//! A module's folder: reads the manifest, finds the sources, and writes the generated files into `.weir`, where compilers
//! and editors find them.

use crate::BuildError;
use crate::schema;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_admission::{Manifest, sources};

/// The folder of generated files, ignored by git.
pub(crate) const GENERATED: &str = ".weir";

/// The text of weir.h.
pub(crate) const WEIR_H: &str = include_str!("../../../guest/sdk-c/weir.h");

/// The headers of modules in C.
const HEADERS: &[(&str, &str)] = &[
    ("weir.h", WEIR_H),
    ("weir_containers.h", include_str!("../../../guest/sdk-c/weir_containers.h")),
    ("weir_parse.h", include_str!("../../../guest/sdk-c/weir_parse.h")),
];

/// The files of the crate `weir-guest`, for modules outside of weir's repository.
const WEIR_GUEST: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("../../../guest/sdk-rust/Cargo.toml")),
    ("src/lib.rs", include_str!("../../../guest/sdk-rust/src/lib.rs")),
    ("src/bounded.rs", include_str!("../../../guest/sdk-rust/src/bounded.rs")),
    ("src/bytes.rs", include_str!("../../../guest/sdk-rust/src/bytes.rs")),
    ("src/community_id.rs", include_str!("../../../guest/sdk-rust/src/community_id.rs")),
    ("src/containers/bloom.rs", include_str!("../../../guest/sdk-rust/src/containers/bloom.rs")),
    ("src/containers/bucket.rs", include_str!("../../../guest/sdk-rust/src/containers/bucket.rs")),
    ("src/containers/count_min.rs", include_str!("../../../guest/sdk-rust/src/containers/count_min.rs")),
    ("src/containers/histogram.rs", include_str!("../../../guest/sdk-rust/src/containers/histogram.rs")),
    (
        "src/containers/hyper_log_log.rs",
        include_str!("../../../guest/sdk-rust/src/containers/hyper_log_log.rs"),
    ),
    ("src/containers/key.rs", include_str!("../../../guest/sdk-rust/src/containers/key.rs")),
    ("src/containers/lpm.rs", include_str!("../../../guest/sdk-rust/src/containers/lpm.rs")),
    ("src/containers/map.rs", include_str!("../../../guest/sdk-rust/src/containers/map.rs")),
    ("src/containers/mod.rs", include_str!("../../../guest/sdk-rust/src/containers/mod.rs")),
    ("src/containers/ring.rs", include_str!("../../../guest/sdk-rust/src/containers/ring.rs")),
    ("src/containers/stack.rs", include_str!("../../../guest/sdk-rust/src/containers/stack.rs")),
    ("src/containers/top.rs", include_str!("../../../guest/sdk-rust/src/containers/top.rs")),
    ("src/containers/wheel.rs", include_str!("../../../guest/sdk-rust/src/containers/wheel.rs")),
    ("src/crypto.rs", include_str!("../../../guest/sdk-rust/src/crypto.rs")),
    ("src/descriptor.rs", include_str!("../../../guest/sdk-rust/src/descriptor.rs")),
    ("src/entry.rs", include_str!("../../../guest/sdk-rust/src/entry.rs")),
    ("src/find.rs", include_str!("../../../guest/sdk-rust/src/find.rs")),
    ("src/finding.rs", include_str!("../../../guest/sdk-rust/src/finding.rs")),
    ("src/hash.rs", include_str!("../../../guest/sdk-rust/src/hash.rs")),
    ("src/heap.rs", include_str!("../../../guest/sdk-rust/src/heap.rs")),
    ("src/host.rs", include_str!("../../../guest/sdk-rust/src/host.rs")),
    ("src/ip.rs", include_str!("../../../guest/sdk-rust/src/ip.rs")),
    ("src/kept.rs", include_str!("../../../guest/sdk-rust/src/kept.rs")),
    ("src/log.rs", include_str!("../../../guest/sdk-rust/src/log.rs")),
    ("src/log_format.rs", include_str!("../../../guest/sdk-rust/src/log_format.rs")),
    ("src/mac.rs", include_str!("../../../guest/sdk-rust/src/mac.rs")),
    ("src/packet.rs", include_str!("../../../guest/sdk-rust/src/packet.rs")),
    ("src/parameter.rs", include_str!("../../../guest/sdk-rust/src/parameter.rs")),
    ("src/parse/cursor.rs", include_str!("../../../guest/sdk-rust/src/parse/cursor.rs")),
    ("src/parse/der.rs", include_str!("../../../guest/sdk-rust/src/parse/der.rs")),
    ("src/parse/dhcp.rs", include_str!("../../../guest/sdk-rust/src/parse/dhcp.rs")),
    ("src/parse/dns.rs", include_str!("../../../guest/sdk-rust/src/parse/dns.rs")),
    ("src/parse/mod.rs", include_str!("../../../guest/sdk-rust/src/parse/mod.rs")),
    ("src/parse/tls.rs", include_str!("../../../guest/sdk-rust/src/parse/tls.rs")),
    ("src/parse/tlv.rs", include_str!("../../../guest/sdk-rust/src/parse/tlv.rs")),
    ("src/parse/varint.rs", include_str!("../../../guest/sdk-rust/src/parse/varint.rs")),
    ("src/record.rs", include_str!("../../../guest/sdk-rust/src/record.rs")),
    ("src/scratch.rs", include_str!("../../../guest/sdk-rust/src/scratch.rs")),
    ("src/send.rs", include_str!("../../../guest/sdk-rust/src/send.rs")),
    ("src/service.rs", include_str!("../../../guest/sdk-rust/src/service.rs")),
    ("src/stream.rs", include_str!("../../../guest/sdk-rust/src/stream.rs")),
    ("src/stream_event.rs", include_str!("../../../guest/sdk-rust/src/stream_event.rs")),
    ("src/table.rs", include_str!("../../../guest/sdk-rust/src/table.rs")),
];

/// The source language of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleLanguage {
    /// C11, compiled with clang.
    C,
    /// Rust without its standard library, compiled with cargo.
    Rust,
}

/// The contents of a module's folder.
pub(crate) struct ModuleFolder {
    pub(crate) dir: PathBuf,
    pub(crate) manifest: Manifest,
    /// The bytes of weir.toml, which [`pack`](crate::pack::pack) adds to the module unchanged.
    pub(crate) manifest_bytes: Vec<u8>,
    pub(crate) source: ModuleSource,
}

/// The sources of a module.
pub(crate) enum ModuleSource {
    /// The .c files, sorted.
    C(Vec<PathBuf>),
    /// The path of Cargo.toml.
    Rust(PathBuf),
}

impl ModuleFolder {
    /// Reads weir.toml and finds the sources.
    pub(crate) fn open(dir: &Path) -> Result<Self, BuildError> {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let path = dir.join("weir.toml");
        let (manifest, manifest_bytes) = match read_manifest(&path) {
            Err(BuildError::File { source, .. })
                if matches!(
                    source.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) =>
            {
                return Err(BuildError::NoManifest(dir.to_owned()));
            }
            other => other?,
        };
        let source = find_sources(dir)?;
        Ok(Self { dir: dir.to_owned(), manifest, manifest_bytes, source })
    }

    /// Returns the folder of generated files.
    pub(crate) fn generated(&self) -> PathBuf {
        self.dir.join(GENERATED)
    }

    /// Writes the files that the sources include: weir.h and module.h, or module.rs and the crate weir-guest.
    pub(crate) fn generate(&self) -> Result<(), BuildError> {
        reject_links(&self.generated())?;
        let lang = match self.source {
            ModuleSource::C(_) => ModuleLanguage::C,
            ModuleSource::Rust(_) => ModuleLanguage::Rust,
        };
        generate(&self.dir, &self.manifest, lang)
    }
}

/// Writes the files that the sources of a module in this language include, into `.weir` in the folder `dir`.
pub(crate) fn generate(dir: &Path, manifest: &Manifest, lang: ModuleLanguage) -> Result<(), BuildError> {
    let generated = dir.join(GENERATED);
    write_if_changed(&generated.join(".gitignore"), "*\n")?;
    write_if_changed(&generated.join(schema::FILE), &schema::manifest_schema())?;
    match lang {
        ModuleLanguage::C => {
            for (name, text) in HEADERS {
                write_if_changed(&generated.join(name), text)?;
            }
            write_if_changed(&generated.join("module.h"), &sources::c_header(manifest))
        }
        ModuleLanguage::Rust => {
            for (path, text) in WEIR_GUEST {
                write_if_changed(&generated.join("weir-guest").join(path), text)?;
            }
            write_if_changed(&generated.join("module.rs"), &sources::rust_source(manifest))
        }
    }
}

/// Reads a manifest: the manifest, and the bytes of its file.
pub(crate) fn read_manifest(path: &Path) -> Result<(Manifest, Vec<u8>), BuildError> {
    let bytes = read_regular(path).map_err(BuildError::file(path))?;
    match Manifest::parse(&bytes) {
        Ok(manifest) => Ok((manifest, bytes)),
        Err(error) => Err(BuildError::Manifest { path: path.to_owned(), error: Box::new(error) }),
    }
}

/// Reads a regular file. Special files are rejected, because opening a FIFO would wait for its writer.
pub(crate) fn read_regular(path: &Path) -> std::io::Result<Vec<u8>> {
    if std::fs::metadata(path)?.is_file() {
        return std::fs::read(path);
    }
    Err(std::io::Error::other("it is not a regular file"))
}

/// Rejects symbolic links and special files at a path and below it. A module's folder can come from an untrusted source, and
/// weir would write through a link into another folder.
fn reject_links(root: &Path) -> Result<(), BuildError> {
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let kind = match std::fs::symlink_metadata(&path) {
            Ok(found) => found.file_type(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(BuildError::file(&path)(error)),
        };
        if kind.is_dir() {
            let entries = std::fs::read_dir(&path).map_err(BuildError::file(&path))?;
            for entry in entries {
                waiting.push(entry.map_err(BuildError::file(&path))?.path());
            }
        } else if !kind.is_file() {
            return Err(BuildError::NotRegular(path));
        }
    }
    Ok(())
}

/// Finds the sources in a module's folder. Sources in two languages are an error.
fn find_sources(dir: &Path) -> Result<ModuleSource, BuildError> {
    let cargo = dir.join("Cargo.toml");
    let mut c: Vec<PathBuf> = std::fs::read_dir(dir)
        .and_then(|entries| {
            entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()
        })
        .map_err(BuildError::file(dir))?;
    c.retain(|path| path.extension().is_some_and(|extension| extension == "c") && path.is_file());
    c.sort();
    match (c.first(), cargo.is_file()) {
        (Some(first), true) => Err(BuildError::TwoLanguages { dir: dir.to_owned(), c: first.clone() }),
        (Some(_), false) => Ok(ModuleSource::C(c)),
        (None, true) => Ok(ModuleSource::Rust(cargo)),
        (None, false) if dir.join("src/lib.rs").is_file() => Err(BuildError::NoCargoManifest(dir.to_owned())),
        (None, false) => Err(BuildError::NoSource(dir.to_owned())),
    }
}

/// Writes a file unless it has this content already, because Cargo would recompile a file with a new modification time.
fn write_if_changed(path: &Path, text: &str) -> Result<(), BuildError> {
    if std::fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    write_atomic(path, text.as_bytes())
}

/// Writes a file, replacing an existing one atomically. Creates the file's folder if missing.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || {
        std::fs::create_dir_all(folder)?;
        let mut file = tempfile::Builder::new()
            .prefix(".weir-")
            .permissions(default_permissions())
            .tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.persist(path).map(|_| ()).map_err(|error| error.error)
    };
    write().map_err(BuildError::file(path))
}

/// The default permissions of a new file, before the umask.
fn default_permissions() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o666)
}
