//! Bundles on a node: which compilers it trusts, nodes without a compiler, and keys that are revoked.

use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{Testbed, ip, is_inside, udp};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weir_admission::{Admitted, Tier};
use weir_compilation::bundle::{Bundle, Member, ObjectForm};
use weir_compilation::envelope::Envelope;
use weir_compilation::statement::{Bounds, Compilation, Predicate, Statement};
use weir_sandbox::{CheckMode, Engine, EngineOptions, LlvmUse};
use weir_trust::digest::Sha256Digest;
use weir_trust::key::{Identity, KeyFile};

/// A module that emits the number of packets so far, which it has in a global and in memory.
fn counting(name: &str) -> Vec<u8> {
    counting_with(name, 3)
}

/// A module as [`counting`], with a loop of this many rounds for each packet.
pub fn counting_with(name: &str, rounds: u64) -> Vec<u8> {
    let body = format!(
        r#"(global $packets (mut i64) (i64.const 0))
        (func (export "weir_packet") (param $d i32) (result i32) (local $left i64)
            (local.set $left (i64.const {rounds}))
            (loop $next
                (i64.store (i32.const 128) (i64.xor (i64.load (i32.const 128)) (local.get $left)))
                (br_if $next (i64.ne (local.tee $left (i64.sub (local.get $left) (i64.const 1))) (i64.const 0))))
            (global.set $packets (i64.add (global.get $packets) (i64.const 1)))
            (i64.store (i32.const 136) (i64.add (i64.load (i32.const 136)) (i64.const 1)))
            (i64.store (i32.const 64) (i64.add (global.get $packets) (i64.load (i32.const 136))))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))"#
    );
    assemble(&text(&body), Some(MANIFEST.replace("NAME", name).as_bytes()))
}

fn weir(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    for variable in ["WEIR_KEY", "WEIR_PASSPHRASE_FILE", "WEIR_NODE", "WEIR_CREDENTIAL"] {
        command.env_remove(variable);
    }
    command.env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
    command.args(arguments).output().unwrap()
}

/// A folder with keys, modules and bundles.
pub struct BundleFolder {
    folder: tempfile::TempDir,
}

impl BundleFolder {
    /// Returns none, with a line on standard output, if there is no clang 19.
    pub fn new() -> Option<Self> {
        if !Path::new("/usr/lib/llvm-19/bin/clang").exists() {
            println!("SKIPPED: clang 19 is not installed");
            return None;
        }
        Some(Self { folder: tempfile::tempdir().unwrap() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A new key in the file of this name. Returns the public key.
    pub fn key(&self, name: &str) -> String {
        let made = weir(&["key", "new", self.path(name).to_str().unwrap()]);
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    }

    fn identity(&self, key: &str) -> Identity {
        KeyFile::parse(&fs::read_to_string(self.path(key)).unwrap()).unwrap().open(None).unwrap()
    }

    /// The bundle of a module for the testbed's nodes, signed by the key in this file.
    pub fn bundle(&self, module: &[u8], key: &str, more: &[&str]) -> Vec<u8> {
        self.bundle_with(module, key, &[&["--blocking", "5ms"], more].concat())
    }

    fn bundle_with(&self, module: &[u8], key: &str, more: &[&str]) -> Vec<u8> {
        let (wasm, bundle) = (self.path("it.wasm"), self.path("it.weir"));
        fs::write(&wasm, module).unwrap();
        let key = self.path(key);
        let fixed = ["compile", wasm.to_str().unwrap(), "-o", bundle.to_str().unwrap()];
        let signed = ["--key", key.to_str().unwrap()];
        let made = weir(&[&fixed[..], &signed, more].concat());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        fs::read(bundle).unwrap()
    }
}

pub const TRUSTED: &str = "trusted_for = [\"semantics\", \"bounds\"]\n";
pub const NO_COMPILER: &str = "[compilation]\ncompile = false\n";

pub fn compiler(key: &str, more: &str) -> String {
    format!("[[compiler]]\nkey = \"{key}\"\n{more}")
}

pub fn session(name: &str, process: &str) -> String {
    format!(
        "[[session]]\nname = \"{name}\"\nprocess = \"{process}\"\n\
         cpu = [{{ period = \"20ms\", slice = \"2ms\", borrow = true }}]\n\
         channel = [{{ interface = \"b\", filter = \"udp\", queue = 1000 }}]\n"
    )
}

/// Changes a statement of a bundle, and signs it again with this key.
fn resigned<P: Predicate>(
    bundle: &mut Bundle,
    member: Member,
    signer: &Identity,
    change: impl FnOnce(&mut Statement<P>),
) {
    let envelope = Envelope::parse(bundle.get(member).unwrap()).unwrap();
    let mut statement: Statement<P> = Statement::parse(envelope.payload()).unwrap();
    change(&mut statement);
    let mut envelope = Envelope::new(statement.to_json().into_bytes());
    envelope.sign(signer);
    bundle.set(member, envelope.to_json().into_bytes());
}

/// Sends packets until the module has seen so many.
fn process(testbed: &mut Testbed, sessions: &[&str], module: &str, all: u64) {
    let before = testbed.count(sessions[0], module, "packets");
    testbed.send(&vec![udp(1, b"x"); usize::try_from(all - before).unwrap()]);
    testbed.until("all packets are processed", |testbed| {
        sessions.iter().all(|session| testbed.count(session, module, "records") == all)
    });
}

pub fn entries(testbed: &Testbed, kind: &str) -> Vec<Value> {
    testbed.ledger().into_iter().filter(|entry| entry["kind"] == kind).collect()
}

#[test]
fn a_node_without_a_compiler_runs_bundles_and_its_ledger_names_the_signers() {
    let test = "bundles::a_node_without_a_compiler_runs_bundles_and_its_ledger_names_the_signers";
    if !is_inside(test) {
        return;
    }
    let Some(files) = BundleFolder::new() else { return };
    let (key, other) = (files.key("compiler.key"), files.key("other.key"));
    let sessions = session("here", "node") + &session("apart", "own");
    let mut testbed = Testbed::new(&(NO_COMPILER.to_owned() + &compiler(&key, TRUSTED) + &sessions));
    let bundle = files.bundle(&counting("counter"), "compiler.key", &[]);
    let spec = || json!({"module": "counter.weir"});
    for session in ["here", "apart"] {
        let loaded = testbed.load(session, spec(), &bundle);
        assert!(loaded["done"].is_object(), "{loaded}");
        let module = testbed.part(session, "modules", "counter");
        assert_eq!((&module["back_end"], &module["compiled_by"]), (&json!("LLVM"), &json!([key])));
    }
    process(&mut testbed, &["here", "apart"], "counter", 500);
    assert_eq!(testbed.count("here", "counter", "faults") + testbed.count("apart", "counter", "faults"), 0);
    // No compiler has run, and the ledger says whose machine code it was.
    let processes = testbed.snapshot()["processes"].clone();
    let is_compiler = |it: &&Value| it["role"].as_str().unwrap().contains("compiler");
    let started: u64 = processes
        .as_array()
        .unwrap()
        .iter()
        .filter(is_compiler)
        .map(|it| it["started"].as_u64().unwrap())
        .sum();
    assert_eq!(started, 0, "{processes}");
    testbed.until("both entries are written", |testbed| entries(testbed, "module-loaded").len() == 2);
    let loaded = entries(&testbed, "module-loaded");
    let parsed = Bundle::parse(&bundle).unwrap();
    assert_eq!(loaded[0]["code"], Sha256Digest::of(parsed.module()).to_string());
    assert_eq!(loaded[0]["compiled"]["semantics"], json!([key]));
    assert_eq!(loaded[0]["compiled"]["bounds"], json!([key]));
    let objects =
        ObjectForm::ALL.map(|form| Sha256Digest::of(parsed.get(form.object()).unwrap()).to_string());
    assert!(objects.iter().any(|object| loaded[0]["compiled"]["object"] == *object), "{loaded:?}");

    // What it does not run, and what it says then.
    let refused = |bytes: &[u8], says: &str| {
        let reply = testbed.load("here", spec(), bytes).to_string();
        assert!(reply.contains("refused") && reply.contains(says), "{says}: {reply}");
    };
    refused(&counting("other"), "this weir has no compiler");
    let shipped = testbed.load("here", json!({"module": "port-count"}), b"").to_string();
    assert!(shipped.contains("this weir has no compiler"), "{shipped}");
    let changed = |change: &dyn Fn(&mut Bundle)| {
        let mut bundle = parsed.clone();
        change(&mut bundle);
        bundle.to_bytes()
    };
    // One byte of the code: the record is about another object file.
    let flipped = |bundle: &mut Bundle, member: Member| {
        let mut object = bundle.get(member).unwrap().to_vec();
        let code = object.windows(2).position(|two| two == [0x65, 0x48]).expect("an access relative to GS");
        object[code] = 0x90;
        bundle.set(member, object);
    };
    let every = |change: &dyn Fn(&mut Bundle, ObjectForm)| {
        changed(&|bundle| ObjectForm::ALL.into_iter().for_each(|form| change(bundle, form)))
    };
    refused(&every(&|bundle, form| flipped(bundle, form.object())), "is about the object file");
    // The compiler itself signs it: the verifier says what it saw.
    let signer = files.identity("compiler.key");
    let lies = every(&|bundle, form| {
        flipped(bundle, form.object());
        let digest = Sha256Digest::of(bundle.get(form.object()).unwrap());
        resigned::<Compilation>(bundle, form.record(), &signer, |it| it.object = digest);
        resigned::<Bounds>(bundle, form.bounds(), &signer, |it| it.object = digest);
    });
    refused(&lies, "the verifier rejects the code");
    let other_signer = files.identity("other.key");
    let by_other =
        every(&|bundle, form| resigned::<Compilation>(bundle, form.record(), &other_signer, |_| {}));
    refused(&by_other, &format!("{other} is not trusted here"));
    let low = every(&|bundle, form| {
        resigned::<Bounds>(bundle, form.bounds(), &signer, |it| {
            it.predicate.calls.values_mut().for_each(|bound| bound.constant /= 2);
        });
    });
    refused(&low, "the record states `calls` as");
    let bare = Bundle::new(parsed.module().to_vec()).to_bytes();
    refused(&bare, "it has no `");
    let text = every(&|bundle, form| {
        resigned::<Compilation>(bundle, form.record(), &signer, |it| {
            let json = it.to_json().replace("\"text\":{\"sha256\":\"", "\"text\":{\"sha256\":\"0000");
            let start = json.find("\"text\":{\"sha256\":\"").unwrap() + 18;
            let json = json[..start + 64].to_owned() + &json[start + 68..];
            *it = Statement::parse(json.as_bytes()).unwrap();
        });
    });
    refused(&text, "another text");
    let parameters = testbed.load("here", json!({"module": "m.weir", "set": {"no": 1}}), &bundle).to_string();
    assert!(parameters.contains("refused"), "{parameters}");
    refused(&[&bundle[..1000], b"x"].concat(), "bundle");
    assert!(testbed.stop().success());
}

#[test]
fn a_bundle_for_the_default_configuration_runs_on_a_node_with_it() {
    if !is_inside("bundles::a_bundle_for_the_default_configuration_runs_on_a_node_with_it") {
        return;
    }
    let Some(files) = BundleFolder::new() else { return };
    let key = files.key("compiler.key");
    let mut testbed = Testbed::prepared("", "", None);
    testbed.configure(&(NO_COMPILER.to_owned() + &compiler(&key, TRUSTED) + &session("here", "node")));
    let config = fs::read_to_string(testbed.config()).unwrap();
    fs::write(testbed.config(), config.replace("blocking = \"5ms\"\n", "")).unwrap();
    testbed.start();
    let wasm =
        fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/modules/rtt/rtt.wasm")).unwrap();
    let loaded =
        testbed.load("here", json!({"module": "rtt.weir"}), &files.bundle_with(&wasm, "compiler.key", &[]));
    assert!(loaded["done"].is_object(), "{loaded}");
    assert_eq!(testbed.part("here", "modules", "rtt")["compiled_by"], json!([key]));
    // A bundle for another time that a module may keep a core is for another profile.
    let other = files.bundle(&wasm, "compiler.key", &[]);
    let refused = testbed.load("here", json!({"module": "rtt.weir", "name": "other"}), &other).to_string();
    assert!(refused.contains("--blocking"), "{refused}");
    assert!(testbed.stop().success());
}

#[test]
fn a_node_with_a_compiler_uses_the_code_of_trusted_keys_alone() {
    let test = "bundles::a_node_with_a_compiler_uses_the_code_of_trusted_keys_alone";
    if !is_inside(test) {
        return;
    }
    let Some(files) = BundleFolder::new() else { return };
    let (one, two) = (files.key("one.key"), files.key("two.key"));
    let keys = compiler(&one, TRUSTED) + &compiler(&two, "trusted_for = [\"bounds\"]\n");
    let mut testbed = Testbed::new(&(keys + &session("here", "node")));
    let load = |testbed: &Testbed, name: &str, bundle: &[u8]| {
        let loaded = testbed.load("here", json!({"module": "it.weir"}), bundle);
        assert!(loaded["done"].is_object(), "{loaded}");
        testbed.part("here", "modules", name)["compiled_by"].clone()
    };
    let trusted = files.bundle(&counting("trusted"), "one.key", &[]);
    assert_eq!(load(&testbed, "trusted", &trusted), json!([one]));
    // The other key vouches for bounds alone, so the node compiles the module, and says why.
    let by_two = files.bundle(&counting("half"), "two.key", &[]);
    assert_eq!(load(&testbed, "half", &by_two), Value::Null);
    let log = testbed.log();
    assert!(log.contains("is trusted for another statement alone"), "{log}");
    // Together, the two signatures are enough.
    let mut both = Bundle::parse(&by_two).unwrap();
    let signer = files.identity("one.key");
    for form in ObjectForm::ALL {
        resigned::<Compilation>(&mut both, form.record(), &signer, |_| {});
    }
    let wasm = counting("half");
    assert_eq!(both.module(), wasm);
    assert!(
        testbed.send_request(json!({"unload": {"session": "here", "module": "half"}}))["done"].is_object()
    );
    let signers = load(&testbed, "half", &both.to_bytes());
    assert!([json!([one, two]), json!([two, one])].contains(&signers), "{signers}");
    testbed.until("all entries are written", |testbed| entries(testbed, "module-loaded").len() == 3);
    let compiled = entries(&testbed, "module-loaded").pop().unwrap()["compiled"].clone();
    assert_eq!((&compiled["semantics"], &compiled["bounds"]), (&json!([one]), &json!([two])));
    process(&mut testbed, &["here"], "trusted", 100);
    // With two signatures, none of these bundles is enough any more; a reload withdraws their code.
    let config = fs::read_to_string(testbed.config()).unwrap();
    fs::write(testbed.config(), format!("{config}[compilation]\nsignatures = 2\n")).unwrap();
    testbed.request(json!("reload"));
    testbed.until("the modules run in other code", |testbed| {
        ["trusted", "half"]
            .iter()
            .all(|name| testbed.part("here", "modules", name)["back_end"] == "Cranelift")
    });
    process(&mut testbed, &["here"], "trusted", 200);
    assert_eq!(testbed.count("here", "trusted", "faults"), 0);
    testbed.until("both entries are written", |testbed| entries(testbed, "code-withdrawn").len() == 2);
    assert!(testbed.stop().success());
}

#[test]
fn revoking_a_compilers_key_moves_its_modules_or_stops_them() {
    let test = "bundles::revoking_a_compilers_key_moves_its_modules_or_stops_them";
    if !is_inside(test) {
        return;
    }
    let Some(files) = BundleFolder::new() else { return };
    ip("link set dev lo up");
    let [key, root] = ["compiler.key", "root.key"].map(|name| files.key(name));
    files.key("node.key");
    let policy = files.path("policy.d");
    fs::create_dir_all(policy.join("revoked")).unwrap();
    fs::create_dir_all(policy.join("compilers")).unwrap();
    let trusted = format!("key = \"{key}\"\n{TRUSTED}revoked_by = \"{root}\"\n");
    fs::write(policy.join("compilers/lab.toml"), trusted).unwrap();
    fs::write(files.path("verified.toml"), "verified = 'only'\n").unwrap();
    let config = format!(
        "[remote]\nlisten = \"127.0.0.1:7353\"\nkey = \"{}\"\nname = \"ix-1.example\"\nroots = [\"{root}\"]\n\
         [policy]\ndir = \"{}\"\n[[profile]]\nname = \"verified\"\nfile = \"{}\"\n",
        files.path("node.key").display(),
        policy.display(),
        files.path("verified.toml").display()
    );
    let only =
        |name: &str, process: &str| session(name, process).replace("cpu =", "profile = \"verified\"\ncpu =");
    let sessions =
        session("here", "node") + &session("apart", "own") + &only("only", "node") + &only("both", "own");
    let mut testbed = Testbed::new(&(config + &sessions));
    let module = counting("counter");
    let bundle = files.bundle(&module, "compiler.key", &[]);
    let profile = files.path("verified.toml");
    let verified = files.bundle(&module, "compiler.key", &["--profile", profile.to_str().unwrap()]);
    let names = ["here", "apart", "only", "both"];
    for (session, bundle) in names.iter().zip([&bundle, &bundle, &verified, &verified]) {
        let loaded = testbed.load(session, json!({"module": "counter.weir"}), bundle);
        assert!(loaded["done"].is_object(), "{loaded}");
        assert_eq!(testbed.part(session, "modules", "counter")["back_end"], "LLVM", "{}", testbed.log());
    }
    process(&mut testbed, &names, "counter", 300);
    let (list, root_key) = (policy.join("revoked/list"), files.path("root.key"));
    let revoked = weir(&[
        "credential",
        "revoke",
        &key,
        "--key",
        root_key.to_str().unwrap(),
        "--list",
        list.to_str().unwrap(),
    ]);
    assert!(revoked.status.success(), "{}", String::from_utf8_lossy(&revoked.stderr));
    testbed.until("the code is withdrawn", |testbed| entries(testbed, "code-withdrawn").len() == 4);
    let reason = entries(&testbed, "code-withdrawn")[0]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains(&format!("{key} is revoked")), "{reason}");
    // Those with other code go on with all that they had; the others get no packet any more.
    testbed.send(&vec![udp(1, b"x"); 100]);
    testbed.until("two modules go on", |testbed| {
        ["here", "apart"].iter().all(|session| testbed.count(session, "counter", "records") == 400)
    });
    for session in ["here", "apart"] {
        let module = testbed.part(session, "modules", "counter");
        assert_eq!((&module["back_end"], &module["faults"]), (&json!("Cranelift"), &json!(0)), "{module}");
        assert!(module["compiled_by"].is_null(), "{module}");
    }
    testbed.until("two modules have ended", |testbed| {
        ["only", "both"].iter().all(|session| {
            let ended = &testbed.snapshot()["sessions"];
            let session =
                ended.as_array().unwrap().iter().find(|it| it["name"] == **session).unwrap().clone();
            session["ended"].as_array().is_some_and(|ended| !ended.is_empty())
        })
    });
    // The same bundle again: the node does not use its machine code, and compiles the module.
    let again = testbed.load("only", json!({"module": "counter.weir", "name": "again"}), &verified);
    assert!(again["done"].is_object(), "{again}");
    assert!(testbed.part("only", "modules", "again")["compiled_by"].is_null());
    assert!(testbed.log().contains("is revoked"), "{}", testbed.log());
    // The numbers go on, from the global and from memory: the last record has twice the number of packets.
    assert!(testbed.stop().success());
    for session in ["here", "apart"] {
        let modules = fs::read_dir(testbed.disk().join("records").join(session)).unwrap();
        let rows: Vec<String> =
            modules.flat_map(|module| crate::sandbox_processes::rows(&module.unwrap().path())).collect();
        assert_eq!(rows.len(), 400);
        assert!(rows[399].contains("800"), "{}", rows[399]);
    }
}

#[test]
fn a_compiler_that_lies_about_time_is_stopped_and_named() {
    let test = "bundles::a_compiler_that_lies_about_time_is_stopped_and_named";
    if !is_inside(test) {
        return;
    }
    let Some(files) = BundleFolder::new() else { return };
    let key = files.key("compiler.key");
    let config = NO_COMPILER.to_owned() + &compiler(&key, TRUSTED) + &session("here", "node");
    let mut testbed = Testbed::new(&config);
    let honest = files.bundle(&counting_with("counter", 100_000), "compiler.key", &[]);
    // The machine code of a module with the same layout, whose loop takes for ever, stands for that of the honest one.
    let check_mode = CheckMode::As(Tier::Proved);
    let options = EngineOptions { llvm: LlvmUse::AtLoad, check_mode, ..EngineOptions::default() };
    let engine = Engine::new(options, None).unwrap();
    let endless = Admitted::admit(counting_with("counter", 1 << 40), &[]).unwrap();
    let mut bundle = Bundle::parse(&honest).unwrap();
    let signer = files.identity("compiler.key");
    for form in ObjectForm::ALL {
        let features = weir_verify::CpuFeatures::Baseline;
        let compiled = engine.compile_object(&endless, form.is_suspendable(), features).unwrap();
        let digest = Sha256Digest::of(&compiled.object);
        bundle.set(form.object(), compiled.object);
        resigned::<Compilation>(&mut bundle, form.record(), &signer, |it| it.object = digest);
        resigned::<Bounds>(&mut bundle, form.bounds(), &signer, |it| {
            it.object = digest;
            it.predicate.stack_bytes = compiled.stack_bound;
        });
    }
    let loaded = testbed.load("here", json!({"module": "counter.weir"}), &bundle.to_bytes());
    assert!(loaded["done"].is_object(), "{loaded}");
    testbed.send(&vec![udp(1, b"x"); 64]);
    testbed.until("the watchdog has ended the module", |testbed| {
        testbed.snapshot()["sessions"][0]["ended"].as_array().is_some_and(|ended| !ended.is_empty())
    });
    let fault = testbed.snapshot()["sessions"][0]["ended"][0]["last_fault"].to_string();
    assert!(fault.contains("many times its limit"), "{fault}");
    testbed.until("the ledger has its end", |testbed| !entries(testbed, "module-unloaded").is_empty());
    let loaded = entries(&testbed, "module-loaded").pop().unwrap();
    assert_eq!(loaded["compiled"]["bounds"], json!([key]), "{loaded}");
    assert!(testbed.stop().success());
}
