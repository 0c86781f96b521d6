//! Command-line arguments of the commands on keys and credentials.

use super::option_values::{InheritArg, LimitArg, NodeScope};
use crate::amounts::{AmountOptions, DelegatedAmounts, GrantedAmounts};
use crate::cmd::node::address::NodeAddress;
use crate::cmd::node::args::NodeAddressArgs;
use clap::{ArgGroup, Args, Subcommand};
use std::path::PathBuf;
use std::str::FromStr;
use weir_admission::Name;
use weir_trust::credential::{DatedId, DatedIdError};
use weir_trust::grant::{GrantFilter, InterfaceName, NodePattern, PacketView, UnixSecond};
use weir_trust::key::{KeyError, PublicKey};
use weir_wire::WriteFields;

/// `weir key`.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Create a key pair. Its file is readable by you only, and never overwritten
    New {
        /// The file to create
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Encrypt the private key with a passphrase, read from the terminal
        #[arg(long, conflicts_with = "passphrase_file")]
        passphrase: bool,
        /// Encrypt the private key with the passphrase in the first line of this file; - is standard input
        #[arg(long, value_name = "FILE")]
        passphrase_file: Option<PathBuf>,
    },
    /// Print the public key of a key pair, which others need to grant you a credential
    Show {
        /// The file of the key pair
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print the key as PEM (RFC 8410), for programs that verify compilation records
        #[arg(long)]
        pem: bool,
    },
}

/// Options that choose the signer's private key.
#[derive(Debug, Args)]
pub struct SignerArgs {
    /// The file of the private key to sign with
    #[arg(long, value_name = "FILE", env = "WEIR_KEY")]
    pub key: PathBuf,
    /// The file whose first line is the passphrase of an encrypted private key; - is standard input. Without this option, the passphrase is asked for on the terminal
    #[arg(long, value_name = "FILE", env = "WEIR_PASSPHRASE_FILE")]
    pub passphrase_file: Option<PathBuf>,
}

/// `weir grant`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true), after_help = "\
Examples:
  weir key new operator.key
  weir grant --key operator.key --to weir-key:… --until 2027-01-01 --at '*.example' --module rtt --filter 'udp or tcp' --cpu 10% --out alice.credential
  weir grant --key operator.key --to weir-key:… --until 2027-01-01 --at '*' --any-module --view all --write ttl,dscp --delegations 1

The options for amounts have defaults, and the credential states each amount; `unlimited` removes the limit. The rights of the credential are printed to standard error, \
in sentences. Put the operator's public key (`weir key show operator.key`) under `roots` in the [remote] part \
of a node's configuration.")]
pub struct GrantArgs {
    #[command(flatten)]
    pub signer: SignerArgs,
    /// The public key of the credential's holder
    #[arg(long, value_name = "KEY")]
    pub to: PublicKey,
    /// The expiry: a day or a point in time (UTC), such as 2027-01-31 or 2027-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub until: UnixSecond,
    /// Allow any module, also ones written later. Prefer --module or --signer, which allow less
    #[arg(long, group = "which", conflicts_with_all = ["modules", "signers"])]
    pub any_module: bool,
    /// Allow this module: the name of a shipped one, or the path of a .wasm file; can be repeated
    #[arg(long = "module", value_name = "MODULE", group = "which")]
    pub modules: Vec<String>,
    /// Allow modules signed by this key (`weir sign`), in any version; can be repeated
    #[arg(long = "signer", value_name = "KEY", group = "which")]
    pub signers: Vec<PublicKey>,
    /// Only at this node, or at the nodes of a domain, such as *.ix.example; '*' for all nodes that trust this root; can be repeated
    #[arg(long = "at", value_name = "NODE", required = true)]
    pub nodes: Vec<NodeScope>,
    #[command(flatten)]
    pub limits: GrantLimitArgs,
    /// The view of packets, such as payload=64 or addresses=anonymised; all for whole packets. With all and without --filter, modules can read the interface's whole packet memory
    #[arg(long, value_name = "VIEW", default_value = "payload=none")]
    pub view: PacketView,
    /// Packet fields that modules may write, such as ttl,dscp; none, or all
    #[arg(long, value_name = "FIELDS", default_value = "none")]
    pub write: WriteFields,
    /// Let modules signed by this key run without a meter, in processes of their own. They still have to be among the allowed modules. The holder cannot pass this right on; can be repeated
    #[arg(long, value_name = "KEY")]
    pub unmetered: Vec<PublicKey>,
    #[command(flatten)]
    pub amounts: AmountOptions<GrantedAmounts>,
    /// Maximum number of further delegations, one after the other, or unlimited
    #[arg(long, value_name = "COUNT", default_value = "0")]
    pub delegations: LimitArg<u32>,
    /// The file to write the credential to [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `weir delegate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir delegate alice.credential --key alice.key --to weir-key:… --until 2026-12-15 --cpu 5% --out bob.credential
  weir delegate alice.credential --key alice.key --to weir-key:… --view same --write same --delegations same

Delegates a credential or a part of its rights, without a network. Some rights must be stated: without --view packets have no payload, without --write no field may be written, and without \
--delegations the new holder cannot delegate further; `same` keeps the credential's own. Amounts, modules, packets and nodes are unchanged by default, and all holders \
share the amounts. The rights of the new credential are printed to standard error, in sentences.")]
pub struct DelegateArgs {
    /// The file of the credential
    #[arg(value_name = "CREDENTIAL")]
    pub credential: PathBuf,
    #[command(flatten)]
    pub signer: SignerArgs,
    /// The public key of the new holder
    #[arg(long, value_name = "KEY")]
    pub to: PublicKey,
    /// The expiry: a day or a point in time (UTC), such as 2027-01-31 or 2027-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub until: Option<UnixSecond>,
    /// Allow only this module: the name of a shipped one, or the path of a .wasm file; can be repeated
    #[arg(long = "module", value_name = "MODULE")]
    pub modules: Vec<String>,
    /// Allow only modules signed by this key; can be repeated
    #[arg(long = "signer", value_name = "KEY")]
    pub signers: Vec<PublicKey>,
    /// Only at this node, or at the nodes of a domain, such as *.ix.example; can be repeated
    #[arg(long = "at", value_name = "NODE")]
    pub nodes: Vec<NodePattern>,
    #[command(flatten)]
    pub limits: GrantLimitArgs,
    /// The view of packets, such as payload=64 or addresses=anonymised; same for the credential's own [default: the credential's own without payload]
    #[arg(long, value_name = "VIEW")]
    pub view: Option<InheritArg<PacketView>>,
    /// Packet fields that modules may write, such as ttl,dscp; none, or same for the credential's own
    #[arg(long, value_name = "FIELDS", default_value = "none")]
    pub write: InheritArg<WriteFields>,
    #[command(flatten)]
    pub amounts: AmountOptions<DelegatedAmounts>,
    /// Maximum number of further delegations, one after the other; same for the number that the credential allows
    #[arg(long, value_name = "COUNT", default_value = "0")]
    pub delegations: InheritArg<u32>,
    /// The file to write the credential to [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `weir sign`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir sign mine.wasm --key me.key            writes mine.wasm.sig, which `weir load alice mine.wasm` sends
  weir grant --signer weir-key:… …            allows modules signed by this key: a new version needs no new credential

The signature is a text of four lines, over the SHA-256 of the module's bytes.")]
pub struct SignArgs {
    /// The path of a .wasm file, or a shipped module's name
    #[arg(value_name = "MODULE")]
    pub module: String,
    #[command(flatten)]
    pub signer: SignerArgs,
    /// The file to write the signature to [default: MODULE.sig]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Optional restrictions of `weir grant` and `weir delegate`.
#[derive(Debug, Args)]
pub struct GrantLimitArgs {
    /// The time from which on the credential is valid
    #[arg(long, value_name = "TIME")]
    pub from: Option<UnixSecond>,
    /// The operator's profile for admitting modules
    #[arg(long, value_name = "NAME")]
    pub profile: Option<Name>,
    /// Only packets that match this pcap-filter(7) expression
    #[arg(long, value_name = "FILTER")]
    pub filter: Option<GrantFilter>,
    /// Only packets of this interface; can be repeated
    #[arg(long = "interface", value_name = "IFACE")]
    pub interfaces: Vec<InterfaceName>,
}

/// `weir credential`.
#[derive(Debug, Subcommand)]
pub enum CredentialCommand {
    /// Describe a credential in words: its rights, holder, delegation chain and expiry
    Show {
        /// The credential's file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Explain what a credential allows at a node, and whether a request would be allowed
    ///
    /// Asks a running node, which knows the current usage; or evaluates a node's configuration, with no usage. Both decide by the same rules as for requests.
    #[command(after_help = "\
Examples:
  weir credential explain alice.credential --node ix-1.example --key alice.key
  weir credential explain alice.credential --node ix-1.example --key alice.key session create s --memory 64MiB
  weir credential explain alice.credential -c node.toml load s ./mine.wasm
  weir credential explain alice.credential                      at the node on this machine, as its operator

A request is a command line without `weir`; the session of a `load` need not exist yet. Exit status: 0 when the credential is valid, and the request would be \
allowed; 1 when not.")]
    Explain {
        /// The credential's file
        #[arg(value_name = "CREDENTIAL")]
        file: PathBuf,
        /// Evaluate the node with this configuration, which need not run
        #[arg(short, long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Ask this node: [KEY[,KEY]@]HOST[:PORT] [env: WEIR_NODE]
        #[arg(long, value_name = "NODE")]
        node: Option<NodeAddress>,
        /// The file of the credential's private key
        #[arg(long, value_name = "FILE", env = "WEIR_KEY")]
        key: Option<PathBuf>,
        /// The file whose first line is the passphrase of an encrypted private key; - is standard input
        #[arg(long, value_name = "FILE", env = "WEIR_PASSPHRASE_FILE")]
        passphrase_file: Option<PathBuf>,
        /// The socket of a node on this machine [env: WEIR_SOCKET] [default: /run/weir/node.sock]
        #[arg(long, value_name = "PATH", conflicts_with = "node")]
        socket: Option<PathBuf>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
        /// The request
        #[arg(value_name = "REQUEST", trailing_var_arg = true, allow_hyphen_values = true)]
        request: Vec<String>,
    },
    /// Revoke credentials: adds them to a signed list, and delivers it to nodes
    ///
    /// A root can revoke what it has granted, and a holder what they have delegated. A node keeps the entries of all lists until the credentials expire, so
    /// lists from several machines add up.
    #[command(after_help = "\
Examples:
  weir credential revoke alice.credential --key operator.key --list revoked --node ix-1.example
  weir credential revoke weir-id:…@2027-01-01T00:00:00Z --key operator.key --list revoked      as `weir ledger`, `top` and `explain` print it
  weir credential revoke --all-before 2026-12-01 --key operator.key --list revoked             everything that the root signed before
  weir credential revoke weir-key:… --key operator.key --list revoked                          a compiler's key (docs/COMPILER.md)
  weir credential revoke bob.credential --key alice.key --credential alice.credential --list alices --node ix-1.example

Exit status: 0 when the list is written and all named nodes have accepted it; 1 when not, with the nodes that have not.")]
    Revoke {
        /// Files of credentials, identifiers with their expiry, or keys of compilers. With each credential, all its delegations are revoked
        #[arg(value_name = "CREDENTIAL", required_unless_present = "all_before")]
        credentials: Vec<RevokeTarget>,
        /// Revoke everything that the signer's key signed before this time. A node accepts this even if it has no space for further entries
        #[arg(long, value_name = "TIME")]
        all_before: Option<UnixSecond>,
        #[command(flatten)]
        signer: SignerArgs,
        /// The signer's own credential, if the signer is not the root
        #[arg(long, value_name = "FILE")]
        credential: Option<PathBuf>,
        /// The revocation list's file; created if missing
        #[arg(long, value_name = "FILE")]
        list: PathBuf,
        /// Also deliver the list to this node, where it takes effect at once: [KEY[,KEY]@]HOST[:PORT]; can be repeated
        #[arg(long = "node", value_name = "NODE")]
        nodes: Vec<NodeAddress>,
    },
    /// List the credentials under which a node's sessions run, as a tree of delegations
    ///
    /// Shows each holder's sessions, the usage of each ceiling with that of all delegates, and the expiry. A holder sees the own credential and what was
    /// delegated below it; an operator of the node sees all roots.
    #[command(after_help = "\
Examples:
  weir credential list                                                                         at the node on this machine
  weir credential list --node ix-1.example --key alice.key --credential alice.credential")]
    List {
        #[command(flatten)]
        address: NodeAddressArgs,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Show the revocations that a node holds, for the root of a credential or key
    ///
    /// An operator of the node sees all roots.
    #[command(after_help = "\
Examples:
  weir credential revocations --node ix-1.example --key operator.key                                  with the root's key
  weir credential revocations --node ix-1.example --key alice.key --credential alice.credential")]
    Revocations {
        #[command(flatten)]
        address: NodeAddressArgs,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Deliver a revocation list to nodes, where it takes effect at once
    ///
    /// Any peer may deliver a list that a root has signed, with or without a credential. With the root's key, an operator's key or a credential, the delivery has a reserved
    /// connection. A busy node is retried for a minute.
    #[command(after_help = "\
Examples:
  weir credential deliver revoked --node ix-1.example --node ix-2.example --key operator.key
  weir credential deliver revoked --node ix-1.example                        without a right, in the pool of unknown peers
  weir credential deliver revoked                                            to the node on this machine

Exit status: 0 when all nodes have the list; 1 when not, with the nodes that do not and the reasons.")]
    Deliver {
        /// The list, as `weir credential revoke` writes it
        #[arg(value_name = "LIST")]
        list: PathBuf,
        /// The node to deliver to: [KEY[,KEY]@]HOST[:PORT]; can be repeated [default: the node on this machine]
        #[arg(long = "node", value_name = "NODE")]
        nodes: Vec<NodeAddress>,
        /// The file of the private key of a root, an operator or the credential
        #[arg(long, value_name = "FILE", env = "WEIR_KEY")]
        key: Option<PathBuf>,
        /// The file of a credential for these nodes
        #[arg(long, value_name = "FILE", env = "WEIR_CREDENTIAL")]
        credential: Option<PathBuf>,
        /// The file with the passphrase of an encrypted private key in its first line; - is standard input
        #[arg(long, value_name = "FILE", env = "WEIR_PASSPHRASE_FILE")]
        passphrase_file: Option<PathBuf>,
        /// The socket of the node on this machine
        #[arg(long, value_name = "PATH", env = "WEIR_SOCKET", default_value = weir_node::client::SOCKET)]
        socket: PathBuf,
    },
}

/// A credential or a compiler's key to revoke, as named on the command line.
#[derive(Clone, Debug)]
pub enum RevokeTarget {
    /// The credential's identifier and expiry.
    Token(DatedId),
    /// The key of a compiler.
    Compiler(PublicKey),
    /// The credential's file.
    File(PathBuf),
}

impl FromStr for RevokeTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("weir-id:") {
            return text.parse().map(Self::Token).map_err(|error: DatedIdError| error.to_string());
        }
        if text.starts_with("weir-key:") {
            return text.parse().map(Self::Compiler).map_err(|error: KeyError| error.to_string());
        }
        Ok(Self::File(text.into()))
    }
}
