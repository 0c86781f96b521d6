//! `weir session`: sessions are created, changed, closed, listed and shown.

use super::args::{ChangeArgs, Create, SessionArgs, SessionCommand};
use super::load::{file, send, signatures};
use super::stated::StatedError;
use super::{NodeCommandError, look, order, read, show};
use crate::Failure;
use crate::spec::Spec;
use std::io::Write;
use std::path::Path;
use weir_admission::Name;
use weir_node::client::{Client, Upload, Whereabouts};
use weir_node::control::config::CONFIG_BYTES_MAX;
use weir_node::control::protocol::{self, ControlRequest};
use weir_node::control::spec::{ModuleSpec, SessionSpec};

/// Does what is asked with a session.
pub fn session(out: &mut impl Write, args: &SessionArgs) -> Result<(), Failure> {
    let node = &args.place.whereabouts()?;
    match &args.act {
        SessionCommand::Create(args) => create(out, node, args),
        SessionCommand::Change(args) => change(out, node, args),
        SessionCommand::Close { name } => {
            order(out, node, ControlRequest::Close { session: name.clone() }, &[])
        }
        SessionCommand::List => {
            show::list(out, &*look(node)?)?;
            Ok(())
        }
        SessionCommand::Show { name, json } => one(out, node, name, *json),
    }
}

/// The session that is to be created, with its modules, whose paths are relative to the file that it comes from.
pub(super) fn spec_of(args: &Create) -> Result<SessionSpec, Failure> {
    let described = match &args.from {
        Some(path) => from_file(path, &args.name)?,
        None => SessionSpec::new(args.name.clone()),
    };
    // What is given here stands in the place of all that the file has of it.
    let spec = args.stated.over(&args.name, &described)?;
    Ok(SessionSpec { limits: args.limits.amounts.or(spec.limits), ..spec })
}

fn create(out: &mut impl Write, node: &Whereabouts, args: &Create) -> Result<(), Failure> {
    let mut spec = spec_of(args)?;
    let folder = args.from.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).to_owned();
    let modules = std::mem::take(&mut spec.modules);
    // All files first: a session is not created for the sake of one that is not there.
    let modules =
        modules.into_iter().map(|module| with_bytes(module, &folder)).collect::<Result<Vec<_>, _>>()?;
    let mut client = Client::to(node)?;
    let mut notes = client.order(ControlRequest::Create(spec), &[])?;
    for (module, body, signatures) in modules {
        let name = module.name.as_ref().map_or_else(|| module.module.clone(), Name::to_string);
        let ask = ControlRequest::Load { session: args.name.clone(), module, signatures };
        let loaded = match Upload::of(&body) {
            None => client.order(ask, &body),
            Some(upload) => send(node, &upload).and_then(|sent| {
                client = sent;
                client.order_with(ask, upload.hash())
            }),
        };
        match loaded {
            Ok(more) => notes.extend(more),
            Err(why) => {
                let session = args.name.to_string();
                let closed = client.order(ControlRequest::Close { session: args.name.clone() }, &[]);
                Err(match closed {
                    Ok(_) => NodeCommandError::Half { session, module: name, why },
                    Err(then) => NodeCommandError::Torn { session, module: name, why, then },
                })?;
            }
        }
    }
    notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
    Ok(())
}

/// A module of a file with its bytes and its signatures; paths are relative to the file's folder.
fn with_bytes(mut module: ModuleSpec, folder: &Path) -> Result<(ModuleSpec, Vec<u8>, Vec<String>), Failure> {
    let is_shipped = crate::shipped::find(&module.module).is_some();
    let name = if is_shipped {
        module.module.clone()
    } else {
        folder.join(&module.module).to_string_lossy().into_owned()
    };
    let spec = Spec { name, settings: Vec::new() };
    let (name, bytes) = file(&spec)?;
    module.module = name;
    Ok((module, bytes, signatures(&spec, &[])?))
}

/// A session as a file describes it. The name on the command line holds.
fn from_file(path: &Path, name: &Name) -> Result<SessionSpec, NodeCommandError> {
    let wrong = |why: String| NodeCommandError::File { path: path.to_owned(), why };
    let text = read(path, CONFIG_BYTES_MAX)?;
    if text.len() > CONFIG_BYTES_MAX {
        return Err(wrong(format!("it has more than {CONFIG_BYTES_MAX} bytes, the most for a session")));
    }
    let at = |error: toml::de::Error, lines_before: usize, text: &str| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map(|before| before.bytes().filter(|byte| *byte == b'\n').count() + 1);
        let line = line.map(|line| line.saturating_sub(lines_before).max(1));
        wrong(format!(
            "{}{}",
            line.map_or_else(String::new, |line| format!("line {line}: ")),
            error.message()
        ))
    };
    // A name may be left out there: sessions of several names are made of the same file.
    let table = toml::from_str::<toml::Table>(&text).map_err(|error| at(error, 0, &text))?;
    let named = if table.contains_key("name") { text } else { format!("name = \"{name}\"\n{text}") };
    let lines_before = usize::from(!table.contains_key("name"));
    let mut spec: SessionSpec = toml::from_str(&named).map_err(|error| at(error, lines_before, &named))?;
    spec.name = name.clone();
    Ok(spec)
}

fn change(out: &mut impl Write, node: &Whereabouts, args: &ChangeArgs) -> Result<(), Failure> {
    order(out, node, ControlRequest::Change(change_of(args)?), &[])
}

/// What is to change.
pub(super) fn change_of(args: &ChangeArgs) -> Result<protocol::Change, StatedError> {
    Ok(protocol::Change { limits: args.limits.amounts, ..args.stated.read(&args.name)? })
}

fn one(out: &mut impl Write, node: &Whereabouts, name: &Name, json: bool) -> Result<(), Failure> {
    let snapshot = look(node)?;
    let Some(session) = snapshot.sessions.iter().find(|session| session.name == name.as_str()) else {
        let there: Vec<&str> = snapshot.sessions.iter().map(|session| session.name.as_str()).collect();
        let there = weir_units::shown(&there.join(", "));
        return Err(Failure::Control(NodeCommandError::NoSession { name: name.to_string(), there }));
    };
    if json {
        crate::json::document(out, session)?;
    } else {
        show::session(out, session, &snapshot.interfaces)?;
    }
    Ok(())
}
