//! `weir load` and `weir unload`: load and unload modules of sessions.

use super::args::{LoadArgs, Unload};
use super::{NodeCommandError, execute};
use crate::Failure;
use crate::cmd::run::progress::RunProgress;
use crate::module_arg::{ModuleArg, ModuleArgError};
use crate::shipped;
use crate::trust_files::{TrustFileError, signature_of, signature_text};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_node::client::{Client, ClientError, NodeLocation, Upload, UploadStep};
use weir_node::control::protocol::ControlRequest;
use weir_node::control::spec::{ModuleSpec, TomlValue};
use weir_units::Bytes;

/// Loads a module into a session. The file is read here, so that the node needs no access to the user's files. A shipped module is
/// sent by name.
pub fn load(out: &mut impl Write, args: &LoadArgs) -> Result<(), Failure> {
    let (ask, body) = load_request(args)?;
    let node = args.address.resolve()?;
    let notes = match Upload::new(&body) {
        None => Client::connect_to(&node)?.execute(ask, &body)?,
        Some(upload) => send(&node, &upload)?.execute_with_file(ask, upload.hash())?,
    };
    notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
    Ok(())
}

/// Returns the request and the module's bytes.
pub(super) fn load_request(args: &LoadArgs) -> Result<(ControlRequest, Vec<u8>), Failure> {
    let spec = ModuleArg::parse(&args.module)?;
    let (module, body) = file(&spec)?;
    let signatures = signatures(&spec, &args.signatures)?;
    let module = ModuleSpec {
        name: args.name.clone(),
        module,
        settings: settings(&spec)?,
        channel: args.channel.clone(),
        cpu: args.cpu.clone(),
    };
    Ok((ControlRequest::Load { session: args.session.clone(), module, signatures }, body))
}

/// Uploads a long file, over several connections if necessary. Shows the progress on a terminal, and prints errors.
pub(super) fn send(node: &NodeLocation, upload: &Upload<'_>) -> Result<Client, ClientError> {
    let mut progress = RunProgress::new(true);
    let mut report_step = |step: UploadStep<'_>| match step {
        UploadStep::Progress { bytes, of } => progress.show_bytes(bytes as u64, of as u64),
        UploadStep::Disconnected { why, pause } => {
            progress.line(&format!("weir: {why}; trying again in {:.1} s", pause.as_secs_f64()));
        }
        UploadStep::Restarted { had } => progress.line(&format!(
            "weir: the node has lost some or all of the {} sent before, and they are sent again",
            Bytes(had as u64)
        )),
    };
    let sent = upload.send(&mut || Client::connect_to(node), &mut std::thread::sleep, &mut report_step);
    progress.finish();
    sent
}

/// Ends a module of a session.
pub fn unload(out: &mut impl Write, args: &Unload) -> Result<(), Failure> {
    let ask = ControlRequest::Unload { session: args.session.clone(), module: args.module.clone() };
    execute(out, &args.address.resolve()?, ask, &[])
}

/// The name of a module in a request and its bytes, which are empty for a shipped module.
pub(super) fn file(spec: &ModuleArg) -> Result<(String, Vec<u8>), ModuleArgError> {
    if shipped::find(&spec.name).is_some() {
        return Ok((spec.name.clone(), Vec::new()));
    }
    let name = Path::new(&spec.name).file_name().map(|name| name.to_string_lossy().into_owned());
    Ok((name.unwrap_or_else(|| spec.name.clone()), spec.bytes()?))
}

/// Reads a module's signatures: from these files, or without any from the file beside the module, if it exists.
pub(super) fn signatures(spec: &ModuleArg, files: &[PathBuf]) -> Result<Vec<String>, TrustFileError> {
    if !files.is_empty() {
        return files.iter().map(|file| signature_text(file)).collect();
    }
    let beside = signature_of(&spec.name);
    let is_there = shipped::find(&spec.name).is_none() && beside.exists();
    if is_there { Ok(vec![signature_text(&beside)?]) } else { Ok(Vec::new()) }
}

/// The settings as the protocol has them. The values are texts, as only the module's manifest has their types.
fn settings(spec: &ModuleArg) -> Result<BTreeMap<String, TomlValue>, NodeCommandError> {
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
            settings: settings(&spec).unwrap(),
            channel: weir_admission::Name::new("main").unwrap(),
            cpu: weir_admission::Name::new("main").unwrap(),
        };
        assert_eq!(module.settings(), spec.settings);
        module.settings.clear();
        assert_eq!(module.settings(), []);
        let twice = ModuleArg::parse("m,a=1,a=2").unwrap();
        assert!(matches!(settings(&twice), Err(NodeCommandError::SetTwice { .. })));
    }
}
