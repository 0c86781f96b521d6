//! `weir key`, `weir grant`, `weir delegate`, `weir sign` and `weir credential`. Only some commands of the last group use
//! a node.

#[cfg(test)]
mod advice_tests;
pub mod args;
mod delivery;
mod explanation;
mod list;
mod option_values;
mod revocations;
pub(crate) mod revoke;

use crate::Failure;
use crate::cmd::policy::now;
use crate::trust_files::{
    TrustFileError, ask_new_passphrase, read_credential, read_identity, read_key_file, read_passphrase,
    read_revocation_list, signature_path, write_new, write_secret, write_signature,
};
use args::{CredentialCommand, DelegateArgs, GrantArgs, GrantLimitArgs, KeyCommand, SignArgs};
use delivery::Deliverer;
use option_values::{InheritArg, NodeScope};
use rand_core::OsRng;
use revoke::RevocationArgs;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_admission::Name;
use weir_node::client::NodeLocation;
use weir_trust::credential::{Credential, MintError};
use weir_trust::explain;
use weir_trust::grant::{Grant, ModuleHash, ModuleSet, Modules, UnixSecond};
use weir_trust::key::{Identity, KeyFile, PassphraseCost, PublicKey};
use weir_trust::signature::ModuleSignature;
use weir_units::Escape as _;
use weir_wire::WriteFields;

/// Errors of commands on keys and credentials.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] TrustFileError),
    /// The credential cannot be created.
    #[error(transparent)]
    Mint(#[from] MintError),
    /// The revocation list cannot be created.
    #[error(transparent)]
    Revocation(#[from] weir_trust::revocation::RevocationError),
    /// The credential is not valid at the node.
    #[error("the credential is not valid at this node: {0}")]
    Invalid(String),
    /// The node would refuse the request.
    #[error("the request would be refused: {0}")]
    WouldRefuse(String),
    /// The file of the revocation list to deliver does not exist.
    #[error("{}: there is no revocation list: `weir credential revoke` creates one", .0.escaped())]
    NoList(PathBuf),
    /// The signer has no right to revoke the credential.
    #[error("{}: the key {key} has no right to revoke: the root of the credential, or the signer of the list, is {owner}. Name the key of the root, or of a holder who delegated the credential, with --key", file.escaped())]
    NoRightToRevoke {
        /// The file of the credential or list.
        file: PathBuf,
        /// The root of the credential, or the signer of the list.
        owner: PublicKey,
        /// The key of the user who wants to revoke.
        key: PublicKey,
    },
    /// Some nodes have not accepted the list.
    #[error(
        "{} of {total} nodes have not accepted the list:\n  {}\nDeliver the list to these nodes with `weir credential deliver`", .failures.len(), .failures.join("\n  ")
    )]
    Undelivered {
        /// The nodes that have not accepted the list, with the reasons.
        failures: Vec<String>,
        /// The number of all nodes.
        total: usize,
    },
    /// The signer has delegated from several credentials of their own. The credentials to revoke, or the list, belong
    /// to two different ones.
    #[error(
        "{}: the file belongs to another credential of yours: keep one list for each credential that you have delegated, and name another file with --list", file.escaped()
    )]
    OtherOwnCredential {
        /// The file of the credential or list.
        file: PathBuf,
    },
    /// The credential that should be the signer's own has another holder.
    #[error(
        "the credential that --credential names is held by {holder}, and the key is {key}: name your own credential"
    )]
    NotOwn {
        /// The holder of the credential.
        holder: PublicKey,
        /// The signer.
        key: PublicKey,
    },
    /// A holder cannot deliver a list without their credential.
    #[error(
        "the list is written, but not delivered: a node accepts a holder's list only with the holder's own credential. Name its file with --credential"
    )]
    NoOwnCredential,
    /// The private key cannot be encrypted.
    #[error(transparent)]
    Key(#[from] weir_trust::key::KeyFileError),
}

/// `weir key`.
pub fn key(out: &mut impl Write, command: &KeyCommand) -> Result<(), Failure> {
    match command {
        KeyCommand::New { file, passphrase_file, passphrase } => {
            let identity = Identity::generate(&mut OsRng);
            let passphrase = match passphrase_file {
                Some(from) => Some(read_passphrase(from)?),
                None if *passphrase => Some(ask_new_passphrase(file)?),
                None => None,
            };
            match passphrase {
                Some(passphrase) => {
                    let sealed = KeyFile::sealed(
                        &identity,
                        passphrase.as_bytes(),
                        PassphraseCost::RECOMMENDED,
                        &mut OsRng,
                    );
                    write_secret(file, &sealed.map_err(SigningError::from)?)?;
                }
                None => write_secret(file, &KeyFile::plain(&identity))?,
            }
            writeln!(out, "{}", identity.public())?;
        }
        KeyCommand::Show { file, pem: false } => writeln!(out, "{}", read_key_file(file)?.public())?,
        KeyCommand::Show { file, pem: true } => write!(out, "{}", read_key_file(file)?.public().to_pem())?,
    }
    Ok(())
}

/// `weir grant`.
pub fn grant(out: &mut impl Write, args: &GrantArgs) -> Result<(), Failure> {
    let root = read_identity(&args.signer.key, args.signer.passphrase_file.as_deref())?;
    let grant = grant_of(args)?;
    let credential =
        Credential::mint(&root, args.to, grant, Some(now()), &mut OsRng).map_err(SigningError::from)?;
    warn_if_expired(Some(args.until));
    write_credential(out, &credential, args.out.as_deref())
}

/// Returns the grant that the options of `weir grant` state.
fn grant_of(args: &GrantArgs) -> Result<Grant, Failure> {
    Ok(Grant {
        view: Some(args.view),
        writes: field_names(args.write),
        unmetered: args.unmetered.iter().copied().collect(),
        ceilings: args.amounts.ceilings(),
        nodes: NodeScope::combine(&args.nodes),
        expires: Some(args.until),
        delegations: args.delegations.limit(),
        ..common_grant(&args.limits, &args.modules, &args.signers)?
    })
}

/// Returns the grant that the options of `weir delegate` state, for a delegator with `own_grant`.
fn delegated_grant(args: &DelegateArgs, own_grant: &Grant) -> Result<Grant, Failure> {
    Ok(Grant {
        view: args.view.map_or(own_grant.default_delegation().view, InheritArg::value),
        writes: args.write.value().and_then(field_names),
        ceilings: args.amounts.ceilings(),
        nodes: (!args.nodes.is_empty()).then(|| args.nodes.iter().cloned().collect()),
        expires: args.until,
        delegations: args.delegations.value(),
        ..common_grant(&args.limits, &args.modules, &args.signers)?
    })
}

/// Warns about a credential that has expired already, which is probably a mistake.
fn warn_if_expired(until: Option<UnixSecond>) {
    let now = now();
    if let Some(until) = until.filter(|until| *until <= now) {
        let _ = writeln!(
            std::io::stderr(),
            "weir: warning: the credential expired at {until}, and it is {now}: it cannot be used"
        );
    }
}

/// `weir delegate`.
pub fn delegate(out: &mut impl Write, args: &DelegateArgs) -> Result<(), Failure> {
    let credential = read_credential(&args.credential)?;
    let holder = read_identity(&args.signer.key, args.signer.passphrase_file.as_deref())?;
    let own_grant =
        credential.claimed_grant().map_err(|refusal| SigningError::from(MintError::from(refusal)))?;
    let grant = delegated_grant(args, &own_grant)?;
    let delegated =
        credential.delegate(&holder, args.to, grant, Some(now()), &mut OsRng).map_err(SigningError::from)?;
    warn_if_expired(args.until);
    write_credential(out, &delegated, args.out.as_deref())
}

/// `weir sign`.
pub fn sign(out: &mut impl Write, args: &SignArgs) -> Result<(), Failure> {
    let spec = crate::module_arg::ModuleArg { name: args.module.clone(), settings: Vec::new() };
    let bytes = spec.bytes()?;
    let signer = read_identity(&args.signer.key, args.signer.passphrase_file.as_deref())?;
    let signature = ModuleSignature::sign(&signer, &bytes);
    let path = args.out.clone().unwrap_or_else(|| signature_path(&args.module));
    write_signature(&path, &signature)?;
    writeln!(out, "{}: {}, signed by {}", path.escaped(), signature.module(), signature.signer())?;
    Ok(())
}

/// `weir credential`.
pub fn credential(out: &mut impl Write, command: &CredentialCommand) -> Result<(), Failure> {
    match command {
        CredentialCommand::Show { file } => write!(out, "{}", explain::credential(&read_credential(file)?))?,
        CredentialCommand::Explain { .. } => explanation::explain(out, command)?,
        CredentialCommand::Deliver { list, nodes, key, credential, passphrase_file, socket } => {
            let signed = read_revocation_list(list)?.ok_or_else(|| SigningError::NoList(list.clone()))?;
            if nodes.is_empty() {
                let local_node = NodeLocation::Local(socket.clone());
                let notes = weir_node::client::deliver_list(&signed, &local_node)?;
                notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
                return Ok(());
            }
            // The path can come from `WEIR_CREDENTIAL`. An empty variable counts as no path.
            let credential = credential.as_deref().filter(|path| !path.as_os_str().is_empty());
            let identity = match (key, credential) {
                (Some(key), _) => read_identity(key, passphrase_file.as_deref())?,
                (None, Some(_)) => {
                    return Err(Failure::NodeCommand(crate::cmd::node::NodeCommandError::NoKey));
                }
                (None, None) => Identity::generate(&mut OsRng),
            };
            let credential = credential.map(read_credential).transpose()?;
            let credential = credential.map(|credential| credential.as_bytes().to_vec()).unwrap_or_default();
            delivery::deliver(out, &signed, nodes, &Deliverer { identity, credential })?;
        }
        CredentialCommand::List { address, json } => list::list(out, address, *json)?,
        CredentialCommand::Revocations { address, json } => revocations::revocations(out, address, *json)?,
        CredentialCommand::Revoke { credentials, all_before, signer, credential, list, nodes } => {
            let (key, passphrase_file) = (signer.key.as_path(), signer.passphrase_file.as_deref());
            let (all_before, own_credential) = (*all_before, credential.as_deref());
            let args =
                RevocationArgs { credentials, all_before, key, passphrase_file, own_credential, list, nodes };
            revoke::revoke(out, args)?;
        }
    }
    Ok(())
}

/// Builds a grant from the options that `weir grant` and `weir delegate` have in common. Without any module or signer,
/// it allows any module.
fn common_grant(
    limits: &GrantLimitArgs,
    modules: &[String],
    signers: &[PublicKey],
) -> Result<Grant, Failure> {
    let modules = if modules.is_empty() && signers.is_empty() {
        Modules::any()
    } else {
        let mut hashes = std::collections::BTreeSet::new();
        for module in modules {
            hashes.insert(module_hash(module)?);
        }
        Modules::from(ModuleSet { hashes, signers: signers.iter().copied().collect() })
    };
    Ok(Grant {
        profiles: limits.profile.clone().map(|profile| [profile].into()),
        modules,
        filters: limits.filter.iter().cloned().collect(),
        interfaces: (!limits.interfaces.is_empty()).then(|| limits.interfaces.iter().cloned().collect()),
        not_before: limits.from,
        ..Grant::default()
    })
}

/// Returns the names of writable fields as in a credential; `None` for all fields, including those that later versions
/// add.
fn field_names(fields: WriteFields) -> Option<std::collections::BTreeSet<Name>> {
    let names = || fields.iter().filter_map(|field| Name::new(field.name()).ok()).collect();
    (fields != WriteFields::ALL).then(names)
}

/// Returns the hash of a module that is named by its hash, a shipped module's name, or a path.
fn module_hash(module: &str) -> Result<ModuleHash, Failure> {
    if let Ok(hash) = module.parse() {
        return Ok(hash);
    }
    let spec = crate::module_arg::ModuleArg { name: module.to_owned(), settings: Vec::new() };
    Ok(ModuleHash::of_bytes(&spec.bytes()?))
}

/// Writes a credential to the file `to`, or without one to standard output. Describes the credential's rights on
/// standard error.
fn write_credential(out: &mut impl Write, credential: &Credential, to: Option<&Path>) -> Result<(), Failure> {
    match to {
        Some(file) => write_new(file, &format!("{credential}\n"))?,
        None => writeln!(out, "{credential}")?,
    }
    write!(std::io::stderr(), "{}", explain::sentences(credential))?;
    Ok(())
}
