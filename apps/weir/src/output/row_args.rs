//! Options of the rows on standard output.

use crate::local_time;
use clap::{Args, ValueEnum};
use weir_rows::{UtcOffset, utc};

/// Options of the rows on standard output, which `weir run` and `weir follow` share.
#[derive(Clone, Debug, Default, Args)]
pub struct RowArgs {
    /// Print the first N rows of each stream, or all of them [default: all in weir follow, and with --format; else 10, or with more than three
    /// streams, none beside the overview of the default modules, and 5 of the first stream of each module without it]
    #[arg(long, value_name = "N|all")]
    pub rows: Option<RowsArg>,
    /// Print rows while the command goes on, and nothing else: as tables, as one JSON object a line, or as CSV. The summary of weir run then goes to
    /// standard error, or to the file of --summary
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<FormatArg>,
    /// Print only the rows of this stream, such as rtt.rtts; the name alone is enough if only one module has such a stream
    #[arg(long = "stream", value_name = "[MODULE.]STREAM")]
    pub streams: Vec<String>,
    /// Print times of rows in the local time zone instead of UTC
    #[arg(long)]
    pub local_time: bool,
}

impl RowArgs {
    /// Returns the offset of printed times from UTC.
    pub fn utc_offset(&self) -> UtcOffset {
        if self.local_time { local_time::offset } else { utc }
    }
}

/// The format of rows on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Tables, fitted to the terminal
    Table,
    /// JSON lines, each with module and stream
    Json,
    /// Comma-separated values, of one stream
    Csv,
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
