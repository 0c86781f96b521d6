//! `weir session`: creates, changes, closes, lists and shows sessions.

use super::args::{ChangeArgs, Create, SessionArgs, SessionCommand};
use super::load::{file, send, signatures};
use super::spec_options::SpecOptionError;
use super::{NodeCommandError, execute, fetch_snapshot, read, show};
use crate::Failure;
use crate::module_arg::ModuleArg;
use std::io::Write;
use std::path::Path;
use weir_admission::Name;
use weir_node::client::{Client, NodeLocation, Upload};
use weir_node::control::config::CONFIG_BYTES_MAX;
use weir_node::control::protocol::{self, ControlRequest};
use weir_node::control::renamed_keys::with_advice;
use weir_node::control::spec::{ModuleSpec, SessionSpec};

/// Carries out a session command.
pub fn session(out: &mut impl Write, args: &SessionArgs) -> Result<(), Failure> {
    let node = &args.address.resolve()?;
    match &args.action {
        SessionCommand::Create(args) => create(out, node, args),
        SessionCommand::Change(args) => change(out, node, args),
        SessionCommand::Close { name } => {
            execute(out, node, ControlRequest::Close { session: name.clone() }, &[])
        }
        SessionCommand::List => {
            show::list(out, &*fetch_snapshot(node)?)?;
            Ok(())
        }
        SessionCommand::Show { name, json } => show_one(out, node, name, *json),
    }
}

/// The specification of a session to create, with its modules, whose paths are relative to the file of `--from`.
pub(super) fn session_spec(args: &Create) -> Result<SessionSpec, Failure> {
    let base = match &args.from {
        Some(path) => from_file(path, &args.name)?,
        None => SessionSpec::new(args.name.clone()),
    };
    // An option replaces the whole key of the file.
    let spec = args.spec.override_spec(&args.name, &base)?;
    Ok(SessionSpec { limits: args.limits.amounts.with_defaults(spec.limits), ..spec })
}

fn create(out: &mut impl Write, node: &NodeLocation, args: &Create) -> Result<(), Failure> {
    let mut spec = session_spec(args)?;
    let folder = args.from.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).to_owned();
    let modules = std::mem::take(&mut spec.modules);
    // All files are read first, so that no session is created if one is missing.
    let modules =
        modules.into_iter().map(|module| with_bytes(module, &folder)).collect::<Result<Vec<_>, _>>()?;
    let mut client = Client::connect_to(node)?;
    let mut notes = client.execute(ControlRequest::Create(spec), &[])?;
    for (module, body, signatures) in modules {
        let name = module.name.as_ref().map_or_else(|| module.module.clone(), Name::to_string);
        let ask = ControlRequest::Load { session: args.name.clone(), module, signatures };
        let loaded = match Upload::new(&body) {
            None => client.execute(ask, &body),
            Some(upload) => send(node, &upload).and_then(|sent| {
                client = sent;
                client.execute_with_file(ask, upload.hash())
            }),
        };
        match loaded {
            Ok(more) => notes.extend(more),
            Err(why) => {
                let session = args.name.to_string();
                let closed = client.execute(ControlRequest::Close { session: args.name.clone() }, &[]);
                Err(match closed {
                    Ok(_) => NodeCommandError::SessionNotCreated { session, module: name, why },
                    Err(then) => NodeCommandError::SessionIncomplete { session, module: name, why, then },
                })?;
            }
        }
    }
    notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
    Ok(())
}

/// Reads the bytes and signatures of a module named in a file; paths are relative to the file's folder.
fn with_bytes(mut module: ModuleSpec, folder: &Path) -> Result<(ModuleSpec, Vec<u8>, Vec<String>), Failure> {
    let is_shipped = crate::shipped::find(&module.module).is_some();
    let name = if is_shipped {
        module.module.clone()
    } else {
        folder.join(&module.module).to_string_lossy().into_owned()
    };
    let spec = ModuleArg { name, settings: Vec::new() };
    let (name, bytes) = file(&spec)?;
    module.module = name;
    Ok((module, bytes, signatures(&spec, &[])?))
}

/// Reads a session from a file. The name of the command line replaces the file's.
fn from_file(path: &Path, name: &Name) -> Result<SessionSpec, NodeCommandError> {
    let wrong = |why: String| NodeCommandError::File { path: path.to_owned(), why };
    let text = read(path, CONFIG_BYTES_MAX)?;
    if text.len() > CONFIG_BYTES_MAX {
        return Err(wrong(format!("it has more than {CONFIG_BYTES_MAX} bytes, the most for a session")));
    }
    let with_line = |error: toml::de::Error, lines_before: usize, text: &str| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map(|before| before.bytes().filter(|byte| *byte == b'\n').count() + 1);
        let line = line.map(|line| line.saturating_sub(lines_before).max(1));
        wrong(format!(
            "{}{}",
            line.map_or_else(String::new, |line| format!("line {line}: ")),
            with_advice(error.message())
        ))
    };
    // The file may omit the name, so that several sessions can be created from it.
    let table = toml::from_str::<toml::Table>(&text).map_err(|error| with_line(error, 0, &text))?;
    let named = if table.contains_key("name") { text } else { format!("name = \"{name}\"\n{text}") };
    let lines_before = usize::from(!table.contains_key("name"));
    let mut spec: SessionSpec =
        toml::from_str(&named).map_err(|error| with_line(error, lines_before, &named))?;
    spec.name = name.clone();
    Ok(spec)
}

fn change(out: &mut impl Write, node: &NodeLocation, args: &ChangeArgs) -> Result<(), Failure> {
    execute(out, node, ControlRequest::Change(change_request(args)?), &[])
}

/// Builds the request to change a session.
pub(super) fn change_request(args: &ChangeArgs) -> Result<protocol::Change, SpecOptionError> {
    Ok(protocol::Change { limits: args.limits.amounts, ..args.spec.read(&args.name)? })
}

fn show_one(out: &mut impl Write, node: &NodeLocation, name: &Name, json: bool) -> Result<(), Failure> {
    let snapshot = fetch_snapshot(node)?;
    let Some(session) = snapshot.sessions.iter().find(|session| session.name == name.as_str()) else {
        let existing: Vec<&str> = snapshot.sessions.iter().map(|session| session.name.as_str()).collect();
        let existing = weir_units::shown(&existing.join(", "));
        return Err(Failure::Control(NodeCommandError::NoSession { name: name.to_string(), existing }));
    };
    if json {
        crate::json::document(out, session)?;
    } else {
        show::session(out, session, &snapshot.interfaces)?;
    }
    Ok(())
}
