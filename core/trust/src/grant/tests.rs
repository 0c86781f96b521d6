//! Tests of grants as a meet-semilattice, and of excesses over another grant.

use super::*;
use crate::key::{Identity, PublicKey};
use proptest::collection::btree_set;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use weir_units::Bytes;

fn keys() -> Vec<PublicKey> {
    (1..4).map(|seed| Identity::from_seed(&[seed; 32]).public()).collect()
}

fn names(of: &'static [&'static str]) -> impl Strategy<Value = BTreeSet<Name>> {
    subsequence(of, 0..=of.len()).prop_map(|of| of.into_iter().map(|name| Name::new(name).unwrap()).collect())
}

fn module_sets() -> impl Strategy<Value = ModuleSet> {
    let hashes = btree_set((0..3_u8).prop_map(|of| ModuleHash::of_bytes(&[of])), 0..3);
    let signers = btree_set(select(keys()), 0..3);
    (hashes, signers).prop_map(|(hashes, signers)| ModuleSet { hashes, signers })
}

fn views() -> impl Strategy<Value = PacketView> {
    select(vec![
        "all",
        "payload=none",
        "payload=64",
        "addresses=anonymised",
        "addresses=crypto-pan",
        "macs=zeroed,ttl=zeroed",
        "ports=zeroed",
    ])
    .prop_map(|text| text.parse().unwrap())
}

fn nodes() -> impl Strategy<Value = Nodes> {
    let patterns = vec!["a.org", "x.a.org", "*.a.org", "*.x.a.org", "y.x.a.org", "*.org", "b.net"];
    subsequence(patterns, 0..4)
        .prop_map(|patterns| patterns.into_iter().map(|text| text.parse::<NodePattern>().unwrap()).collect())
}

fn ceilings() -> impl Strategy<Value = Ceilings> {
    let amount = option::of(prop_oneof![0..4_u64, Just(AMOUNT_MAX)]);
    prop::collection::vec(amount, Resource::ALL.len()).prop_map(|amounts| {
        let mut ceilings = Ceilings::default();
        Resource::ALL.iter().zip(amounts).for_each(|(resource, amount)| ceilings.set(*resource, amount));
        ceilings
    })
}

/// The grants that one block can have.
pub(crate) fn grants() -> impl Strategy<Value = Grant> {
    let interfaces = subsequence(vec!["eth0", "eth1", "wlan0"], 0..=3)
        .prop_map(|of| of.into_iter().map(|name| name.parse().unwrap()).collect::<BTreeSet<InterfaceName>>());
    let second = || option::of((0..4_u64).prop_map(|number| UnixSecond::new(number).unwrap()));
    let filter = option::of(select(vec!["tcp", "udp port 53", ") or ("]));
    let what =
        (names(&["research", "operations"]), option::of(module_sets()), filter, option::of(interfaces));
    let unmetered = btree_set(select(keys()), 0..3);
    let writes = option::of(names(&["ttl", "dscp"]));
    let how = (option::of(views()), writes, ceilings(), option::of(nodes()), unmetered);
    (what, how, (second(), second(), option::of(0..3_u32))).prop_map(|(what, how, when)| Grant {
        profiles: what.0.into_iter().next().map(|name| [name].into()),
        modules: what.1.map_or_else(Modules::any, Modules::from),
        filters: what.2.into_iter().map(|text| text.parse().unwrap()).collect(),
        interfaces: what.3,
        view: how.0,
        writes: how.1,
        ceilings: how.2,
        nodes: how.3,
        unmetered: how.4,
        not_before: when.0,
        expires: when.1,
        delegations: when.2,
    })
}

/// The meets of several blocks.
fn joined() -> impl Strategy<Value = Grant> {
    prop::collection::vec(grants(), 1..4)
        .prop_map(|grants| grants.into_iter().reduce(|all, grant| all.meet(&grant)).unwrap())
}

proptest! {
    #[test]
    fn grants_are_a_meet_semilattice(a in joined(), b in joined(), c in joined()) {
        prop_assert_eq!(a.meet(&b), b.meet(&a));
        prop_assert_eq!(a.meet(&b).meet(&c), a.meet(&b.meet(&c)));
        prop_assert_eq!(a.meet(&a), a.clone());
        // What restricts nothing still gives no right to run without a meter.
        prop_assert_eq!(a.meet(&Grant::default()), Grant { unmetered: BTreeSet::new(), ..a.clone() });
        prop_assert!(a.meet(&b).is_at_most(&a) && a.meet(&b).is_at_most(&b));
        prop_assert_eq!(c.is_at_most(&a) && c.is_at_most(&b), c.is_at_most(&a.meet(&b)));
        prop_assert_eq!(a.is_at_most(&b) && b.is_at_most(&a), a == b);
    }

    /// Compares meets with their meaning, one request at a time: the meet allows a request if and only if both grants
    /// do.
    #[test]
    fn a_meet_allows_what_both_allow(
        a in joined(),
        b in joined(),
        requested in grants(),
        signed in subsequence(keys(), 0..2),
        of in 0..3_u8,
        unmetered: bool,
    ) {
        let interfaces: Vec<InterfaceName> = requested.interfaces.into_iter().flatten().collect();
        let writes: Vec<Name> = requested.writes.into_iter().flatten().collect();
        for node in ["a.org", "x.a.org", "y.x.a.org", "c.org", "b.net", "c.net"] {
            let node = node.parse().unwrap();
            let request = GrantRequest {
                node: Some(&node),
                at: requested.expires,
                profile: requested.profiles.iter().flatten().next(),
                module: Some((ModuleHash::of_bytes(&[of]), &signed)),
                unmetered,
                interface: interfaces.first(),
                view: requested.view,
                writes: &writes,
            };
            let allows = |grant: &Grant| {
                let amounts = requested.ceilings.excesses(&grant.ceilings).next();
                grant.excesses(&request).is_empty() && amounts.is_none()
            };
            prop_assert_eq!(allows(&a.meet(&b)), allows(&a) && allows(&b));
        }
    }

    /// A grant that asks for no more than is given loses nothing by the meet: its ordered parts come out unchanged.
    #[test]
    fn a_grant_without_excess_gets_all_that_it_asks_for(given in joined(), requested in grants()) {
        prop_assert_eq!(requested.excess(&requested), None, "a grant never exceeds itself");
        if requested.excess(&given).is_none() {
            let got = given.meet(&requested);
            prop_assert_eq!(&requested.view.or(given.view), &got.view);
            prop_assert_eq!(&requested.interfaces.or(given.interfaces), &got.interfaces);
            prop_assert_eq!(&requested.nodes.or(given.nodes), &got.nodes);
            prop_assert_eq!(&requested.expires.or(given.expires), &got.expires);
            prop_assert_eq!(&requested.not_before.or(given.not_before), &got.not_before);
            prop_assert_eq!(&requested.ceilings.memory.or(given.ceilings.memory), &got.ceilings.memory);
            prop_assert_eq!(&requested.delegations.or(given.delegations), &got.delegations);
            prop_assert_eq!(&requested.unmetered, &got.unmetered);
        }
    }
}

fn grant(change: impl FnOnce(&mut Grant)) -> Grant {
    let mut grant = Grant::default();
    change(&mut grant);
    grant
}

#[test]
fn an_excess_is_named_with_both_values() {
    let given = grant(|given| {
        given.ceilings.memory = Some(Bytes(1 << 20));
        given.view = Some(PacketView::ANONYMISED);
        given.modules =
            ModuleSet { hashes: [ModuleHash::of_bytes(b"")].into(), ..ModuleSet::default() }.into();
        given.interfaces = Some(["eth0".parse().unwrap()].into());
    });
    let excess = |change: fn(&mut Grant)| grant(change).excess(&given).map(|excess| excess.to_string());
    assert_eq!(excess(|_| ()), None);
    assert_eq!(excess(|requested| requested.ceilings.memory = Some(Bytes(1 << 20))), None);
    assert_eq!(
        excess(|requested| requested.ceilings.memory = Some(Bytes(2 << 20))).as_deref(),
        Some("memory: asked for 2 MiB, given is 1 MiB")
    );
    let headers = excess(|requested| requested.view = Some(PacketView::HEADERS)).unwrap();
    assert!(headers.starts_with("view: asked for payload=none, given is "), "{headers}");
    // From weaker pseudonyms to stronger ones, but not back.
    let weak = "addresses=crypto-pan".parse::<PacketView>().unwrap();
    let requested =
        excess(|requested| requested.view = Some("addresses=crypto-pan".parse().unwrap())).unwrap();
    assert!(
        requested.starts_with("view: asked for payload=none,addresses=crypto-pan,macs=zeroed, given is "),
        "{requested}"
    );
    let weaker = grant(|given| given.view = Some(weak));
    assert_eq!(grant(|requested| requested.view = Some(PacketView::ANONYMISED)).excess(&weaker), None);
    let signer = excess(|requested| {
        requested.modules =
            ModuleSet { signers: keys().into_iter().collect(), ..ModuleSet::default() }.into();
    });
    assert!(signer.unwrap().starts_with("modules: asked for signed by weir-key:"));
    assert_eq!(
        excess(|requested| requested.interfaces =
            Some(["eth0".parse().unwrap(), "eth1".parse().unwrap()].into()))
        .as_deref(),
        Some("interfaces: asked for eth0, eth1, given is eth0")
    );
}

#[test]
fn a_module_may_be_named_where_signers_are_given() {
    let signers = keys().into_iter().take(1).collect();
    let given = grant(|given| given.modules = ModuleSet { signers, ..ModuleSet::default() }.into());
    let requested = grant(|requested| {
        requested.modules =
            ModuleSet { hashes: [ModuleHash::of_bytes(b"a")].into(), ..ModuleSet::default() }.into();
    });
    assert_eq!(requested.excess(&given), None);
    // The signature is still required.
    let both = given.meet(&requested);
    let (named, signer) = (ModuleHash::of_bytes(b"a"), keys()[0]);
    let loads = |signers: &[PublicKey]| {
        both.excesses(&GrantRequest { module: Some((named, signers)), ..GrantRequest::default() })
    };
    assert_eq!(loads(&[signer]), []);
    assert_eq!(loads(&[]).len(), 1);
}

#[test]
fn a_grant_is_delegated_as_often_as_it_says() {
    let twice = grant(|grant| grant.delegations = Some(2));
    let left = |grant: &Grant| grant.delegations;
    let once = twice.delegable().unwrap();
    assert_eq!((left(&once), left(&once.delegable().unwrap())), (Some(1), Some(0)));
    assert_eq!(once.delegable().unwrap().delegable(), None);
    assert_eq!(Grant::default().delegable(), Some(Grant::default()));
}

#[test]
fn a_grant_that_no_block_can_have_is_refused_with_the_reason() {
    let wrong = |change: fn(&mut Grant)| grant(change).check().unwrap_err().to_string();
    assert!(Grant::default().check().is_ok());
    assert_eq!(
        wrong(|grant| {
            (grant.not_before, grant.expires) = (UnixSecond::new(60), UnixSecond::new(60));
        }),
        "the grant would begin at 1970-01-01T00:01:00Z and end at 1970-01-01T00:01:00Z: its end has to be after its beginning"
    );
    assert!(
        wrong(|grant| grant.ceilings.sessions = Some(u64::MAX))
            .starts_with("sessions: 18446744073709551615 is more")
    );
    assert_eq!(
        wrong(|grant| {
            let name = |number| Name::new(&format!("f{number}")).unwrap();
            grant.writes = Some((0..65).map(name).collect());
        }),
        "fields to write: 65 entries; 64 is the most"
    );
    assert!(wrong(|grant| grant.profiles = Some(BTreeSet::new())).contains("without a profile no module"));
    assert!(
        wrong(|grant| grant.filters = ["tcp", "udp"].map(|text| text.parse().unwrap()).into())
            .starts_with('2')
    );
}

#[test]
fn the_text_of_every_excess_is_read_back() {
    // The match is exhaustive, so a new part is added to the values, and `all` is found incomplete.
    let values = |part: GrantPart| match part {
        GrantPart::Profile => ("the node's own", "lenient, strict"),
        GrantPart::Modules => ("`a, given is b`, 00ff, signed by weir-key:x", "any of these"),
        GrantPart::Traffic => ("packets that this filter rejects, in channel `main`", "udp, given is; x"),
        GrantPart::Interfaces => ("eth0, to send into it through output channel `up`", "eth1"),
        GrantPart::View => ("payload=64,addresses=anonymised, in channel `main`", "payload=none"),
        GrantPart::Writes => ("ttl, dscp", "none"),
        GrantPart::Unmetered => ("`m`, 00ff, unsigned", "none"),
        GrantPart::Resource(Resource::Cpu) => ("12.5%", "10%"),
        GrantPart::Resource(_) => ("20 MiB", "16 MiB"),
        GrantPart::Nodes => ("ix-1.example", "*.other"),
        GrantPart::NotBefore | GrantPart::Expires => ("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        GrantPart::Delegations => ("3", "2"),
    };
    let excess = |part| GrantExcess::new(part, values(part).0, values(part).1);
    let all: Vec<GrantExcess> = GrantPart::all().map(excess).collect();
    assert_eq!(all.len(), 11 + Resource::ALL.len());
    for one in &all {
        assert_eq!(GrantExcess::read_all(&one.to_string()).as_ref(), Some(&vec![one.clone()]));
    }
    let free: Vec<GrantExcess> = all.iter().filter(|it| !it.part.has_free_text()).cloned().collect();
    let join = |all: &[GrantExcess]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    assert_eq!(GrantExcess::read_all(&join(&free)), Some(free));
    let module = [excess(GrantPart::Modules), excess(GrantPart::Unmetered)];
    assert_eq!(GrantExcess::read_all(&join(&module)), Some(module.to_vec()));
    for text in [
        "",
        "memory",
        "memory: asked for 1",
        "other: asked for 1, given is 2",
        "x; memory: asked for 1, given is 2",
    ] {
        assert_eq!(GrantExcess::read_all(text), None, "{text}");
    }
    let cut = GrantExcess::read_all("modules: asked for `m`, 00ff, signed…").unwrap();
    assert_eq!((cut[0].requested.as_str(), cut[0].given.as_str()), ("`m`, 00ff, signed…", ""));
}

#[test]
fn a_module_or_filter_that_looks_like_an_excess_adds_none() {
    for (part, requested, given) in [
        (GrantPart::Modules, "`x, given is 1; memory: asked for 1 TiB`, 00ff, unsigned", "none"),
        (GrantPart::Unmetered, "`x, given is 1; memory: asked for 1 TiB, given is 1`, 00ff", "none"),
        (GrantPart::Traffic, "packets", "udp; memory: asked for 1 TiB, given is 1"),
    ] {
        let excess = GrantExcess::new(part, requested, given);
        assert_eq!(GrantExcess::read_all(&excess.to_string()), Some(vec![excess]));
    }
}
