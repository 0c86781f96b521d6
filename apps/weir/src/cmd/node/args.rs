//! The command lines of a node's commands.

use super::place::Address;
use super::stated::Stated;
use crate::amounts::{AmountOptions, OfSession};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use weir_admission::Name;
use weir_ledger::{LedgerHead, parse_time};
use weir_node::control::protocol;
use weir_node::control::spec::SessionSpec;
use weir_units::{BitsPerSecond, Timestamp};

/// Which node.
#[derive(Debug, Args)]
pub struct NodeAddressArgs {
    /// The socket of a node on this machine [env: WEIR_SOCKET] [default: /run/weir/node.sock]
    #[arg(long, value_name = "PATH", conflicts_with = "node", global = true)]
    pub socket: Option<PathBuf>,
    /// A node elsewhere, with a credential or an operator's key: [KEY@]HOST[:PORT] [env: WEIR_NODE]
    ///
    /// With KEY, the public key that the node says when it starts, nobody else is taken for it. Where WEIR_NODE says one, --socket is still another one.
    #[arg(long, value_name = "NODE", global = true)]
    pub node: Option<Address>,
    /// The file of the credential for it; for one of its operators none (an empty WEIR_CREDENTIAL is none, too)
    #[arg(long, value_name = "FILE", env = "WEIR_CREDENTIAL", global = true)]
    pub credential: Option<PathBuf>,
    /// The file of the private key that the credential is for, or of an operator's
    #[arg(long, value_name = "FILE", env = "WEIR_KEY", global = true)]
    pub key: Option<PathBuf>,
    /// Where that is sealed: the file with its passphrase in the first line; - is standard input. Without it the terminal is asked
    #[arg(long, value_name = "FILE", env = "WEIR_PASSPHRASE_FILE", global = true)]
    pub passphrase_file: Option<PathBuf>,
}

/// `weir config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a node's configuration without starting a node
    ///
    /// Makes the checks of a start and leaves nothing behind: files and folders, cores, interfaces, addresses and keys are tried, and modules are compiled and started. Run it as the node's user:
    /// what another user has no right to is a warning. So is what a node that runs with this configuration may have.
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
    pub place: NodeAddressArgs,
    #[command(subcommand)]
    pub act: SessionCommand,
}

/// What is done with sessions.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// Create a session: its CPU, its memory and its packets
    Create(Create),
    /// Change what a session has reserved, while it runs
    Change(ChangeArgs),
    /// Close a session and end its modules. With the last session of a credential's holder end those that others made under it, who have their right from him
    Close {
        /// Which
        #[arg(value_name = "NAME", value_parser = name)]
        name: Name,
    },
    /// List the sessions
    List,
    /// Show a session: its virtual processors, channels and modules
    Show {
        /// Which
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
  weir session create alice --cpu period=10ms,slice=2ms,spare --channel interface=eth0
  weir session create bob --memory 16MiB --cpu weight=50 --channel 'interface=eth0,filter=tcp port 80,queue=1024'
  weir session create carol --from carol.toml
  weir session create dave --output 'link=eth1,reserve=40 Mbit/s,tap=weir0'
  weir session create erin --channel interface=eth0 --read prefixes=geo --publish blocked

Where nothing is said, a session has 64 MiB, one virtual processor without a reservation, and no channels.")]
pub struct Create {
    /// What it is to be called
    #[arg(value_name = "NAME", value_parser = name)]
    pub name: Name,
    #[command(flatten)]
    pub stated: Stated<SessionSpec>,
    #[command(flatten)]
    pub limits: AmountOptions<OfSession>,
    /// Take the session from this file: TOML as under [[session]] in the node's configuration. Options go before what it says; paths of modules are
    /// relative to it
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
  weir session change alice --use service=lookup,of=asn,pays=50us
  weir session change study --share follow=weir-key:…
  weir session change erin --read prefixes=geo6 --publish seen --revoke-publish blocked

A virtual processor, a channel, an output channel, an offer and a use are given whole: what is left out is as for a new one.")]
pub struct ChangeArgs {
    /// Which
    #[arg(value_name = "NAME", value_parser = name)]
    pub name: Name,
    #[command(flatten)]
    pub stated: Stated<protocol::Change>,
    #[command(flatten)]
    pub limits: AmountOptions<OfSession>,
}

/// `weir table`.
#[derive(Debug, Args)]
pub struct TableCommand {
    #[command(flatten)]
    pub place: NodeAddressArgs,
    #[command(subcommand)]
    pub act: TableAct,
}

/// What is done with named tables.
#[derive(Debug, Subcommand)]
pub enum TableAct {
    /// Publish a file as the next version of a table: modules that read it see all of it, or the last one
    Put {
        /// Which
        #[arg(value_name = "NAME", value_parser = name)]
        name: Name,
        /// Its bytes
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Take a table away: modules that read it see an empty one
    Remove {
        /// Which
        #[arg(value_name = "NAME", value_parser = name)]
        name: Name,
    },
    /// List the tables: who publishes them, and who reads them
    List,
}

/// `weir link`.
#[derive(Debug, Args)]
pub struct LinkCommand {
    #[command(flatten)]
    pub place: NodeAddressArgs,
    #[command(subcommand)]
    pub act: LinkAct,
}

/// What is done with links.
#[derive(Debug, Subcommand)]
pub enum LinkAct {
    /// List the links: how fast they are, and what is reserved of them
    List,
    /// Show a link and the output channels that go out there
    Show {
        /// Its interface
        #[arg(value_name = "IFACE")]
        link: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Give a link another rate, while it runs; refused where more of it is promised. The configuration stays as it is
    #[command(after_help = "Example:\n  weir link change eth1 --rate 50Mbit/s --reservable 80")]
    Change {
        /// Its interface
        #[arg(value_name = "IFACE")]
        link: String,
        /// Bits on the wire per second
        #[arg(long, value_name = "RATE", required_unless_present = "reservable")]
        rate: Option<BitsPerSecond>,
        /// How much of that can be reserved
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

Where there is a file of the module's name with .sig behind it, as `weir sign` makes it, it goes with the module.")]
pub struct LoadArgs {
    #[command(flatten)]
    pub place: NodeAddressArgs,
    /// For which session
    #[arg(value_name = "SESSION", value_parser = name)]
    pub session: Name,
    /// A shipped module's name, or the path of a .wasm file; parameters follow as in `weir run -m`
    #[arg(value_name = "MODULE[,KEY=VALUE]...")]
    pub module: String,
    /// The channel whose packets it gets
    #[arg(long, value_name = "NAME", default_value = "main", value_parser = name)]
    pub channel: Name,
    /// The virtual processor that it runs on
    #[arg(long, value_name = "NAME", default_value = "main", value_parser = name)]
    pub cpu: Name,
    /// What it is to be called in its session; its own name where nothing is said
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub name: Option<Name>,
    /// A file with a signature of the module, instead of the one beside it. Can be given several times
    #[arg(long = "signature", value_name = "FILE")]
    pub signatures: Vec<PathBuf>,
}

/// `weir unload`.
#[derive(Debug, Args)]
pub struct Unload {
    #[command(flatten)]
    pub place: NodeAddressArgs,
    /// From which session
    #[arg(value_name = "SESSION", value_parser = name)]
    pub session: Name,
    /// The module, as it is called there
    #[arg(value_name = "MODULE", value_parser = name)]
    pub module: Name,
}

/// `weir follow`.
#[derive(Debug, Args)]
pub struct Follow {
    #[command(flatten)]
    pub place: NodeAddressArgs,
    /// Which session
    #[arg(value_name = "SESSION", value_parser = name)]
    pub session: Name,
    /// Which of its modules
    #[arg(value_name = "MODULE", value_parser = name)]
    pub module: Name,
    /// Which of the module's streams
    #[arg(value_name = "STREAM", value_parser = name)]
    pub stream: Name,
    /// Print each record as a JSON object
    #[arg(long)]
    pub json: bool,
}

/// `weir reload`.
#[derive(Debug, Args)]
pub struct Reload {
    #[command(flatten)]
    pub place: NodeAddressArgs,
}

/// `weir ledger`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir ledger                                                     what each session used so far
  weir ledger --since 2026-11-01 --until 2026-12-01 --csv         the bill of November
  weir ledger --session alice --entries                           what happened to alice, a line of JSON for each
  weir ledger --decisions --since 2026-11-21                      who asked for what since then, and why it was refused
  weir ledger --verify --head \"$(cat head)\"                       whether anything was changed since that head was kept
  weir ledger --node ix-1.example --credential alice.credential --key alice.key
                                                                  what your own sessions there used so far

The ledger is read from its files, or asked of a node that runs (--node, --socket, WEIR_NODE, WEIR_SOCKET), which tells you what is about you: up to the last whole interval.
Exit status: 0 when the ledger is whole; 1 when it is not, or is not there.")]
pub struct LedgerArgs {
    #[command(flatten)]
    pub place: NodeAddressArgs,
    /// The folder of the ledger, or the node's folder of state that it is in [default: /var/lib/weir]
    #[arg(value_name = "DIR", conflicts_with_all = ["node", "socket"])]
    pub dir: Option<PathBuf>,
    /// The ledger of the node with this configuration
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["dir", "node", "socket"])]
    pub config: Option<PathBuf>,
    /// Only sessions of this name
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub session: Option<Name>,
    /// Only intervals that end after this: a day, 2026-11-21, or a time in UTC, 2026-11-21T12:30:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub since: Option<Timestamp>,
    /// Only intervals that end by then
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub until: Option<Timestamp>,
    /// Print the bill, or the decisions, as CSV, with all columns and digits
    #[arg(long, conflicts_with_all = ["json", "verify", "entries"])]
    pub csv: bool,
    /// Print the bill, or the decisions, as JSON, with all columns and digits
    #[arg(long, conflicts_with_all = ["verify", "entries"])]
    pub json: bool,
    /// Say whether the ledger is whole, and print its head. Keep the head elsewhere: with it, the next time proves that nothing up to there was
    /// changed or cut off
    #[arg(long, conflicts_with_all = ["entries", "decisions", "session", "since", "until", "node", "socket"])]
    pub verify: bool,
    /// A head that was kept, and that the ledger must contain
    #[arg(long, value_name = "HEAD", requires = "verify")]
    pub head: Option<LedgerHead>,
    /// Print the entries themselves, a line of JSON each
    #[arg(long, conflicts_with = "decisions")]
    pub entries: bool,
    /// Print what was decided on requests: who asked for what, by which credentials, and what came of it. Also as CSV or JSON
    #[arg(long)]
    pub decisions: bool,
}

/// `weir top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    #[command(flatten)]
    pub place: NodeAddressArgs,
    /// Print how things are as plain text, once: two looks a second apart. So also where standard output is no terminal
    #[arg(long)]
    pub once: bool,
}

fn name(text: &str) -> Result<Name, weir_admission::NameError> {
    Name::new(text)
}
