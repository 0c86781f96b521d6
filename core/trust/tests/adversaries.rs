//! Attempts to get more rights by a crafted credential. Each test is one attempt.

use crate::people::*;
use biscuit_auth::builder::{Algorithm, BlockBuilder};
use biscuit_auth::datalog::SymbolTable;
use biscuit_auth::format::schema;
use biscuit_auth::{BiscuitBuilder, KeyPair, PrivateKey, UnverifiedBiscuit};
use prost::Message;
use weir_trust::credential::{BLOCKS_MAX, BlockError, CREDENTIAL_BYTES_MAX, Credential, CredentialRefusal};
use weir_trust::grant::{Grant, GrantPart, PacketView, Resource};
use weir_trust::revocation::{ListReception, RevocationList, Revocations};
use weir_units::Bytes;

/// A chain of three credentials: the researcher's, the student's and the friend's.
fn three() -> [Credential; 3] {
    let first = granted(|grant| {
        grant.view = Some(PacketView::ANONYMISED);
        grant.ceilings.memory = Some(Bytes(1 << 20));
    });
    let second = delegated(&first, |grant| grant.ceilings.sessions = Some(2));
    let third =
        second.delegate(&STUDENT.identity(), FRIEND.key(), Grant::default(), None, &mut Counting(9)).unwrap();
    assert!(show(&third, FRIEND, &Revocations::default()).is_ok());
    [first, second, third]
}

#[test]
fn no_flipped_bit_is_accepted() {
    let [_, _, third] = three();
    let mut bytes = third.as_bytes().to_vec();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        for peer in [FRIEND, STUDENT] {
            assert!(show_bytes(&bytes, peer).is_err(), "bit {bit} is not covered");
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn no_part_of_a_credential_is_one() {
    let [_, _, third] = three();
    let bytes = third.as_bytes();
    for end in 0..bytes.len() {
        for peer in [FRIEND, STUDENT, RESEARCHER] {
            assert!(show_bytes(&bytes[..end], peer).is_err(), "the first {end} bytes");
            assert!(show_bytes(&bytes[end + 1..], peer).is_err(), "all after {end} bytes");
        }
    }
}

#[test]
fn nothing_can_be_appended_to_a_credential() {
    let [_, _, third] = three();
    // A field of no version; an empty one; a second proof, which a decoder takes in place of the first.
    for more in [&[0xfa, 0x01, 0x00][..], &[0x08, 0x00], &[0x22, 0x00]] {
        let bytes = [third.as_bytes(), more].concat();
        assert!(
            matches!(show_bytes(&bytes, FRIEND), Err(CredentialRefusal::Form | CredentialRefusal::NotAToken)),
            "{more:?}"
        );
    }
    let with_key_id = rewritten(third.as_bytes(), |token| token.root_key_id = Some(0));
    assert_eq!(show_bytes(&with_key_id, FRIEND), Err(CredentialRefusal::Form));
}

#[test]
fn blocks_cannot_be_reordered_removed_or_doubled() {
    let [first, second, third] = three();
    let refused = |bytes: &[u8]| {
        for peer in [RESEARCHER, STUDENT, FRIEND, THIEF] {
            let answer = show_bytes(bytes, peer);
            assert!(answer.is_err(), "{answer:?}");
        }
    };
    refused(&rewritten(third.as_bytes(), |token| token.blocks.swap(0, 1)));
    refused(&rewritten(third.as_bytes(), |token| drop(token.blocks.remove(0))));
    refused(&rewritten(third.as_bytes(), |token| token.blocks.insert(1, token.blocks[0].clone())));
    refused(&rewritten(third.as_bytes(), |token| token.blocks.push(token.blocks[1].clone())));
    refused(&rewritten(third.as_bytes(), |token| token.authority = token.blocks.remove(0)));
    // Blocks cut off, with the ephemeral key of the whole token, and with those of earlier tokens, which belong to
    // other blocks.
    let proofs = [&first, &second, &third]
        .map(|credential| schema::Biscuit::decode(credential.as_bytes()).unwrap().proof);
    for (kept, proof) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let cut = rewritten(third.as_bytes(), |token| {
            token.blocks.truncate(kept);
            token.proof = proofs[proof].clone();
        });
        let holder = [RESEARCHER, STUDENT, FRIEND][kept];
        assert_eq!(
            show_bytes(&cut, holder),
            Err(CredentialRefusal::Forged),
            "{kept} blocks with proof {proof}"
        );
    }
}

#[test]
fn without_its_last_block_a_credential_is_the_earlier_holders() {
    let [_, second, third] = three();
    let throw_away = schema::Biscuit::decode(second.as_bytes()).unwrap().proof;
    let cut = rewritten(third.as_bytes(), |token| {
        token.blocks.pop();
        token.proof = throw_away;
    });
    assert_eq!(cut, second.as_bytes());
    assert!(show_bytes(&cut, STUDENT).is_ok());
    assert_eq!(
        show_bytes(&cut, FRIEND),
        Err(CredentialRefusal::NotHolder { holder: STUDENT.key(), peer: FRIEND.key() })
    );
}

#[test]
fn a_block_of_another_credential_fits_nowhere() {
    let [first, second, _] = three();
    // The same people, another chain: wider, and granted a moment later.
    let wider = Credential::mint(
        &OPERATOR.identity(),
        RESEARCHER.key(),
        until_2027(|_| ()),
        None,
        &mut Counting(500),
    )
    .unwrap();
    let wider_second = delegated(&wider, |_| ());
    let (of_second, of_wider) = (
        schema::Biscuit::decode(second.as_bytes()).unwrap(),
        schema::Biscuit::decode(wider_second.as_bytes()).unwrap(),
    );
    let spliced = rewritten(second.as_bytes(), |token| token.authority = of_wider.authority.clone());
    assert_eq!(show_bytes(&spliced, STUDENT), Err(CredentialRefusal::Forged));
    let spliced = rewritten(second.as_bytes(), |token| token.blocks = of_wider.blocks.clone());
    assert_eq!(show_bytes(&spliced, STUDENT), Err(CredentialRefusal::Forged));
    // A party with the ephemeral key of the other chain can append to it, but still needs a holder's signature for it.
    let moved = UnverifiedBiscuit::from(wider.as_bytes()).unwrap();
    let external = of_second.blocks[0].external_signature.clone().unwrap();
    let contents = schema::ThirdPartyBlockContents {
        payload: of_second.blocks[0].block.clone(),
        external_signature: external,
    };
    let next = KeyPair::new_with_rng(Algorithm::Ed25519, &mut Counting(3));
    let moved = moved.append_third_party_with_keypair(&contents.encode_to_vec(), next).unwrap();
    assert_eq!(show_bytes(&moved.to_vec().unwrap(), STUDENT), Err(CredentialRefusal::Forged));
    assert!(show(&first, RESEARCHER, &Revocations::default()).is_ok());
}

#[test]
fn a_root_that_is_not_trusted_grants_nothing() {
    let own =
        Credential::mint(&THIEF.identity(), THIEF.key(), until_2027(|_| ()), None, &mut Counting(0)).unwrap();
    assert_eq!(show(&own, THIEF, &Revocations::default()), Err(CredentialRefusal::UnknownRoot(THIEF.key())));
    // In the operator's name, with the thief's signature; and with another trusted root's.
    for signer in [THIEF, OTHER_OPERATOR] {
        let forged = raw_token(signer, block(&authority(THIEF)));
        assert_eq!(show_bytes(&forged, THIEF), Err(CredentialRefusal::Forged));
    }
    // The same token with the operator's signature is valid: the other tests do not fail for another reason.
    assert!(show_bytes(&raw_token(OPERATOR, block(&authority(THIEF))), THIEF).is_ok());
}

#[test]
fn only_the_holder_of_the_last_block_delegates_it() {
    let [first, ..] = three();
    let mine = || block(&preamble(THIEF));
    for signer in [THIEF, STUDENT, OPERATOR] {
        let stolen = raw_append(first.as_bytes(), &signer.private(), mine(), 5);
        assert_eq!(
            show_bytes(&stolen, THIEF),
            Err(CredentialRefusal::Signer { block: 1, signer: signer.key(), holder: RESEARCHER.key() })
        );
    }
    // With the holder's name over another signature.
    let stolen = rewritten(&raw_append(first.as_bytes(), &THIEF.private(), mine(), 5), |token| {
        if let Some(external) = &mut token.blocks[0].external_signature {
            external.public_key.key = RESEARCHER.key().as_bytes().to_vec();
        }
    });
    assert_eq!(show_bytes(&stolen, THIEF), Err(CredentialRefusal::Forged));
    assert!(show_bytes(&raw_append(first.as_bytes(), &RESEARCHER.private(), mine(), 5), THIEF).is_ok());
}

#[test]
fn a_block_without_a_holders_signature_is_refused() {
    let [first, ..] = three();
    let token = UnverifiedBiscuit::from(first.as_bytes()).unwrap();
    for datalog in [preamble(THIEF), "operation(\"read\");".to_owned()] {
        let next = KeyPair::new_with_rng(Algorithm::Ed25519, &mut Counting(3));
        let appended = token.append_with_keypair(&next, block(&datalog)).unwrap().to_vec().unwrap();
        // The missing signature is found before any content that is not one of the templates.
        assert!(
            matches!(
                show_bytes(&appended, THIEF),
                Err(CredentialRefusal::FirstParty { block: 1 } | CredentialRefusal::Block { block: 1, .. })
            ),
            "{datalog}"
        );
    }
    let stripped = rewritten(three()[1].as_bytes(), |token| token.blocks[0].external_signature = None);
    assert_eq!(show_bytes(&stripped, STUDENT), Err(CredentialRefusal::FirstParty { block: 1 }));
}

#[test]
fn a_revoked_holder_cannot_append_the_same_block_again() {
    let [first, second, _] = three();
    let id = second.claimed_blocks()[1].id;
    // The student has the researcher's own credential, and so the ephemeral key, and appends the researcher's signed
    // block once more.
    let token = schema::Biscuit::decode(second.as_bytes()).unwrap();
    let contents = schema::ThirdPartyBlockContents {
        payload: token.blocks[0].block.clone(),
        external_signature: token.blocks[0].external_signature.clone().unwrap(),
    };
    let next = KeyPair::new_with_rng(Algorithm::Ed25519, &mut Counting(31337));
    let again = UnverifiedBiscuit::from(first.as_bytes()).unwrap();
    let again = again.append_third_party_with_keypair(&contents.encode_to_vec(), next).unwrap();
    let again = Credential::parse(&again.to_vec().unwrap()).unwrap();
    assert_ne!(again.as_bytes(), second.as_bytes());
    let mut revocations = Revocations::default();
    // The result is a valid credential with the same identifier, so it is charged and revoked as before.
    assert_eq!(show(&again, STUDENT, &revocations).unwrap().id(), id);
    let list = RevocationList::sign(&OPERATOR.identity(), 1, now(), [id].into()).unwrap();
    revocations.accept(&list, &ListReception::new(&[OPERATOR.key()], now())).unwrap();
    assert_eq!(show(&again, STUDENT, &revocations), Err(CredentialRefusal::Revoked { block: 1, id }));
}

#[test]
fn a_block_that_asks_for_more_is_refused() {
    let [first, ..] = three();
    let with = |datalog: &str| {
        let block = block(&format!("{} {datalog}", preamble(THIEF)));
        show_bytes(&raw_append(first.as_bytes(), &RESEARCHER.private(), block, 5), THIEF)
    };
    for (datalog, part) in [
        ("memory(1048577);", GrantPart::Resource(Resource::Memory)),
        ("view(\"all\");", GrantPart::View),
        ("view(\"payload=none\");", GrantPart::View),
        ("expires(2027-01-01T00:00:01Z);", GrantPart::Expires),
    ] {
        match with(datalog) {
            Err(CredentialRefusal::Widened { block: 1, excess }) => {
                assert_eq!(excess.part, part, "{datalog}")
            }
            other => panic!("{datalog}: {other:?}"),
        }
    }
    assert_eq!(with("memory(1048576);").unwrap().grant().ceilings.memory, Some(Bytes(1 << 20)));
}

#[test]
fn a_chain_that_is_too_long_or_circular_is_refused() {
    let twice = granted(|grant| grant.delegations = Some(1));
    let second = raw_append(twice.as_bytes(), &RESEARCHER.private(), block(&preamble(STUDENT)), 5);
    assert!(show_bytes(&second, STUDENT).is_ok());
    let third = raw_append(&second, &STUDENT.private(), block(&preamble(FRIEND)), 6);
    assert_eq!(show_bytes(&third, FRIEND), Err(CredentialRefusal::OverDelegated { block: 2 }));
    // A holder with one delegation left cannot grant more of them.
    let more = block(&format!("{} delegations(1);", preamble(STUDENT)));
    let more = raw_append(twice.as_bytes(), &RESEARCHER.private(), more, 5);
    assert!(matches!(show_bytes(&more, STUDENT), Err(CredentialRefusal::Widened { block: 1, .. })));

    let free = granted(|_| ());
    let there = raw_append(free.as_bytes(), &RESEARCHER.private(), block(&preamble(STUDENT)), 5);
    let back = raw_append(&there, &STUDENT.private(), block(&preamble(RESEARCHER)), 6);
    let circular = CredentialRefusal::Circular { block: 2, holder: RESEARCHER.key() };
    assert_eq!(show_bytes(&back, RESEARCHER), Err(circular));
    let own = raw_append(free.as_bytes(), &RESEARCHER.private(), block(&preamble(RESEARCHER)), 5);
    assert_eq!(
        show_bytes(&own, RESEARCHER),
        Err(CredentialRefusal::Circular { block: 1, holder: RESEARCHER.key() })
    );
    let root = raw_append(free.as_bytes(), &RESEARCHER.private(), block(&preamble(OPERATOR)), 5);
    assert_eq!(
        show_bytes(&root, OPERATOR),
        Err(CredentialRefusal::Circular { block: 1, holder: OPERATOR.key() })
    );

    let mut long = free.as_bytes().to_vec();
    let mut signer = RESEARCHER;
    for (number, next) in [STUDENT, FRIEND].into_iter().cycle().take(BLOCKS_MAX).enumerate() {
        long = raw_append(&long, &signer.private(), block(&preamble(next)), number as u64);
        signer = next;
    }
    assert_eq!(show_bytes(&long, signer), Err(CredentialRefusal::Blocks(BLOCKS_MAX + 1)));
}

#[test]
fn nothing_in_a_block_is_evaluated() {
    let [first, ..] = three();
    // A rule for which a Datalog engine would join 24^5 facts.
    let bomb: String = (0..24).map(|number| format!("n({number});")).collect();
    let bomb = format!("{bomb} b($a, $b, $c, $d, $e) <- n($a), n($b), n($c), n($d), n($e);");
    for (datalog, what) in [
        (bomb.as_str(), "rules"),
        ("memory($x) <- sessions($x);", "rules"),
        ("check if true;", "checks"),
        ("reject if memory($x);", "checks"),
        ("check all memory($x), $x.matches(\"(a*)*b\");", "checks"),
    ] {
        let evil = block(&format!("{} {datalog}", preamble(THIEF)));
        let token = raw_append(first.as_bytes(), &RESEARCHER.private(), evil, 5);
        let error = BlockError::Evaluated(what);
        assert_eq!(
            show_bytes(&token, THIEF),
            Err(CredentialRefusal::Block { block: 1, error: error.clone() }),
            "{datalog}"
        );
        // Not even an operator's block is evaluated.
        let token = raw_token(OPERATOR, block(&format!("{} {datalog}", authority(THIEF))));
        assert_eq!(show_bytes(&token, THIEF), Err(CredentialRefusal::Block { block: 0, error }), "{datalog}");
    }
    let scoped = block(&preamble(THIEF)).scope(biscuit_auth::builder::Scope::Previous);
    let token = raw_append(first.as_bytes(), &RESEARCHER.private(), scoped, 5);
    assert_eq!(
        show_bytes(&token, THIEF),
        Err(CredentialRefusal::Block { block: 1, error: BlockError::Evaluated("scopes") })
    );
}

/// The error for an authority that also has this content.
fn wrong(datalog: &str) -> BlockError {
    match show_bytes(&raw_token(OPERATOR, block(&format!("{} {datalog}", authority(THIEF)))), THIEF) {
        Err(CredentialRefusal::Block { block: 0, error }) => error,
        other => panic!("{datalog}: {other:?}"),
    }
}

#[test]
fn facts_that_no_credential_has_are_refused() {
    for (datalog, name) in
        [("right(\"all\");", "right"), ("memory_max(1);", "memory_max"), ("Memory(1);", "Memory")]
    {
        assert_eq!(wrong(datalog), BlockError::UnknownFact(name.to_owned()));
    }
    assert_eq!(wrong("memory(1); memory(2);"), BlockError::Doubled("memory"));
    assert_eq!(wrong("view(\"all\"); view(\"all\");"), BlockError::Doubled("view"));
    assert_eq!(wrong("holder(hex:00);"), BlockError::Doubled("holder"));
    let many: String = (0..100).map(|number| format!("f{number}(1);")).collect();
    assert_eq!(wrong(&many), BlockError::Form);
}

#[test]
fn values_that_are_not_legal_are_refused() {
    for datalog in [
        "memory(-1);",
        "memory(\"1\");",
        "memory(1, 2);",
        "memory(null);",
        "memory([1]);",
        "memory({1});",
        "memory(true);",
        "memory(2027-01-01T00:00:00Z);",
        "not_before(1);",
        "not_before(9999-01-01T00:00:00Z);",
        "view(\"\");",
        "view(\"everything\");",
        "view(\"macs=zeroed,payload=none\");",
        "profile(\"../etc\");",
        "profile(\"Research\");",
        "filter(\"\");",
        "filter(\"tcp\\nudp\");",
        "interfaces(\"eth0\");",
        "interfaces([\"eth1\", \"eth0\"]);",
        "interfaces([\"eth0\", \"eth0\"]);",
        "interfaces([\"eth 0\"]);",
        "interfaces({\"eth0\"});",
        "nodes([\"*.a\", \"b.a\"]);",
        "nodes([\"*\"]);",
        "modules([hex:00], []);",
        "modules([]);",
        "modules([], [hex:0000000000000000000000000000000000000000000000000000000000000000]);",
        "delegations(4294967296);",
    ] {
        let name = datalog.split('(').next().unwrap();
        match wrong(datalog) {
            BlockError::Value { fact, wanted } => {
                assert_eq!(fact, name, "{datalog}");
                assert!(wanted.len() > 10, "{datalog}: {wanted}");
            }
            other => panic!("{datalog}: {other:?}"),
        }
    }
    let never = wrong("not_before(2028-01-01T00:00:00Z);");
    assert!(matches!(never, BlockError::Grant(_)), "{never}");
    let names: String = (100..165).map(|number| format!("\"eth{number}\",")).collect();
    let many = wrong(&format!("interfaces([{}]);", names.trim_end_matches(',')));
    assert!(matches!(many, BlockError::Grant(_)), "{many}");
}

#[test]
fn blocks_state_their_kind_and_their_holder() {
    let of = |datalog: &str| match show_bytes(&raw_token(OPERATOR, block(datalog)), THIEF) {
        Err(CredentialRefusal::Block { block: 0, error }) => error,
        other => panic!("{datalog}: {other:?}"),
    };
    let whole = authority(THIEF);
    assert_eq!(
        of(&whole.replace("weir(\"credential\", 1, null);", "weir(\"credential\", 2, null);")),
        BlockError::Version
    );
    assert_eq!(of(&whole.replace("credential", "compilation")), BlockError::Version);
    assert_eq!(of(&whole.replace("weir(\"credential\", 1, null);", "")), BlockError::Version);
    assert_eq!(of(&whole.replace("expires(2027-01-01T00:00:00Z);", "")), BlockError::Missing("expires"));
    let holder = format!("holder({});", THIEF.datalog());
    assert_eq!(of(&whole.replace(&holder, "")), BlockError::Missing("holder"));
    let root = format!("root({});", OPERATOR.datalog());
    assert_eq!(of(&whole.replace(&root, "")), BlockError::Missing("root"));
    let weak = format!("holder(hex:01{});", "00".repeat(31));
    assert!(matches!(of(&whole.replace(&holder, &weak)), BlockError::Value { fact: "holder", .. }));
    // A delegator does not speak for the operator.
    let [first, ..] = three();
    let evil = block(&format!("{} {root}", preamble(THIEF)));
    let evil = raw_append(first.as_bytes(), &RESEARCHER.private(), evil, 5);
    assert_eq!(
        show_bytes(&evil, THIEF),
        Err(CredentialRefusal::Block { block: 1, error: BlockError::Misplaced("root") })
    );
    let noted = BlockBuilder { context: Some("note".to_owned()), ..block(&whole) };
    assert_eq!(
        show_bytes(&raw_token(OPERATOR, noted), THIEF),
        Err(CredentialRefusal::Block { block: 0, error: BlockError::Form })
    );
}

/// A block that was changed before the researcher signed it.
fn with_payload(change: impl FnOnce(&mut schema::Block)) -> Result<(), CredentialRefusal> {
    let [first, ..] = three();
    let honest = raw_append(first.as_bytes(), &RESEARCHER.private(), block(&preamble(THIEF)), 5);
    let honest = schema::Biscuit::decode(&honest[..]).unwrap();
    let mut payload = schema::Block::decode(&honest.blocks[0].block[..]).unwrap();
    change(&mut payload);
    let bytes = signed_append(first.as_bytes(), RESEARCHER, payload.encode_to_vec());
    show_bytes(&bytes, THIEF).map(|_| ())
}

#[test]
fn blocks_that_no_builder_makes_are_refused() {
    let refused = |error| Err(CredentialRefusal::Block { block: 1, error });
    assert_eq!(with_payload(|block| block.version = Some(5)), refused(BlockError::Version));
    assert_eq!(with_payload(|block| block.version = None), refused(BlockError::Version));
    assert_eq!(with_payload(|block| block.symbols.push("weir".to_owned())), refused(BlockError::Form));
    assert_eq!(with_payload(|block| block.symbols.push("read".to_owned())), refused(BlockError::Form));
    assert_eq!(with_payload(|block| block.symbols.clear()), refused(BlockError::Form));
    assert_eq!(with_payload(|block| block.facts[0].predicate.name = u64::MAX), refused(BlockError::Form));
    assert!(matches!(
        with_payload(|block| block.facts[0].predicate.terms.clear()),
        Err(CredentialRefusal::Block { block: 1, error: BlockError::Value { fact: "weir", .. } })
    ));
    assert!(matches!(
        with_payload(|block| block.facts[0].predicate.terms[0].content = None),
        Err(CredentialRefusal::Block { block: 1, error: BlockError::Value { fact: "weir", .. } })
    ));
    let key = schema::PublicKey { algorithm: 0, key: THIEF.key().as_bytes().to_vec() };
    assert!(matches!(
        with_payload(|block| block.public_keys.push(key)),
        Err(CredentialRefusal::Block { block: 1, error: BlockError::Evaluated(_) })
    ));
    // None of these was refused because the signature is over other bytes: the unchanged block is not forged.
    assert_eq!(with_payload(|_| ()), Ok(()));
}

#[test]
fn other_algorithms_are_refused() {
    let p256 = KeyPair::new_with_rng(Algorithm::Secp256r1, &mut Counting(1));
    let algorithm = |block| Err(CredentialRefusal::Algorithm { block });
    // The ephemeral key, of the authority and of a later block; the holder's signature; the root's.
    let next = BiscuitBuilder::new().merge(block(&authority(THIEF)));
    let next =
        next.build_with_key_pair(&KeyPair::from(&OPERATOR.private()), SymbolTable::new(), &p256).unwrap();
    assert_eq!(show_bytes(&next.to_vec().unwrap(), THIEF), algorithm(0));
    let [first, ..] = three();
    let p256: PrivateKey = p256.private();
    let signed = raw_append(first.as_bytes(), &p256, block(&preamble(THIEF)), 5);
    assert_eq!(show_bytes(&signed, THIEF), algorithm(1));
    let ed25519 = KeyPair::new_with_rng(Algorithm::Ed25519, &mut Counting(1));
    let rooted = BiscuitBuilder::new().merge(block(&authority(THIEF)));
    let rooted = rooted.build_with_key_pair(&KeyPair::from(&p256), SymbolTable::new(), &ed25519).unwrap();
    assert_eq!(show_bytes(&rooted.to_vec().unwrap(), THIEF), Err(CredentialRefusal::Forged));
    // A number that stands for no algorithm, and keys of other lengths.
    for change in [
        (|key: &mut schema::PublicKey| key.algorithm = 7) as fn(&mut schema::PublicKey),
        |key| key.algorithm = -1,
        |key| key.key.clear(),
        |key| key.key.push(0),
    ] {
        for at in [0, 1] {
            let bytes = rewritten(three()[1].as_bytes(), |token| match at {
                0 => change(&mut token.authority.next_key),
                _ => change(&mut token.blocks[0].external_signature.as_mut().unwrap().public_key),
            });
            assert!(matches!(
                show_bytes(&bytes, STUDENT),
                Err(CredentialRefusal::Algorithm { .. } | CredentialRefusal::Forged)
            ));
        }
    }
}

#[test]
fn sealed_tokens_and_tokens_without_a_proof_are_refused() {
    let [first, ..] = three();
    let sealed = UnverifiedBiscuit::from(first.as_bytes()).unwrap().seal().unwrap().to_vec().unwrap();
    assert_eq!(show_bytes(&sealed, RESEARCHER), Err(CredentialRefusal::Sealed));
    let endless = rewritten(first.as_bytes(), |token| token.proof.content = None);
    assert_eq!(show_bytes(&endless, RESEARCHER), Err(CredentialRefusal::NotAToken));
}

#[test]
fn tokens_that_are_made_to_be_large_are_refused_before_they_are_read() {
    let huge = vec![0x0a; CREDENTIAL_BYTES_MAX + 1];
    assert_eq!(Credential::parse(&huge), Err(CredentialRefusal::TooLong(huge.len())));
    let text = format!("weir-credential:{}", "a".repeat(CREDENTIAL_BYTES_MAX * 2));
    assert!(matches!(text.parse::<Credential>(), Err(CredentialRefusal::TooLong(_))));
    // As many empty blocks as fit, and nested lists.
    let [first, ..] = three();
    let blocks = rewritten(first.as_bytes(), |token| {
        let mut empty = token.authority.clone();
        empty.block.clear();
        token.blocks = vec![empty; 100];
    });
    assert_eq!(Credential::parse(&blocks), Err(CredentialRefusal::Blocks(101)));
    for depth in [10, 90, 1000] {
        let mut term = schema::Term { content: Some(schema::term::Content::Integer(1)) };
        for _ in 0..depth {
            let array = schema::Array { array: vec![term] };
            term = schema::Term { content: Some(schema::term::Content::Array(array)) };
        }
        let nested = rewritten(first.as_bytes(), |token| {
            let mut authority = schema::Block::decode(&token.authority.block[..]).unwrap();
            authority.facts[0].predicate.terms = vec![term.clone()];
            token.authority.block = authority.encode_to_vec();
        });
        assert!(Credential::parse(&nested).is_err(), "{depth}");
    }
}

#[test]
fn arbitrary_bytes_are_no_credential() {
    let mut random = Counting(4);
    for len in (0..300).chain([1000, 10_000]) {
        let mut bytes = vec![0; len];
        rand_core::RngCore::fill_bytes(&mut random, &mut bytes);
        assert!(Credential::parse(&bytes).is_err());
    }
    assert_eq!(Credential::parse(&[]), Err(CredentialRefusal::NotAToken));
}
