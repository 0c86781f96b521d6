//! The folder of a module: what is in it, and what weir puts beside it in `.weir`, where compilers and editors look for it.

use crate::BuildError;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_admission::{Manifest, sources};

/// Generated files; git ignores them.
pub(crate) const GENERATED: &str = ".weir";

const WEIR_H: &str = include_str!("../../../guest/sdk-c/weir.h");

/// The crate `weir-guest`: a module outside of weir's repository has no other place to take it from.
const WEIR_GUEST: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("../../../guest/sdk-rust/Cargo.toml")),
    ("src/lib.rs", include_str!("../../../guest/sdk-rust/src/lib.rs")),
    ("src/bounded.rs", include_str!("../../../guest/sdk-rust/src/bounded.rs")),
    ("src/bytes.rs", include_str!("../../../guest/sdk-rust/src/bytes.rs")),
    ("src/descriptor.rs", include_str!("../../../guest/sdk-rust/src/descriptor.rs")),
    ("src/entry.rs", include_str!("../../../guest/sdk-rust/src/entry.rs")),
    ("src/find.rs", include_str!("../../../guest/sdk-rust/src/find.rs")),
    ("src/hash.rs", include_str!("../../../guest/sdk-rust/src/hash.rs")),
    ("src/heap.rs", include_str!("../../../guest/sdk-rust/src/heap.rs")),
    ("src/host.rs", include_str!("../../../guest/sdk-rust/src/host.rs")),
    ("src/ip.rs", include_str!("../../../guest/sdk-rust/src/ip.rs")),
    ("src/kept.rs", include_str!("../../../guest/sdk-rust/src/kept.rs")),
    ("src/log.rs", include_str!("../../../guest/sdk-rust/src/log.rs")),
    ("src/packet.rs", include_str!("../../../guest/sdk-rust/src/packet.rs")),
    ("src/parameter.rs", include_str!("../../../guest/sdk-rust/src/parameter.rs")),
    ("src/record.rs", include_str!("../../../guest/sdk-rust/src/record.rs")),
    ("src/scratch.rs", include_str!("../../../guest/sdk-rust/src/scratch.rs")),
    ("src/send.rs", include_str!("../../../guest/sdk-rust/src/send.rs")),
    ("src/service.rs", include_str!("../../../guest/sdk-rust/src/service.rs")),
    ("src/table.rs", include_str!("../../../guest/sdk-rust/src/table.rs")),
];

/// What a module is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleLanguage {
    /// C11, with clang.
    C,
    /// Rust without its standard library, with cargo.
    Rust,
}

/// A module's folder that was looked at.
pub(crate) struct ModuleFolder {
    pub(crate) dir: PathBuf,
    pub(crate) manifest: Manifest,
    /// The bytes of weir.toml: they go into the module as they are.
    pub(crate) manifest_bytes: Vec<u8>,
    pub(crate) source: ModuleSource,
}

pub(crate) enum ModuleSource {
    /// The .c files, sorted.
    C(Vec<PathBuf>),
    /// The Cargo.toml.
    Rust(PathBuf),
}

impl ModuleFolder {
    /// Reads weir.toml, and looks for sources.
    pub(crate) fn open(dir: &Path) -> Result<Self, BuildError> {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let path = dir.join("weir.toml");
        let manifest_bytes = match read(&path) {
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) =>
            {
                return Err(BuildError::NoManifest(dir.to_owned()));
            }
            other => other.map_err(BuildError::file(&path))?,
        };
        let manifest = Manifest::parse(&manifest_bytes)
            .map_err(|error| BuildError::Manifest { path, error: Box::new(error) })?;
        let source = source(dir)?;
        Ok(Self { dir: dir.to_owned(), manifest, manifest_bytes, source })
    }

    /// Where generated files are.
    pub(crate) fn generated(&self) -> PathBuf {
        self.dir.join(GENERATED)
    }

    /// Writes what the sources include: weir.h and module.h, or module.rs and the crate weir-guest.
    pub(crate) fn generate(&self) -> Result<(), BuildError> {
        without_links(&self.generated())?;
        let lang = match self.source {
            ModuleSource::C(_) => ModuleLanguage::C,
            ModuleSource::Rust(_) => ModuleLanguage::Rust,
        };
        generate(&self.dir, &self.manifest, lang)
    }
}

pub(crate) fn generate(dir: &Path, manifest: &Manifest, lang: ModuleLanguage) -> Result<(), BuildError> {
    let generated = dir.join(GENERATED);
    keep(&generated.join(".gitignore"), "*\n")?;
    match lang {
        ModuleLanguage::C => {
            keep(&generated.join("weir.h"), WEIR_H)?;
            keep(&generated.join("module.h"), &sources::c_header(manifest))
        }
        ModuleLanguage::Rust => {
            for (path, text) in WEIR_GUEST {
                keep(&generated.join("weir-guest").join(path), text)?;
            }
            keep(&generated.join("module.rs"), &sources::rust_source(manifest))
        }
    }
}

/// Reads a file. Opening a FIFO would wait for its writer.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    if std::fs::metadata(path)?.is_file() {
        return std::fs::read(path);
    }
    Err(std::io::Error::other("it is no regular file"))
}

/// Refuses links, and whatever else is neither a file nor a folder, at a path and below. A module's folder can be a stranger's, and what is written below a link
/// lands elsewhere.
fn without_links(root: &Path) -> Result<(), BuildError> {
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
            return Err(BuildError::Strange(path));
        }
    }
    Ok(())
}

fn source(dir: &Path) -> Result<ModuleSource, BuildError> {
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

/// Sees to it that a file has this content. One that has it is not touched: cargo compiles again what has a new time.
fn keep(path: &Path, text: &str) -> Result<(), BuildError> {
    if std::fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    replace(path, text.as_bytes())
}

/// Writes a file so that whoever looks sees the old content or the new, and never a part. Makes its folder.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || {
        std::fs::create_dir_all(folder)?;
        let mut file =
            tempfile::Builder::new().prefix(".weir-").permissions(readable()).tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.persist(path).map(|_| ()).map_err(|error| error.error)
    };
    write().map_err(BuildError::file(path))
}

/// The usual permissions of a file; the umask applies.
fn readable() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o666)
}
