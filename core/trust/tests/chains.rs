//! Credentials in honest use: granted, delegated, shown, revoked.

use crate::people;
use crate::people::*;
use std::collections::BTreeSet;
use weir_trust::credential::{
    BLOCKS_MAX, BlockError, Credential, CredentialRefusal, MintError, resource_name,
};
use weir_trust::explain;
use weir_trust::grant::{
    CpuShare, Grant, GrantError, GrantPart, GrantRequest, ModuleHash, ModuleSet, PacketView, UnixSecond,
};
use weir_trust::key::Identity;
use weir_trust::revocation::{ListReception, RevocationList, Revocations};
use weir_units::{Bytes, Name};

fn nothing_revoked() -> Revocations {
    Revocations::default()
}

/// The operator grants a researcher anonymised packets of two interfaces. The researcher delegates one of them to a
/// student, with less memory, for three weeks.
fn research() -> (Credential, Credential) {
    let first = granted(|grant| {
        grant.profiles = Some([Name::new("research").unwrap()].into());
        grant.view = Some(PacketView::ANONYMISED);
        grant.filters = ["tcp".parse().unwrap()].into();
        grant.interfaces = Some(["eth0".parse().unwrap(), "eth1".parse().unwrap()].into());
        grant.ceilings.memory = Some(Bytes(64 << 20));
        grant.ceilings.cpu = Some(CpuShare(200_000));
        grant.nodes = Some(["*.example.org".parse().unwrap()].into_iter().collect());
        grant.delegations = Some(1);
    });
    let second = delegated(&first, |grant| {
        grant.filters = ["port 443".parse().unwrap()].into();
        grant.interfaces = Some(["eth0".parse().unwrap()].into());
        grant.ceilings.memory = Some(Bytes(16 << 20));
        grant.expires = Some(second("2026-12-12"));
    });
    (first, second)
}

#[test]
fn a_delegated_credential_gives_the_meet_of_all_blocks() {
    let (first, second) = research();
    let verified = show(&second, STUDENT, &nothing_revoked()).unwrap();
    let grant = verified.grant();
    assert_eq!(grant.view, Some(PacketView::ANONYMISED));
    assert_eq!(grant.filters.iter().map(|filter| filter.as_str()).collect::<Vec<_>>(), ["port 443", "tcp"]);
    assert_eq!(grant.interfaces, Some(["eth0".parse().unwrap()].into()));
    assert_eq!(grant.ceilings.memory, Some(Bytes(16 << 20)));
    assert_eq!(grant.ceilings.cpu, Some(CpuShare(200_000)));
    assert_eq!(grant.delegations, Some(0));
    assert_eq!(verified.expires(), people::second("2026-12-12"));
    assert_eq!((verified.root(), verified.holder()), (&OPERATOR.key(), &STUDENT.key()));
    let holders: Vec<_> = verified.chain().iter().map(|link| link.holder).collect();
    assert_eq!(holders, [RESEARCHER.key(), STUDENT.key()]);
    // Both are charged to the identifier of the researcher's credential.
    let researchers = show(&first, RESEARCHER, &nothing_revoked()).unwrap();
    assert_eq!(verified.chain()[0].id, researchers.id());
    assert_ne!(verified.id(), researchers.id());
}

#[test]
fn a_credential_is_written_and_read_again() {
    let (first, second) = research();
    for credential in [first, second] {
        assert_eq!(Credential::parse(credential.as_bytes()), Ok(credential.clone()));
        assert_eq!(credential.to_string().parse(), Ok(credential.clone()));
        assert_eq!(format!("\n{credential}\n").parse(), Ok(credential));
    }
    for text in ["", "weir-credential:", "weir-key:abc", "weir-credential:ABC", "weir-credential:é"] {
        assert!(text.parse::<Credential>().is_err(), "{text}");
    }
}

#[test]
fn every_part_of_a_grant_is_kept() {
    let everything = Grant {
        profiles: Some([Name::new("research").unwrap()].into()),
        modules: ModuleSet {
            hashes: [ModuleHash::of_bytes(b"a"), ModuleHash::of_bytes(b"b")].into(),
            signers: [FRIEND.key(), THIEF.key()].into(),
        }
        .into(),
        filters: [") or (".parse().unwrap()].into(),
        interfaces: Some(["time".parse().unwrap(), "eth0".parse().unwrap()].into()),
        view: Some("payload=64,addresses=zeroed,ttl=zeroed".parse().unwrap()),
        writes: Some([Name::new("ttl").unwrap()].into()),
        unmetered: [FRIEND.key(), THIEF.key()].into(),
        ceilings: weir_trust::grant::Ceilings {
            cpu: Some(CpuShare(1)),
            memory: Some(Bytes(2)),
            bandwidth: Some(weir_units::BitsPerSecond(3)),
            records_per_second: Some(4),
            kept_packets: Some(5),
            sessions: Some(i64::MAX as u64),
            ..weir_trust::grant::Ceilings::NONE
        },
        nodes: Some(["a", "*.b", "node"].map(|text| text.parse().unwrap()).into_iter().collect()),
        not_before: UnixSecond::new(0),
        expires: Some(UnixSecond::MAX),
        delegations: Some(u32::MAX),
    };
    let nothing = Grant {
        modules: ModuleSet::default().into(),
        interfaces: Some(BTreeSet::new()),
        writes: Some(BTreeSet::new()),
        nodes: Some([].into_iter().collect()),
        expires: UnixSecond::new(1),
        ..Grant::default()
    };
    let plain = Grant { expires: UnixSecond::new(1), ..Grant::default() };
    for grant in [everything, nothing, plain] {
        let credential =
            Credential::mint(&OPERATOR.identity(), FRIEND.key(), grant.clone(), None, &mut Counting(0))
                .unwrap();
        assert_eq!(credential.claimed_blocks()[0].grant, grant);
        assert_eq!(credential.check_signatures(), Ok(()));
    }
}

#[test]
fn a_credential_is_valid_only_for_its_holder() {
    let (first, second) = research();
    for (credential, thief, holder) in
        [(&first, STUDENT, RESEARCHER), (&second, RESEARCHER, STUDENT), (&second, THIEF, STUDENT)]
    {
        let refused = show(credential, thief, &nothing_revoked());
        assert_eq!(refused, Err(CredentialRefusal::NotHolder { holder: holder.key(), peer: thief.key() }));
    }
    let stolen = second.delegate(&THIEF.identity(), THIEF.key(), Grant::default(), None, &mut Counting(0));
    assert_eq!(stolen, Err(MintError::NotHolder { holder: STUDENT.key(), key: THIEF.key() }));
}

#[test]
fn a_credential_is_valid_from_its_beginning_to_its_end() {
    let first = granted(|grant| grant.not_before = Some(second("2026-11-01")));
    let credential = delegated(&first, |grant| {
        grant.not_before = Some(second("2026-11-10"));
        grant.expires = Some(second("2026-12-01"));
    });
    let at =
        |time: &str| show_at(&credential, STUDENT, &nothing_revoked(), second(time), &node()).map(|_| ());
    let not_yet = |block, from: &str, now: &str| {
        Err(CredentialRefusal::NotYet { block, from: second(from), now: second(now) })
    };
    let expired = |now: &str| {
        let (until, now) = (second("2026-12-01"), second(now));
        Err(CredentialRefusal::Expired { block: 1, until, now })
    };
    assert_eq!(at("2026-10-31T23:59:59Z"), not_yet(0, "2026-11-01", "2026-10-31T23:59:59Z"));
    assert_eq!(at("2026-11-09T23:59:59Z"), not_yet(1, "2026-11-10", "2026-11-09T23:59:59Z"));
    assert_eq!(at("2026-11-10"), Ok(()));
    assert_eq!(at("2026-11-30T23:59:59Z"), Ok(()));
    assert_eq!(at("2026-12-01"), expired("2026-12-01"));
    // The end of the operator's grant ends its delegations too.
    let credential =
        delegated(&granted(|grant| grant.expires = Some(second("2026-11-21T12:00:00Z"))), |_| ());
    let refused = show(&credential, STUDENT, &nothing_revoked());
    assert_eq!(refused, Err(CredentialRefusal::Expired { block: 0, until: now(), now: now() }));
}

#[test]
fn a_credential_is_valid_at_its_nodes() {
    let (_, credential) = research();
    let elsewhere = "edge-1.example.net".parse().unwrap();
    let refused = show_at(&credential, STUDENT, &nothing_revoked(), now(), &elsewhere).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "block 0 is for the nodes *.example.org, and this one is edge-1.example.net"
    );
}

#[test]
fn a_revoked_credential_is_invalid_with_all_its_delegations() {
    let (first, second) = research();
    let chain: Vec<_> = second.claimed_blocks().iter().map(|link| link.id).collect();
    let revoke = |by: people::Person, id| {
        let list = RevocationList::sign(&by.identity(), 1, now(), [id].into()).unwrap();
        let mut known = Revocations::default();
        known.accept(&list, &ListReception::new(&[OPERATOR.key(), OTHER_OPERATOR.key()], now())).unwrap();
        known
    };
    let students = revoke(OPERATOR, chain[1]);
    assert_eq!(show(&second, STUDENT, &students), Err(CredentialRefusal::Revoked { block: 1, id: chain[1] }));
    assert!(show(&first, RESEARCHER, &students).is_ok());
    let both = revoke(OPERATOR, chain[0]);
    assert_eq!(show(&first, RESEARCHER, &both), Err(CredentialRefusal::Revoked { block: 0, id: chain[0] }));
    assert_eq!(show(&second, STUDENT, &both), Err(CredentialRefusal::Revoked { block: 0, id: chain[0] }));
    assert!(show(&second, STUDENT, &revoke(OTHER_OPERATOR, chain[0])).is_ok(), "another operator's list");
    // A holder that uses it while it is revoked is told with the next list.
    let live = show(&second, STUDENT, &nothing_revoked()).unwrap();
    assert_eq!(live.revoked_by(&nothing_revoked()), None);
    assert_eq!(live.revoked_by(&both), Some(CredentialRefusal::Revoked { block: 0, id: chain[0] }));
}

#[test]
fn no_holder_delegates_more_than_it_has() {
    let first = granted(|grant| {
        grant.view = Some(PacketView::ANONYMISED);
        grant.ceilings.memory = Some(Bytes(1 << 20));
    });
    let delegate = |change: fn(&mut Grant)| {
        let mut grant = Grant::default();
        change(&mut grant);
        first.delegate(&RESEARCHER.identity(), STUDENT.key(), grant, None, &mut Counting(0))
    };
    assert!(delegate(|grant| grant.ceilings.memory = Some(Bytes(1 << 20))).is_ok());
    let refused = delegate(|grant| grant.ceilings.memory = Some(Bytes(2 << 20))).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "every node would refuse the credential: widened: block 1 asks for more than its holder was given; memory: asked for 2 MiB, given is 1 MiB. \
         Delegate again, for no more than that"
    );
    assert!(matches!(
        delegate(|grant| grant.view = Some(PacketView::ALL)),
        Err(MintError::Refused(CredentialRefusal::Widened { block: 1, .. }))
    ));
    assert!(delegate(|grant| grant.expires = Some(second("2027-01-02"))).is_err());
}

#[test]
fn the_right_to_run_without_a_meter_is_stated_by_the_operator_and_ends_with_the_first_holder() {
    let unmetered = |of: Person| GrantRequest {
        module: Some((ModuleHash::of_bytes(b"module"), Box::leak(Box::new([of.key()])))),
        unmetered: true,
        ..GrantRequest::default()
    };
    let first = granted(|grant| {
        grant.unmetered = [FRIEND.key()].into();
        grant.delegations = Some(2);
    });
    // The node's limit has to give it, too; a limit that states nothing does not.
    let shown = show(&first, RESEARCHER, &nothing_revoked()).unwrap();
    let limited = |limit: &Grant| shown.limited_to(limit, &node(), now()).unwrap();
    assert_eq!(shown.grant().unmetered, BTreeSet::new());
    assert_eq!(limited(&Grant::default()).grant().unmetered, BTreeSet::new());
    let both = Grant { unmetered: [FRIEND.key(), THIEF.key()].into(), ..Grant::default() };
    let verified = limited(&both);
    assert_eq!(verified.grant().unmetered, [FRIEND.key()].into());
    assert_eq!(verified.grant().excesses(&unmetered(FRIEND)), []);
    let excess = verified.grant().excesses(&unmetered(THIEF)).pop().unwrap();
    assert_eq!(excess.part, GrantPart::Unmetered);
    assert!(excess.to_string().ends_with(&format!("given is signed by {}", FRIEND.key())), "{excess}");
    let metered = GrantRequest { unmetered: false, ..unmetered(THIEF) };
    assert_eq!(verified.grant().excesses(&metered), []);
    // A delegate does not have it, and no delegation can state it.
    let second = delegated(&first, |_| ());
    let students = show(&second, STUDENT, &nothing_revoked()).unwrap();
    let students = students.limited_to(&both, &node(), now()).unwrap();
    assert_eq!(students.grant().excesses(&unmetered(FRIEND)).len(), 1);
    // The rights at each link of the chain.
    let of_researcher = Grant { delegations: Some(2), ..verified.grant().clone() };
    assert_eq!(students.grant_up_to(0).as_ref(), Some(&of_researcher));
    assert_eq!(students.grant_up_to(1).as_ref(), Some(students.grant()));
    assert_eq!(students.grant_up_to(2), None);
    let grant = Grant { unmetered: [FRIEND.key()].into(), ..Grant::default() };
    let refused = first.delegate(&RESEARCHER.identity(), STUDENT.key(), grant, None, &mut Counting(0));
    let error = BlockError::Misplaced("unmetered");
    assert_eq!(refused, Err(MintError::Refused(CredentialRefusal::Block { block: 1, error })));
    let words = explain::credential(&first);
    assert!(words.contains(&format!("Those signed by {} may run without a meter", FRIEND.key())), "{words}");
    assert!(!explain::credential(&second).contains("may run without a meter"));
}

#[test]
fn a_credential_is_delegated_as_often_as_it_says() {
    let (_, second) = research();
    let third = second.delegate(&STUDENT.identity(), FRIEND.key(), Grant::default(), None, &mut Counting(0));
    assert_eq!(third, Err(MintError::Refused(CredentialRefusal::OverDelegated { block: 2 })));
    // Never beyond the longest chain.
    let person = |number: usize| Identity::from_seed(&[100 + u8::try_from(number).unwrap(); 32]);
    let mut credential = Credential::mint(
        &OPERATOR.identity(),
        person(0).public(),
        until_2027(|_| ()),
        None,
        &mut Counting(0),
    )
    .unwrap();
    for number in 1..BLOCKS_MAX {
        let next = person(number).public();
        credential =
            credential.delegate(&person(number - 1), next, Grant::default(), None, &mut Counting(0)).unwrap();
    }
    assert_eq!(credential.claimed_blocks().len(), BLOCKS_MAX);
    let longer =
        credential.delegate(&person(BLOCKS_MAX - 1), THIEF.key(), Grant::default(), None, &mut Counting(0));
    assert_eq!(longer, Err(MintError::Refused(CredentialRefusal::Blocks(BLOCKS_MAX + 1))));
}

#[test]
fn no_key_is_in_a_chain_twice() {
    let (_, second) = research_twice();
    for holder in [RESEARCHER, STUDENT, OPERATOR] {
        let circle =
            second.delegate(&STUDENT.identity(), holder.key(), Grant::default(), None, &mut Counting(0));
        assert_eq!(
            circle,
            Err(MintError::Refused(CredentialRefusal::Circular { block: 2, holder: holder.key() }))
        );
    }
    // An operator may grant itself something: that is no circle.
    let own =
        Credential::mint(&OPERATOR.identity(), OPERATOR.key(), until_2027(|_| ()), None, &mut Counting(0));
    assert!(show(&own.unwrap(), OPERATOR, &nothing_revoked()).is_ok());
}

fn research_twice() -> (Credential, Credential) {
    let first = granted(|grant| grant.delegations = Some(2));
    let second = delegated(&first, |_| ());
    (first, second)
}

#[test]
fn a_grant_without_an_end_or_that_is_never_valid_is_refused() {
    let mint = |grant| Credential::mint(&OPERATOR.identity(), FRIEND.key(), grant, None, &mut Counting(0));
    assert_eq!(mint(Grant::default()), Err(MintError::Endless));
    let never = until_2027(|grant| grant.not_before = Some(second("2028-01-01")));
    assert!(matches!(mint(never), Err(MintError::Grant(GrantError::Never { .. }))));
    let long = until_2027(|grant| {
        let patterns = (0..64).map(|number| format!("{number}.{}", vec!["a".repeat(60); 4].join(".")));
        grant.nodes = Some(patterns.map(|text| text.parse().unwrap()).collect());
    });
    assert!(matches!(mint(long), Err(MintError::Refused(CredentialRefusal::TooLong(_)))));
}

#[test]
fn the_name_of_a_resource_belongs_to_its_creator() {
    let (first, second) = research();
    let researchers = show(&first, RESEARCHER, &nothing_revoked()).unwrap();
    let students = show(&second, STUDENT, &nothing_revoked()).unwrap();
    let name = Name::new("rtt").unwrap();
    let of = |verified: &weir_trust::credential::VerifiedCredential| {
        resource_name(verified.id(), verified.holder(), &name)
    };
    assert_ne!(of(&researchers), of(&students));
    assert_eq!(of(&students), of(&show(&second, STUDENT, &nothing_revoked()).unwrap()));
    // A student that gives its resource the researcher's name does not get the researcher's.
    assert_ne!(resource_name(students.id(), students.holder(), &of(&researchers)), of(&researchers));
}

#[test]
fn a_credential_is_explained_in_words() {
    let (_, second) = research();
    let words = explain::credential(&second);
    for part in [
        &format!("A credential for {}; its signatures hold.", STUDENT.key()),
        &format!("the operator {}", OPERATOR.key()),
        &format!("gives {}", RESEARCHER.key()),
        "profile:             research",
        "modules:             any, by any author: this is an administrator's right",
        "traffic:             packets that `port 443` selects",
        "view:                headers only, IP addresses anonymised (prefixes stay), without MAC addresses",
        "processor time:      at most 20% of a core",
        "memory:              at most 16 MiB",
        "nodes:               *.example.org",
        "end:                 2026-12-12T00:00:00Z",
        "further delegations: one",
        "and otherwise what block 0 gives",
    ] {
        assert!(words.contains(part), "{part} is not in\n{words}");
    }
}

#[test]
fn the_grant_of_each_block_names_the_parts_that_a_request_exceeds() {
    let (_, second) = research();
    let verified = show(&second, STUDENT, &nothing_revoked()).unwrap();
    let (eth0, eth1) = ("eth0".parse().unwrap(), "eth1".parse().unwrap());
    let excesses = |interface, view| {
        let request =
            GrantRequest { interface: Some(interface), view: Some(view), ..GrantRequest::default() };
        verified.chain().iter().map(|block| block.grant.excesses(&request)).collect::<Vec<_>>()
    };
    assert!(excesses(&eth0, PacketView::ANONYMISED).iter().all(Vec::is_empty));
    let found: Vec<Vec<_>> = excesses(&eth1, PacketView::ALL)
        .iter()
        .map(|excesses| excesses.iter().map(|excess| excess.part).collect())
        .collect();
    assert_eq!(found, [vec![GrantPart::View], vec![GrantPart::Interfaces]]);
}

/// A credential of an earlier version of weir, byte by byte: it has to be readable as long as it is valid.
#[test]
fn a_credential_of_version_1_is_read() {
    let text = include_str!("credential-1.txt");
    assert_eq!(research().1.to_string(), text.trim(), "made again it is the same");
    let credential: Credential = text.parse().unwrap();
    let verified = show(&credential, STUDENT, &nothing_revoked()).unwrap();
    assert_eq!(verified.grant().ceilings.memory, Some(Bytes(16 << 20)));
}

#[test]
fn a_node_can_limit_a_roots_grants() {
    let (first, second) = research();
    let (researchers, students) = (
        show(&first, RESEARCHER, &nothing_revoked()).unwrap(),
        show(&second, STUDENT, &nothing_revoked()).unwrap(),
    );
    assert_eq!(researchers.limit(), &Grant::default());
    let mut limit = Grant {
        profiles: Some(["research", "strict"].map(|name| Name::new(name).unwrap()).into()),
        interfaces: Some(["eth1".parse().unwrap()].into()),
        filters: ["not port 22".parse().unwrap()].into(),
        ..Grant::default()
    };
    limit.ceilings.memory = Some(Bytes(32 << 20));
    limit.delegations = Some(1);
    let within = |credential: &weir_trust::credential::VerifiedCredential, limit: &Grant| {
        credential.limited_to(limit, &people::node(), people::now())
    };
    // The meet of both, and the credential's own ceiling where that is lower.
    let (here, below) = (within(&researchers, &limit).unwrap(), within(&students, &limit).unwrap());
    assert_eq!(here.grant(), &Grant { delegations: Some(1), ..researchers.grant().meet(&limit) });
    assert_eq!(here.grant().ceilings.memory, Some(Bytes(32 << 20)));
    assert_eq!(here.grant().profiles, Some([Name::new("research").unwrap()].into()));
    assert_eq!(below.grant().ceilings.memory, Some(Bytes(16 << 20)));
    assert_eq!(below.grant().interfaces, Some(BTreeSet::new()));
    assert_eq!((here.limit(), here.id(), below.grant().delegations), (&limit, researchers.id(), Some(0)));
    // Another limit replaces the last one, and the default one restores all rights.
    assert_eq!(within(&here, &Grant::default()).unwrap().grant(), researchers.grant());
    let soon = people::second("2026-11-30");
    let earlier = within(&researchers, &Grant { expires: Some(soon), ..Grant::default() }).unwrap();
    assert_eq!(
        (earlier.expires(), within(&earlier, &Grant::default()).unwrap().expires()),
        (soon, researchers.expires())
    );
    // The limit may leave nothing.
    let elsewhere = Some(["*.net".parse().unwrap()].into_iter().collect());
    for (limit, part) in [
        (Grant { delegations: Some(0), ..Grant::default() }, "further delegations: asked for 1, given is 0"),
        (Grant { nodes: elsewhere, ..Grant::default() }, "nodes: "),
        (Grant { expires: Some(people::now()), ..Grant::default() }, "end: "),
        (Grant { not_before: Some(soon), ..Grant::default() }, "beginning: "),
    ] {
        let refused = within(&students, &limit).unwrap_err();
        assert!(
            matches!(&refused, CredentialRefusal::Limited { root, .. } if *root == OPERATOR.key()),
            "{refused:?}"
        );
        assert!(refused.to_string().starts_with(part), "{refused}");
    }
}
