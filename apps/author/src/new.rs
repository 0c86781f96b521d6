//! `weir new`: creates a module's folder from a template.

use crate::BuildError;
use crate::folder::{ModuleLanguage, generate};
use std::path::{Path, PathBuf};
use weir_admission::{Manifest, Name, NameError};
use weir_units::Escape as _;

/// The template of a C module: paths and texts of its files. `{{name}}` stands for the module's name.
const C_TEMPLATE: &[(&str, &str)] = &[
    ("weir.toml", include_str!("../templates/weir.toml")),
    ("{{name}}.c", include_str!("../templates/module.c")),
    ("compile_flags.txt", include_str!("../templates/compile_flags.txt")),
    ("README.md", include_str!("../templates/README.c.md")),
];
/// The template of a Rust module, in the form of [`C_TEMPLATE`].
const RUST_TEMPLATE: &[(&str, &str)] = &[
    ("weir.toml", include_str!("../templates/weir.toml")),
    ("Cargo.toml", include_str!("../templates/Cargo.toml.in")),
    ("src/lib.rs", include_str!("../templates/lib.rs")),
    (".gitignore", "/target/\n"),
    ("README.md", include_str!("../templates/README.rust.md")),
];

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
    for (path, text) in if lang == ModuleLanguage::C { C_TEMPLATE } else { RUST_TEMPLATE } {
        let fill = |text: &str| text.replace("{{name}}", name.as_str());
        let path = PathBuf::from(fill(path));
        crate::folder::write_atomic(&dir.join(&path), fill(text).as_bytes())?;
        files.push(path);
    }
    let toml = dir.join("weir.toml");
    let bytes = std::fs::read(&toml).map_err(BuildError::file(&toml))?;
    let manifest = Manifest::parse(&bytes)
        .map_err(|error| BuildError::Manifest { path: toml, error: Box::new(error) })?;
    generate(dir, &manifest, lang)?;
    Ok(CreatedModule { dir: dir.to_owned(), name, files })
}
