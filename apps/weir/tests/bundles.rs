//! Tests of bundles: `weir compile -o` and `weir compile --check`.

use crate::run::outside;
use crate::run::{root, run};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use weir_compilation::bundle::{Bundle, Member};
use weir_compilation::envelope::Envelope;
use weir_compilation::statement::{Bounds, Compilation, Predicate, Statement};
use weir_trust::digest::Sha256Digest;
use weir_trust::key::Identity;
use weir_wire::WriteField;

/// Returns the path of a file in a folder, as text.
fn at(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

/// Writes a key and a signed bundle of a module into a folder. Returns `None` if there is no clang 19.
fn signed_bundle(folder: &Path, module: &str) -> Option<(String, String)> {
    let (key, bundle) = (at(folder, "compiler.key"), at(folder, "mine.weir"));
    let public = run(["key", "new", &key]).succeeds().text().trim().to_owned();
    let ended = run(["compile", module, "-o", &bundle, "--key", &key]);
    if ended.stderr.contains("clang 19 is not installed") {
        println!("SKIPPED: clang 19 is not installed");
        return None;
    }
    let printed = ended.succeeds().text().to_owned();
    assert!(printed.contains(&format!("signed by {public}\n")), "{printed}");
    Some((bundle, public))
}

fn read(path: &str) -> Bundle {
    Bundle::parse(&fs::read(path).unwrap()).unwrap()
}

fn record<P: Predicate>(bundle: &Bundle, member: Member) -> (Envelope, Statement<P>) {
    let envelope = Envelope::parse(bundle.get(member).unwrap()).unwrap();
    let statement = Statement::parse(envelope.payload()).unwrap();
    (envelope, statement)
}

#[test]
fn a_bundle_has_the_module_its_code_and_signed_records_that_agree() {
    let folder = tempfile::tempdir().unwrap();
    let Some((path, public)) = signed_bundle(folder.path(), "rtt") else { return };
    let bundle = read(&path);
    let module = fs::read(root().join("guest/modules/rtt/rtt.wasm")).unwrap();
    assert_eq!(bundle.module(), module);
    for (object, member) in [(Member::NodeObject, Member::NodeRecord), (Member::RunObject, Member::RunRecord)]
    {
        let object = bundle.get(object).unwrap();
        assert_eq!(&object[..4], b"\x7fELF");
        let (envelope, statement) = record::<Compilation>(&bundle, member);
        assert_eq!(envelope.signers().unwrap()[0].to_string(), public);
        assert_eq!(statement.object, Sha256Digest::of(object));
        let inputs = statement.predicate.inputs();
        assert_eq!(inputs.module.digest.sha256, Sha256Digest::of(&module));
        assert_eq!((inputs.tier.as_str(), inputs.back_end.as_str()), ("proved", "llvm"));
        let files: Vec<&str> =
            statement.predicate.dependencies().iter().map(|file| file.name.as_str()).collect();
        assert!(files.contains(&"weir") && files.contains(&"clang-19"), "{files:?}");
    }
    // The bounds are those of `weir check`.
    let (_, bounds) = record::<Bounds>(&bundle, Member::NodeBounds);
    let checked = run(["check", "rtt", "--json"]).succeeds().json();
    let entries = checked["entry_points"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["name"] == "weir_packet").unwrap();
    let fuel = entry["bounds"].as_array().unwrap().iter().find(|bound| bound["resource"] == "time").unwrap();
    assert_eq!(fuel["bound"]["constant"].as_u64(), Some(bounds.predicate.calls["weir_packet"].constant));
    assert!(bounds.predicate.stack_bytes.unwrap() > 0);
    // The module in the bundle runs as it does from its own file.
    let sample = root().join("lab/sample/sample.pcap");
    let rows = |module: &str| {
        let arguments = ["run", "-r", sample.to_str().unwrap(), "-m", module, "--json"];
        run(arguments).succeeds().json()["modules"][0]["records"].clone()
    };
    assert_eq!(rows(&path), rows("rtt"));
    run(["check", &path]).succeeds();
}

/// `weir run` by the program that `WEIR_TEST_NODE` names, or by this weir, on the sample capture with this module.
fn run_bundle(module: &str, more: &[&str]) -> Output {
    let program = std::env::var_os("WEIR_TEST_NODE");
    let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_weir").into());
    let mut command = Command::new(program);
    command.env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
    command.args(["run", "--json", "--no-cache", "-m", module, "-r"]);
    command.arg(root().join("lab/sample/sample.pcap")).args(more).output().unwrap()
}

/// `make test-no-compiler` runs this test with a weir that has no compiler.
#[test]
fn weir_run_uses_the_machine_code_that_a_trusted_key_has_signed() {
    let folder = tempfile::tempdir().unwrap();
    let Some((path, public)) = signed_bundle(folder.path(), "rtt") else { return };
    let has_compiler = std::env::var_os("WEIR_TEST_NODE").is_none();
    let module = |output: &Output| {
        let error = String::from_utf8_lossy(&output.stderr);
        let document: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
        document["modules"][0].clone()
    };
    let given = run_bundle(&path, &["--compiler-key", &public]);
    assert_eq!(String::from_utf8_lossy(&given.stderr), "");
    let given = module(&given);
    assert_eq!(given["back_end"], "LLVM", "{given}");
    // The rows are those of the module in code that is compiled here.
    let own =
        run(["run", "--json", "-m", "rtt", "-r", root().join("lab/sample/sample.pcap").to_str().unwrap()]);
    let own = own.succeeds().json()["modules"][0].clone();
    assert!(own["records"].as_u64().unwrap() > 0, "{own}");
    assert_eq!((&given["records"], &given["packets"]), (&own["records"], &own["packets"]));

    // Without trusted code the module is compiled, or refused where there is no compiler.
    let other = Identity::from_seed(&[9; 32]);
    let other_key = other.public().to_string();
    let mut lies = read(&path);
    let mut object = lies.get(Member::RunObject).unwrap().to_vec();
    let access = object.windows(2).position(|two| two == [0x65, 0x48]).expect("an access relative to GS");
    object[access] = 0x90;
    let digest = Sha256Digest::of(&object).to_string();
    let honest = Sha256Digest::of(lies.get(Member::RunObject).unwrap()).to_string();
    lies.set(Member::RunObject, object);
    for member in [Member::RunRecord, Member::RunBounds] {
        resigned(&mut lies, member, &other, |text| text.replace(&honest, &digest));
    }
    let lying = at(folder.path(), "lies.weir");
    fs::write(&lying, lies.to_bytes()).unwrap();
    let cases: [(&str, &[&str], &str); 4] = [
        (&path, &[], "this weir has no compiler"),
        (&path, &["--compiler-key", &other_key], "is not trusted here"),
        (&lying, &["--compiler-key", &other_key], "the verifier rejects the code"),
        (&path, &["--compiler-key", &public, "--back-end", "cranelift"], "this weir has no compiler"),
    ];
    if let Some(program) = std::env::var_os("WEIR_TEST_NODE") {
        let check =
            |bundle: &str| Command::new(&program).args(["compile", "--check", bundle]).output().unwrap();
        for (bundle, found) in [
            (
                &path,
                "its record and bounds are those of the module; it was not compiled again: this weir has no",
            ),
            (&lying, "run.o: the verifier rejects the code"),
        ] {
            let ended = check(bundle);
            let printed = String::from_utf8_lossy(&ended.stdout).into_owned();
            assert!(!ended.status.success() && printed.contains(found), "{printed}");
        }
    }
    for (bundle, options, why) in cases {
        let ended = run_bundle(bundle, options);
        let error = String::from_utf8_lossy(&ended.stderr).into_owned();
        if has_compiler {
            let compiled = module(&ended);
            assert_eq!((&compiled["back_end"], &compiled["records"]), (&"Cranelift".into(), &own["records"]));
            assert_eq!(error.contains(why), why != "this weir has no compiler", "{error}");
        } else {
            assert!(!ended.status.success() && error.contains(why), "{why}: {error}");
        }
    }
}

/// Verifies an envelope with securesystemslib, the library of in-toto and TUF, and prints its payload.
const VERIFY: &str = r#"
import json, sys
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey
envelope = Envelope.from_dict(json.load(open(sys.argv[1])))
key = SSlibKey.from_crypto(load_pem_public_key(open(sys.argv[2], "rb").read()), keyid=sys.argv[3])
envelope.verify([key], 1)
print(envelope.payload.decode())
"#;

#[test]
fn other_programs_read_and_verify_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let Some((path, public)) = signed_bundle(folder.path(), "lrd") else { return };
    let python = |arguments: &[&str]| Command::new("python3").arg("-c").args(arguments).output();
    if !python(&["import securesystemslib, cryptography"]).is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: python3 has no securesystemslib (pip install 'securesystemslib[crypto]')");
        return;
    }
    let (pem, file) = (at(folder.path(), "key.pem"), at(folder.path(), "record.json"));
    fs::write(&pem, run(["key", "show", "--pem", &at(folder.path(), "compiler.key")]).succeeds().text())
        .unwrap();
    let bundle = read(&path);
    fs::write(&file, bundle.get(Member::NodeRecord).unwrap()).unwrap();
    let output = python(&[VERIFY, &file, &pem, &public]).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (_, statement) = record::<Compilation>(&bundle, Member::NodeRecord);
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), statement.to_json());
}

#[test]
fn the_same_inputs_give_the_same_bytes_in_any_folder() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some((path, _)) = signed_bundle(one.path(), "trajectory") else { return };
    let again = at(other.path(), "again.weir");
    let key = at(one.path(), "compiler.key");
    run(["compile", "trajectory", "-o", &again, "--key", &key]).succeeds();
    assert_eq!(fs::read(&path).unwrap(), fs::read(&again).unwrap());
    let ended = run(["compile", "--check", &again]).succeeds();
    assert_eq!(
        ended.text().matches("verified, and the same as compiled here").count(),
        2,
        "{}",
        ended.text()
    );
    // Code for an older level of processors is other code, which is compared with the same.
    run(["compile", "trajectory", "-o", &again, "--target", "x86-64-v2"]).succeeds();
    assert_ne!(fs::read(&path).unwrap(), fs::read(&again).unwrap());
    run(["compile", "--check", &again]).succeeds();
}

/// Replaces the statement of a record, and signs it anew: what a compiler that lies would write.
fn resigned(bundle: &mut Bundle, member: Member, key: &Identity, change: impl Fn(&str) -> String) {
    let envelope = Envelope::parse(bundle.get(member).unwrap()).unwrap();
    let text = change(std::str::from_utf8(envelope.payload()).unwrap());
    let mut envelope = Envelope::new(text.into_bytes());
    envelope.sign(key);
    bundle.set(member, envelope.to_json().into_bytes());
}

#[test]
fn a_changed_bundle_is_refused_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let Some((path, _)) = signed_bundle(folder.path(), "rtt") else { return };
    let good = read(&path);
    let changed = at(folder.path(), "changed.weir");
    let refused = |change: &dyn Fn(&mut Bundle), says: &str| {
        let mut bundle = good.clone();
        change(&mut bundle);
        fs::write(&changed, bundle.to_bytes()).unwrap();
        let ended =
            run(["compile", "--check", &changed]).fails(1, &["changed.weir", "is not what weir makes"]);
        assert!(ended.text().contains(says), "`{says}` is not in:\n{}", ended.text());
    };
    // An access loses the base of the module's memory: the verifier names the rule and the place.
    let with_byte = |bundle: &mut Bundle, from: &[u8], to: &[u8]| {
        let mut object = bundle.get(Member::NodeObject).unwrap().to_vec();
        // The code is behind the header of the file.
        let place = 64 + object[64..].windows(from.len()).position(|window| window == from).unwrap();
        object[place..place + to.len()].copy_from_slice(to);
        bundle.set(Member::NodeObject, object);
    };
    refused(&|bundle| with_byte(bundle, &[0x65], &[0x90]), "the verifier rejects the code");
    // A byte of a string changes no code.
    refused(&|bundle| with_byte(bundle, b".symtab", b".symtaB"), "node.o");
    let text = "the record is for the module";
    refused(
        &|bundle| {
            let own = std::mem::replace(
                bundle,
                Bundle::new(fs::read(root().join("guest/modules/lrd/lrd.wasm")).unwrap()),
            );
            for member in Member::ALL.into_iter().skip(1) {
                bundle.set(member, own.get(member).unwrap().to_vec());
            }
        },
        text,
    );
    refused(
        &|bundle| {
            let other = bundle.get(Member::RunRecord).unwrap().to_vec();
            bundle.set(Member::NodeRecord, other);
        },
        "the record",
    );
    refused(&|bundle| bundle.set(Member::NodeRecord, b"{}".to_vec()), "no DSSE envelope");
    let key = Identity::from_seed(&[9; 32]);
    refused(
        &|bundle| {
            resigned(bundle, Member::NodeRecord, &key, |text| text.replace("\"proved\"", "\"metered\""))
        },
        "`tier`",
    );
    refused(
        &|bundle| {
            resigned(bundle, Member::NodeRecord, &key, |text| text.replace("v3", "v9").replace("v2", "v9"))
        },
        "CPU features",
    );
    refused(
        &|bundle| {
            resigned(bundle, Member::NodeRecord, &key, |text| {
                text.replacen("\"sha256\":\"", "\"sha256\":\"0", 1)
            })
        },
        "64 hexadecimal",
    );
    // Numbers that no calibration has, and bounds that are too low.
    for number in ["0", "18446744073709551615"] {
        let changed = format!("\"nanosecondsPer1000Fuel\":{number}");
        let change = |text: &str| {
            let (head, rest) = text.split_once("\"nanosecondsPer1000Fuel\":").unwrap();
            format!("{head}{changed}{}", &rest[rest.find(',').unwrap()..])
        };
        refused(&|bundle| resigned(bundle, Member::NodeRecord, &key, change), "node.o: ");
    }
    let lower = |text: &str| text.replacen("\"constant\":", "\"constant\":1", 1);
    refused(&|bundle| resigned(bundle, Member::NodeBounds, &key, lower), "the record states `calls`");
    let other =
        |bundle: &mut Bundle| bundle.set(Member::NodeBounds, bundle.get(Member::RunRecord).unwrap().to_vec());
    refused(&other, "predicate type");
    // A signature by one key over the record of another.
    refused(
        &|bundle| {
            let text = String::from_utf8(bundle.get(Member::NodeRecord).unwrap().to_vec()).unwrap();
            let (head, signature) = text.split_once("\"keyid\":\"").unwrap();
            let (_, rest) = signature.split_once('"').unwrap();
            let other = Identity::from_seed(&[9; 32]).public();
            bundle.set(Member::NodeRecord, format!("{head}\"keyid\":\"{other}\"{rest}").into_bytes());
        },
        "forged or damaged",
    );
}

#[test]
fn bundles_that_are_none_and_wrong_options_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = at(folder.path(), "x.weir");
    run(["compile", "--check", &path]).fails(1, &["x.weir"]);
    fs::write(&path, b"\0asm").unwrap();
    run(["compile", "--check", &path]).fails(1, &["x.weir", "is no bundle"]);
    let empty = Bundle::new(Vec::new()).to_bytes();
    fs::write(&path, &empty[..600]).unwrap();
    run(["compile", "--check", &path]).fails(1, &["x.weir", "bundle"]);
    run(["run", "-r", "-", "-m", &path]).fails(1, &["x.weir", "bundle"]);
    fs::write(&path, &empty).unwrap();
    run(["compile", "--check", &path]).fails(1, &["has no object file"]);
    fs::File::create(&path).unwrap().set_len(100 << 20).unwrap();
    run(["compile", "--check", &path]).fails(1, &["x.weir"]);
    run(["compile", "--check", &path, "rtt"]).fails(2, &["cannot be used with"]);
    run(["compile"]).fails(2, &["MODULE"]);
    run(["compile", "rtt", "--key", "k"]).fails(2, &["--output"]);
}

#[test]
fn a_profile_is_part_of_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let (profile, path) = (at(folder.path(), "p.toml"), at(folder.path(), "p.weir"));
    fs::write(&profile, "memory = \"100 MiB\"\n").unwrap();
    let ended = run(["compile", "lrd", "-o", &path, "--profile", &profile]);
    if ended.stderr.contains("clang 19 is not installed") {
        println!("SKIPPED: clang 19 is not installed");
        return;
    }
    assert!(ended.succeeds().text().contains("not signed"));
    let ended = run(["compile", "--check", &path]).fails(1, &["p.weir"]);
    assert!(ended.text().contains("name the profile with --profile"), "{}", ended.text());
    run(["compile", "--check", &path, "--profile", &profile]).succeeds();
}

#[test]
fn the_setup_of_a_module_has_both_parts() {
    let ended = run(["compile", "rtt", "--setup"]).succeeds();
    let printed = ended.text();
    let (reaches, rest) = printed.split_once("The module does not reach\n").unwrap();
    let (_, reaches) = reaches.split_once("The module reaches\n").unwrap();
    assert!(reaches.contains("emit") && !rest.contains("emit"), "{printed}");
    assert!(rest.contains("any field of a packet for writing"), "{printed}");
    let marked = run(["compile", "dscp-mark", "--setup"]).succeeds();
    assert!(marked.text().contains("outside the write rights"), "{}", marked.text());
    assert!(marked.text().contains("not writable:   no field by the profile\n"), "{}", marked.text());
    let folder = tempfile::tempdir().unwrap();
    let profile = at(folder.path(), "p.toml");
    let is_locked = |field: &&WriteField| matches!(field, WriteField::Ttl | WriteField::Payload);
    let others = WriteField::ALL.iter().filter(|field| !is_locked(field));
    let names: Vec<String> = others.map(|field| format!("\"{}\"", field.name())).collect();
    fs::write(&profile, format!("writes = [{}]\n", names.join(", "))).unwrap();
    let marked = run(["compile", "dscp-mark", "--setup", "--profile", &profile]).succeeds();
    assert!(marked.text().contains("not writable:   ttl, payload\n"), "{}", marked.text());
}

#[test]
fn tar_shows_the_members_of_a_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let Some((path, _)) = signed_bundle(folder.path(), "lrd") else { return };
    if !outside::has("tar") {
        return;
    }
    let listed = Command::new("tar").args(["-t", "-f", &path]).output().unwrap();
    let names: Vec<String> = String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(names, Member::ALL.map(Member::name));
}
