//! The search for the libraries of configurations.

use super::load::read;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use weir_elements::AllElements;
use weir_graph::engine::ElementClasses as _;
use weir_graph::language::{ClassStatus, LanguageEnvironment, LibraryText};
use weir_units::Escape as _;

/// The folder inside each folder of the search path that contains configurations.
const CONFIGURATIONS: &str = "conf";

/// The folders that are searched for libraries. Every class may exist, unless classes are given.
pub struct LibraryFolders {
    folders: Vec<PathBuf>,
    classes: Option<AllElements>,
}

impl LibraryFolders {
    /// Splits a search path at its colons.
    pub fn new(search_path: Option<&OsStr>) -> Self {
        let folders = search_path.map(|path| std::env::split_paths(path).collect());
        Self { folders: folders.unwrap_or_default(), classes: None }
    }

    /// Returns the same folders, with the element classes of weir alone.
    pub fn with_elements(self) -> Self {
        Self { classes: Some(AllElements), ..self }
    }
}

impl LanguageEnvironment for LibraryFolders {
    fn class(&self, name: &str) -> ClassStatus {
        self.classes.map_or(ClassStatus::Possible, |classes| classes.class(name))
    }

    fn class_names(&self) -> Vec<&str> {
        self.classes.map_or(Vec::new(), |classes| classes.names())
    }

    fn library(&self, name: &str, from: &str) -> Result<LibraryText, String> {
        let beside = Path::new(from).parent().unwrap_or(Path::new("")).to_owned();
        let folders = std::iter::once(beside).chain(
            self.folders
                .iter()
                .filter(|folder| !folder.as_os_str().is_empty())
                .flat_map(|folder| [folder.join(CONFIGURATIONS), folder.clone()]),
        );
        for folder in folders {
            let path = folder.join(name);
            let file = match std::fs::File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(format!("{}: {error}", path.escaped())),
            };
            let bytes = read(file, &path).map_err(|error| error.to_string())?;
            return Ok(LibraryText { path: path.to_string_lossy().into_owned(), bytes });
        }
        Err("no such file beside the configuration or in CLICKPATH".to_owned())
    }
}
