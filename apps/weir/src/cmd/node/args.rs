//! Command-line arguments of the commands that talk to a node.

use super::address::NodeAddress;
use super::spec_options::SpecOptions;
use crate::amounts::{AmountOptions, SessionLimitAmounts};
use crate::output::rotation::RotationLimit;
use crate::output::row_args::RowArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::SystemTime;
use weir_admission::Name;
use weir_ledger::{LedgerHead, parse_time};
use weir_node::control::protocol;
use weir_node::control::spec::SessionSpec;
use weir_units::{BitsPerSecond, Bytes, Nanos, Timestamp};

/// Options that choose the node.
#[derive(Debug, Args)]
pub struct NodeAddressArgs {
    /// The socket of a node on this machine [env: WEIR_SOCKET] [default: /run/weir/node.sock]
    #[arg(long, value_name = "PATH", conflicts_with = "node", global = true)]
    pub socket: Option<PathBuf>,
    /// A remote node: [KEY[,KEY]@]HOST[:PORT], with a credential or an operator's key [env: WEIR_NODE]
    ///
    /// KEY is the node's public key, which the node prints when it starts; with it, no other machine can pose as the node. Two KEYs are given while the node's key is being replaced. --socket overrides WEIR_NODE.
    #[arg(long, value_name = "NODE", global = true)]
    pub node: Option<NodeAddress>,
    /// The file of the credential for the node; operators need none (an empty WEIR_CREDENTIAL is none)
    #[arg(long, value_name = "FILE", env = "WEIR_CREDENTIAL", global = true)]
    pub credential: Option<PathBuf>,
    /// The file of the credential's private key, or of an operator's key
    #[arg(long, value_name = "FILE", env = "WEIR_KEY", global = true)]
    pub key: Option<PathBuf>,
    /// The file whose first line is the passphrase of an encrypted private key; - is standard input. Without this option, the passphrase is asked for on the terminal
    #[arg(long, value_name = "FILE", env = "WEIR_PASSPHRASE_FILE", global = true)]
    pub passphrase_file: Option<PathBuf>,
}

/// `weir config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a node's configuration without starting a node
    ///
    /// Performs the checks of a start: whether files, folders, cores, interfaces, addresses and keys can be used, and whether modules compile and start.
    /// Everything that it creates is removed again. Run the command as the node's user: Resources that only another user may use give a warning, and so do resources that a running node may hold.
    #[command(after_help = "Exit status: 0 when a node can be started with it; 1 when not.")]
    Check {
        /// The TOML file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// `weir session`.
#[derive(Debug, Args)]
pub struct SessionArgs {
    #[command(flatten)]
    pub address: NodeAddressArgs,
    #[command(subcommand)]
    pub action: SessionCommand,
}

/// The session commands.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// Create a session: its CPU, its memory and its packets
    Create(CreateArgs),
    /// Change a running session: its reservations, channels and other parts
    Change(ChangeArgs),
    /// Close a session and end its modules. If its holder has no other session, the sessions under rights that this holder delegated are ended too
    Close {
        /// The session
        #[arg(value_name = "NAME", value_parser = name)]
        name: Name,
    },
    /// List the sessions
    List,
    /// Show a session: its virtual CPUs, channels and modules
    Show {
        /// The session
        #[arg(value_name = "NAME", value_parser = name)]
        name: Name,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

/// `weir session create`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir session create alice --cpu period=10ms,slice=2ms,borrow --channel interface=eth0
  weir session create bob --memory 16MiB --cpu weight=50 --channel 'interface=eth0,filter=tcp port 80,queue=1024'
  weir session create carol --from carol.toml
  weir session create dave --output 'link=eth1,reserve=40 Mbit/s,tap=weir0'
  weir session create erin --channel interface=eth0 --read prefixes=geo --publish blocked

A table has a name on the node, and one in the manifests of the modules that read or publish it. With --read prefixes=geo
the session's modules read the node's table geo as prefixes.

By default a session has 64 MiB, one virtual CPU without a reservation, and no channels.")]
pub struct CreateArgs {
    /// The name of the new session
    #[arg(value_name = "NAME", value_parser = name)]
    pub name: Name,
    #[command(flatten)]
    pub spec: SpecOptions<SessionSpec>,
    #[command(flatten)]
    pub limits: AmountOptions<SessionLimitAmounts>,
    /// Read the session from this file: TOML as under [[session]] in the node's configuration. Options override the file; paths of modules
    /// are relative to the file's folder
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
}

/// `weir session change`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir session change alice --cpu name=main,period=10ms,slice=4ms
  weir session change dave --output 'link=eth1,reserve=65 Mbit/s,tap=weir0'
  weir session change bob --channel 'name=dns,interface=eth0,filter=udp port 53'
  weir session change asn --offer 'service=lookup,callers=alice bob,queue=4'
  weir session change alice --use service=lookup,session=asn,cost_max=50us
  weir session change study --share follow=weir-key:…
  weir session change erin --read prefixes=geo6 --publish seen --remove-publish blocked

If the change names an existing virtual CPU, channel, output channel, offer or use, the existing one is replaced as a whole: omitted keys get their defaults.")]
pub struct ChangeArgs {
    /// The session
    #[arg(value_name = "NAME", value_parser = name)]
    pub name: Name,
    #[command(flatten)]
    pub spec: SpecOptions<protocol::Change>,
    #[command(flatten)]
    pub limits: AmountOptions<SessionLimitAmounts>,
}

// A table is a named sequence of bytes on a node. The operator or one module publishes it, and other modules read it.
/// `weir table`.
#[derive(Debug, Args)]
pub struct TableArgs {
    #[command(flatten)]
    pub address: NodeAddressArgs,
    #[command(subcommand)]
    pub action: TableCommand,
}

/// The table commands.
#[derive(Debug, Subcommand)]
pub enum TableCommand {
    /// Publish a file as the next version of a table, whose bytes modules read: each of them sees the whole new version or the whole previous one
    Put {
        /// The table's name on the node
        #[arg(value_name = "NAME", value_parser = name)]
        name: Name,
        /// The file with the table's bytes
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Remove a table: modules that read it see an empty table
    Remove {
        /// The table's name on the node
        #[arg(value_name = "NAME", value_parser = name)]
        name: Name,
    },
    /// List the tables with their publishers and readers
    List,
}

/// `weir link`.
#[derive(Debug, Args)]
pub struct LinkArgs {
    #[command(flatten)]
    pub address: NodeAddressArgs,
    #[command(subcommand)]
    pub action: LinkCommand,
}

/// The link commands.
#[derive(Debug, Subcommand)]
pub enum LinkCommand {
    /// List the links with their rates and reservations
    List,
    /// Show a link and its output channels
    Show {
        /// The link's interface
        #[arg(value_name = "IFACE")]
        link: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Change the rate of a running link; refused if reservations exceed the new rate. The configuration file is not changed
    #[command(after_help = "Example:\n  weir link change eth1 --rate 50Mbit/s --reservable 80")]
    Change {
        /// The link's interface
        #[arg(value_name = "IFACE")]
        link: String,
        /// Bits on the wire per second
        #[arg(long, value_name = "RATE", required_unless_present = "reservable")]
        rate: Option<BitsPerSecond>,
        /// The part of the rate that can be reserved
        #[arg(long, value_name = "PERCENT")]
        reservable: Option<u8>,
    },
}

/// `weir load`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir load alice rtt
  weir load alice theirs.wasm,ports=53,123 --channel dns --cpu fast --name dns-ports
  weir load alice theirs-2.wasm,ports=53,123 --replace --name dns-ports

If a signature MODULE.sig, as `weir sign` creates it, is beside the module's file, it is sent too.")]
pub struct LoadArgs {
    #[command(flatten)]
    pub address: NodeAddressArgs,
    /// The session
    #[arg(value_name = "SESSION", value_parser = name)]
    pub session: Name,
    /// A shipped module's name, or the path of a .wasm file; parameters follow as in `weir run -m`
    #[arg(value_name = "MODULE[,KEY=VALUE]...")]
    pub module: String,
    /// The channel whose packets the module gets
    #[arg(long, value_name = "NAME", default_value = "main", value_parser = name)]
    pub channel: Name,
    /// The virtual CPU that the module runs on
    #[arg(long, value_name = "NAME", default_value = "main", value_parser = name)]
    pub cpu: Name,
    /// The module's name in the session [default: the name in its manifest]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub name: Option<Name>,
    /// Take the place of the session's module of the same name: on its channel and virtual CPU, with its waiting packets, and with its state if both declare the same `[[state]]`
    #[arg(long, conflicts_with_all = ["channel", "cpu"])]
    pub replace: bool,
    /// The trial of a module that replaces another one: at a fault in this time the version before returns
    #[arg(long, value_name = "DURATION", default_value = "60s", requires = "replace")]
    pub trial: Nanos,
    /// A file with a signature of the module, instead of the file beside it; can be repeated
    #[arg(long = "signature", value_name = "FILE")]
    pub signatures: Vec<PathBuf>,
    /// Run the module without a meter; needs a session with --process own, and for a holder of a credential the right for one of the module's signers
    #[arg(long)]
    pub unmetered: bool,
}

/// `weir unload`.
#[derive(Debug, Args)]
pub struct UnloadArgs {
    #[command(flatten)]
    pub address: NodeAddressArgs,
    /// The session
    #[arg(value_name = "SESSION", value_parser = name)]
    pub session: Name,
    /// The module's name in the session
    #[arg(value_name = "MODULE", value_parser = name)]
    pub module: Name,
}

/// `weir follow`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir follow alice                                        rows of all modules of session alice as tables, findings as lines
  weir follow alice theirs --stream totals --format json   rows of one stream, one JSON object a line
  weir follow alice --stream theirs.totals --rows 100      the first 100 rows of it
  weir follow alice --out records --report report.html     all rows until Ctrl-C, as Parquet files and as a report

Modules that are loaded later are not followed. The command ends when all followed modules have ended, by Ctrl-C, SIGTERM or SIGHUP, and when the reader of \
its rows ends, as in weir follow alice | head; with --out or --report it then goes on. Files are then complete. If the connection breaks, \
they keep the extension .part.

Exit status: 0 after these ends; 1 when the node ended the records for another reason, or the connection broke; 2 for wrong usage.")]
pub struct FollowArgs {
    #[command(flatten)]
    pub address: NodeAddressArgs,
    /// The session
    #[arg(value_name = "SESSION", value_parser = name)]
    pub session: Name,
    /// The module; without it, all modules that run in the session now
    #[arg(value_name = "MODULE", value_parser = name)]
    pub module: Option<Name>,
    /// The rows on standard output.
    #[command(flatten)]
    pub printing: RowArgs,
    /// Write records to DIR/MODULE/STREAM.parquet
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Complete the files of --out after this time, or at this size of the rows before compression, and begin new ones: DIR/MODULE-0, DIR/MODULE-1 and so
    /// on; with --format zeek, eve and ipfix, names such as conn_00001_20261231235900.log. A later call goes on counting
    #[arg(long, value_name = "TIME|SIZE", requires = "out")]
    pub rotate: Option<RotationLimit>,
    /// Write a report with plots: one self-contained HTML file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// `weir records`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir records                                                    list all complete files of your sessions
  weir records --session study --since 2h                         list the files with rows of the last two hours
  weir records --session study --out records                      fetch into records/study/MODULE-NUMBER/STREAM.parquet
  weir records --node ix-1.example --credential alice.credential --key alice.key --out records

A session that has ended has its files as long as the node keeps them. Files that are still being written are left for a later call.
A fetch that was interrupted continues where it stopped. Each file gets its name when its SHA-256 is that of the node's file. Complete files are not fetched again.
The node sends the files of a session at most at the session's rate of record bytes (`record_bytes`).")]
pub struct RecordsArgs {
    #[command(flatten)]
    pub address: NodeAddressArgs,
    /// Only the files of this session; can be repeated
    #[arg(long = "session", value_name = "NAME", value_parser = name)]
    pub sessions: Vec<Name>,
    /// Only the files of this module; can be repeated
    #[arg(long = "module", value_name = "NAME", value_parser = name)]
    pub modules: Vec<Name>,
    /// Only files with rows at this time or later: a day such as 2026-11-21, a time in UTC such as 2026-11-21T12:30:00Z, or a duration before now such as 2h. Files whose rows have no times are selected by the time in which they were written
    #[arg(long, value_name = "TIME", value_parser = time_or_age)]
    pub since: Option<Timestamp>,
    /// Only files with rows at this time or earlier
    #[arg(long, value_name = "TIME", value_parser = time_or_age)]
    pub until: Option<Timestamp>,
    /// Fetch the files into this folder, which is created if it is missing. Without this option, the files are listed
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The most bytes to fetch
    #[arg(long, value_name = "SIZE", default_value = "64GiB", requires = "out")]
    pub max_bytes: Bytes,
    /// Print the list as one JSON document
    #[arg(long, conflicts_with = "out")]
    pub json: bool,
}

/// `weir reload`.
#[derive(Debug, Args)]
pub struct ReloadArgs {
    #[command(flatten)]
    pub address: NodeAddressArgs,
}

/// `weir ledger`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir ledger                                                     usage of each session so far
  weir ledger --since 2026-11-01 --until 2026-12-01 --csv         usage in November
  weir ledger --session alice --entries                           events of session alice, one JSON object a line
  weir ledger --decisions --since 2026-11-21                      requests since then, and the reasons of refusals
  weir ledger --verify --head \"$(cat head)\"                       check that nothing was changed up to that head
  weir ledger --node ix-1.example --credential alice.credential --key alice.key
                                                                  usage of your own sessions there

The ledger is read from its files, or from a running node (--node, --socket, WEIR_NODE, WEIR_SOCKET), which sends only the entries you may see, up to the last complete interval.
Exit status: 0 when the ledger is intact; 1 when it is not, or does not exist.")]
pub struct LedgerArgs {
    #[command(flatten)]
    pub address: NodeAddressArgs,
    /// The folder of the ledger, or the node's state folder that contains it [default: /var/lib/weir]
    #[arg(value_name = "DIR", conflicts_with_all = ["node", "socket"])]
    pub dir: Option<PathBuf>,
    /// The ledger of the node with this configuration
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["dir", "node", "socket"])]
    pub config: Option<PathBuf>,
    /// Only sessions of this name
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub session: Option<Name>,
    /// Only intervals that end after this time: a day such as 2026-11-21, or a time in UTC such as 2026-11-21T12:30:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub since: Option<Timestamp>,
    /// Only intervals that end by this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub until: Option<Timestamp>,
    /// Print the usage, or the decisions, as CSV, with all columns and digits
    #[arg(long, conflicts_with_all = ["json", "verify", "entries"])]
    pub csv: bool,
    /// Print the usage, or the decisions, as JSON, with all columns and digits
    #[arg(long, conflicts_with_all = ["verify", "entries"])]
    pub json: bool,
    /// Verify the ledger and print its head: the number and hash of its last entry. Keep the head elsewhere: with --head, a later check proves
    /// that no entry up to the head was changed or removed
    #[arg(long, conflicts_with_all = ["entries", "decisions", "session", "since", "until", "node", "socket"])]
    pub verify: bool,
    /// A head from an earlier check, which the ledger must contain
    #[arg(long, value_name = "HEAD", requires = "verify")]
    pub head: Option<LedgerHead>,
    /// Print the entries, one JSON object a line
    #[arg(long, conflicts_with = "decisions")]
    pub entries: bool,
    /// Print the decisions on requests: the requester, the request, its credentials and the outcome. Also as CSV or JSON
    #[arg(long)]
    pub decisions: bool,
}

/// `weir top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    #[command(flatten)]
    pub address: NodeAddressArgs,
    /// Print the state once as plain text, with rates over one second. This is the default if standard output is not a terminal
    #[arg(long)]
    pub once: bool,
}

fn name(text: &str) -> Result<Name, weir_admission::NameError> {
    Name::new(text)
}

/// Reads a time, or a duration before the present time.
fn time_or_age(text: &str) -> Result<Timestamp, String> {
    let time_error = match parse_time(text) {
        Ok(time) => return Ok(time),
        Err(error) => error,
    };
    let age: Nanos = text.parse().map_err(|_| format!("{time_error}; or a duration before now, 2h"))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    Ok(Timestamp(now.saturating_sub(age.0)))
}
