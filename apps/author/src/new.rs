//! `weir new`: creates a module's folder from a template.

use crate::BuildError;
use crate::folder::{ModuleLanguage, generate};
use std::path::{Path, PathBuf};
use weir_admission::{Manifest, Name, NameError};
use weir_units::Escape as _;

/// A file of a template: its path and its bytes.
type TemplateFile = (&'static str, &'static [u8]);

/// The template of a C module. `{{name}}` in paths and texts stands for the module's name.
const C_TEMPLATE: [TemplateFile; 4] = [
    ("weir.toml", include_bytes!("../templates/weir.toml")),
    ("{{name}}.c", include_bytes!("../templates/module.c")),
    ("compile_flags.txt", include_bytes!("../templates/compile_flags.txt")),
    ("README.md", include_bytes!("../templates/README.c.md")),
];
/// The template of a Rust module, in the form of [`C_TEMPLATE`].
const RUST_TEMPLATE: [TemplateFile; 5] = [
    ("weir.toml", include_bytes!("../templates/weir.toml")),
    ("Cargo.toml", include_bytes!("../templates/Cargo.toml.in")),
    ("src/lib.rs", include_bytes!("../templates/lib.rs")),
    (".gitignore", b"/target/\n"),
    ("README.md", include_bytes!("../templates/README.rust.md")),
];
/// The files of both templates: a test, which both modules pass.
const TEST_TEMPLATE: [TemplateFile; 2] = [
    (CAPTURE, include_bytes!("../templates/tests/capture.pcap")),
    ("tests/sample/expected.jsonl", include_bytes!("../templates/tests/expected.jsonl")),
];
/// The file of the templates that is no text.
const CAPTURE: &str = "tests/sample/capture.pcap";

/// The reason why [`new`] cannot create a module's folder.
#[derive(Debug, thiserror::Error)]
pub enum NewError {
    /// The folder's name is not a valid module name.
    #[error("a module is named after its folder: {0}")]
    Name(#[from] NameError),
    /// The path exists and is not an empty folder.
    #[error("{} exists already, and is not an empty folder: choose another name, or move it away", .0.escaped())]
    Exists(PathBuf),
    /// A file or folder cannot be read or written.
    #[error(transparent)]
    Write(#[from] BuildError),
}

/// A module's folder created by [`new`].
#[derive(Clone, Debug)]
pub struct CreatedModule {
    /// The folder.
    pub dir: PathBuf,
    /// The module's name.
    pub name: Name,
    /// Paths of the files, relative to the folder; without generated files.
    pub files: Vec<PathBuf>,
}

/// Creates the folder `dir` with a working example module, which counts packets and bytes by protocol. The last component of
/// the path is the module's name.
///
/// # Errors
///
/// See [`NewError`].
pub fn new(dir: &Path, lang: ModuleLanguage) -> Result<CreatedModule, NewError> {
    let name = Name::new(&dir.file_name().unwrap_or_default().to_string_lossy())?;
    match std::fs::read_dir(dir) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(NewError::Exists(dir.to_owned()));
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(NewError::Exists(dir.to_owned()));
        }
        Err(error) => return Err(BuildError::file(dir)(error).into()),
    }
    let mut files = Vec::new();
    let template: &[TemplateFile] = if lang == ModuleLanguage::C { &C_TEMPLATE } else { &RUST_TEMPLATE };
    for (path, bytes) in template.iter().chain(&TEST_TEMPLATE) {
        let fill = |text: &str| text.replace("{{name}}", name.as_str());
        let text = std::str::from_utf8(bytes).ok().filter(|_| *path != CAPTURE).map(fill);
        let path = PathBuf::from(fill(path));
        let bytes = text.as_ref().map_or(*bytes, String::as_bytes);
        crate::folder::write_atomic(&dir.join(&path), bytes)?;
        files.push(path);
    }
    let toml = dir.join("weir.toml");
    let bytes = std::fs::read(&toml).map_err(BuildError::file(&toml))?;
    let manifest = Manifest::parse(&bytes)
        .map_err(|error| BuildError::Manifest { path: toml, error: Box::new(error) })?;
    generate(dir, &manifest, lang)?;
    Ok(CreatedModule { dir: dir.to_owned(), name, files })
}
