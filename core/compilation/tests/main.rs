//! Bundles and records, read by other programs, and the policy on compiler keys.

mod compiler_keys;

use std::path::Path;
use std::process::Command;
use weir_compilation::bundle::{Bundle, Member};
use weir_compilation::envelope::Envelope;
use weir_trust::key::Identity;

/// Runs a program; returns its output, or `None` if there is no such program.
fn output(program: &str, arguments: &[&str]) -> Option<(bool, String)> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

#[test]
fn tar_lists_and_extracts_the_members_of_a_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let mut bundle = Bundle::new(b"\0asm....".to_vec());
    bundle.set(Member::NodeObject, vec![7; 700]);
    bundle.set(Member::NodeBounds, b"{}".to_vec());
    let path = folder.path().join("mine.weir");
    std::fs::write(&path, bundle.to_bytes()).unwrap();
    let (path, into) = (path.to_str().unwrap(), folder.path().to_str().unwrap());
    let (is_done, listed) = output("tar", &["-t", "-f", path]).expect("tar is installed");
    assert_eq!((is_done, listed.as_str()), (true, "module.wasm\nnode.o\nnode.bounds.intoto.json\n"));
    assert!(output("tar", &["-x", "-f", path, "-C", into]).unwrap().0);
    assert_eq!(std::fs::read(folder.path().join("node.o")).unwrap(), [7; 700]);
}

/// Reads an envelope and a public key with securesystemslib, the library of in-toto and TUF, and verifies the envelope.
const VERIFY: &str = r#"
import json, sys
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey
envelope = Envelope.from_dict(json.load(open(sys.argv[1])))
key = SSlibKey.from_crypto(load_pem_public_key(open(sys.argv[2], "rb").read()), keyid=sys.argv[3])
envelope.verify([key], 1)
print(envelope.payload_type, envelope.payload.decode())
"#;

#[test]
fn securesystemslib_verifies_an_envelope_and_finds_a_changed_one() {
    let installed = output("python3", &["-c", "import securesystemslib, cryptography"]);
    if !installed.is_some_and(|(is_done, _)| is_done) {
        println!("SKIPPED: python3 has no securesystemslib (pip install 'securesystemslib[crypto]')");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let signer = Identity::from_seed(&[3; 32]);
    let mut envelope = Envelope::new(br#"{"_type":"https://in-toto.io/Statement/v1"}"#.to_vec());
    envelope.sign(&Identity::from_seed(&[4; 32]));
    envelope.sign(&signer);
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let key = file("key.pem", &signer.public().to_pem());
    let verify = |record: &Path| {
        let record = record.to_str().unwrap();
        output("python3", &["-c", VERIFY, record, &key, &signer.public().to_string()]).unwrap()
    };
    let good = file("good.json", &envelope.to_json());
    let (is_verified, text) = verify(Path::new(&good));
    assert!(is_verified, "{text}");
    assert_eq!(text.trim(), r#"application/vnd.in-toto+json {"_type":"https://in-toto.io/Statement/v1"}"#);
    let mut other = Envelope::new(br#"{"_type":"https://in-toto.io/Statement/v2"}"#.to_vec());
    other.sign(&signer);
    let signature = |text: &str| text.rsplit_once("\"sig\":").unwrap().1.to_owned();
    let (forged, own) = (other.to_json(), envelope.to_json());
    let forged = file("forged.json", &forged.replace(&signature(&forged), &signature(&own)));
    let (is_verified, text) = verify(Path::new(&forged));
    assert!(!is_verified, "{text}");
}
