//! Finds and reads the source files of a module, for `weir check --annotate`.

use crate::module_arg::ModuleArg;
use crate::shipped;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

/// Maximum length of a source file that is read.
const SOURCE_BYTES_MAX: u64 = 4 << 20;

/// The location of a module's source files.
#[derive(Debug)]
pub enum Sources {
    /// Within weir, for a shipped module: file names and texts.
    Shipped(&'static [(&'static str, &'static str)]),
    /// The folder of the .wasm file.
    Folder {
        /// The folder.
        path: PathBuf,
        /// The modification time of the module's file.
        module_modified: Option<SystemTime>,
    },
}

/// The text of a source file.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceText {
    /// The text.
    pub text: String,
    /// True if the file is newer than the module, so that its lines may have moved.
    pub is_newer: bool,
}

impl Sources {
    /// Returns the location of the sources of a module named on the command line.
    pub fn locate(spec: &ModuleArg) -> Self {
        if let Some(shipped) = shipped::find(&spec.name) {
            return Self::Shipped(shipped.sources);
        }
        let module = Path::new(&spec.name);
        let folder = module.parent().filter(|folder| !folder.as_os_str().is_empty());
        let module_modified = module.metadata().and_then(|meta| meta.modified()).ok();
        Self::Folder { path: folder.unwrap_or(Path::new(".")).to_owned(), module_modified }
    }

    /// Reads a source file; `None` if the file is not found or not permitted. The name comes from the module, and weir
    /// shows the text to the user. So that a module cannot have other files shown, the file must be in the module's
    /// folder: a symbolic link to another folder is rejected.
    pub fn read(&self, name: &str) -> Option<SourceText> {
        let (folder, module_modified) = match self {
            Self::Shipped(sources) => {
                let (_, text) = sources.iter().find(|(file, _)| *file == name)?;
                return Some(SourceText { text: (*text).to_owned(), is_newer: false });
            }
            Self::Folder { path, module_modified } => (path, module_modified),
        };
        let name = Path::new(name);
        if !name.components().all(|part| matches!(part, Component::Normal(_))) {
            return None;
        }
        let path = folder.join(name).canonicalize().ok()?;
        if !path.starts_with(folder.canonicalize().ok()?) || !path.metadata().ok()?.is_file() {
            return None;
        }
        let file = std::fs::File::open(path).ok()?;
        let meta = file.metadata().ok()?;
        let is_newer = matches!((meta.modified(), module_modified), (Ok(changed), Some(module_modified)) if changed > *module_modified);
        let mut bytes = Vec::new();
        file.take(SOURCE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(SourceText { text: String::from_utf8_lossy(&bytes).into_owned(), is_newer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_outside_the_modules_folder_are_not_read() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("mine");
        std::fs::create_dir_all(folder.join("src")).unwrap();
        std::fs::write(folder.join("src/lib.rs"), "fn x() {}").unwrap();
        std::fs::write(home.path().join("secret"), "key").unwrap();
        std::os::unix::fs::symlink(home.path().join("secret"), folder.join("link")).unwrap();
        let sources = Sources::Folder { path: folder.clone(), module_modified: None };
        assert_eq!(sources.read("src/lib.rs").unwrap().text, "fn x() {}");
        let secret = home.path().join("secret");
        for name in ["../secret", "src/../../secret", "link", "src", "", "/", secret.to_str().unwrap()] {
            assert_eq!(sources.read(name), None, "{name}");
        }
    }

    #[test]
    fn a_source_newer_than_the_module_is_detected() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("m.c"), "int x;").unwrap();
        let at = |module_modified| Sources::Folder {
            path: home.path().to_owned(),
            module_modified: Some(module_modified),
        };
        assert!(at(SystemTime::UNIX_EPOCH).read("m.c").unwrap().is_newer);
        assert!(!at(SystemTime::now() + std::time::Duration::from_secs(60)).read("m.c").unwrap().is_newer);
    }
}
