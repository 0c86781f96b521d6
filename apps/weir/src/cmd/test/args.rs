//! The options of `weir test`.

use clap::Args;
use std::path::PathBuf;
use weir_units::Nanos;

/// `weir test`.
#[derive(Debug, Args)]
pub struct TestArgs {
    /// The module's folder, with its tests in tests/NAME; or a module's .wasm file, with its tests beside it
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// Run only these tests. With --add: copy only packets that match this pcap-filter(7) expression
    #[arg(value_name = "NAME|FILTER")]
    pub names: Vec<String>,
    /// Write what the module does now as what the tests expect
    #[arg(long)]
    pub update: bool,
    /// Add a test with this name, of the capture of -r
    #[arg(long, value_name = "NAME", requires = "read", conflicts_with = "update")]
    pub add: Option<String>,
    /// The capture of a new test, and values of parameters, as in -r capture.pcap,interval=10s; it is copied
    #[arg(short = 'r', long = "read", value_name = "FILE[,KEY=VALUE]...", requires = "add")]
    pub read: Option<String>,
    /// Run the module in its sandbox alone. Without this option, the module's source also runs natively, with sanitizers (in
    /// Rust, with checks of overflow), and with all rights of yours: use this option for a module that you do not trust
    #[arg(long)]
    pub no_native: bool,
    /// Write the source with the number of times that each line has run, as HTML
    #[arg(long, value_name = "DIR", conflicts_with = "no_native")]
    pub coverage: Option<PathBuf>,
    /// The operator's profile [default: weir's default profile]
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// End a native run after this time
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub limit: Nanos,
    /// Print the results as JSON
    #[arg(long, conflicts_with = "add")]
    pub json: bool,
}
