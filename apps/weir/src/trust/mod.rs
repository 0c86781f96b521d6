//! `weir key`, `weir grant`, `weir delegate` and `weir credential`: all of them work without a node and without a network.

mod amount;
pub mod args;
mod explained;
mod files;
mod passphrase;

pub use files::{FileError, credential_of, identity_of, signature_text};

use crate::Failure;
use crate::node::place::Address;
use amount::{At, Same};
use args::{Credential as CredentialAct, Delegate, Grant as GrantArgs, Key, Limits, Sign};
use files::{keep_secret, list_of, new_passphrase, passphrase_of, replace, write_new};
use rand_core::OsRng;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use weir_node::client::{Client, Whereabouts};
use weir_node::protocol::Request;
use weir_session::Name;
use weir_trust::credential::{Credential, MintError};
use weir_trust::explain;
use weir_trust::grant::{Ceilings, Grant, ModuleHash, ModuleSet, Modules, Second};
use weir_trust::key::{Cost, Identity, KeyFile, PublicKey};
use weir_trust::revocation::RevocationList;
use weir_trust::signature::ModuleSignature;
use weir_wire::WriteFields;

/// Why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
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
    #[error("{}: there is no such list: `weir credential revoke` makes one", .0.display())]
    NoList(PathBuf),
    /// What somebody else has granted.
    #[error("{}: it is of the root {of}, which alone takes back what it has granted, and the key is {key}: name that root's key with --key", what.display())]
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
        "{failed} of {of} nodes have not taken the list: deliver it to them with `weir credential deliver`"
    )]
    Undelivered {
        /// So many have not,
        failed: usize,
        /// of so many.
        of: usize,
    },
    /// A key that cannot be sealed.
    #[error(transparent)]
    Key(#[from] weir_trust::key::KeyFileError),
}

/// `weir key`.
pub fn key(out: &mut impl Write, act: &Key) -> Result<(), Failure> {
    match act {
        Key::New { file, passphrase_file, passphrase } => {
            let identity = Identity::generate(&mut OsRng);
            let passphrase = match passphrase_file {
                Some(from) => Some(passphrase_of(from)?),
                None if *passphrase => Some(new_passphrase(file)?),
                None => None,
            };
            match passphrase {
                Some(passphrase) => {
                    let sealed = KeyFile::sealed(&identity, passphrase.as_bytes(), Cost::USUAL, &mut OsRng);
                    keep_secret(file, &sealed.map_err(TrustError::from)?)?;
                }
                None => keep_secret(file, &KeyFile::plain(&identity))?,
            }
            writeln!(out, "{}", identity.public())?;
        }
        Key::Show { file } => writeln!(out, "{}", files::key_file(file)?.public())?,
    }
    Ok(())
}

/// `weir grant`.
pub fn grant(out: &mut impl Write, args: &GrantArgs) -> Result<(), Failure> {
    let root = identity_of(&args.signer.key, args.signer.passphrase_file.as_deref())?;
    let grant = Grant {
        view: Some(args.view),
        writes: named(args.write),
        ceilings: Ceilings {
            cpu: args.cpu.limit(),
            memory: args.memory.limit(),
            bandwidth: args.bandwidth.limit(),
            records_per_second: args.records.limit(),
            kept_packets: args.kept.limit(),
            sessions: args.sessions.limit(),
        },
        nodes: At::all(&args.nodes),
        expires: Some(args.until),
        delegations: args.delegations.limit(),
        ..granted(&args.limits, &args.modules, &args.signers)?
    };
    let credential = Credential::mint(&root, args.to, grant, &mut OsRng).map_err(TrustError::from)?;
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
    let has = credential.claimed_grant().map_err(|refusal| TrustError::from(MintError::from(refusal)))?;
    let grant = Grant {
        view: args.view.map_or(has.passed_on_cautiously().view, Same::stated),
        writes: args.write.stated().and_then(named),
        ceilings: Ceilings {
            cpu: args.cpu,
            memory: args.memory,
            bandwidth: args.bandwidth,
            records_per_second: args.records,
            kept_packets: args.kept,
            sessions: args.sessions,
        },
        nodes: (!args.nodes.is_empty()).then(|| args.nodes.iter().cloned().collect()),
        expires: args.until,
        delegations: args.delegations.stated(),
        ..granted(&args.limits, &args.modules, &args.signers)?
    };
    let delegated = credential.delegate(&holder, args.to, grant, &mut OsRng).map_err(TrustError::from)?;
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
    writeln!(out, "{}: {}, signed by {}", to.display(), signature.module(), signature.signer())?;
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
        CredentialAct::Deliver { list, nodes, socket } => deliver_file(out, list, nodes, socket)?,
        CredentialAct::Revoke { files, signer, list, nodes } => {
            let root = identity_of(&signer.key, signer.passphrase_file.as_deref())?;
            let public = root.public();
            let mut ids = Vec::new();
            for file in files {
                let credential = credential_of(file)?;
                let of = *credential.claimed_root();
                if of != public {
                    return Err(TrustError::OtherRoot { what: file.clone(), of, key: public }.into());
                }
                ids.extend(credential.claimed_links().last().map(|link| link.id));
            }
            let now = now();
            let signed = match list_of(list)? {
                Some(before) if *before.root() != public => {
                    let (what, of) = (list.clone(), *before.root());
                    return Err(TrustError::OtherRoot { what, of, key: public }.into());
                }
                Some(before) => before.with(&root, now, ids.iter().copied()),
                None => RevocationList::sign(&root, 1, now, ids.iter().copied().collect()),
            };
            let signed = signed.map_err(TrustError::from)?;
            replace(list, &signed.to_string())?;
            ids.iter().try_for_each(|id| writeln!(out, "{id} is taken back"))?;
            writeln!(
                out,
                "{}: list {} has {} in all",
                list.display(),
                signed.sequence(),
                signed.ids().len()
            )?;
            if !nodes.is_empty() {
                deliver(out, &signed, nodes)?;
            }
        }
    }
    Ok(())
}

/// `weir credential deliver`.
fn deliver_file(out: &mut impl Write, list: &Path, nodes: &[Address], socket: &Path) -> Result<(), Failure> {
    let Some(signed) = list_of(list)? else {
        return Err(Failure::Trust(TrustError::NoList(list.to_owned())));
    };
    if nodes.is_empty() {
        let here = Whereabouts::Here(socket.to_owned());
        let notes = Client::to(&here)?.order(Request::Revoke, signed.to_string().as_bytes())?;
        notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
        return Ok(());
    }
    deliver(out, &signed, nodes)
}

/// Delivers a list to all of these nodes, and says what each made of it.
fn deliver(out: &mut impl Write, list: &RevocationList, nodes: &[Address]) -> Result<(), Failure> {
    let mut failed = 0;
    for node in nodes {
        // Who delivers it makes no difference.
        let there = node.whereabouts(Identity::generate(&mut OsRng), Vec::new());
        let told = there.map_err(|error| error.to_string()).and_then(|there| {
            let mut client = Client::to(&there).map_err(|error| error.to_string())?;
            client.order(Request::Revoke, list.to_string().as_bytes()).map_err(|error| error.to_string())
        });
        match told {
            Ok(notes) => notes.iter().try_for_each(|note| writeln!(out, "{node}: {note}"))?,
            Err(why) => {
                failed += 1;
                let _ = writeln!(std::io::stderr(), "weir: {node}: {why}");
            }
        }
    }
    if failed == 0 {
        Ok(())
    } else {
        Err(Failure::Trust(TrustError::Undelivered { failed, of: nodes.len() }))
    }
}

fn now() -> Second {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Second::new(since.as_secs()).unwrap_or(Second::MAX)
}

/// The part that `weir grant` and `weir delegate` say in the same way.
fn granted(limits: &Limits, modules: &[String], signers: &[PublicKey]) -> Result<Grant, Failure> {
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
