//! Options of the rows on standard output.

use crate::local_time;
use clap::{Args, ValueEnum};
use weir_export_files::{CollectorAddress, ExportFormat};
use weir_rows::{UtcOffset, utc};

/// Options of the rows on standard output, which `weir run` and `weir follow` share.
#[derive(Clone, Debug, Default, Args)]
pub struct RowArgs {
    /// Print the first N rows of each stream, or all of them [default: all in weir follow, and with --format; else 10, or with more than three
    /// streams, none beside the overview of the default modules, and 5 of the first stream of each module without it]
    #[arg(long, value_name = "N|all")]
    pub rows: Option<RowsArg>,
    /// Print rows while the command goes on, and nothing else: as tables, as one JSON object a line, or as CSV. The summary of weir run then goes to
    /// standard error, or to the file of --summary. zeek, eve and ipfix: the formats of other tools, in the folder of --out instead of Parquet files;
    /// eve also on standard output
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<FormatArg>,
    /// Print only the rows of this stream, such as rtt.rtts; the name alone is enough if only one module has such a stream. Also restricts
    /// --format zeek, eve and ipfix, and chooses the streams of --collector
    #[arg(long = "stream", value_name = "[MODULE.]STREAM")]
    pub streams: Vec<String>,
    /// Send the rows of flows as IPFIX to this collector: udp://HOST:PORT or tcp://HOST:PORT; --stream sends those of other streams
    #[arg(long, value_name = "ADDRESS")]
    pub collector: Option<CollectorAddress>,
    /// Print times of rows in the local time zone instead of UTC
    #[arg(long)]
    pub local_time: bool,
}

impl RowArgs {
    /// Returns the offset of printed times from UTC.
    pub fn utc_offset(&self) -> UtcOffset {
        if self.local_time { local_time::offset } else { utc }
    }

    /// Returns these options without a format that is in files only, so that standard output is as without `--format`.
    pub fn for_standard_output(&self, has_folder: bool) -> Self {
        let is_in_files = self.export_format(has_folder).is_some();
        Self { format: self.format.filter(|_| !is_in_files), ..self.clone() }
    }

    /// Returns the format of files, if one is chosen. Events of Suricata are in a file only if there is a folder for it.
    pub fn export_format(&self, has_folder: bool) -> Option<ExportFormat> {
        match self.format? {
            FormatArg::Table | FormatArg::Json | FormatArg::Csv => None,
            FormatArg::Eve => has_folder.then_some(ExportFormat::Eve),
            FormatArg::Zeek => Some(ExportFormat::Zeek),
            FormatArg::Ipfix => Some(ExportFormat::Ipfix),
        }
    }
}

/// The format of rows on standard output, or in the folder of `--out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Tables, fitted to the terminal
    Table,
    /// JSON lines, each with module and stream
    Json,
    /// Comma-separated values, of one stream
    Csv,
    /// Zeek's logs, such as conn.log
    Zeek,
    /// Suricata's eve.json
    Eve,
    /// IPFIX (RFC 7011), a file for each stream
    Ipfix,
}

/// The number of rows to print; `all` is `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsArg(pub u64);

impl std::str::FromStr for RowsArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self(u64::MAX)),
            _ => text.parse().map(Self).map_err(|_| "write a number of rows, or all"),
        }
    }
}
