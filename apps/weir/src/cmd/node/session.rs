//! `weir session`: creates, changes, closes, lists and shows sessions.

use super::args::{ChangeArgs, CreateArgs, SessionArgs, SessionCommand};
use super::load::{name_and_bytes, read_signatures, send_upload};
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
            show::print_sessions(out, &*fetch_snapshot(node)?)?;
            Ok(())
        }
        SessionCommand::Show { name, json } => show_session(out, node, name, *json),
    }
}

/// Returns the specification of a session to create, with its modules. The paths of modules are relative to the folder
/// of the file that `--from` names.
pub(super) fn session_spec(args: &CreateArgs) -> Result<SessionSpec, Failure> {
    let base = match &args.from {
        Some(path) => read_spec_file(path, &args.name)?,
        None => SessionSpec::new(args.name.clone()),
    };
    // An option replaces the whole value of its key in the file, even if the value is a list.
    let spec = args.spec.override_spec(&args.name, &base)?;
    Ok(SessionSpec { limits: args.limits.amounts.with_defaults(spec.limits), ..spec })
}

fn create(out: &mut impl Write, node: &NodeLocation, args: &CreateArgs) -> Result<(), Failure> {
    let mut spec = session_spec(args)?;
    let folder = args.from.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).to_owned();
    let modules = std::mem::take(&mut spec.modules);
    // All files are read first, so that no session is created if a file is missing.
    let modules =
        modules.into_iter().map(|module| read_module(module, &folder)).collect::<Result<Vec<_>, _>>()?;
    let mut client = Client::connect_to(node)?;
    let mut notes = client.execute(ControlRequest::Create(spec), &[])?;
    for (module, body, signatures) in modules {
        let name = module.name.as_ref().map_or_else(|| module.module.clone(), Name::to_string);
        let request = ControlRequest::Load { session: args.name.clone(), module, signatures, replace: None };
        let loaded = match Upload::new(&body) {
            None => client.execute(request, &body),
            Some(upload) => send_upload(node, &upload).and_then(|upload_client| {
                client = upload_client;
                client.execute_with_file(request, upload.hash())
            }),
        };
        match loaded {
            Ok(more) => notes.extend(more),
            Err(why) => {
                let session = args.name.to_string();
                let closed = client.execute(ControlRequest::Close { session: args.name.clone() }, &[]);
                Err(match closed {
                    Ok(_) => NodeCommandError::SessionNotCreated { session, module: name, why },
                    Err(close_error) => {
                        NodeCommandError::SessionIncomplete { session, module: name, why, close_error }
                    }
                })?;
            }
        }
    }
    notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
    Ok(())
}

/// Reads the bytes and signatures of a module that a session's file names. The module's path is relative to `folder`.
fn read_module(mut module: ModuleSpec, folder: &Path) -> Result<(ModuleSpec, Vec<u8>, Vec<String>), Failure> {
    let is_shipped = crate::shipped::find(&module.module).is_some();
    let name = if is_shipped {
        module.module.clone()
    } else {
        folder.join(&module.module).to_string_lossy().into_owned()
    };
    let spec = ModuleArg { name, settings: Vec::new() };
    let (name, bytes) = name_and_bytes(&spec)?;
    module.module = name;
    Ok((module, bytes, read_signatures(&spec, &[])?))
}

/// Reads a session's specification from a file. `name`, from the command line, replaces the name in the file.
fn read_spec_file(path: &Path, name: &Name) -> Result<SessionSpec, NodeCommandError> {
    let file_error = |why: String| NodeCommandError::File { path: path.to_owned(), why };
    let text = read(path, CONFIG_BYTES_MAX)?;
    if text.len() > CONFIG_BYTES_MAX {
        return Err(file_error(format!(
            "the file has more than {CONFIG_BYTES_MAX} bytes, the maximum for a session"
        )));
    }
    let parse_error = |error: toml::de::Error, lines_added: usize, text: &str| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map(|before| before.bytes().filter(|byte| *byte == b'\n').count() + 1);
        let line = line.map(|line| line.saturating_sub(lines_added).max(1));
        file_error(format!(
            "{}{}",
            line.map_or_else(String::new, |line| format!("line {line}: ")),
            with_advice(error.message())
        ))
    };
    // The file may omit the name, so that several sessions can be created from it. The name is then added as a line at
    // the beginning, which the line numbers in error messages must not count.
    let table = toml::from_str::<toml::Table>(&text).map_err(|error| parse_error(error, 0, &text))?;
    let named = if table.contains_key("name") { text } else { format!("name = \"{name}\"\n{text}") };
    let lines_added = usize::from(!table.contains_key("name"));
    let mut spec: SessionSpec =
        toml::from_str(&named).map_err(|error| parse_error(error, lines_added, &named))?;
    spec.name = name.clone();
    Ok(spec)
}

fn change(out: &mut impl Write, node: &NodeLocation, args: &ChangeArgs) -> Result<(), Failure> {
    execute(out, node, ControlRequest::Change(change_request(args)?), &[])
}

/// Returns the request to change a session.
pub(super) fn change_request(args: &ChangeArgs) -> Result<protocol::Change, SpecOptionError> {
    Ok(protocol::Change { limits: args.limits.amounts, ..args.spec.read(&args.name)? })
}

/// Fetches the node's state, and prints one session or the JSON document of its state.
fn show_session(out: &mut impl Write, node: &NodeLocation, name: &Name, json: bool) -> Result<(), Failure> {
    let snapshot = fetch_snapshot(node)?;
    let Some(session) = snapshot.sessions.iter().find(|session| session.name == name.as_str()) else {
        let existing: Vec<&str> = snapshot.sessions.iter().map(|session| session.name.as_str()).collect();
        let existing = weir_units::escaped(&existing.join(", "));
        return Err(Failure::NodeCommand(NodeCommandError::NoSession { name: name.to_string(), existing }));
    };
    if json {
        crate::json::document(out, session)?;
    } else {
        show::print_session(out, session, &snapshot.interfaces)?;
    }
    Ok(())
}
