//! Followed modules and their rows, as the protocol sends them.

use serde::{Deserialize, Serialize};

/// A module whose records are followed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowedModule {
    /// Name in the session.
    pub name: String,
    /// SHA-256 of the module's bytes.
    pub digest: String,
    /// The module's manifest, as TOML. It declares the fields of the streams.
    pub manifest: String,
}

/// A stream of a followed module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowedStream {
    /// Index of the module in the reply that lists the followed modules.
    pub module: u16,
    /// Index of the stream in the module's manifest.
    pub stream: u16,
}

/// A row of a followed stream, as the module has emitted it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowedRow {
    /// The stream.
    #[serde(flatten)]
    pub stream: FollowedStream,
    /// The row in hexadecimal digits.
    pub row: String,
    /// The bytes of the row's string fields, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tail: String,
}
