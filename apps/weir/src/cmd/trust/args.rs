//! The command lines of what has to do with keys and credentials.

use super::amount::{At, LimitArg, Same};
use crate::amounts::{AmountOptions, GrantedAmounts, PassedOn};
use crate::cmd::node::args::NodeAddressArgs;
use crate::cmd::node::place::Address;
use clap::{ArgGroup, Args, Subcommand};
use std::path::PathBuf;
use std::str::FromStr;
use weir_admission::Name;
use weir_trust::credential::{DatedId, DatedIdError};
use weir_trust::grant::{GrantFilter, InterfaceName, NodePattern, PacketView, Second};
use weir_trust::key::PublicKey;
use weir_wire::WriteFields;

/// `weir key`.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make a key pair: an identity. Its file is yours alone, and is never written over
    New {
        /// The file to make
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Seal it with a passphrase, which is asked for twice at the terminal
        #[arg(long, conflicts_with = "passphrase_file")]
        passphrase: bool,
        /// Seal it with the passphrase in the first line of this file; - is standard input
        #[arg(long, value_name = "FILE")]
        passphrase_file: Option<PathBuf>,
    },
    /// Print the public key of a key pair: what others grant you something by
    Show {
        /// The file of the key pair
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// Whose private key something is done with.
#[derive(Debug, Args)]
pub struct SignerArgs {
    /// The file of the private key to sign with
    #[arg(long, value_name = "FILE", env = "WEIR_KEY")]
    pub key: PathBuf,
    /// Where that is sealed: the file with its passphrase in the first line; - is standard input. Without it the terminal is asked
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

The limits below hold unless another one is written; the credential states each of them. `unlimited` states no limit. What the credential allows is printed on standard error, \
in sentences. Put the operator's public key (`weir key show operator.key`) under `roots` in the [remote] part \
of a node's configuration.")]
pub struct GrantArgs {
    #[command(flatten)]
    pub signer: SignerArgs,
    /// The public key of whom it is for
    #[arg(long, value_name = "KEY")]
    pub to: PublicKey,
    /// Until when: a day or a point in time (UTC), such as 2027-01-31 or 2027-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub until: Second,
    /// Any module may be loaded: administrative, for those who may load whatever they have written since. Where that is more than is meant, name modules, or who signs them
    #[arg(long, group = "which", conflicts_with_all = ["modules", "signers"])]
    pub any_module: bool,
    /// This module may be loaded: a shipped one's name, or the path of a .wasm file. Can be given several times
    #[arg(long = "module", value_name = "MODULE", group = "which")]
    pub modules: Vec<String>,
    /// Modules that this key has signed (`weir sign`) may be loaded, in whichever version. Can be given several times
    #[arg(long = "signer", value_name = "KEY", group = "which")]
    pub signers: Vec<PublicKey>,
    /// Only at this node, or at the nodes of a domain, such as *.ix.example; '*' for all nodes that trust this root. Can be given several times
    #[arg(long = "at", value_name = "NODE", required = true)]
    pub nodes: Vec<At>,
    #[command(flatten)]
    pub limits: GrantLimitArgs,
    /// The view of packets, such as payload=64 or addresses=anonymised; all for whole packets. Without --filter, all lets modules read all of an interface's memory, too
    #[arg(long, value_name = "VIEW", default_value = "payload=none")]
    pub view: PacketView,
    /// Fields of packets that may be written, such as ttl,dscp; none, or all
    #[arg(long, value_name = "FIELDS", default_value = "none")]
    pub write: WriteFields,
    #[command(flatten)]
    pub amounts: AmountOptions<GrantedAmounts>,
    /// Further holders in a row through whom it can be passed on, or unlimited
    #[arg(long, value_name = "COUNT", default_value = "0")]
    pub delegations: LimitArg<u32>,
    /// The file to write it to; standard output where none is named
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `weir delegate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir delegate alice.credential --key alice.key --to weir-key:… --until 2026-12-15 --cpu 5% --out bob.credential
  weir delegate alice.credential --key alice.key --to weir-key:… --view same --write same --delegations same

Passes a credential on, or a part of it, without a network. Rights have to be written: without --view packets have no payload, without --write no field may be written, and without \
--delegations the credential ends with its new holder; `same` passes on the credential's own. Amounts, modules, packets and nodes stay as they are where nothing is written, and all holders \
share the amounts. What the new credential allows is printed on standard error, in sentences.")]
pub struct Delegate {
    /// The file of the credential
    #[arg(value_name = "CREDENTIAL")]
    pub credential: PathBuf,
    #[command(flatten)]
    pub signer: SignerArgs,
    /// The public key of whom it is for
    #[arg(long, value_name = "KEY")]
    pub to: PublicKey,
    /// Until when
    #[arg(long, value_name = "TIME")]
    pub until: Option<Second>,
    /// Only this module may be loaded: a shipped one's name, or the path of a .wasm file. Can be given several times
    #[arg(long = "module", value_name = "MODULE")]
    pub modules: Vec<String>,
    /// Only modules that this key has signed may be loaded. Can be given several times
    #[arg(long = "signer", value_name = "KEY")]
    pub signers: Vec<PublicKey>,
    /// Only at this node, or at the nodes of a domain, such as *.ix.example. Can be given several times
    #[arg(long = "at", value_name = "NODE")]
    pub nodes: Vec<NodePattern>,
    #[command(flatten)]
    pub limits: GrantLimitArgs,
    /// The view of packets, such as payload=64 or addresses=anonymised; same for the credential's own [default: the credential's own without payload]
    #[arg(long, value_name = "VIEW")]
    pub view: Option<Same<PacketView>>,
    /// Fields of packets that may be written, such as ttl,dscp; none, or same for the credential's own
    #[arg(long, value_name = "FIELDS", default_value = "none")]
    pub write: Same<WriteFields>,
    #[command(flatten)]
    pub amounts: AmountOptions<PassedOn>,
    /// Further holders in a row through whom it can be passed on; same for as many as the credential leaves
    #[arg(long, value_name = "COUNT", default_value = "0")]
    pub delegations: Same<u32>,
    /// The file to write it to; standard output where none is named
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `weir sign`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir sign mine.wasm --key me.key            makes mine.wasm.sig, which `weir load alice mine.wasm` finds
  weir grant --signer weir-key:… …            modules that this key has signed may be loaded: a new version needs no new credential

The signature is a text of four lines, over the SHA-256 of the module's bytes.")]
pub struct Sign {
    /// The path of a .wasm file, or a shipped module's name
    #[arg(value_name = "MODULE")]
    pub module: String,
    #[command(flatten)]
    pub signer: SignerArgs,
    /// The file to write it to [default: MODULE.sig]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// The parts of a grant that restrict nothing unless they are written, whether it is made or passed on.
#[derive(Debug, Args)]
pub struct GrantLimitArgs {
    /// From when on
    #[arg(long, value_name = "TIME")]
    pub from: Option<Second>,
    /// The operator's profile by which modules are admitted
    #[arg(long, value_name = "NAME")]
    pub profile: Option<Name>,
    /// Only packets that match this pcap-filter(7) expression
    #[arg(long, value_name = "FILTER")]
    pub filter: Option<GrantFilter>,
    /// Only packets of this interface. Can be given several times
    #[arg(long = "interface", value_name = "IFACE")]
    pub interfaces: Vec<InterfaceName>,
}

/// `weir credential`.
#[derive(Debug, Subcommand)]
pub enum CredentialCommand {
    /// Say in words what a credential allows, for whom, through whom, and until when
    Show {
        /// Its file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Say what a credential allows at a node, and what would come of a request
    ///
    /// At a node that runs, with what is used already; or at one with a certain configuration, as if nothing was. What decides is what decides on requests.
    #[command(after_help = "\
Examples:
  weir credential explain alice.credential --node ix-1.example --key alice.key
  weir credential explain alice.credential --node ix-1.example --key alice.key session create s --memory 64MiB
  weir credential explain alice.credential -c node.toml load s ./mine.wasm
  weir credential explain alice.credential                      asked by the operator, at the node on this machine

A request is a command as weir has them, without `weir`; a module can be asked about for a session that is yet to be created. Exit status: 0 when the credential is worth something, and the request would be fulfilled as far as it is a \
matter of rights; 1 when not.")]
    Explain {
        /// Its file
        #[arg(value_name = "CREDENTIAL")]
        file: PathBuf,
        /// At the node with this configuration, which need not run
        #[arg(short, long, alias = "node-config", value_name = "FILE")]
        config: Option<PathBuf>,
        /// At this node: [KEY@]HOST[:PORT] [env: WEIR_NODE]
        #[arg(long, value_name = "NODE")]
        node: Option<Address>,
        /// The file of the private key that the credential is for
        #[arg(long, value_name = "FILE", env = "WEIR_KEY")]
        key: Option<PathBuf>,
        /// Where that is sealed: the file with its passphrase in the first line; - is standard input
        #[arg(long, value_name = "FILE", env = "WEIR_PASSPHRASE_FILE")]
        passphrase_file: Option<PathBuf>,
        /// The socket of a node on this machine [env: WEIR_SOCKET] [default: /run/weir/node.sock]
        #[arg(long, value_name = "PATH", conflicts_with = "node")]
        socket: Option<PathBuf>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
        /// A request
        #[arg(value_name = "REQUEST", trailing_var_arg = true, allow_hyphen_values = true)]
        request: Vec<String>,
    },
    /// Take credentials back: adds them to a signed list, and delivers it to nodes
    ///
    /// A root takes back what it has granted, and the holder of a credential what they have passed on. A node keeps the entries of all lists until the credentials have expired, so
    /// lists of several machines add up.
    #[command(after_help = "\
Examples:
  weir credential revoke alice.credential --key operator.key --list revoked --node ix-1.example
  weir credential revoke weir-id:…@2027-01-01T00:00:00Z --key operator.key --list revoked      as `weir ledger`, `top` and `explain` print it
  weir credential revoke --all-before 2026-12-01 --key operator.key --list revoked             everything that the root signed before
  weir credential revoke bob.credential --key alice.key --credential alice.credential --list alices --node ix-1.example

Exit status: 0 when the list is written, and all nodes that are named have accepted it; 1 when not, with each node that has not.")]
    Revoke {
        /// Files of credentials, or identifiers with the time at which they expire. With each credential, all that was passed on from it is revoked
        #[arg(value_name = "CREDENTIAL", required_unless_present = "all_before")]
        credentials: Vec<Revoked>,
        /// Take back everything that the key signed before this time. A node accepts that even if it has no room for other entries
        #[arg(long, value_name = "TIME")]
        all_before: Option<Second>,
        #[command(flatten)]
        signer: SignerArgs,
        /// The signer's own credential, where the signer is not the root
        #[arg(long, value_name = "FILE")]
        credential: Option<PathBuf>,
        /// The list, which is made where there is none
        #[arg(long, value_name = "FILE")]
        list: PathBuf,
        /// And deliver it to this node, where it holds at once: [KEY@]HOST[:PORT]. Can be given several times
        #[arg(long = "node", value_name = "NODE")]
        nodes: Vec<Address>,
    },
    /// Show what a node holds as taken back, for the root of a credential or of a root's key
    ///
    /// An operator of the node sees all roots.
    #[command(after_help = "\
Examples:
  weir credential revocations --node ix-1.example --key operator.key                                  with the root's key
  weir credential revocations --node ix-1.example --key alice.key --credential alice.credential")]
    Revocations {
        #[command(flatten)]
        place: NodeAddressArgs,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Deliver a list of credentials that were taken back to nodes, where it holds at once
    ///
    /// Any peer may deliver a list that a root has signed, with or without a credential. With the root's key, an operator's key or a credential the delivery has a connection of
    /// its own, which others cannot take. A node that has no room at the moment is tried again for a minute.
    #[command(after_help = "\
Examples:
  weir credential deliver revoked --node ix-1.example --node ix-2.example --key operator.key
  weir credential deliver revoked --node ix-1.example                        without a right, in the pool of unknown peers
  weir credential deliver revoked                                            to the node on this machine

Exit status: 0 when all nodes have accepted it, or knew it; 1 when not, with each node that has not, and why.")]
    Deliver {
        /// The list, as `weir credential revoke` writes it
        #[arg(value_name = "LIST")]
        list: PathBuf,
        /// To this node: [KEY@]HOST[:PORT]. Can be given several times; the node on this machine where none is named
        #[arg(long = "node", value_name = "NODE")]
        nodes: Vec<Address>,
        /// The file of a root's or an operator's private key, or of the credential's
        #[arg(long, value_name = "FILE", env = "WEIR_KEY")]
        key: Option<PathBuf>,
        /// The file of a credential for these nodes
        #[arg(long, value_name = "FILE", env = "WEIR_CREDENTIAL")]
        credential: Option<PathBuf>,
        /// The file with the passphrase of a sealed key in its first line; - is standard input
        #[arg(long, value_name = "FILE", env = "WEIR_PASSPHRASE_FILE")]
        passphrase_file: Option<PathBuf>,
        /// The socket of the node on this machine
        #[arg(long, value_name = "PATH", env = "WEIR_SOCKET", default_value = weir_node::client::SOCKET)]
        socket: PathBuf,
    },
}

/// A credential that is to be taken back.
#[derive(Clone, Debug)]
pub enum Revoked {
    /// By its identifier, and the time at which it expires.
    Token(DatedId),
    /// By its file.
    File(PathBuf),
}

impl FromStr for Revoked {
    type Err = DatedIdError;

    fn from_str(text: &str) -> Result<Self, DatedIdError> {
        if text.starts_with("weir-id:") { text.parse().map(Self::Token) } else { Ok(Self::File(text.into())) }
    }
}
