//! Signed modules: a grant for a signer covers new versions of its modules, and no other module.

use crate::limits::row_module;
use crate::remote::{Net, Person, modest_grant, person};
use crate::remote_limits::file;
use crate::testbed::is_inside;
use serde_json::json;
use std::process::Command;
use weir_trust::grant::{Grant, ModuleHash, ModuleSet, Modules};
use weir_trust::key::PublicKey;
use weir_trust::signature::ModuleSignature;

const SESSION: [&str; 6] = ["session", "create", "s", "--memory", "8 MiB", "--channel"];

/// Signs a module's file, as its author does.
pub fn sign(author: &Person, module: &str, more: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(["sign", module, "--key"]).arg(&author.key).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

pub fn signed_by(signers: &[&Person]) -> Grant {
    let signers = signers.iter().map(|signer| signer.identity.public()).collect();
    Grant { modules: Modules::from(ModuleSet { signers, ..ModuleSet::default() }), ..Grant::default() }
}

#[test]
fn a_module_is_loaded_only_with_a_signature_of_its_bytes_by_a_granted_signer() {
    if !is_inside("remote_signed::a_module_is_loaded_only_with_a_signature_of_its_bytes_by_a_granted_signer")
    {
        return;
    }
    let mut net = Net::new();
    let [author, other] = ["author", "other"].map(|name| person(net.folder.path(), name));
    let researcher =
        net.granted("researcher", Grant { modules: signed_by(&[&author]).modules, ..modest_grant() });
    net.run(&researcher, &[&SESSION[..], &["interface=b"]].concat());
    let first = file(&net, "mine.wasm", &row_module("first"));
    let key = |who: &Person| -> PublicKey { who.identity.public() };
    net.run_refused(&researcher, &["load", "s", &first], "unsigned, given is signed by weir-key:");
    // Signed by another key only, which this grant does not accept.
    sign(&other, &first, &["--out", &format!("{first}.other")]);
    let by_other = format!("{first}.other");
    let load_by = |file: &str| ["load", "s", &first, "--signature", file].map(str::to_owned);
    let refused = |net: &Net, arguments: &[String], why: &str| {
        net.run_refused(&researcher, &arguments.iter().map(String::as_str).collect::<Vec<_>>(), why);
    };
    refused(
        &net,
        &load_by(&by_other),
        &format!("signed by {}, given is signed by {}", key(&other), key(&author)),
    );
    // Signed by the right key; the signature is found beside the module.
    sign(&author, &first, &[]);
    net.run(
        &researcher,
        &["load", "s", &first, "--signature", &by_other, "--signature", &format!("{first}.sig")],
    );
    net.run(&researcher, &["unload", "s", "first"]);
    net.run(&researcher, &["load", "s", &first]);
    net.run(&researcher, &["unload", "s", "first"]);

    // A new version with the old signature, and with a new one under the same credential.
    file(&net, "mine.wasm", &row_module("second"));
    net.run_refused(&researcher, &["load", "s", &first], "is of another module");
    sign(&author, &first, &[]);
    net.run(&researcher, &["load", "s", &first]);
    // An incomplete signature is not even sent.
    let whole = std::fs::read_to_string(format!("{first}.sig")).unwrap();
    for (text, why) in [
        (whole[..whole.len() - 9].to_owned(), "line 4 of the signature"),
        (whole.repeat(1000), "512 is the most"),
        (String::new(), "no signature of a module"),
    ] {
        let damaged = file(&net, "damaged.sig", text.as_bytes());
        refused(&net, &load_by(&damaged), why);
    }
    assert!(net.testbed.stop().success());
}

#[test]
fn a_delegation_can_only_reduce_the_accepted_signers() {
    if !is_inside("remote_signed::a_delegation_can_only_reduce_the_accepted_signers") {
        return;
    }
    let mut net = Net::new();
    let [author, other] = ["author", "other"].map(|name| person(net.folder.path(), name));
    let module = file(&net, "mine.wasm", &row_module("teller"));
    let researcher =
        net.granted("researcher", Grant { modules: signed_by(&[&author, &other]).modules, ..modest_grant() });
    let by_author = net.delegated(&researcher, "by-author", signed_by(&[&author]));
    // A module that is granted by its hash has to be signed by one of the signers, too.
    let hashes = [ModuleHash::of_bytes(&row_module("teller"))].into();
    let modules = Modules::from(ModuleSet { hashes, ..ModuleSet::default() });
    let by_hash = net.delegated(&researcher, "by-hash", Grant { modules, ..Grant::default() });
    let create = [
        "session",
        "create",
        "s",
        "--memory",
        "1 MiB",
        "--cpu",
        "period=10ms,slice=200us",
        "--channel",
        "interface=b",
    ];
    for who in [&by_author, &by_hash] {
        net.run(who, &create);
        net.run_refused(who, &["load", "s", &module], "unsigned, given is");
    }
    sign(&other, &module, &[]);
    net.run_refused(&by_author, &["load", "s", &module], "modules: asked for");
    net.run(&by_hash, &["load", "s", &module]);
    sign(&author, &module, &["--out", &format!("{module}.author")]);
    net.run(&by_author, &["load", "s", &module, "--signature", &format!("{module}.author")]);
    // Another module that both have signed is not the granted one.
    let another = file(&net, "another.wasm", &row_module("another"));
    sign(&other, &another, &[]);
    net.run_refused(&by_hash, &["load", "s", &another], "modules: asked for");
    assert!(net.testbed.stop().success());
}

#[test]
fn invalid_signatures_are_refused_and_cost_the_node_nothing() {
    if !is_inside("remote_signed::invalid_signatures_are_refused_and_cost_the_node_nothing") {
        return;
    }
    let mut net = Net::new();
    let author = person(net.folder.path(), "author");
    let bytes = row_module("teller");
    net.testbed.request(json!({"create": {"name": "s", "channel": [{"interface": "b"}]}}));
    let load = |net: &Net, signatures: Vec<String>| {
        let request =
            json!({"load": {"session": "s", "module": {"module": "t.wasm"}, "signatures": signatures}});
        net.testbed.send_request_with_body(request, &bytes)
    };
    let right = ModuleSignature::sign(&author.identity, &bytes).to_string();
    let other = ModuleSignature::sign(&author.identity, b"other bytes").to_string();
    // The operator, who may load any module, is told of an invalid signature, too.
    for (signatures, why) in [
        (vec!["x".repeat(100_000)], "512 is the most"),
        (vec![right.clone(); 9], "8 is the most for one module"),
        (vec![right.clone(), other], "is of another module"),
        (vec![right.replace("signature 1", "signature 2")], "no signature of a module"),
        (vec![right[..right.len() / 2].to_owned()], "of the signature should be"),
        (vec!["\u{0}".repeat(400)], "no signature of a module"),
    ] {
        let reply = load(&net, signatures);
        assert!(reply["refused"]["why"].as_str().is_some_and(|said| said.contains(why)), "{why}: {reply}");
    }
    assert!(load(&net, vec![right]).get("done").is_some());
    assert!(net.testbed.stop().success());
}
