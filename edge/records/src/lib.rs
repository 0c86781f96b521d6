//! Record streams as Parquet files.
#![forbid(unsafe_code)]
