//! The command line. Help, manual pages and completions are made from these definitions.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use weir_units::Nanos;

/// Runs packet-processing modules that you need not trust, on your own traffic.
///
/// Whatever a module does, it reads only packets, writes only records, and takes nothing down.
#[derive(Debug, Parser)]
#[command(name = "weir", version, arg_required_else_help = true, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run modules over a capture
    Run(Run),
    /// List the modules that come with weir, or show one
    Modules {
        /// Show this one: its parameters and streams
        name: Option<String>,
    },
    /// Say what a module may cost, whether it would be admitted, and what to do where it would not
    Check(Check),
    /// Measure how long this node takes for a unit of fuel, and keep it
    Calibrate(Calibrate),
    /// Begin a new module
    New {
        /// The folder to make; its last part is the module's name
        #[arg(value_name = "NAME")]
        path: PathBuf,
        /// Language of its source
        #[arg(long, value_enum, default_value_t = Lang::C)]
        lang: Lang,
    },
    /// Build a module from its folder
    Build {
        /// The folder with weir.toml
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
    /// Compile a module from standard input to standard output: what weir runs for each module that is not in the cache
    #[command(hide = true)]
    Compile,
    /// Write the manual pages
    #[command(hide = true)]
    Man {
        /// Into this folder
        dir: PathBuf,
    },
    /// Print completions for a shell
    #[command(hide = true)]
    Completions {
        /// Which one
        shell: clap_complete::Shell,
    },
}

/// Languages that `weir new` knows.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Lang {
    /// C, compiled by clang
    C,
    /// Rust, without its standard library
    Rust,
}

/// `weir check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir check rtt                                 what a packet may cost at most, and why
  weir check mine/mine.wasm --annotate           with the cost of loops and calls beside the lines of the source
  weir check theirs.wasm --profile strict.toml   by what an operator lets modules use
  weir check theirs.wasm --json                  as one JSON document; docs/CHECK.md says what its fields mean

Exit status: 0 when the module would be admitted; 1 when it would not; 2 for wrong usage.")]
pub struct Check {
    /// Name of a shipped module or path of a .wasm file, with parameters as in `weir run -m`. Of one that must be given and is not, every value
    /// is looked at
    #[arg(value_name = "MODULE[,KEY=VALUE]...")]
    pub module: String,
    /// Hold it against this profile: a TOML file that says what modules may use, as docs/profiles has them
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long, conflicts_with = "annotate")]
    pub json: bool,
    /// Show the source's lines with what loops and calls cost beside them. Sources are looked for in the module's folder; where there are
    /// none, the WebAssembly text is shown
    #[arg(long)]
    pub annotate: bool,
}

/// `weir calibrate`.
#[derive(Debug, Args)]
pub struct Calibrate {
    /// Show what was measured and keep nothing
    #[arg(long)]
    pub dry_run: bool,
    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
}

/// `weir run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir run -r traffic.pcap                            all shipped monitors
  weir run -r traffic.pcap -m rtt --out results       round-trip times into results/rtt/rtts.parquet
  weir run -r traffic.pcap.zst -m port-count,ports=53,123 --json
  weir run -r traffic.pcap -m ./mine.wasm --profile strict.toml
  weir run -r in.pcap -m dscp-mark,source=10.0.0.0/8,dscp=46 -w out.pcap
  tcpdump -w - | weir run -r - -m ./mine.wasm 'tcp port 80'

Exit status: 0 when the run went to its end, also where modules failed or the capture is cut short; 1 when it did not; 2 for wrong usage.")]
pub struct Run {
    /// Read packets from this capture: pcap or pcapng, also gzip or zstd; - is standard input
    #[arg(short = 'r', long = "read", value_name = "FILE")]
    pub read: PathBuf,
    /// Run this module: a shipped one's name, or the path of a .wasm file; parameters follow, as in rtt,table-size=4096. Items of a list are
    /// separated by commas; write \, for a comma that belongs to a value. Without -m all shipped monitors run
    #[arg(short = 'm', long = "module", value_name = "MODULE[,KEY=VALUE]...")]
    pub modules: Vec<String>,
    /// Write the packets that no module dropped, patched, to this capture: pcapng if it is named so, else pcap; - is standard output, and the
    /// summary then goes to standard error. FILTER does not choose what is written
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Write records to DIR/MODULE/STREAM.parquet
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the summary as one JSON document. Of a module, "ended" says that it saw no further packets after its faults
    #[arg(long)]
    pub json: bool,
    /// Write a report with plots: one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Run on N threads; the output does not depend on it [default: one for each processor, at most 16]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,
    /// Admit modules by this profile: a TOML file that says what they may use, as docs/profiles has them. Without it whatever ends in reasonable
    /// time runs
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Processor time after which a call is ended, should its other limits fail; of a proved module, ten times this, or ten times what the profile
    /// grants the call
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    pub call_limit: Nanos,
    /// Neither use nor keep compiled modules
    #[arg(long)]
    pub no_cache: bool,
    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
    /// Call modules only for packets that match this pcap-filter(7) expression; with -w, the others are written as they are. Options come
    /// before it
    #[arg(value_name = "FILTER", trailing_var_arg = true)]
    pub filter: Vec<String>,
}
