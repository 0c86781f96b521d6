//! The command line. Help, manual pages and completions are made from these definitions.

use crate::cmd::node::args;
use crate::cmd::policy;
use crate::cmd::trust::args as trust;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use weir_units::{BitsPerSecond, Bytes, Nanos};

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
    /// Run modules over a capture or a live interface
    Run(Box<Run>),
    /// List the modules that come with weir, or show one
    Modules {
        /// Show this one: its parameters and streams
        name: Option<String>,
    },
    /// Say what a module may cost, whether it would be admitted, and what to do where it would not
    Check(CheckArgs),
    /// Measure how long this node takes for a unit of fuel, and keep it
    Calibrate(Calibrate),
    /// Run a live node: sessions with guaranteed shares of this machine, by its configuration
    #[command(after_long_help = NODE_HELP)]
    Node {
        /// The configuration
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: PathBuf,
    },
    /// Check the configuration of a node
    #[command(subcommand)]
    Config(args::ConfigCommand),
    /// Create, change, close, list and show a node's sessions
    Session(Box<args::SessionArgs>),
    /// Publish, remove and list a node's named tables, which modules read
    Table(args::TableCommand),
    /// List and show a node's links, and give them other rates
    Link(args::LinkCommand),
    /// Load a module into a session
    Load(args::LoadArgs),
    /// End a module of a session
    Unload(args::Unload),
    /// Print the records of a stream as they come
    Follow(args::Follow),
    /// Have a node read its configuration again: all of it takes effect, or nothing
    Reload(args::Reload),
    /// Say what sessions used, from a node's ledger, and whether the ledger is whole
    Ledger(args::LedgerArgs),
    /// Watch a node: its sessions, processors, queues, losses and interfaces
    Top(args::TopArgs),
    /// Make a key pair, or show a public key
    #[command(subcommand)]
    Key(trust::KeyCommand),
    /// Grant somebody something: a credential, signed with an operator's key
    Grant(Box<trust::GrantArgs>),
    /// Pass a credential on, or a part of what it allows
    Delegate(Box<trust::Delegate>),
    /// Sign a module: vouch for it to nodes whose credentials name the signer
    Sign(trust::Sign),
    /// Show a credential, say what it allows at a node, or take credentials back
    #[command(subcommand)]
    Credential(trust::CredentialCommand),
    /// Check an operator's policy, and try its cases
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Begin a new module
    New {
        /// The folder to make; its last part is the module's name
        #[arg(value_name = "NAME")]
        path: PathBuf,
        /// Language of its source
        #[arg(long, value_enum, default_value_t = LanguageArg::C)]
        lang: LanguageArg,
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
    /// Keep a private key and sign handshakes with it: what a node runs for its own, with a socket for standard input
    #[command(hide = true, name = weir_node::KEEPER)]
    KeepKey {
        /// The key's file
        file: PathBuf,
    },
    /// Run one module: what a node runs for each module of a session in processes of its own, with a socket for standard input
    #[command(hide = true, name = weir_node::WARD)]
    RunModule,
    /// Start processes for a node, each with namespaces of its own: what a node runs once, with a socket for standard input
    #[command(hide = true, name = weir_node::SPAWNER)]
    StartProcesses {
        /// The first user for them, the place of their control groups, and the key's file
        settings: Vec<std::ffi::OsString>,
    },
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
pub enum LanguageArg {
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
pub struct CheckArgs {
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

const NODE_HELP: &str = "\
The node runs until SIGTERM or SIGINT, and reads its configuration again on SIGHUP: all of it takes effect, or nothing does and it says why.
It says what happens on standard error, and tells systemd (Type=notify) when it is ready. It needs CAP_NET_RAW for its interfaces.";

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
  weir run -i eth0 -c 10000 --out results             the next 10,000 packets of an interface
  weir run -i eth0 -m port-count --duration 1h 'udp'  for an hour, or until Ctrl-C
  weir run -i eth0 -m dscp-mark,source=10.0.0.0/8,dscp=46 --send eth1 --rate 100Mbit/s

A run ends with its capture or interface, with -c or --duration, and by Ctrl-C, SIGTERM or SIGHUP: modules are told, and records, report \
and summary are complete. By a signal, the rest of a file is not read; of a pipe, what its writer writes within two seconds is. A second \
signal ends the program at once.

A live run needs CAP_NET_RAW (AF_XDP: more): run it as root, or give the program the capability once, by `setcap cap_net_raw+ep`.

Exit status:
  0  the run went to its end, also by a signal or where the capture is cut short
  1  the run did not go to its end, or its results could not be written
  2  wrong usage
  3  a module did not start or was ended, and the others saw all packets; with --strict: a module had a fault, which ended the run
  70 a module could not be stopped, and the program ended itself",
    group = clap::ArgGroup::new("source").required(true))]
pub struct Run {
    /// Read packets from this capture: pcap or pcapng, also gzip or zstd; - is standard input
    #[arg(short = 'r', long = "read", value_name = "FILE", group = "source")]
    pub read: Option<PathBuf>,
    /// Read packets from this interface, as they come and go, until something ends the run; a name that is none gets a list of those there are
    #[arg(short = 'i', long = "interface", value_name = "IFACE", group = "source")]
    pub interface: Option<String>,
    /// Stop after COUNT packets that match FILTER
    #[arg(short = 'c', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Run this module: a shipped one's name, or the path of a .wasm file; parameters follow, as in rtt,table-size=4096. Items of a list are
    /// separated by commas; write \, for a comma that belongs to a value. Without -m all shipped monitors run
    #[arg(short = 'm', long = "module", value_name = "MODULE[,KEY=VALUE]...")]
    pub modules: Vec<String>,
    /// Write the packets that no module dropped, patched, to this capture: pcapng if it is named so, else pcap; - is standard output, and the
    /// summary then goes to standard error. FILTER does not choose what is written
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Write records to DIR/MODULE/STREAM.parquet, and the frames that modules send to DIR/MODULE/OUTPUT.pcap
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the summary as one JSON document. Of a module, "ended" says that it saw no further packets after its faults
    #[arg(long)]
    pub json: bool,
    /// Write a report with plots: one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Show modules this file as the table NAME, which their manifests declare to be read; a table that is not named here is empty
    #[arg(long = "table", value_name = "NAME=FILE")]
    pub tables: Vec<String>,
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
    /// End the run at a module's first fault, with status 3. Without it a module that has faults goes on until it has had too many, and the others go on
    /// without it
    #[arg(long)]
    pub strict: bool,
    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
    /// Call modules only for packets that match this pcap-filter(7) expression; with -w or --send, the others go on as they are. Options
    /// come before it
    #[arg(value_name = "FILTER", trailing_var_arg = true)]
    pub filter: Vec<String>,
    /// What goes for an interface only. Last, so that its heading is not that of others too.
    #[command(flatten)]
    pub live: LiveArgs,
}

/// What goes for a live interface only.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of a live interface")]
pub struct LiveArgs {
    /// Stop after this time, such as 10s or 5m
    #[arg(long, value_name = "TIME", conflicts_with = "read")]
    pub duration: Option<Nanos>,
    /// Send the packets that no module dropped, patched, on this other interface. Then only packets that arrive are read, so that those
    /// sent do not come back. FILTER does not choose what is sent. What modules send themselves goes there too. The host sees the packets of -i as well, unless --kind is xdp
    #[arg(long, value_name = "IFACE", conflicts_with = "read")]
    pub send: Option<String>,
    /// Send no faster than this, on the wire: of an Ethernet frame its preamble, check sequence and gap count. What does not fit into the queue,
    /// a tenth of a second, is lost and counted
    #[arg(long, value_name = "RATE", requires = "send", conflicts_with = "read")]
    pub rate: Option<BitsPerSecond>,
    /// The way by which the kernel hands over packets
    #[arg(long, value_enum, default_value_t = ReceiveMethodArg::Auto, conflicts_with = "read")]
    pub kind: ReceiveMethodArg,
    /// Keep only so many bytes of a packet; those cut cannot be sent
    #[arg(short = 's', long, value_name = "BYTES", conflicts_with = "read", value_parser = clap::value_parser!(u32).range(1..=262_144))]
    pub snapshot_length: Option<u32>,
    /// Leave the interface as it is, and do not have it receive packets for other hosts
    #[arg(short = 'p', long, conflicts_with = "read")]
    pub no_promiscuous_mode: bool,
    /// Memory in which packets wait while modules are busy: what does not fit is lost, and counted
    #[arg(long, value_name = "SIZE", conflicts_with = "read", default_value = "64MiB")]
    pub ring: Bytes,
}

/// By which way packets come from an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReceiveMethodArg {
    /// The one that takes nothing away from the host: packet
    Auto,
    /// AF_PACKET: copies of all packets, those that arrive and those that the host sends
    Packet,
    /// AF_XDP: takes the packets that arrive on the first queue, which the host then does not see
    Xdp,
}
