//! Tests of authorisation, with credentials for the tests of other modules.

use super::*;
use crate::control::protocol::{
    Change, ControlRequest, FindingStatus, FindingsStatus, ModuleStatus, RecordsRequest, SessionStatus,
    Snapshot,
};
use crate::control::share::{ShareGrant, ShareableRight};
use crate::control::spec::{ChannelSpec, ModuleSpec, SessionSpec};
use crate::control::visibility::GrantedVisibility;
use std::collections::BTreeMap;
use weir_trust::credential::{Credential, VerificationContext};
use weir_trust::grant::{Ceilings, CpuShare, Grant, GrantPart, PacketView, Resource, UnixSecond};
use weir_trust::key::Identity;
use weir_trust::revocation::Revocations;
use weir_units::Bytes;

/// A deterministic random number generator.
pub(crate) struct SeededRng(pub(crate) u64);

impl rand_core::RngCore for SeededRng {
    fn next_u32(&mut self) -> u32 {
        rand_core::impls::next_u32_via_fill(self)
    }
    fn next_u64(&mut self) -> u64 {
        rand_core::impls::next_u64_via_fill(self)
    }
    fn fill_bytes(&mut self, to: &mut [u8]) {
        for byte in to {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = self.0.to_be_bytes()[0];
        }
    }
    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(to);
        Ok(())
    }
}

impl rand_core::CryptoRng for SeededRng {}

pub(crate) fn person(number: u8) -> Identity {
    Identity::from_seed(&[number; 32])
}

/// A chain in which the operator grants to person 1, and each person delegates to the next.
pub(crate) fn chain(grants: &[Grant]) -> Arc<VerifiedCredential> {
    let (operator, mut random) = (person(0), SeededRng(0));
    let first = Grant { expires: Some(UnixSecond::MAX), ..grants[0].clone() };
    let mut credential = Credential::mint(&operator, person(1).public(), first, None, &mut random).unwrap();
    for (number, grant) in (1..).zip(&grants[1..]) {
        let next = person(number + 1).public();
        credential = credential.delegate(&person(number), next, grant.clone(), None, &mut random).unwrap();
    }
    let (roots, revocations, node) = ([operator.public()], Revocations::default(), "node".parse().unwrap());
    let peer = *credential.claimed_holder();
    let situation = VerificationContext {
        roots: &roots,
        revocations: &revocations,
        peer: &peer,
        node: &node,
        now: UnixSecond::default(),
    };
    Arc::new(credential.verify(&situation).unwrap())
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn spec(text: &str) -> SessionSpec {
    toml::from_str(&format!("name = \"s\"\n{text}")).unwrap()
}

pub(crate) fn ceilings(memory: u64) -> Grant {
    Grant { ceilings: Ceilings { memory: Some(Bytes(memory)), ..Ceilings::default() }, ..Grant::default() }
}

/// The result of a request, given these sessions.
fn permitted_request(
    credential: &Arc<VerifiedCredential>,
    request: ControlRequest,
    sessions: &BTreeMap<Name, SessionOwner>,
) -> Result<Permitted, RequestRefusal> {
    permitted_request_with_shares(credential, request, sessions, &[])
}

/// The result of a request, if the owners of all these sessions share these rights.
fn permitted_request_with_shares(
    credential: &Arc<VerifiedCredential>,
    request: ControlRequest,
    sessions: &BTreeMap<Name, SessionOwner>,
    share: &[ShareGrant],
) -> Result<Permitted, RequestRefusal> {
    let requester = Requester::Holder(Arc::clone(credential));
    let shared =
        |name: &Name| Some(SharedRights { owner: sessions.get(name)?.clone(), share: share.to_vec() });
    permit(&requester, request, None, &shared, &|_| None)
}

pub(crate) fn created(
    credential: &Arc<VerifiedCredential>,
    spec: SessionSpec,
) -> (SessionSpec, SessionOwner) {
    match permitted_request(credential, ControlRequest::Create(spec), &BTreeMap::new()).unwrap() {
        Permitted { request: ControlRequest::Create(spec), owner: Some(owner), .. } => (spec, owner),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ten_delegates_of_one_holder_share_its_ceiling() {
    let delegates: Vec<_> = (0..10)
        .map(|number| {
            let own = Grant { expires: UnixSecond::new(1000 + number), ..Grant::default() };
            created(&chain(&[ceilings(10 << 20), own]), spec("memory = \"2 MiB\""))
        })
        .map(|(spec, owner)| (owner, spec))
        .collect();
    let mut there: Vec<&(SessionOwner, SessionSpec)> = Vec::new();
    let mut refused = 0;
    for delegate in &delegates {
        let others = there.iter().map(|(owner, spec)| (owner, spec));
        match ceilings::check(&delegate.0, &delegate.1, others) {
            Ok(()) => there.push(delegate),
            Err(RequestRefusal::CeilingExceeded {
                part: GrantPart::Resource(Resource::Memory),
                left,
                ..
            }) => {
                refused += 1;
                // The amount of other holders is not told.
                assert_eq!(left, None);
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((there.len(), refused), (5, 5));
}

#[test]
fn all_grants_of_a_root_that_the_node_limits_are_one_party_and_have_pseudonyms_of_their_own() {
    let (one, other) = (chain(&[ceilings(1 << 20)]), chain(&[ceilings(2 << 20)]));
    let child = chain(&[ceilings(1 << 20), Grant { expires: UnixSecond::new(1000), ..Grant::default() }]);
    let party = |credential: &VerifiedCredential| GrantedVisibility::from_credential(credential).party;
    assert_ne!(party(&one), party(&other));
    assert_eq!(party(&one), party(&child));
    let limit = ceilings(1 << 30);
    let [one, other, child] = [one, other, child].map(|credential| {
        credential.limited_to(&limit, &"node".parse().unwrap(), UnixSecond::default()).unwrap()
    });
    assert_eq!(party(&one), Some(DelegationId::of_root(one.root())));
    assert_eq!((party(&one), party(&one)), (party(&other), party(&child)));
    assert_ne!(
        GrantedVisibility::from_credential(&one).first_grant,
        GrantedVisibility::from_credential(&other).first_grant
    );
}

#[test]
fn records_and_kept_packets_are_summed_and_a_missing_limit_requests_all() {
    let limited = Ceilings { records_per_second: Some(10), kept_packets: Some(7), ..Ceilings::default() };
    let granted = Grant { ceilings: limited, ..Grant::default() };
    let parent = chain(std::slice::from_ref(&granted));
    let child = chain(&[granted, Grant { expires: UnixSecond::new(1000), ..Grant::default() }]);
    let (whole, owner) = created(&parent, spec(""));
    assert_eq!((whole.limit(Resource::Records), whole.limit(Resource::Kept)), (Some(10), Some(7)));
    let (part, other) = created(&child, spec("records_per_second = 4\nkept_packets = 3"));
    let check = |records, kept| {
        let mut spec = whole.clone();
        spec.limits.set(Resource::Records, records);
        spec.limits.set(Resource::Kept, kept);
        ceilings::check(&owner, &spec, std::iter::once((&other, &part)))
    };
    for (records, kept, of, none_of) in [
        (Some(10), Some(0), GrantPart::Resource(Resource::Records), "6"),
        (Some(0), Some(7), GrantPart::Resource(Resource::Kept), "4"),
    ] {
        let refusal = check(records, kept).unwrap_err();
        assert!(
            matches!(&refusal, RequestRefusal::CeilingExceeded { part, left, .. } if *part == of && left.as_deref() == Some(none_of)),
            "{refusal}"
        );
    }
    assert_eq!(check(Some(6), Some(4)), Ok(()));
    // For any origin of the session.
    for (records, kept) in [(None, Some(0)), (Some(0), None)] {
        let refusal = check(records, kept).unwrap_err();
        assert!(matches!(refusal, RequestRefusal::NotGrantable { .. }), "{refusal}");
    }
}

#[test]
fn an_unlimited_session_from_before_a_ceiling_leaves_nothing_for_others() {
    let before = chain(&[Grant::default()]);
    let (free, other) = created(&before, spec(""));
    assert_eq!((free.limit(Resource::Records), free.limit(Resource::Kept)), (None, None));
    let ceilings = Ceilings { records_per_second: Some(10), ..Ceilings::default() };
    let limit = Grant { ceilings, ..Grant::default() };
    let after = before.limited_to(&limit, &"node".parse().unwrap(), UnixSecond::default()).unwrap();
    let (held, owner) = created(&Arc::new(after), spec(""));
    assert_eq!(held.limit(Resource::Records), Some(10));
    let refusal = ceilings::check(&owner, &held, std::iter::once((&other, &free))).unwrap_err();
    assert!(
        matches!(
            &refusal,
            RequestRefusal::CeilingExceeded { part: GrantPart::Resource(Resource::Records), left: None, .. }
        ),
        "{refusal}"
    );
    assert_eq!(ceilings::check(&owner, &held, std::iter::empty()), Ok(()));
}

#[test]
fn a_field_may_be_written_only_if_every_grant_allows_it() {
    let fields = |names: &[&str]| Grant {
        writes: Some(names.iter().map(|text| name(text)).collect()),
        ..Grant::default()
    };
    // A field that this node does not know allows nothing.
    let holder = chain(&[fields(&["ttl", "dscp", "x-later"]), fields(&["ttl", "x-later"])]);
    let (made, owner) = created(&holder, spec(""));
    assert_eq!(made.writes.map(|fields| fields.to_string()).as_deref(), Some("ttl"));
    let check = |writes: Option<&str>| {
        let writes = writes.map(|text| text.parse().unwrap());
        ceilings::check(&owner, &SessionSpec { writes, ..made.clone() }, std::iter::empty())
    };
    assert_eq!((check(Some("ttl")), check(Some("none"))), (Ok(()), Ok(())));
    for requested in [Some("dscp"), Some("ttl,addresses"), Some("all"), None] {
        let refusal = check(requested).unwrap_err();
        assert!(
            matches!(&refusal, RequestRefusal::Excess(excesses) if excesses[0].part == GrantPart::Writes),
            "{requested:?}: {refusal}"
        );
    }
}

#[test]
fn names_of_different_holders_never_collide_and_only_delegators_reach_a_session() {
    let parent = chain(&[ceilings(1 << 30)]);
    let child = chain(&[ceilings(1 << 30), Grant::default()]);
    let (own, parents) = (created(&child, spec("")), created(&parent, spec("")));
    assert_ne!(own.0.name, parents.0.name);
    let sessions = BTreeMap::from([(own.0.name.clone(), own.1), (parents.0.name.clone(), parents.1)]);
    let close = |who: &Arc<VerifiedCredential>, session: &Name| {
        let permitted = permitted_request(who, ControlRequest::Close { session: session.clone() }, &sessions);
        permitted.map(|permitted| permitted.request)
    };
    let done = |session: &Name| Ok(ControlRequest::Close { session: session.clone() });
    // Each by its own name, and by the node's.
    assert_eq!(close(&child, &name("s")), done(&own.0.name));
    assert_eq!(close(&parent, &name("s")), done(&parents.0.name));
    assert_eq!(close(&parent, &own.0.name), done(&own.0.name));
    assert_eq!(close(&child, &parents.0.name), Err(RequestRefusal::NoSession(parents.0.name.clone())));
    // The operator's sessions belong to no holder.
    assert_eq!(close(&parent, &name("monitoring")), Err(RequestRefusal::NoSession(name("monitoring"))));
}

fn share(right: ShareableRight, with: u8) -> ShareGrant {
    ShareGrant { right, key: person(with).public() }
}

/// Each request about a session, with the right that a delegator needs for it.
fn verbs(session: &Name) -> Vec<(ControlRequest, Needed)> {
    let name = || session.clone();
    let change = |more: &str| {
        let text = format!("{{\"session\": \"{session}\"{more}}}");
        ControlRequest::Change(serde_json::from_str(&text).unwrap())
    };
    let of_share = |key: &str| format!(", \"{key}\": [\"{}\"]", share(ShareableRight::Follow, 1));
    let module = || toml::from_str("module = \"m\"").unwrap();
    let manage = Needed::Shared(ShareableRight::Manage);
    vec![
        (ControlRequest::Close { session: name() }, Needed::Delegator),
        (
            ControlRequest::Load { session: name(), module: module(), signatures: Vec::new(), replace: None },
            manage,
        ),
        (ControlRequest::Unload { session: name(), module: name() }, manage),
        (
            ControlRequest::Follow { session: name(), module: Some(name()), streams: vec![name()] },
            Needed::Shared(ShareableRight::Follow),
        ),
        (change(", \"memory\": \"1 MiB\""), manage),
        (change(", \"channel\": [{\"interface\": \"e\"}]"), manage),
        (change(", \"output\": [{\"link\": \"e\"}]"), manage),
        (change(", \"read\": [\"t\"]"), manage),
        (change(&of_share("share")), Needed::Owner),
        (change(&of_share("remove_share")), Needed::Owner),
    ]
}

#[test]
fn a_delegator_may_close_a_session_and_use_the_rights_that_its_owner_shares() {
    let given = ceilings(1 << 30);
    let chains: Vec<Arc<VerifiedCredential>> = (1..=4)
        .map(|holders| {
            let mut grants = vec![given.clone()];
            grants.resize(holders, Grant::default());
            chain(&grants)
        })
        .collect();
    let [first, second, owner, below] = &chains[..] else { panic!("four holders") };
    let beside = chain(&[given, Grant { expires: UnixSecond::new(1000), ..Grant::default() }]);
    let (made, of) = created(owner, spec(""));
    let sessions = BTreeMap::from([(made.name.clone(), of)]);
    let (follow, manage) = (share(ShareableRight::Follow, 2), share(ShareableRight::Manage, 2));
    for (request, needs) in verbs(&made.name) {
        assert_eq!(needed(&request), needs, "{request:?}");
        let by = |who: &Arc<VerifiedCredential>, shares: &[ShareGrant]| {
            permitted_request_with_shares(who, request.clone(), &sessions, shares)
        };
        assert!(by(owner, &[]).is_ok(), "{request:?}");
        for shares in [&[][..], &[follow], &[manage], &[follow, manage]] {
            let came = by(second, shares);
            match needs {
                Needed::Delegator => assert_eq!(came.unwrap().share, None),
                Needed::Shared(right) if shares.contains(&share(right, 2)) => {
                    assert_eq!(came.unwrap().share, Some(share(right, 2)));
                }
                Needed::Shared(right) => {
                    let refusal = came.unwrap_err();
                    assert_eq!(
                        refusal,
                        RequestRefusal::not_shared(&made.name, share(right, 2)),
                        "{request:?}"
                    );
                    assert!(refusal.to_string().contains("--share"), "{refusal}");
                }
                _ => {
                    assert_eq!(came.unwrap_err(), RequestRefusal::NotOwner(made.name.clone()), "{request:?}")
                }
            }
            // A share with one holder is not a share with those above that holder in the chain.
            assert_eq!(by(first, shares).is_ok(), needs == Needed::Delegator, "{request:?}");
            for stranger in [below, &beside] {
                assert_eq!(by(stranger, shares).unwrap_err(), RequestRefusal::NoSession(made.name.clone()));
            }
        }
    }
    // Requests that are not about a session need no right over one, and the operator's requests are no holder's.
    assert_eq!(needed(&ControlRequest::Create(spec(""))), Needed::New);
    for request in [ControlRequest::Show, ControlRequest::Revoke, ControlRequest::Explain(Box::default())] {
        assert_eq!(needed(&request), Needed::Nothing);
    }
    assert!(matches!(needed(&ControlRequest::Reload), Needed::Operator(_)));
    // The right to stored files is decided where they are known.
    assert_eq!(needed(&ControlRequest::Records(RecordsRequest::default())), Needed::StoredRecords);
}

#[test]
fn a_session_is_shared_only_with_earlier_holders_of_its_owners_chain() {
    let holder = chain(&[ceilings(1 << 30), Grant::default(), Grant::default()]);
    let with = |number: u8| {
        let (mut spec, owner) = created(&holder, spec(""));
        spec.share = vec![share(ShareableRight::Follow, number)];
        ceilings::check(&owner, &spec, std::iter::empty())
    };
    assert_eq!((with(1), with(2)), (Ok(()), Ok(())));
    // The owner, one below, and the operator.
    for number in [3, 4, 0] {
        let refusal = with(number).unwrap_err();
        assert_eq!(refusal, RequestRefusal::not_from(&name("s"), &share(ShareableRight::Follow, number)));
    }
}

#[test]
fn a_delegates_session_shows_sums_until_it_is_shared() {
    let (parent, child) = (chain(&[ceilings(1 << 30)]), chain(&[ceilings(1 << 30), Grant::default()]));
    let (made, owner) = created(&child, spec(""));
    let module = |name: &str, records| ModuleStatus {
        name: name.to_owned(),
        module: "secret 1.0".to_owned(),
        streams: vec!["rows".to_owned()],
        records,
        ..ModuleStatus::default()
    };
    let status = SessionStatus {
        name: made.name.to_string(),
        memory_reserved: 7,
        modules: vec![module("a", 2), module("b", 3)],
        ..SessionStatus::default()
    };
    let owners = BTreeMap::from([(made.name.to_string(), owner)]);
    let seen = |who: &Arc<VerifiedCredential>, shares: &[ShareGrant]| {
        let share = shares.iter().map(ToString::to_string).collect();
        let all =
            Snapshot { sessions: vec![SessionStatus { share, ..status.clone() }], ..Snapshot::default() };
        snapshot_of(who, &all, &owners).sessions
    };
    for shares in [&[][..], &[share(ShareableRight::Manage, 9)]] {
        let sums = &seen(&parent, shares)[0];
        assert!(sums.sums_only && sums.share.is_empty(), "{sums:?}");
        assert_eq!((sums.name.as_str(), sums.memory_reserved), (made.name.as_str(), 7));
        let text = serde_json::to_string(sums).unwrap();
        assert!(!text.contains("secret") && !text.contains("rows"), "{text}");
        assert_eq!(sums.modules.iter().map(|module| module.records).collect::<Vec<_>>(), [5]);
    }
    for right in [ShareableRight::Follow, ShareableRight::Manage] {
        let whole = &seen(&parent, &[share(right, 1), share(right, 9)])[0];
        assert_eq!((whole.sums_only, whole.modules.len()), (false, 2));
        assert_eq!(whole.share, [share(right, 1).to_string()]);
    }
    let own = &seen(&child, &[share(ShareableRight::Follow, 1)])[0];
    assert_eq!((own.name.as_str(), own.modules.len(), own.share.len()), ("s", 2, 1));
}

#[test]
fn texts_of_findings_are_shown_only_to_those_who_may_follow_the_session() {
    let (parent, child) = (chain(&[ceilings(1 << 30)]), chain(&[ceilings(1 << 30), Grant::default()]));
    let (made, owner) = created(&child, spec(""));
    let finding = FindingStatus { text: "secret".to_owned(), ..FindingStatus::default() };
    let findings = FindingsStatus { counts: [("high".to_owned(), 3)].into(), latest: vec![finding] };
    let owners = BTreeMap::from([(made.name.to_string(), owner)]);
    let seen = |who: &Arc<VerifiedCredential>, shares: &[ShareGrant]| {
        let share = shares.iter().map(ToString::to_string).collect();
        let (name, findings) = (made.name.to_string(), findings.clone());
        let session = SessionStatus { name, share, findings, ..SessionStatus::default() };
        let all = Snapshot { sessions: vec![session], ..Snapshot::default() };
        snapshot_of(who, &all, &owners).sessions.remove(0).findings
    };
    let (follow, manage) = (ShareableRight::Follow, ShareableRight::Manage);
    for (who, shares, is_shown) in [
        (&child, &[][..], true),
        (&parent, &[], false),
        (&parent, &[share(manage, 1)], false),
        (&parent, &[share(manage, 1), share(follow, 9)], false),
        (&parent, &[share(follow, 1)], true),
        (&parent, &[share(manage, 1), share(follow, 1)], true),
    ] {
        let seen = seen(who, shares);
        assert_eq!(seen.latest.len(), usize::from(is_shown), "{shares:?}");
        assert_eq!(seen.counts["high"], 3, "{shares:?}");
    }
}

#[test]
fn a_holder_reads_the_sum_of_their_own_and_their_delegates_usage_and_the_operator_reads_all_sums() {
    let later = |second| Grant { expires: UnixSecond::new(second), ..Grant::default() };
    let parent = chain(&[ceilings(64 << 20)]);
    let (child, sibling) = (chain(&[ceilings(64 << 20), later(1)]), chain(&[ceilings(64 << 20), later(2)]));
    let made: Vec<_> = [(&parent, 1), (&child, 2), (&sibling, 4)]
        .map(|(who, memory)| {
            let (spec, owner) = created(who, spec(&format!("memory = \"{memory} MiB\"")));
            (owner, spec)
        })
        .into();
    let used = |who: &Arc<VerifiedCredential>, reader| -> Vec<String> {
        let sessions = made.iter().map(|(owner, spec)| (owner, spec));
        let used = ceilings::usage(who, sessions, reader).into_iter();
        used.map(|status| format!("{} of {}", status.used, status.granted)).collect()
    };
    assert_eq!(used(&child, ceilings::UsageAudience::Holder), ["2 MiB of 64 MiB"]);
    assert_eq!(used(&parent, ceilings::UsageAudience::Holder), ["7 MiB of 64 MiB"]);
    assert_eq!(used(&child, ceilings::UsageAudience::Operator), ["7 MiB of 64 MiB"]);
}

#[test]
fn a_change_by_a_delegator_keeps_the_filters_of_the_sessions_owner() {
    let udp = Grant { filters: ["udp".parse().unwrap()].into(), ..Grant::default() };
    let dns = Grant { filters: ["port 53".parse().unwrap()].into(), ..Grant::default() };
    let (parent, child) = (chain(std::slice::from_ref(&udp)), chain(&[udp, dns]));
    let (made, owner) =
        created(&child, spec("channel = [{ interface = \"e\", filter = \"host 192.0.2.1\" }]"));
    assert_eq!(made.channels[0].granted.filters.len(), 2);
    // The filters of the chain exist once, whatever the number of channels.
    let (many, _) =
        created(&child, spec("channel = [{ interface = \"e\" }, { name = \"more\", interface = \"e\" }]"));
    let filters = |channel: usize| &many.channels[channel].granted.filters;
    assert!(filters(0).len() == 2 && Arc::ptr_eq(filters(0), filters(1)));
    assert_eq!(ceilings::check(&owner, &made, std::iter::empty()), Ok(()));
    let sessions = BTreeMap::from([(made.name.clone(), owner.clone())]);
    let change: Change = serde_json::from_value(
        serde_json::json!({"session": made.name.as_str(), "channel": [{"interface": "e"}]}),
    )
    .unwrap();
    let Permitted { request: ControlRequest::Change(change), .. } = permitted_request_with_shares(
        &parent,
        ControlRequest::Change(change),
        &sessions,
        &[share(ShareableRight::Manage, 1)],
    )
    .unwrap() else {
        panic!("another request")
    };
    assert_eq!(change.channels[0].granted, made.channels[0].granted);
    // Without them the session fails the check, whatever its origin.
    let mut bare = made;
    let filters = &bare.channels[0].granted.filters;
    bare.channels[0].granted.filters = filters[..1].into();
    let refusal = ceilings::check(&owner, &bare, std::iter::empty()).unwrap_err();
    assert!(
        matches!(&refusal, RequestRefusal::Excess(excesses) if excesses[0].part == GrantPart::Traffic),
        "{refusal}"
    );
}

#[test]
fn no_holder_sends_into_an_interface_outside_the_grant() {
    let only = Grant { interfaces: Some(["e".parse().unwrap()].into()), ..Grant::default() };
    let holder = chain(&[only]);
    let sending = |link: &str| {
        let output = format!("output = [{{ name = \"out\", link = \"{link}\", cap = \"1 Mbit/s\" }}]");
        let (spec, owner) = created(&holder, spec(&output));
        ceilings::check(&owner, &spec, std::iter::empty())
    };
    assert_eq!(sending("e"), Ok(()));
    let refusal = sending("f").unwrap_err().to_string();
    assert!(
        refusal.contains("interfaces: asked for f, to send into it through output channel `out`, given is e"),
        "{refusal}"
    );
}

#[test]
fn a_party_is_one_grant_or_one_root_with_a_limit() {
    let firsts =
        |credential: &VerifiedCredential| delegation_chain(credential).map(|(id, _)| id).next().unwrap();
    let later = Grant { expires: UnixSecond::new(1000), ..Grant::default() };
    let (one, other) = (chain(&[ceilings(1), later.clone()]), chain(&[ceilings(2), later]));
    assert_ne!(firsts(&one), firsts(&other));
    assert_eq!(firsts(&one), one.chain()[0].id);
    let limit = Ceilings { cpu: Some(CpuShare(50_000)), ..Ceilings::default() };
    let limit = Grant { ceilings: limit, ..Grant::default() };
    let limited = |before: &VerifiedCredential| {
        before.limited_to(&limit, &"node".parse().unwrap(), UnixSecond::default()).unwrap()
    };
    // All grants of its owner are one party, and pay from one share.
    let (one, other) = (limited(&one), limited(&other));
    assert_eq!(firsts(&one), firsts(&other));
    assert_eq!(delegation_chain(&one).next().unwrap().1, Some(CpuShare(50_000)));
    assert_eq!(delegation_chain(&one).count(), 3);
}

#[test]
fn a_request_cannot_contain_the_restrictions_of_a_credential() {
    let text = r#"{"interface": "e", "granted": {"filters": [], "view": "all"}}"#;
    let error = serde_json::from_str::<crate::control::spec::ChannelSpec>(text).unwrap_err();
    assert!(error.to_string().contains("unknown field `granted`"), "{error}");
}

/// Returns the view of the first channel of a session with this view, or the refusal.
fn shown(credential: &Arc<VerifiedCredential>, view: &str) -> Result<(ChannelSpec, SessionOwner), String> {
    let spec = spec(&format!("channel = [{{ interface = \"e\"{view} }}]"));
    let created = permitted_request(credential, ControlRequest::Create(spec), &BTreeMap::new());
    match created.map_err(|refusal| refusal.to_string())? {
        Permitted { request: ControlRequest::Create(spec), owner: Some(owner), .. } => {
            ceilings::check(&owner, &spec, std::iter::empty()).unwrap();
            // The request has the restrictions of another credential, as if sent over the wire.
            Ok((spec.channels[0].clone(), owner))
        }
        other => panic!("{other:?}"),
    }
}

fn seeing(view: &str) -> Grant {
    Grant { view: Some(view.parse().unwrap()), ..Grant::default() }
}

#[test]
fn a_channel_shows_the_intersection_of_all_views_and_a_request_only_narrows_it() {
    let chain = chain(&[seeing("payload=64"), Grant::default(), seeing("payload=16,ttl=zeroed")]);
    let shows = |view: &str| shown(&chain, view).map(|(channel, _)| channel.effective_view().to_string());
    assert_eq!(shows("").unwrap(), "payload=16,ttl=zeroed");
    assert_eq!(shows(", view = \"payload=8,ports=zeroed\"").unwrap(), "payload=8,ports=zeroed,ttl=zeroed");
    for more in ["all", "payload=17", "ttl=visible", "ports=zeroed,payload=all"] {
        let said = shows(&format!(", view = \"{more}\"")).unwrap_err();
        assert!(said.contains("the credential does not allow that: view: asked for"), "{said}");
        assert!(said.contains("given is payload=16,ttl=zeroed"), "{said}");
    }
    // A session that already shows more fails the check as well.
    let (channel, owner) = shown(&chain, "").unwrap();
    let is_refused = |change: &dyn Fn(&mut ChannelSpec)| {
        let mut session = spec("channel = [{ interface = \"e\" }]");
        session.channels[0] = channel.clone();
        change(&mut session.channels[0]);
        ceilings::check(&owner, &session, std::iter::empty())
            .is_err_and(|refusal| refusal.to_string().contains("view: asked for"))
    };
    assert!(!is_refused(&|_| {}));
    assert!(is_refused(&|channel| channel.granted.view = PacketView::ALL));
    assert!(is_refused(&|channel| channel.granted.first_grant = None));
    assert!(
        is_refused(&|channel| channel.granted = crate::control::visibility::GrantedVisibility::default())
    );
}

#[test]
fn a_filter_selects_by_the_view_of_its_author() {
    let filtered = |filter: &str, view: &str| Grant {
        filters: [filter.parse().unwrap()].into(),
        ..if view.is_empty() { Grant::default() } else { seeing(view) }
    };
    let chain = chain(&[
        filtered("net 192.0.2.0/24", "addresses=anonymised"),
        filtered("host 10.1.1.1", "ports=zeroed,addresses=anonymised"),
        filtered("port 53", ""),
    ]);
    let (channel, _) = shown(&chain, ", filter = \"udp\", view = \"ttl=zeroed\"").unwrap();
    let filters: Vec<(String, String)> =
        channel.filters().map(|(filter, view)| (filter.to_owned(), view.to_string())).collect();
    let anonymised = "payload=none,addresses=anonymised,macs=zeroed";
    let narrower = "payload=none,addresses=anonymised,macs=zeroed,ports=zeroed";
    let expected = [
        ("udp", narrower),
        ("net 192.0.2.0/24", "all"),
        ("host 10.1.1.1", anonymised),
        ("port 53", narrower),
    ];
    assert_eq!(filters, expected.map(|(filter, view)| (filter.to_owned(), view.to_owned())));
    // A channel of the operator selects by original packets, whatever its modules see.
    let own: ChannelSpec =
        toml::from_str("interface = \"e\"\nfilter = \"host 10.1.1.1\"\nview = \"payload=none\"").unwrap();
    assert_eq!(own.filters().collect::<Vec<_>>(), [("host 10.1.1.1", PacketView::ALL)]);
}

#[test]
fn the_limit_of_a_root_restricts_channels_like_a_grant() {
    let limit = Grant { filters: ["ip".parse().unwrap()].into(), ..seeing("addresses=anonymised") };
    let granted = Grant { filters: ["udp".parse().unwrap()].into(), ..seeing("ttl=zeroed") };
    let before = chain(&[granted]);
    let after = before.limited_to(&limit, &"node".parse().unwrap(), UnixSecond::default()).unwrap();
    let (channel, owner) = shown(&Arc::new(after), "").unwrap();
    let anonymised: PacketView = "addresses=anonymised".parse().unwrap();
    assert_eq!(channel.effective_view(), anonymised.meet(&"ttl=zeroed".parse().unwrap()));
    // The root sees what it may grant, and its filter selects by that.
    assert_eq!(
        *channel.granted.filters,
        [("ip".to_owned(), PacketView::ALL), ("udp".to_owned(), anonymised)]
    );
    // A session from before the limit sees more than its owner may now.
    let mut session = spec("channel = [{ interface = \"e\" }]");
    session.channels[0] = shown(&before, "").unwrap().0;
    let refusal = ceilings::check(&owner, &session, std::iter::empty()).unwrap_err().to_string();
    assert!(refusal.contains("view: asked for") && refusal.contains("traffic: asked for"), "{refusal}");
}

#[test]
fn requests_that_no_credential_can_allow_are_refused() {
    let share = Grant {
        ceilings: Ceilings { cpu: Some(CpuShare(50_000)), ..Ceilings::default() },
        ..Grant::default()
    };
    let (held, owner) = created(&chain(std::slice::from_ref(&share)), spec(""));
    // Without a stated CPU: all that is granted, 5 % of a core.
    assert_eq!(
        held.processors[0].reservation().map(|(period, slice)| (period.0, slice.0)),
        Some((10_000_000, 500_000))
    );
    for (text, says) in [
        (
            "cpu = [{ period = \"10ms\", slice = \"1ms\" }]",
            "processor time: asked for 10%; of the 5% given to",
        ),
        ("cpu = [{}]", "beyond what is granted"),
        ("cpu = [{ period = \"10ms\", slice = \"500us\", borrow = true }]", "beyond what is granted"),
        ("priority = 1", "priority 1"),
        ("read = [\"t\"]", "named tables"),
        ("offer = [{ service = \"s\", callers = [\"t\"] }]", "services"),
    ] {
        let requested = spec(text);
        let requested = SessionSpec {
            processors: if requested.processors.is_empty() {
                held.processors.clone()
            } else {
                requested.processors
            },
            ..requested
        };
        let error = ceilings::check(&owner, &requested, std::iter::empty()).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    let holder = chain(&[share]);
    for request in [
        ControlRequest::Reload,
        ControlRequest::RemoveTable { table: name("t") },
        ControlRequest::PutTable { table: name("t") },
    ] {
        assert!(matches!(
            permitted_request(&holder, request, &BTreeMap::new()),
            Err(RequestRefusal::OperatorOnly(_))
        ));
    }
    let module: ModuleSpec = toml::from_str("module = \"m\"").unwrap();
    let load = ControlRequest::Load { session: name("s"), module, signatures: Vec::new(), replace: None };
    assert_eq!(
        permitted_request(&holder, load, &BTreeMap::new()).unwrap_err(),
        RequestRefusal::NoSession(name("s"))
    );
}
