//! An oracle for untrusted input: it reads bytes as requests and as a reply, and checks invariants of the result. The fuzz
//! target `control` and the tests call it.

use crate::client::{decode, encode};
use crate::control::protocol::request_reader::{ParsedRequest, read_request};
use crate::control::protocol::{ControlRequest, LINE_BYTES_MAX, PART_BYTES_MAX};
use crate::control::visibility::GrantedVisibility;
use crate::server::uploads::Uploads;
use std::io::Read;
use std::sync::Arc;
use std::time::Instant;
use weir_admission::MODULE_BYTES_MAX;
use weir_trust::credential::VerifiedCredential;

/// Reads bytes as requests of a credential's holder, and as a reply of a node.
///
/// # Panics
/// One of these invariants does not hold:
/// - The line of a request, its body and an uploaded part have at most their maximum lengths.
/// - A parsed request is the same after encoding and parsing.
/// - An authorised request stays within the holder's credential.
/// - An uploaded file has at most the announced length, and a complete file has its hash.
/// - The refusal of an invalid request has a message.
pub fn control(bytes: &[u8], holder: &Arc<VerifiedCredential>) {
    _ = decode(&mut &*bytes);
    let (uploads, now) = (Uploads::default(), Instant::now());
    let mut source = bytes;
    loop {
        let before = source.len();
        match read_request(&mut source) {
            Ok(ParsedRequest::Request(message, len)) => {
                assert!(
                    before - source.len() <= LINE_BYTES_MAX
                        && len <= MODULE_BYTES_MAX.max(weir_abi::limit::TABLE_BYTES as usize)
                );
                let mut body = vec![0; len.min(source.len())];
                let is_whole = source.read_exact(&mut body).is_ok() && body.len() == len;
                check_encoding(&message.request);
                check_authorisation(message.request.clone(), &body, holder);
                if let (ControlRequest::Upload(part), true) = (&message.request, is_whole) {
                    assert!(len <= PART_BYTES_MAX);
                    if let Ok(received) = uploads.add_part(&[], part, &body, now) {
                        assert!(received <= part.bytes);
                    }
                }
                if let Some(file) = &message.file
                    && let Ok(whole) = uploads.complete_file(&[], file, now)
                {
                    assert_eq!(weir_trust::grant::ModuleHash::of_bytes(&whole), *file);
                }
            }
            Ok(ParsedRequest::Invalid(why)) => {
                assert!(!why.is_empty());
                return;
            }
            Ok(ParsedRequest::End) | Err(_) => return,
        }
    }
}

/// Checks that a request is the same after it was encoded and parsed again.
fn check_encoding(request: &ControlRequest) {
    let Ok(line) = encode(request.clone(), &[]) else { return };
    match read_request(&mut &*line) {
        Ok(ParsedRequest::Request(again, 0)) => assert_eq!(again.request, *request),
        other => panic!("{other:?}"),
    }
}

/// Checks that an authorised request is within the holder's rights.
fn check_authorisation(request: ControlRequest, body: &[u8], holder: &Arc<VerifiedCredential>) {
    let body = Some(body).filter(|body| !body.is_empty());
    match crate::control::authority::authorise(holder, request, body) {
        Ok(
            ControlRequest::PutTable { .. }
            | ControlRequest::RemoveTable { .. }
            | ControlRequest::Rate(_)
            | ControlRequest::Reload,
        ) => {
            panic!("a request of the operator was authorised for a holder")
        }
        Ok(ControlRequest::Create(spec)) => {
            // The node has extended the session's name by `-` and a hash of 32 characters. The channels are restricted
            // to the credential's filters and view.
            let name_len = spec.name.as_str().len();
            assert!(name_len > 33, "{}", spec.name);
            let granted = GrantedVisibility::from_credential(holder);
            assert!(spec.channels.iter().all(|channel| channel.granted == granted));
        }
        Ok(_) | Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::authority::tests::SeededRng;
    use proptest::prelude::*;
    use std::sync::LazyLock;
    use weir_trust::credential::{Credential, VerificationContext};
    use weir_trust::grant::{Ceilings, CpuShare, Grant, UnixSecond};
    use weir_trust::key::Identity;
    use weir_trust::revocation::Revocations;
    use weir_units::Bytes;

    /// A holder that may use 10 % of a core, 16 MiB, two sessions and UDP packets.
    static HOLDER: LazyLock<Arc<VerifiedCredential>> = LazyLock::new(|| {
        let grant = Grant {
            expires: Some(UnixSecond::MAX),
            filters: ["udp".parse().unwrap()].into(),
            ceilings: Ceilings {
                cpu: Some(CpuShare(100_000)),
                memory: Some(Bytes(16 << 20)),
                sessions: Some(2),
                ..Ceilings::default()
            },
            ..Grant::default()
        };
        let (operator, peer) = (Identity::from_seed(&[1; 32]), Identity::from_seed(&[2; 32]).public());
        let credential = Credential::mint(&operator, peer, grant, None, &mut SeededRng(1)).unwrap();
        let (roots, revocations) = ([operator.public()], Revocations::default());
        let node = "node".parse().unwrap();
        let now = UnixSecond::default();
        let situation =
            VerificationContext { roots: &roots, revocations: &revocations, peer: &peer, node: &node, now };
        Arc::new(credential.verify(&situation).unwrap())
    });

    /// Valid requests and replies.
    fn requests() -> Vec<String> {
        let hash = "0011223344556677".repeat(4);
        [
            r#"{"weir":1,"request":"show"}"#.to_owned(),
            r#"{"weir":1,"request":{"watch":{"every":"500ms"}}}"#.to_owned(),
            r#"{"weir":1,"request":{"create":{"name":"s","memory":"1 MiB","cpu":[{"period":"10ms","slice":"1ms"}],"channel":[{"interface":"b","filter":"udp"}]}}}"#.to_owned(),
            r#"{"weir":1,"request":{"change":{"session":"s","channel":[{"interface":"b"}],"memory":"2 MiB"}}}"#.to_owned(),
            r#"{"weir":1,"request":{"load":{"session":"s","module":{"module":"m","set":{"a":[1,"b"]}}}},"body":4}"#.to_owned() + "\nabcd",
            format!(r#"{{"weir":1,"request":{{"upload":{{"file":"{hash}","bytes":9,"from":0}}}},"body":5}}"#) + "\n12345",
            format!(r#"{{"weir":1,"request":{{"load":{{"session":"s","module":{{"module":"m"}}}}}},"file":"{hash}"}}"#),
            r#"{"weir":1,"request":{"follow":{"session":"s","module":"m","streams":["r"]}}}"#.to_owned(),
            r#"{"weir":1,"request":{"records":{"session":"s","since_ns":1}}}"#.to_owned(),
            r#"{"weir":1,"request":{"fetch-records":{"session":"s","folder":"m-0","file":"r.parquet","from":2}}}"#
                .to_owned(),
            r#"{"weir":1,"request":{"put-table":{"table":"t"}},"body":1}"#.to_owned() + "\n1",
            r#"{"weir":1,"request":{"rate":{"link":"l","rate":"1 Mbit/s"}}}"#.to_owned(),
            r#"{"weir":1,"request":"reload"}"#.to_owned(),
            r#"{"weir":1,"request":{"ledger":{"part":"usage","session":"s","since_ns":1,"until_ns":2}}}"#.to_owned(),
            r#"{"weir":1,"reply":{"entries":{"entries":[{"seq":1,"node":"n","begin":"2026-11-21T12:10:05.000000000Z","end":"2026-11-21T12:10:06.000000000Z","kind":"node-stop"}],"read":1000}}}"#.to_owned(),
            r#"{"weir":1,"reply":{"done":{"notes":["a"]}}}"#.to_owned(),
            r#"{"weir":1,"reply":{"uploaded":{"bytes":7}}}"#.to_owned(),
        ]
        .map(|line| line + "\n")
        .into()
    }

    #[test]
    fn valid_requests_are_parsed() {
        for request in requests().iter().filter(|request| request.contains("request")) {
            let parsed = read_request(&mut request.as_bytes()).unwrap();
            assert!(matches!(parsed, ParsedRequest::Request(..)), "{request}: {parsed:?}");
            control(request.as_bytes(), &HOLDER);
        }
        control(requests().concat().as_bytes(), &HOLDER);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Sequences of requests with changed, missing or added bytes; and random bytes.
        #[test]
        fn any_input_is_parsed_or_refused(
            which in proptest::collection::vec(any::<prop::sample::Index>(), 1..5),
            edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 0..6),
            noise in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let requests = requests();
            let mut bytes: Vec<u8> = which.iter().flat_map(|which| which.get(&requests).bytes()).collect();
            for (place, byte, how) in edits {
                let at = place.index(bytes.len());
                match how {
                    0 => bytes[at] = byte,
                    1 => bytes.insert(at, byte),
                    2 => bytes.truncate(at + 1),
                    _ => _ = bytes.remove(at),
                }
                if bytes.is_empty() {
                    bytes.push(byte);
                }
            }
            control(&bytes, &HOLDER);
            control(&noise, &HOLDER);
        }
    }
}
