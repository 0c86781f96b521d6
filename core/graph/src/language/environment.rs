//! The facts about the program that a configuration depends on: its element classes and its libraries.

/// The status of a name as an element class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassStatus {
    /// The class exists.
    Known,
    /// The class may exist: a name that cannot be an element counts as this class.
    Possible,
    /// The class does not exist.
    Unknown,
}

/// The text of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryText {
    /// The path, which messages name. A path is included once.
    pub path: String,
    /// The content.
    pub bytes: Vec<u8>,
}

/// The classes and libraries that a configuration can use. Implemented by the caller, as the language does no I/O.
pub trait LanguageEnvironment {
    /// Returns the status of a class.
    fn class(&self, name: &str) -> ClassStatus;

    /// Returns the names of all known classes, for suggestions.
    fn class_names(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Finds the library of a `require(library NAME)` in the file `from`.
    ///
    /// # Errors
    ///
    /// The reason for which there is no such library, or for which it cannot be read.
    fn library(&self, name: &str, from: &str) -> Result<LibraryText, String>;
}

/// An environment in which every class may exist and which has no libraries.
#[derive(Clone, Copy, Debug)]
pub struct AnyClass;

impl LanguageEnvironment for AnyClass {
    fn class(&self, _: &str) -> ClassStatus {
        ClassStatus::Possible
    }

    fn library(&self, _: &str, _: &str) -> Result<LibraryText, String> {
        Err("libraries are not available here".to_owned())
    }
}
