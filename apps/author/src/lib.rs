//! The work of `weir new`, `weir build`, `weir pack` and the native part of `weir test`: [`new`] creates a folder with a
//! working module, [`build`] builds the module's .wasm file, [`pack_file`] makes a module of a file of another compiler, and
//! [`native`] builds modules natively.
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
mod inlined_calls;
mod line_table;
pub mod native;
mod new;
mod pack;
mod rust;
mod schema;
mod tools;

pub use build::{BuildOptions, BuiltModule, OptLevel, build, c_header, generate_includes};
pub use error::BuildError;
pub use folder::ModuleLanguage;
pub use new::{CreatedModule, NewError, new};
pub use pack::{module_file, pack_file, packed};
pub use schema::manifest_schema;
pub use tools::Tools;
