//! `weir load` and `weir unload`: modules of sessions.

use super::args::{LoadArgs, Unload};
use super::{NodeCommandError, order};
use crate::Failure;
use crate::cmd::run::progress::RunProgress;
use crate::cmd::trust::{TrustFileError, signature_of, signature_text};
use crate::shipped;
use crate::spec::{ModuleSpecError, Spec};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_node::client::{Client, ClientError, Upload, UploadStep, Whereabouts};
use weir_node::control::protocol::ControlRequest;
use weir_node::control::spec::{ModuleSpec, TomlValue};
use weir_units::Bytes;

/// Loads a module into a session. Its file is read here, so that a node need not see the user's files; a shipped one goes by its name.
pub fn load(out: &mut impl Write, args: &LoadArgs) -> Result<(), Failure> {
    let (ask, body) = load_of(args)?;
    let node = args.place.whereabouts()?;
    let notes = match Upload::of(&body) {
        None => Client::to(&node)?.order(ask, &body)?,
        Some(upload) => send(&node, &upload)?.order_with(ask, upload.hash())?,
    };
    notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
    Ok(())
}

/// The request, and the module's file.
pub(super) fn load_of(args: &LoadArgs) -> Result<(ControlRequest, Vec<u8>), Failure> {
    let spec = Spec::parse(&args.module)?;
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

/// Sends a long file, over as many connections as it takes. Whoever waits at a terminal sees how far it is; what goes wrong is said anyhow.
pub(super) fn send(node: &Whereabouts, upload: &Upload<'_>) -> Result<Client, ClientError> {
    let mut progress = RunProgress::new(true);
    let mut tell = |step: UploadStep<'_>| {
        match step {
        UploadStep::There { bytes, of } => progress.show_bytes(bytes as u64, of as u64),
        UploadStep::Broken { why, pause } => {
            progress.line(&format!("weir: {why}; trying again in {:.1} s", pause.as_secs_f64()));
        }
        UploadStep::Anew { had } => progress.line(&format!(
            "weir: of the {} that were there the node has no more than a part, or nothing: the rest is sent again",
            Bytes(had as u64)
        )),
    }
    };
    let sent = upload.send(&mut || Client::to(node), &mut std::thread::sleep, &mut tell);
    progress.finish();
    sent
}

/// Ends a module of a session.
pub fn unload(out: &mut impl Write, args: &Unload) -> Result<(), Failure> {
    let ask = ControlRequest::Unload { session: args.session.clone(), module: args.module.clone() };
    order(out, &args.place.whereabouts()?, ask, &[])
}

/// What a module is called in a request, and the bytes that go with it: none for a shipped one.
pub(super) fn file(spec: &Spec) -> Result<(String, Vec<u8>), ModuleSpecError> {
    if shipped::find(&spec.name).is_some() {
        return Ok((spec.name.clone(), Vec::new()));
    }
    let name = Path::new(&spec.name).file_name().map(|name| name.to_string_lossy().into_owned());
    Ok((name.unwrap_or_else(|| spec.name.clone()), spec.bytes()?))
}

/// The texts of a module's signatures: those in these files; where none are named, the one beside the module's file, if there is one.
pub(super) fn signatures(spec: &Spec, files: &[PathBuf]) -> Result<Vec<String>, TrustFileError> {
    if !files.is_empty() {
        return files.iter().map(|file| signature_text(file)).collect();
    }
    let beside = signature_of(&spec.name);
    let is_there = shipped::find(&spec.name).is_none() && beside.exists();
    if is_there { Ok(vec![signature_text(&beside)?]) } else { Ok(Vec::new()) }
}

/// The settings as messages have them. They are texts: only the module's manifest knows more.
fn settings(spec: &Spec) -> Result<BTreeMap<String, TomlValue>, NodeCommandError> {
    let mut settings = BTreeMap::new();
    for (key, words) in &spec.settings {
        let given = match words.as_slice() {
            [word] => TomlValue::Text(word.clone()),
            words => TomlValue::List(words.iter().cloned().map(TomlValue::Text).collect()),
        };
        if settings.insert(key.clone(), given).is_some() {
            return Err(NodeCommandError::SetTwice { module: spec.name.clone(), key: key.clone() });
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_reach_admission_as_they_were_given() {
        let spec = Spec::parse(r"m,ports=53,123,s=a\,b").unwrap();
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
        let twice = Spec::parse("m,a=1,a=2").unwrap();
        assert!(matches!(settings(&twice), Err(NodeCommandError::SetTwice { .. })));
    }
}
