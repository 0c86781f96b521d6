//! The output of commands that print and write records: `weir run` and `weir follow`.

pub mod exports;
pub mod out_folder;
pub mod progress;
pub mod record_files;
pub mod report_file;
pub mod rotation;
pub mod row_args;
pub mod rows;
pub mod signals;
