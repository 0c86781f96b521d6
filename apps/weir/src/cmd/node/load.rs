//! `weir load` and `weir unload`: loads a module into a session, and ends a module of a session.

use super::args::{LoadArgs, UnloadArgs};
use super::{NodeCommandError, execute};
use crate::Failure;
use crate::module_arg::{ModuleArg, ModuleArgError};
use crate::output::progress::RunProgress;
use crate::shipped;
use crate::trust_files::{TrustFileError, read_signature_text, signature_path};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_node::client::{Client, ClientError, NodeLocation, Upload, UploadStep};
use weir_node::control::protocol::ControlRequest;
use weir_node::control::spec::{ModuleSpec, TomlValue};
use weir_units::Bytes;

/// Loads a module into a session. The command reads the module's file and sends its bytes, so that the node needs no
/// access to the user's files. Of a shipped module, it sends only the name.
pub fn load(out: &mut impl Write, args: &LoadArgs) -> Result<(), Failure> {
    let (request, body) = load_request(args)?;
    let node = args.address.resolve()?;
    let notes = match Upload::new(&body) {
        None => Client::connect_to(&node)?.execute(request, &body)?,
        Some(upload) => send_upload(&node, &upload)?.execute_with_file(request, upload.hash())?,
    };
    notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
    Ok(())
}

/// Returns the request to load a module, and the module's bytes, which are empty for a shipped module.
pub(super) fn load_request(args: &LoadArgs) -> Result<(ControlRequest, Vec<u8>), Failure> {
    let spec = ModuleArg::parse(&args.module)?;
    let (module, body) = name_and_bytes(&spec)?;
    let signatures = read_signatures(&spec, &args.signatures)?;
    let module = ModuleSpec {
        name: args.name.clone(),
        module,
        settings: protocol_settings(&spec)?,
        channel: args.channel.clone(),
        cpu: args.cpu.clone(),
        unmetered: args.unmetered,
    };
    let replace = args.replace.then_some(args.trial);
    Ok((ControlRequest::Load { session: args.session.clone(), module, signatures, replace }, body))
}

/// Uploads the file of a module, with further connections if one fails. Shows the progress on a terminal, and prints
/// errors. Returns the client of the last connection, over which the module can then be loaded.
pub(super) fn send_upload(node: &NodeLocation, upload: &Upload<'_>) -> Result<Client, ClientError> {
    let mut progress = RunProgress::new(true);
    let mut report_step = |step: UploadStep<'_>| match step {
        UploadStep::Progress { bytes, total } => progress.show_bytes(bytes as u64, total as u64),
        UploadStep::Disconnected { why, pause } => {
            progress.line(&format!("weir: {why}; trying again in {:.1} s", pause.as_secs_f64()));
        }
        UploadStep::Restarted { received_before } => progress.line(&format!(
            "weir: the node has lost some or all of the {} sent before; weir sends the lost bytes again",
            Bytes(received_before as u64)
        )),
    };
    let sent = upload.send(&mut || Client::connect_to(node), &mut std::thread::sleep, &mut report_step);
    progress.finish();
    sent
}

/// Ends a module of a session.
pub fn unload(out: &mut impl Write, args: &UnloadArgs) -> Result<(), Failure> {
    let request = ControlRequest::Unload { session: args.session.clone(), module: args.module.clone() };
    execute(out, &args.address.resolve()?, request, &[])
}

/// Returns the name of a module for a request, and the bytes of its file, which can be a bundle. They are empty for a shipped
/// module.
pub(super) fn name_and_bytes(spec: &ModuleArg) -> Result<(String, Vec<u8>), ModuleArgError> {
    if shipped::find(&spec.name).is_some() {
        return Ok((spec.name.clone(), Vec::new()));
    }
    let name = Path::new(&spec.name).file_name().map(|name| name.to_string_lossy().into_owned());
    Ok((name.unwrap_or_else(|| spec.name.clone()), spec.node_file()?))
}

/// Reads a module's signatures from `files`. If `files` is empty, reads the signature beside the module's file, if
/// there is one.
pub(super) fn read_signatures(spec: &ModuleArg, files: &[PathBuf]) -> Result<Vec<String>, TrustFileError> {
    if !files.is_empty() {
        return files.iter().map(|file| read_signature_text(file)).collect();
    }
    let path = signature_path(&spec.name);
    let has_signature = shipped::find(&spec.name).is_none() && path.exists();
    if has_signature { Ok(vec![read_signature_text(&path)?]) } else { Ok(Vec::new()) }
}

/// Converts the values of parameters to those of the protocol. They stay texts: only the module's manifest, which the
/// node reads, has the types of the parameters.
fn protocol_settings(spec: &ModuleArg) -> Result<BTreeMap<String, TomlValue>, NodeCommandError> {
    let mut settings = BTreeMap::new();
    for (key, words) in &spec.settings {
        let value = match words.as_slice() {
            [word] => TomlValue::Text(word.clone()),
            words => TomlValue::List(words.iter().cloned().map(TomlValue::Text).collect()),
        };
        if settings.insert(key.clone(), value).is_some() {
            return Err(NodeCommandError::SetTwice { module: spec.name.clone(), key: key.clone() });
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_reach_admission_unchanged() {
        let spec = ModuleArg::parse(r"m,ports=53,123,s=a\,b").unwrap();
        let mut module: ModuleSpec = ModuleSpec {
            name: None,
            module: "m".to_owned(),
            settings: protocol_settings(&spec).unwrap(),
            channel: weir_admission::Name::new("main").unwrap(),
            cpu: weir_admission::Name::new("main").unwrap(),
            unmetered: false,
        };
        assert_eq!(module.settings(), spec.settings);
        module.settings.clear();
        assert_eq!(module.settings(), []);
        let twice = ModuleArg::parse("m,a=1,a=2").unwrap();
        assert!(matches!(protocol_settings(&twice), Err(NodeCommandError::SetTwice { .. })));
    }
}
