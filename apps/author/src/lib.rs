//! For module authors: [`new`] makes a folder with a module that works, [`build`] makes the .wasm file of such a folder.
//!
//! ```no_run
//! use weir_author::{BuildOptions, ModuleLanguage, build, new};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! new("protocols".as_ref(), ModuleLanguage::C)?;
//! let built = build("protocols".as_ref(), &BuildOptions::default())?;
//! println!("{}: {}", built.path.display(), built.size);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod build;
mod c;
mod error;
mod folder;
mod inlined;
mod lines;
mod new;
mod pack;
mod rust;
mod tools;

pub use build::{BuildOptions, Built, Level, build, c_header, prepare};
pub use error::BuildError;
pub use folder::ModuleLanguage;
pub use new::{Created, NewError, new};
pub use tools::Tools;
