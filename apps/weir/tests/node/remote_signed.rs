//! Modules that somebody vouches for: whoever may load those of a signer needs no new credential for a new version, and no other module is one of them.

use crate::limits::teller;
use crate::place::is_inside;
use crate::remote::{Net, Person, modest, person};
use crate::remote_limits::file;
use serde_json::json;
use std::process::Command;
use weir_trust::grant::{Grant, ModuleHash, ModuleSet, Modules};
use weir_trust::key::PublicKey;
use weir_trust::signature::ModuleSignature;

const SESSION: [&str; 6] = ["session", "create", "s", "--memory", "8 MiB", "--channel"];

/// Signs a module's file as its author does.
fn sign(author: &Person, module: &str, more: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(["sign", module, "--key"]).arg(&author.key).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn signed_by(signers: &[&Person]) -> Grant {
    let signers = signers.iter().map(|signer| signer.identity.public()).collect();
    Grant { modules: Modules::from(ModuleSet { signers, ..ModuleSet::default() }), ..Grant::default() }
}

#[test]
fn a_module_is_loaded_where_one_whom_the_grant_names_has_signed_these_very_bytes() {
    if !is_inside(
        "remote_signed::a_module_is_loaded_where_one_whom_the_grant_names_has_signed_these_very_bytes",
    ) {
        return;
    }
    let mut net = Net::new();
    let [author, other] = ["author", "other"].map(|name| person(net.folder.path(), name));
    let researcher = net.granted("researcher", Grant { modules: signed_by(&[&author]).modules, ..modest() });
    net.done(&researcher, &[&SESSION[..], &["interface=b"]].concat());
    let first = file(&net, "mine.wasm", &teller("first"));
    let key = |who: &Person| -> PublicKey { who.identity.public() };
    net.refused(&researcher, &["load", "s", &first], "unsigned, given is signed by weir-key:");
    // By somebody else: of no worth here, alone.
    sign(&other, &first, &["--out", &format!("{first}.other")]);
    let by_other = format!("{first}.other");
    let load_by = |file: &str| ["load", "s", &first, "--signature", file].map(str::to_owned);
    let refused = |net: &Net, arguments: &[String], why: &str| {
        net.refused(&researcher, &arguments.iter().map(String::as_str).collect::<Vec<_>>(), why);
    };
    refused(
        &net,
        &load_by(&by_other),
        &format!("signed by {}, given is signed by {}", key(&other), key(&author)),
    );
    // By the right one, found beside the module.
    sign(&author, &first, &[]);
    net.done(
        &researcher,
        &["load", "s", &first, "--signature", &by_other, "--signature", &format!("{first}.sig")],
    );
    net.done(&researcher, &["unload", "s", "first"]);
    net.done(&researcher, &["load", "s", &first]);
    net.done(&researcher, &["unload", "s", "first"]);

    // A new version under the old signature, and under a new one with the old credential.
    file(&net, "mine.wasm", &teller("second"));
    net.refused(&researcher, &["load", "s", &first], "is of another module");
    sign(&author, &first, &[]);
    net.done(&researcher, &["load", "s", &first]);
    // One that is not whole is not even sent.
    let whole = std::fs::read_to_string(format!("{first}.sig")).unwrap();
    for (text, why) in [
        (whole[..whole.len() - 9].to_owned(), "line 4 of the signature"),
        (whole.repeat(1000), "512 is the most"),
        (String::new(), "no signature of a module"),
    ] {
        let damaged = file(&net, "damaged.sig", text.as_bytes());
        refused(&net, &load_by(&damaged), why);
    }
    assert!(net.place.stop().success());
}

#[test]
fn who_passes_a_right_on_can_name_fewer_signers_and_no_module_of_another_one() {
    if !is_inside("remote_signed::who_passes_a_right_on_can_name_fewer_signers_and_no_module_of_another_one")
    {
        return;
    }
    let mut net = Net::new();
    let [author, other] = ["author", "other"].map(|name| person(net.folder.path(), name));
    let module = file(&net, "mine.wasm", &teller("teller"));
    let researcher =
        net.granted("researcher", Grant { modules: signed_by(&[&author, &other]).modules, ..modest() });
    let by_author = net.delegated(&researcher, "by-author", signed_by(&[&author]));
    // A module by its hash: one of the signers has to have signed it all the same.
    let hashes = [ModuleHash::of(&teller("teller"))].into();
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
        net.done(who, &create);
        net.refused(who, &["load", "s", &module], "unsigned, given is");
    }
    sign(&other, &module, &[]);
    net.refused(&by_author, &["load", "s", &module], "modules: asked for");
    net.done(&by_hash, &["load", "s", &module]);
    sign(&author, &module, &["--out", &format!("{module}.author")]);
    net.done(&by_author, &["load", "s", &module, "--signature", &format!("{module}.author")]);
    // Another module that both have signed is not the one that was named.
    let another = file(&net, "another.wasm", &teller("another"));
    sign(&other, &another, &[]);
    net.refused(&by_hash, &["load", "s", &another], "modules: asked for");
    assert!(net.place.stop().success());
}

#[test]
fn signatures_that_are_none_are_refused_by_the_node_and_cost_it_nothing() {
    if !is_inside("remote_signed::signatures_that_are_none_are_refused_by_the_node_and_cost_it_nothing") {
        return;
    }
    let mut net = Net::new();
    let author = person(net.folder.path(), "author");
    let bytes = teller("teller");
    net.place.done(json!({"create": {"name": "s", "channel": [{"interface": "b"}]}}));
    let load = |net: &Net, signatures: Vec<String>| {
        let ask = json!({"load": {"session": "s", "module": {"module": "t.wasm"}, "signatures": signatures}});
        net.place.ask_with(ask, &bytes)
    };
    let right = ModuleSignature::sign(&author.identity, &bytes).to_string();
    let other = ModuleSignature::sign(&author.identity, b"other bytes").to_string();
    // Also the operator, who may load anything, is told of a signature that says what is not true.
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
    assert!(net.place.stop().success());
}
