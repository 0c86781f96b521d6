//! `weir key`, `weir grant`, `weir delegate` and `weir credential`: all of them work without a node and without a network.

mod amount;
pub mod args;
mod delivering;
mod explained;
mod files;
mod passphrase;
mod revocations;
mod revoking;

pub use files::{TrustFileError, credential_of, identity_of, signature_text};

use crate::Failure;
use amount::{At, Same};
use args::{CredentialCommand as CredentialAct, Delegate, GrantArgs, GrantLimitArgs, KeyCommand, Sign};
use delivering::Deliverer;
use files::{keep_secret, list_of, new_passphrase, passphrase_of, write_new};
use rand_core::OsRng;
use revoking::Revocation;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use weir_admission::Name;
use weir_node::client::Whereabouts;
use weir_trust::credential::{Credential, MintError};
use weir_trust::explain;
use weir_trust::grant::{Grant, ModuleHash, ModuleSet, Modules, Second};
use weir_trust::key::{Identity, KeyFile, PassphraseCost, PublicKey};
use weir_trust::signature::ModuleSignature;
use weir_units::Shown as _;
use weir_wire::WriteFields;

/// Why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// A file.
    #[error(transparent)]
    File(#[from] TrustFileError),
    /// A grant or delegation that cannot be.
    #[error(transparent)]
    Mint(#[from] MintError),
    /// A list that cannot be.
    #[error(transparent)]
    Revocation(#[from] weir_trust::revocation::RevocationError),
    /// A credential that is worth nothing at a node.
    #[error("the credential is worth nothing there: {0}")]
    Worthless(String),
    /// A request that a node would refuse.
    #[error("the request would be refused: {0}")]
    WouldRefuse(String),
    /// A list that is not there.
    #[error("{}: there is no such list: `weir credential revoke` makes one", .0.shown())]
    NoList(PathBuf),
    /// What somebody else has granted.
    #[error("{}: it is of {of}, and the key is {key}: only the root, and the holders who passed it on, take it back. Name a key of theirs with --key", what.shown())]
    OtherRoot {
        /// The credential, or the list.
        what: PathBuf,
        /// Whose it is.
        of: PublicKey,
        /// Who would have signed.
        key: PublicKey,
    },
    /// Nodes that have not taken a list.
    #[error(
        "{} of {of} nodes have not accepted the list:\n  {}\nDeliver it to them with `weir credential deliver`", .missing.len(), .missing.join("\n  ")
    )]
    Undelivered {
        /// Each node that has not accepted the list, and why.
        missing: Vec<String>,
        /// The number of all nodes.
        of: usize,
    },
    /// A list for what was passed on from another link.
    #[error(
        "{}: it is of another credential of yours: keep a list for each credential that you have passed on, and name another file with --list", what.shown()
    )]
    OtherLink {
        /// The credential, or the list.
        what: PathBuf,
    },
    /// A credential that is not the signer's.
    #[error(
        "the credential that --credential names is held by {holder}, and the key is {key}: name your own"
    )]
    NotOwn {
        /// The holder of the credential.
        holder: PublicKey,
        /// The signer.
        key: PublicKey,
    },
    /// A delivery by a holder who shows no credential.
    #[error(
        "the list is written, and not delivered: a node takes the list of a holder with their own credential. Name its file with --credential"
    )]
    NoOwnCredential,
    /// A key that cannot be sealed.
    #[error(transparent)]
    Key(#[from] weir_trust::key::KeyFileError),
}

/// `weir key`.
pub fn key(out: &mut impl Write, act: &KeyCommand) -> Result<(), Failure> {
    match act {
        KeyCommand::New { file, passphrase_file, passphrase } => {
            let identity = Identity::generate(&mut OsRng);
            let passphrase = match passphrase_file {
                Some(from) => Some(passphrase_of(from)?),
                None if *passphrase => Some(new_passphrase(file)?),
                None => None,
            };
            match passphrase {
                Some(passphrase) => {
                    let sealed =
                        KeyFile::sealed(&identity, passphrase.as_bytes(), PassphraseCost::USUAL, &mut OsRng);
                    keep_secret(file, &sealed.map_err(SigningError::from)?)?;
                }
                None => keep_secret(file, &KeyFile::plain(&identity))?,
            }
            writeln!(out, "{}", identity.public())?;
        }
        KeyCommand::Show { file } => writeln!(out, "{}", files::key_file(file)?.public())?,
    }
    Ok(())
}

/// `weir grant`.
pub fn grant(out: &mut impl Write, args: &GrantArgs) -> Result<(), Failure> {
    let root = identity_of(&args.signer.key, args.signer.passphrase_file.as_deref())?;
    let grant = Grant {
        view: Some(args.view),
        writes: named(args.write),
        ceilings: args.amounts.ceilings(),
        nodes: At::all(&args.nodes),
        expires: Some(args.until),
        delegations: args.delegations.limit(),
        ..granted(&args.limits, &args.modules, &args.signers)?
    };
    let credential =
        Credential::mint_at(&root, args.to, grant, now(), &mut OsRng).map_err(SigningError::from)?;
    warn_if_over(Some(args.until));
    give(out, &credential, args.out.as_deref())
}

/// Nobody means to grant what has ended already.
fn warn_if_over(until: Option<Second>) {
    let now = now();
    if let Some(until) = until.filter(|until| *until <= now) {
        let _ = writeln!(
            std::io::stderr(),
            "weir: warning: it held until {until}, and it is {now}: nobody can use this credential"
        );
    }
}

/// `weir delegate`.
pub fn delegate(out: &mut impl Write, args: &Delegate) -> Result<(), Failure> {
    let credential = credential_of(&args.credential)?;
    let holder = identity_of(&args.signer.key, args.signer.passphrase_file.as_deref())?;
    let has = credential.claimed_grant().map_err(|refusal| SigningError::from(MintError::from(refusal)))?;
    let grant = Grant {
        view: args.view.map_or(has.passed_on_cautiously().view, Same::stated),
        writes: args.write.stated().and_then(named),
        ceilings: args.amounts.ceilings(),
        nodes: (!args.nodes.is_empty()).then(|| args.nodes.iter().cloned().collect()),
        expires: args.until,
        delegations: args.delegations.stated(),
        ..granted(&args.limits, &args.modules, &args.signers)?
    };
    let delegated =
        credential.delegate_at(&holder, args.to, grant, now(), &mut OsRng).map_err(SigningError::from)?;
    warn_if_over(args.until);
    give(out, &delegated, args.out.as_deref())
}

/// `weir sign`.
pub fn sign(out: &mut impl Write, args: &Sign) -> Result<(), Failure> {
    let spec = crate::spec::Spec { name: args.module.clone(), settings: Vec::new() };
    let bytes = spec.bytes()?;
    let signer = identity_of(&args.signer.key, args.signer.passphrase_file.as_deref())?;
    let signature = ModuleSignature::sign(&signer, &bytes);
    let to = args.out.clone().unwrap_or_else(|| signature_of(&args.module));
    files::write_signature(&to, &signature)?;
    writeln!(out, "{}: {}, signed by {}", to.shown(), signature.module(), signature.signer())?;
    Ok(())
}

/// Where the signature of a module is looked for: beside its file.
pub fn signature_of(module: &str) -> PathBuf {
    PathBuf::from(format!("{module}.sig"))
}

/// `weir credential`.
pub fn credential(out: &mut impl Write, act: &CredentialAct) -> Result<(), Failure> {
    match act {
        CredentialAct::Show { file } => write!(out, "{}", explain::credential(&credential_of(file)?))?,
        CredentialAct::Explain { .. } => explained::explain(out, act)?,
        CredentialAct::Deliver { list, nodes, key, credential, passphrase_file, socket } => {
            let signed = list_of(list)?.ok_or_else(|| SigningError::NoList(list.clone()))?;
            if nodes.is_empty() {
                let here = Whereabouts::Here(socket.clone());
                let notes = delivering::delivered(&signed, &here)?;
                notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
                return Ok(());
            }
            // An empty variable of the environment names no file.
            let credential = credential.as_deref().filter(|path| !path.as_os_str().is_empty());
            let identity = match (key, credential) {
                (Some(key), _) => identity_of(key, passphrase_file.as_deref())?,
                (None, Some(_)) => return Err(Failure::Control(crate::cmd::node::NodeCommandError::NoKey)),
                (None, None) => Identity::generate(&mut OsRng),
            };
            let credential = credential.map(credential_of).transpose()?;
            let credential = credential.map(|it| it.as_bytes().to_vec()).unwrap_or_default();
            delivering::deliver(out, &signed, nodes, &Deliverer { identity, credential })?;
        }
        CredentialAct::Revocations { place, json } => revocations::revocations(out, place, *json)?,
        CredentialAct::Revoke { credentials, all_before, signer, credential, list, nodes } => {
            let (key, passphrase_file) = (signer.key.as_path(), signer.passphrase_file.as_deref());
            let (all_before, own) = (*all_before, credential.as_deref());
            let args = Revocation { credentials, all_before, key, passphrase_file, own, list, nodes };
            revoking::revoke(out, args)?;
        }
    }
    Ok(())
}

fn now() -> Second {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Second::new(since.as_secs()).unwrap_or(Second::MAX)
}

/// The part that `weir grant` and `weir delegate` say in the same way.
fn granted(limits: &GrantLimitArgs, modules: &[String], signers: &[PublicKey]) -> Result<Grant, Failure> {
    let modules = if modules.is_empty() && signers.is_empty() {
        Modules::any()
    } else {
        let mut hashes = std::collections::BTreeSet::new();
        for module in modules {
            hashes.insert(hash_of(module)?);
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

/// Fields as credentials name them. All that can be written is no restriction, also for fields that a later version adds.
fn named(fields: WriteFields) -> Option<std::collections::BTreeSet<Name>> {
    let names = || fields.iter().filter_map(|field| Name::new(field.name()).ok()).collect();
    (fields != WriteFields::ALL).then(names)
}

/// The hash of a shipped module, or of a file.
fn hash_of(module: &str) -> Result<ModuleHash, Failure> {
    if let Ok(hash) = module.parse() {
        return Ok(hash);
    }
    let spec = crate::spec::Spec { name: module.to_owned(), settings: Vec::new() };
    Ok(ModuleHash::of(&spec.bytes()?))
}

/// Writes a credential, and says on standard error what it allows: standard output has the credential alone.
fn give(out: &mut impl Write, credential: &Credential, to: Option<&Path>) -> Result<(), Failure> {
    match to {
        Some(file) => write_new(file, &format!("{credential}\n"))?,
        None => writeln!(out, "{credential}")?,
    }
    write!(std::io::stderr(), "{}", explain::sentences(credential))?;
    Ok(())
}
