//! The choice of the format of a session's record files.

use serde::{Deserialize, Serialize};
use weir_export_files::ExportFormat;

/// The format of a session's record files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordFormat {
    /// Parquet, a file for each stream.
    #[default]
    Parquet,
    /// Zeek's logs.
    Zeek,
    /// Suricata's `eve.json`.
    Eve,
    /// IPFIX files.
    Ipfix,
}

impl RecordFormat {
    /// Returns the format of another tool; `None` for Parquet.
    pub(crate) fn export_format(self) -> Option<ExportFormat> {
        match self {
            Self::Parquet => None,
            Self::Zeek => Some(ExportFormat::Zeek),
            Self::Eve => Some(ExportFormat::Eve),
            Self::Ipfix => Some(ExportFormat::Ipfix),
        }
    }
}
