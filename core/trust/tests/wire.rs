//! The examples of docs/WIRE.md are those of this implementation.

use weir_trust::credential::Credential;
use weir_trust::key::{Identity, KeyFile};
use weir_trust::revocation::RevocationList;
use weir_trust::signature::ModuleSignature;

const DOCUMENT: &str = include_str!("../../../docs/WIRE.md");

/// The indented lines from one that begins so, to the next empty line.
fn examples(begin: &str) -> Vec<String> {
    let blocks = DOCUMENT.split("\n\n").filter_map(|block| {
        let lines: Option<Vec<&str>> = block.lines().map(|line| line.strip_prefix("    ")).collect();
        lines.filter(|lines| lines.first().is_some_and(|first| first.starts_with(begin)))
    });
    blocks.map(|lines| lines.join("\n") + "\n").collect()
}

#[test]
fn the_keys_of_the_document_are_written_and_opened() {
    let identity = Identity::from_seed(&[7; 32]);
    let bytes: String = identity.public().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(DOCUMENT.contains(&bytes) && DOCUMENT.contains(&identity.public().to_string()));
    let files = examples("weir private key 1");
    assert_eq!(files.len(), 2);
    assert_eq!(files[0], *KeyFile::plain(&identity));
    let sealed = KeyFile::parse(&files[1]).unwrap();
    assert_eq!(sealed.open(Some(b"open sesame")).unwrap().public(), identity.public());
}

#[test]
fn the_module_signature_of_the_document_is_made() {
    let signature = ModuleSignature::sign(&Identity::from_seed(&[1; 32]), b"");
    assert_eq!(examples("weir module signature 1"), [signature.to_string()]);
}

#[test]
fn the_revocation_list_of_the_document_is_valid() {
    let lists = examples("weir revocation list 2");
    let list: RevocationList = lists[0].parse().unwrap();
    assert_eq!((list.sequence(), list.revoked().iter().count()), (7, 1));
    assert_eq!(*list.issuer().signer(), Identity::from_seed(&[1; 32]).public());
}

#[test]
fn the_credential_of_the_document_has_its_identifiers_and_bytes() {
    let credential: Credential = include_str!("credential-1.txt").parse().unwrap();
    for link in credential.claimed_blocks() {
        assert!(DOCUMENT.contains(&link.id.to_string()), "{}", link.id);
    }
    let block = examples("0a04776569720a0a6372");
    let digits: String = block[0].lines().filter_map(|line| line.split_whitespace().next()).collect();
    let token: String = credential.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(digits.len() == 402 && token.contains(&digits));
}
