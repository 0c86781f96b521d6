//! The command line. Help, manual pages and completions are generated from these definitions.

use crate::cmd::extcap::args::ExtcapArgs;
use crate::cmd::graph::GraphCommand;
use crate::cmd::node::args;
use crate::cmd::policy;
use crate::cmd::schema::SchemaArgs;
use crate::cmd::test::args::TestArgs;
use crate::cmd::trust::args as trust;
use crate::cmd::ui::UiArgs;
use crate::output::rotation::RotationLimit;
use crate::output::row_args::RowArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use weir_node::control::config::BLOCKING;
use weir_trust::key::PublicKey;
use weir_units::{BitsPerSecond, Bytes, Nanos};
use weir_verify::CpuFeatures;

/// The exit statuses of all commands. The help of `weir run` says more about its own.
const EXIT_STATUSES: &str = "\
Exit status:
  0  success
  1  the command failed
  2  wrong usage
  3  weir run: a module did not start or was ended; with --strict, it had a fault
  70 a module could not be stopped, and the program ended itself";

/// Runs untrusted packet-processing modules on your own traffic
///
/// A module can only read the packets it is given and write records. It cannot crash or block weir.
#[derive(Debug, Parser)]
#[command(name = "weir", version, arg_required_else_help = true, propagate_version = true, after_help = EXIT_STATUSES)]
pub struct Cli {
    /// The subcommand.
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
        /// Describe this module: its parameters and record streams
        name: Option<String>,
        /// List the semantics that a module's manifest can give to a field
        #[arg(long, conflicts_with = "name")]
        semantics: bool,
    },
    /// Print the JSON schemas of documents and of a module's rows
    Schema(SchemaArgs),
    /// Show a module's maximum cost, whether it would be admitted, and how to fix it if not
    Check(CheckArgs),
    /// Compile a module with LLVM, verify the machine code, and explain it
    Compile(CompileArgs),
    /// Measure the time of a unit of fuel on this machine, and store it
    Calibrate(CalibrateArgs),
    /// Run a live node: sessions with guaranteed shares of this machine, as its configuration says
    #[command(after_long_help = NODE_HELP)]
    Node {
        /// The configuration file
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: PathBuf,
    },
    /// Check the configuration of a node
    #[command(subcommand)]
    Config(args::ConfigCommand),
    /// Create, change, close, list and show a node's sessions
    Session(Box<args::SessionArgs>),
    /// Publish, remove and list a node's named tables, which modules read
    Table(args::TableArgs),
    /// List and show a node's links, and change their rates
    Link(args::LinkArgs),
    /// Load a module into a session
    Load(args::LoadArgs),
    /// End a module of a session
    Unload(args::UnloadArgs),
    /// Print the records of a module's record stream as they arrive
    Follow(args::FollowArgs),
    /// List the stored record files of a node's sessions, or fetch them into a folder
    Records(args::RecordsArgs),
    /// Have a node read its configuration again: all of it takes effect, or nothing
    Reload(args::ReloadArgs),
    /// Show the usage of sessions from a node's ledger, and verify the ledger
    Ledger(args::LedgerArgs),
    /// Watch a node: its sessions, processors, queues, losses and interfaces
    Top(args::TopArgs),
    /// Serve a web page of a node to your own browser
    Ui(Box<UiArgs>),
    /// Show packets in Wireshark and tshark: a capture, an interface or a session, in a view
    Extcap(Box<ExtcapArgs>),
    /// Read graphs of packet-processing elements, in the language of Click
    #[command(subcommand)]
    Graph(GraphCommand),
    /// Make a key pair, or show a public key
    #[command(subcommand)]
    Key(trust::KeyCommand),
    /// Create a credential, signed with an operator's key
    Grant(Box<trust::GrantArgs>),
    /// Delegate a credential, or a part of its rights
    Delegate(Box<trust::DelegateArgs>),
    /// Sign a module, for nodes whose credentials name the signer
    Sign(trust::SignArgs),
    /// Show a credential, explain what it allows at a node, or revoke credentials
    #[command(subcommand)]
    Credential(trust::CredentialCommand),
    /// Check an operator's policy, and run its test cases
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Create a new module
    New {
        /// The folder to create; its last part is the module's name
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
    /// Make a module of a WebAssembly file of any compiler and of a manifest
    Pack {
        /// The file that the compiler made
        #[arg(value_name = "FILE.wasm")]
        wasm: PathBuf,
        /// The manifest
        #[arg(value_name = "weir.toml")]
        manifest: PathBuf,
        /// The module to write [default: NAME.wasm beside the manifest, with the name in it]
        #[arg(short = 'o', long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Build a module and run its tests: in the sandbox, and natively with sanitizers
    Test(TestArgs),
    /// Compile a module from standard input to standard output; weir runs this for each module that is not in the cache
    #[command(hide = true)]
    CompileCranelift,
    /// Become clang, which compiles LLVM IR from standard input to an object file on standard output; weir runs this for each
    /// module that is not in the cache
    #[command(hide = true)]
    CompileLlvm,
    /// Become clang, which writes its version to standard output; weir runs this before it compiles with a new clang
    #[command(hide = true)]
    VersionLlvm,
    /// Hold a private key and sign handshakes with it; a node runs this as its key agent, with a socket as standard input
    #[command(hide = true, name = weir_node::KEY_AGENT_ARGUMENT)]
    KeepKey {
        /// The key's file
        file: PathBuf,
    },
    /// Run one module; a node runs this as a sandbox process, with a socket as standard input
    #[command(hide = true, name = weir_node::SANDBOX_ARGUMENT)]
    RunModule,
    /// Start processes for a node, each in its own namespaces; a node runs this once, with a socket as standard input
    #[command(hide = true, name = weir_node::SPAWNER)]
    StartProcesses {
        /// The first user id of the processes, the path of their control groups, and the key's file
        settings: Vec<std::ffi::OsString>,
    },
    /// Write the manual pages
    #[command(hide = true)]
    Man {
        /// The folder to write to
        dir: PathBuf,
    },
    /// Print completions for a shell
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Languages that `weir new` supports.
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
  weir check rtt                                 the maximum cost of a packet, and the reason
  weir check mine/mine.wasm --annotate           with the cost of loops and calls beside the lines of the source
  weir check theirs.wasm --profile strict.toml   against the limits of an operator's profile
  weir check theirs.wasm --json                  as one JSON document; docs/CHECK.md describes its fields

Exit status: 0 when the module would be admitted; 1 when it would not; 2 for wrong usage.")]
pub struct CheckArgs {
    /// Name of a shipped module or path of a .wasm file, with parameters as in `weir run -m`. If a required parameter is missing, all of its
    /// values are considered
    #[arg(value_name = "MODULE[,KEY=VALUE]...")]
    pub module: String,
    /// Consider all allowed values of parameters with a default, too, but for those that MODULE sets. Without this option, the bounds
    /// are for the defaults
    #[arg(long)]
    pub any_value: bool,
    /// Check against this profile: a TOML file with the limits of modules; docs/profiles has examples
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long, conflicts_with = "annotate")]
    pub json: bool,
    /// Show the source lines with the cost of loops and calls. Sources are searched for in the module's folder; without any, the WebAssembly
    /// text is shown
    #[arg(long)]
    pub annotate: bool,
}

/// `weir compile`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir compile rtt                               the compiler, and the sizes and counts of the machine code
  weir compile rtt --explain                     with all machine code, and the reason why each access is allowed
  weir compile rtt --explain weir_packet         with the machine code of one function
  weir compile rtt --setup                       what the module can reach, and what it cannot
  weir compile mine/mine.wasm --object mine.o    and keep the verified object file
  weir compile mine/mine.wasm -o mine.weir --key compiler.key
                                                 a bundle for nodes: module, machine code, and signed records about it
  weir compile --check mine.weir                 compile the bundle's module again, and compare
  weir compile theirs.wasm --json                as one JSON document; docs/COMPILE.md describes its fields

Exit status: 0 when the module is admitted, also if it runs in Cranelift's code; 1 when it is not; 2 for wrong usage.")]
pub struct CompileArgs {
    /// Name of a shipped module or path of a .wasm file, with parameters as in `weir run -m`
    #[arg(value_name = "MODULE[,KEY=VALUE]...", required_unless_present = "check")]
    pub module: Option<String>,
    /// Show the machine code of this function, or of all, below the lines of the source, with the reason for each access. A number
    /// stands for the function with this index
    #[arg(long, value_name = "FUNCTION", num_args = 0..=1)]
    pub explain: Option<Option<String>>,
    /// Admit the module by this profile: a TOML file with the limits of modules; docs/profiles has examples
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Print what the module can reach in its sandbox, and what it cannot
    #[arg(long)]
    pub setup: bool,
    /// Print one JSON document
    #[arg(long, conflicts_with = "setup")]
    pub json: bool,
    /// Write the object file of clang to FILE, if its code is verified
    #[arg(long, value_name = "FILE")]
    pub object: Option<PathBuf>,
    /// Write a bundle to FILE: the module, its machine code for nodes and for `weir run`, and a record about each
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["explain", "json", "object", "setup"])]
    pub output: Option<PathBuf>,
    /// Sign the records of the bundle with this key
    #[arg(long, value_name = "FILE", requires = "output")]
    pub key: Option<PathBuf>,
    /// File with the passphrase of an encrypted key, in its first line
    #[arg(long, value_name = "FILE", requires = "key")]
    pub passphrase_file: Option<PathBuf>,
    /// Compile for processors of this level; without it, for those with the features of this machine
    #[arg(long, value_enum, value_name = "LEVEL", requires = "output")]
    pub target: Option<TargetArg>,
    /// Compile for nodes with this `blocking` in [cpu], the longest time for which a module may keep a core
    #[arg(long, value_name = "TIME", default_value_t = BLOCKING)]
    pub blocking: Nanos,
    /// Compile the module for a run without a meter (`weir load --unmetered`)
    #[arg(long, requires = "output")]
    pub unmetered: bool,
    /// Compile for nodes with this calibration, a file of `weir calibrate`; without it, for this machine, or for one that was
    /// not calibrated if that is slower. A node uses a bundle for slower nodes too, but none for faster ones
    #[arg(long, value_name = "FILE", requires = "output")]
    pub calibration: Option<PathBuf>,
    /// Compile the module of this bundle again and compare the object files; exits with 1 if they differ
    #[arg(long, value_name = "BUNDLE", conflicts_with_all = ["module", "explain", "json", "object", "output", "setup"])]
    pub check: Option<PathBuf>,
    /// Neither use nor store compiled modules
    #[arg(long)]
    pub no_cache: bool,
}

/// A level of CPU features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TargetArg {
    /// SSE4.2 and POPCNT: all processors of servers since 2009
    #[value(name = "x86-64-v2")]
    V2,
    /// And BMI1, BMI2, LZCNT and MOVBE: since 2013. Machine code does not use AVX
    #[value(name = "x86-64-v3")]
    V3,
}

impl TargetArg {
    /// Returns the level of this machine.
    pub fn of_machine() -> Self {
        match weir_native::cpu_features() {
            CpuFeatures::Baseline => Self::V2,
            CpuFeatures::BitManipulation | CpuFeatures::V3 => Self::V3,
        }
    }

    /// Returns the features that code may use.
    pub fn features(self) -> CpuFeatures {
        match self {
            Self::V2 => CpuFeatures::Baseline,
            Self::V3 => CpuFeatures::BitManipulation,
        }
    }

    /// Returns the level's name.
    pub fn name(self) -> &'static str {
        self.features().level()
    }
}

impl std::fmt::Display for TargetArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// `weir calibrate`.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// Show the measurement without storing it
    #[arg(long)]
    pub dry_run: bool,
    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
}

const NODE_HELP: &str = "\
The node runs until SIGTERM or SIGINT, and reads its configuration again on SIGHUP: all changes take effect, or none, with an error.
It logs to standard error, and notifies systemd (Type=notify) when it is ready. It needs CAP_NET_RAW for its interfaces.";

/// `weir run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir run -r traffic.pcap                            the default modules
  weir run -r traffic.pcap -m rtt --out results       round-trip times into results/rtt/rtts.parquet
  weir run -r traffic.pcap.zst -m port-count,ports=53,123 --json
  weir run -r traffic.pcap -m ./mine.wasm --profile strict.toml
  weir run -r in.pcap -m dscp-mark,source=10.0.0.0/8,dscp=46 -w out.pcap
  tcpdump -w - | weir run -r - -m ./mine.wasm 'tcp port 80'
  weir run -i eth0 -c 10000 --out results             the next 10,000 packets of an interface
  weir run -i eth0 -m port-count --duration 1h 'udp'  for an hour, or until Ctrl-C
  weir run -i eth0 -w trace.pcapng --rotate 1h        captures of an hour, named as by dumpcap
  weir run -i eth0 -m dscp-mark,source=10.0.0.0/8,dscp=46 --send eth1 --rate 100Mbit/s

A run ends at the end of its capture or interface, by -c or --duration, or by Ctrl-C, SIGTERM or SIGHUP: modules are stopped in order, and records, report \
and summary are complete. After a signal, the rest of a file is not read; a pipe is read for up to two more seconds. A second \
signal ends the program at once.

A live run needs CAP_NET_RAW (AF_XDP needs more): run it as root, or give the program the capability once, by `setcap cap_net_raw+ep`.

Exit status:
  0  the run finished, also after a signal or at the end of a truncated capture
  1  the run did not finish, or its results could not be written
  2  wrong usage
  3  a module did not start or was ended, and the others saw all packets; with --strict: a module had a fault, which ended the run
  70 a module could not be stopped, and the program ended itself",
    group = clap::ArgGroup::new("source").required(true),
    group = clap::ArgGroup::new("rotated").args(["write", "out"]).multiple(true))]
pub struct Run {
    /// Read packets from this capture: pcap or pcapng, also gzip or zstd; - is standard input. A folder stands for the captures in it, a quoted
    /// pattern such as 'trace*.pcap.gz' for the files that it matches. The packets of several captures are merged by their times
    #[arg(short = 'r', long = "read", value_name = "FILE", group = "source")]
    pub read: Vec<PathBuf>,
    /// Read the packets that this interface receives and sends, until the run is ended; an unknown name lists the interfaces
    #[arg(short = 'i', long = "interface", value_name = "IFACE", group = "source")]
    pub interface: Option<String>,
    /// Stop after COUNT packets that match FILTER
    #[arg(short = 'c', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Run this module: the name of a shipped one, or the path of a .wasm file; parameters follow, as in rtt,table-size=4096. List items are
    /// separated by commas; write \, for a comma within a value. Without -m the default modules run (weir modules marks them)
    #[arg(short = 'm', long = "module", value_name = "MODULE[,KEY=VALUE]...")]
    pub modules: Vec<String>,
    /// Write the packets that no module dropped, patched, to this capture: pcapng if the name ends in .pcapng, else pcap; - is standard output, and the
    /// summary then goes to standard error. The file is FILE.part until it is complete. FILTER does not restrict the written packets
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Write records to DIR/MODULE/STREAM.parquet, and the frames that modules send to DIR/MODULE/OUTPUT.pcap
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The rows on standard output.
    #[command(flatten)]
    pub printing: RowArgs,
    /// Print the summary as one JSON document, and no rows. "ended" is true for a module that was stopped after its faults
    #[arg(long, conflicts_with_all = ["rows", "format", "streams", "local_time"])]
    pub json: bool,
    /// Write the summary to FILE, as the JSON document of --json
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// Write a report with plots: one self-contained HTML file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// The title of the report [default: the name of the capture or interface]
    #[arg(long, value_name = "TEXT", requires = "report")]
    pub title: Option<String>,
    /// Use this file as the content of table NAME, which modules declare in their manifests; other tables are empty
    #[arg(long = "table", value_name = "NAME=FILE")]
    pub tables: Vec<String>,
    /// Run on N threads; the output does not depend on N [default: one for each processor, at most 16]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,
    /// Admit modules by this profile: a TOML file with the limits of modules; docs/profiles has examples. Without it, every module whose
    /// calls end in reasonable time runs
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Processor time after which a call is aborted, if its other limits fail. For a proved module, ten times this, or ten times the limit
    /// of the profile
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    pub call_limit: Nanos,
    /// The compiler of the modules. auto: Cranelift at first, then LLVM, whose code is verified before it runs, once clang 19 has compiled it
    /// during a run of more than half a second; llvm: LLVM from the start, for modules that can be compiled so; cranelift: Cranelift
    /// alone. Records do not depend on it
    #[arg(long, value_enum, value_name = "COMPILER", default_value_t = BackEndArg::Auto)]
    pub back_end: BackEndArg,
    /// Run bundles (weir compile -o) in the machine code that this compiler's key has signed, after verifying it; can be repeated. Without a
    /// key, and with --back-end cranelift, a bundle counts as the module in it
    #[arg(long = "compiler-key", value_name = "KEY")]
    pub compiler_keys: Vec<PublicKey>,
    /// Writes the names and addresses of the modules' functions where `perf report` looks for them: /tmp/perf-PID.map
    #[arg(long)]
    pub perf_map: bool,
    /// Neither use nor store compiled modules
    #[arg(long)]
    pub no_cache: bool,
    /// End the run at a module's first fault, with status 3. Without it, a module is stopped after too many faults, and the others go
    /// on
    #[arg(long)]
    pub strict: bool,
    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
    /// Call modules only for packets that match this pcap-filter(7) expression; with -w or --send, other packets pass unchanged. Options
    /// come before the filter
    #[arg(value_name = "FILTER", trailing_var_arg = true)]
    pub filter: Vec<String>,
    /// Options of a live interface. Last, so that their help heading does not cover other options.
    #[command(flatten)]
    pub live: LiveArgs,
}

/// Options of a live interface.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of a live interface")]
pub struct LiveArgs {
    /// Stop after this time, such as 10s or 5m
    #[arg(long, value_name = "TIME", conflicts_with = "read")]
    pub duration: Option<Nanos>,
    /// Complete the files after this time, or at this size, and begin new ones. Of -w x.pcap: x_00001_20261231235900.pcap and so on, with the
    /// UTC time of the begin, as dumpcap -b does. Of --out: DIR/MODULE-0, DIR/MODULE-1 and so on, by the size of the rows before compression; with --format zeek, eve and ipfix, names as those of -w.
    /// A later run goes on counting
    #[arg(long, value_name = "TIME|SIZE", requires = "rotated", conflicts_with = "read")]
    pub rotate: Option<RotationLimit>,
    /// Send the packets that no module dropped, patched, on this other interface, with the frames that modules send. Only received
    /// packets are then read, so that sent ones do not come back. FILTER does not restrict the sent packets. The host sees the packets of -i
    /// as well, unless --kind is xdp
    #[arg(long, value_name = "IFACE", conflicts_with = "read")]
    pub send: Option<String>,
    /// Maximum sending rate on the wire: preamble, check sequence and gap of Ethernet frames count. The queue holds the
    /// packets of a tenth of a second; packets that do not fit are dropped and counted
    #[arg(long, value_name = "RATE", requires = "send", conflicts_with = "read")]
    pub rate: Option<BitsPerSecond>,
    /// The kernel interface that delivers packets
    #[arg(long, value_enum, default_value_t = ReceiveMethodArg::Auto, conflicts_with = "read")]
    pub kind: ReceiveMethodArg,
    /// With --kind xdp, read only this receive queue of the network card, numbered from 0; can be repeated. By default all queues are read
    #[arg(long = "queue", value_name = "N", conflicts_with = "read", value_parser = clap::value_parser!(u16).range(0..256))]
    pub queues: Vec<u16>,
    /// Truncate packets to this many bytes; truncated packets cannot be sent
    #[arg(short = 's', long, value_name = "BYTES", conflicts_with = "read", value_parser = clap::value_parser!(u32).range(1..=262_144))]
    pub snapshot_length: Option<u32>,
    /// Do not put the interface into promiscuous mode, which receives packets for other hosts too
    #[arg(short = 'p', long, conflicts_with = "read")]
    pub no_promiscuous_mode: bool,
    /// Memory for packets that wait while modules are busy; packets that do not fit are dropped and counted
    #[arg(long, value_name = "SIZE", conflicts_with = "read", default_value = "64MiB")]
    pub ring: Bytes,
}

/// The compiler of modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackEndArg {
    /// Cranelift at first, then LLVM once a run has taken half a second
    Auto,
    /// LLVM from the start; its code is verified before it runs
    Llvm,
    /// Cranelift alone
    Cranelift,
}

/// The kernel interface that delivers packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReceiveMethodArg {
    /// The method that leaves the host's traffic untouched: packet
    Auto,
    /// AF_PACKET: copies of all packets that the host receives and sends
    Packet,
    /// AF_XDP: takes the packets received on all queues, or those of --queue; the host does not see them
    Xdp,
}
