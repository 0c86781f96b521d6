//! Reads arbitrary bytes as a credential: from bytes, from text, and as a block that a holder has signed. A parsed
//! credential is re-encoded to the same bytes, and is valid only for its holder. A credential that an attacker
//! without a key has changed is invalid. A block that a holder signs, whatever its content, grants no more than the
//! holder has.

#![no_main]
#![forbid(unsafe_code)]

use biscuit_auth::builder::Algorithm;
use biscuit_auth::datalog::SymbolTable;
use biscuit_auth::format::schema;
use biscuit_auth::format::schema::term::Content;
use biscuit_auth::{KeyPair, PrivateKey};
use libfuzzer_sys::fuzz_target;
use prost::Message;
use std::sync::LazyLock;
use weir_trust::credential::{Credential, DatedId, CredentialRefusal, VerificationContext, VerifiedCredential};
use weir_trust::grant::{Ceilings, CpuShare, Grant, ModuleHash, ModuleSet, Modules, NodeName, NodePattern, Nodes, Resource, UnixSecond, PacketView};
use weir_trust::key::{Identity, KeyFile, PublicKey};
use weir_trust::revocation::{HEADER_BYTES_MAX, ListHeader, RevocationList, Revocations, RootRevocations};
use weir_trust::signature::ModuleSignature;
use weir_units::{BitsPerSecond, Bytes};

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../core/trust/tests/association/pair.rs"]
mod pair;
use pair::Seeded;

/// An operator with an unknown key, who has granted nothing.
static ROOT: LazyLock<PublicKey> = LazyLock::new(|| identity(0xa5).public());
static NODE: LazyLock<NodeName> = LazyLock::new(|| "node".parse().expect("a name"));
static REVOCATIONS: LazyLock<Revocations> = LazyLock::new(Revocations::default);
/// A chain whose last holder delegates.
static PARENT: LazyLock<Parent> = LazyLock::new(Parent::new);

fuzz_target!(|bytes: &[u8]| {
    if let Ok(credential) = Credential::parse(bytes) {
        assert_eq!(credential.as_bytes(), bytes);
        check_parsed(&credential);
        // The input was made without the operator's key. If it names another root, that one is checked.
        assert!(verify(&credential, &ROOT).is_err());
        if let Ok(verified) = verify(&credential, credential.claimed_root()) {
            check_effective_grant(&verified);
        }
    }
    // Most changed bytes are no valid block, and are refused as such. These inputs therefore choose the facts of a
    // valid one.
    match schema::Block::decode(bytes) {
        Ok(_) => signed(bytes),
        Err(_) => signed(&Choices::block(bytes)),
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(list) = text.parse::<RevocationList>() {
            assert_eq!(list.to_string(), text);
        }
        if let Ok((header, rest)) = ListHeader::read(text) {
            assert!(header.to_string().len() <= HEADER_BYTES_MAX);
            assert_eq!(format!("{header}{rest}"), text);
        }
        if let Ok((root, state)) = RootRevocations::from_text(text) {
            assert_eq!(RootRevocations::from_text(&state.to_text(&root)), Ok((root, state)));
        }
        if let Ok(id) = text.parse::<DatedId>() {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        if let Ok(signature) = text.parse::<ModuleSignature>() {
            assert_eq!(signature.to_string(), text);
        }
        if let Ok(file) = KeyFile::parse(text) {
            // Sealed keys would only measure the cost of a derivation.
            if file.cost().is_none() {
                let _ = file.open(None);
            }
        }
        let _ = text.parse::<Credential>();
        let _ = text.parse::<PublicKey>();
    }
});

fn identity(seed: u8) -> Identity {
    Identity::from_seed(&[seed; 32])
}

/// Checks properties of every parsed credential, whatever its source.
fn check_parsed(credential: &Credential) {
    assert_eq!(credential.to_string().parse().as_ref(), Ok(credential));
    let _ = weir_trust::explain::credential(credential);
}

/// The result of verifying a credential of its holder against this root.
fn verify(credential: &Credential, root: &PublicKey) -> Result<VerifiedCredential, CredentialRefusal> {
    let (roots, peer) = ([*root], credential.claimed_holder());
    credential.verify(&VerificationContext { roots: &roots, revocations: &REVOCATIONS, peer, node: &NODE, now: UnixSecond::default() })
}

/// Reads the input as the block that the last holder of a chain signs for a delegation.
fn signed(payload: &[u8]) {
    let block = PARENT.verified.chain().len();
    let credential = match Credential::parse(&PARENT.appended(payload)) {
        Ok(credential) => credential,
        Err(CredentialRefusal::TooLong(_)) => return,
        Err(CredentialRefusal::Block { block: wrong, .. }) if wrong == block => return,
        // The surrounding token is valid.
        Err(refusal) => panic!("{refusal}"),
    };
    check_parsed(&credential);
    assert!(verify(&credential, &ROOT).is_err());
    match verify(&credential, PARENT.verified.root()) {
        Ok(verified) => {
            assert!(verified.chain().starts_with(PARENT.verified.chain()) && verified.chain().len() == block + 1);
            assert!(verified.expires() <= PARENT.verified.expires());
            check_within(verified.grant(), PARENT.verified.grant());
            check_effective_grant(&verified);
        }
        Err(
            CredentialRefusal::Circular { block: wrong, .. }
            | CredentialRefusal::Widened { block: wrong, .. }
            | CredentialRefusal::NotYet { block: wrong, .. }
            | CredentialRefusal::Expired { block: wrong, .. }
            | CredentialRefusal::Node { block: wrong, .. },
        ) => assert_eq!(wrong, block),
        // All signatures are valid, by the right keys: the refusal must be about its content.
        Err(refusal) => panic!("{refusal}"),
    }
}

/// Checks that the effective grant is within each block of the chain, and that the last block's grant is exactly the
/// holder's.
fn check_effective_grant(verified: &VerifiedCredential) {
    let all = verified.grant();
    for (passed_on, link) in (0..).zip(verified.chain().iter().rev()) {
        check_within(all, &link.grant);
        if let Some(given) = link.grant.delegations {
            assert!(all.delegations.is_some_and(|left| u64::from(left) + passed_on <= u64::from(given)));
        }
    }
    assert_eq!(Some(verified.expires()), all.expires);
    let last = verified.chain().last().expect("a chain has a last block");
    assert_eq!((&last.holder, last.id), (verified.holder(), verified.id()));
    // The node has no limit that names signers here.
    assert!(all.unmetered.is_empty(), "{all:?}");
    let Grant {
        profiles,
        modules: _,
        filters: _,
        interfaces,
        view,
        writes,
        unmetered: _,
        ceilings,
        nodes,
        not_before,
        expires,
        delegations,
    } = &last.grant;
    // A larger statement would have been refused, not reduced.
    fn counts<T: PartialEq>(stated: &Option<T>, all: &Option<T>) -> bool {
        stated.is_none() || stated == all
    }
    assert!(counts(profiles, &all.profiles) && counts(interfaces, &all.interfaces) && counts(writes, &all.writes));
    assert!(counts(view, &all.view) && counts(nodes, &all.nodes) && counts(delegations, &all.delegations));
    assert!(counts(not_before, &all.not_before) && counts(expires, &all.expires));
    for resource in Resource::ALL {
        assert!(counts(&ceilings.get(*resource), &all.ceilings.get(*resource)), "{resource:?}");
    }
}

/// Checks `given` against `all` part by part, without [`Grant::meet`] and [`Grant::excess`], which are under test.
/// The number of delegations is checked elsewhere.
fn check_within(all: &Grant, given: &Grant) {
    let Grant {
        profiles,
        modules,
        filters,
        interfaces,
        view,
        writes,
        unmetered,
        ceilings,
        nodes,
        not_before,
        expires,
        delegations: _,
    } = given;
    assert!(all.unmetered.is_subset(unmetered), "modules without a meter: {all:?}, {given:?}");
    /// If one states a limit, the other states no more.
    fn is_within<T>(all: &Option<T>, given: &Option<T>, is_at_most: impl Fn(&T, &T) -> bool) -> bool {
        given.as_ref().is_none_or(|given| all.as_ref().is_some_and(|all| is_at_most(all, given)))
    }
    assert!(is_within(&all.profiles, profiles, |all, given| all.is_subset(given)), "profiles: {all:?}, {given:?}");
    assert!(is_within(&all.interfaces, interfaces, |all, given| all.is_subset(given)), "interfaces: {all:?}, {given:?}");
    assert!(is_within(&all.writes, writes, |all, given| all.is_subset(given)), "fields: {all:?}, {given:?}");
    assert!(all.filters.is_superset(filters), "filters: {all:?}, {given:?}");
    assert!(is_within(&all.view, view, PacketView::is_at_most), "views: {all:?}, {given:?}");
    for resource in Resource::ALL {
        let (all, given) = (all.ceilings.get(*resource), ceilings.get(*resource));
        assert!(is_within(&all, &given, |all, given| all <= given), "{resource:?}: {all:?}, {given:?}");
    }
    assert!(is_within(&all.not_before, not_before, |all, given| all >= given), "{all:?}, {given:?}");
    assert!(is_within(&all.expires, expires, |all, given| all <= given), "{all:?}, {given:?}");
    // By meaning, not by spelling: a node of each pattern, and each module and signer named on either side.
    let is_node_given = |pattern: &NodePattern, given: &Nodes| {
        let node = match pattern {
            NodePattern::Exactly(node) => Some(node.clone()),
            NodePattern::Below(domain) => format!("a.{domain}").parse().ok(),
        };
        node.is_none_or(|node| given.contains(&node))
    };
    let are_nodes_given = |all: &Nodes, given: &Nodes| all.iter().all(|pattern| is_node_given(pattern, given));
    assert!(is_within(&all.nodes, nodes, are_nodes_given), "nodes: {all:?}, {given:?}");
    let sets = || all.modules.iter().chain(modules.iter());
    let signers: Vec<PublicKey> = sets().flat_map(|set| set.signers.iter().copied()).collect();
    for hash in sets().flat_map(|set| set.hashes.iter().copied()).chain([ModuleHash::of_bytes(b"another one")]) {
        for signers in signers.iter().map(std::slice::from_ref).chain([&[][..], &signers]) {
            assert!(!all.modules.contains(&hash, signers) || modules.contains(&hash, signers), "modules: {all:?}, {given:?}");
        }
    }
}

/// A chain of two, with the last holder's key.
struct Parent {
    verified: VerifiedCredential,
    token: schema::Biscuit,
    /// The ephemeral key at its end, the next one, and the holder's.
    last: KeyPair,
    next: KeyPair,
    holder: KeyPair,
}

impl Parent {
    fn new() -> Self {
        let (random, grant) = (&mut Seeded(1), full_grant());
        let credential = Credential::mint(&identity(1), identity(2).public(), grant, None, random).expect("a grant that can be");
        // Some parts are reduced, so that the effective grant is not that of one block.
        let ceilings = Ceilings { memory: Some(Bytes(1 << 20)), sessions: Some(3), ..Ceilings::default() };
        let filters = ["port 53".parse().expect("a filter")].into();
        let grant = Grant { ceilings, filters, expires: UnixSecond::new(3_000_000_000), ..Grant::default() };
        let credential = credential.delegate(&identity(2), identity(3).public(), grant, None, random).expect("it is no more");
        let token = schema::Biscuit::decode(credential.as_bytes()).expect("a token");
        let Some(schema::proof::Content::NextSecret(last)) = &token.proof.content else { panic!("it is not sealed") };
        let key = |seed: &[u8]| KeyPair::from(&PrivateKey::from_bytes(seed, Algorithm::Ed25519).expect("a seed"));
        let (last, next, holder) = (key(last), key(&[9; 32]), key(&[3; 32]));
        let verified = verify(&credential, &identity(1).public()).expect("it is its holder's");
        let this = Self { verified, token, last, next, holder };
        // Refusals must not be due to the signing here.
        let honest = credential.delegate(&identity(3), identity(4).public(), Grant::default(), None, random).expect("it is no more");
        let honest = schema::Biscuit::decode(honest.as_bytes()).expect("a token").blocks.remove(1).block;
        let again = Credential::parse(&this.appended(&honest)).expect("it is one");
        assert!(verify(&again, this.verified.root()).is_ok());
        this
    }

    /// Appends a block of any bytes that the holder has signed, which the library's builders would not create (as
    /// `signed_append` in core/trust/tests/people).
    fn appended(&self, payload: &[u8]) -> Vec<u8> {
        let mut token = self.token.clone();
        let previous = &self.token.blocks.last().unwrap_or(&self.token.authority).signature;
        let version = 1_u32.to_le_bytes();
        let sign = |key: &KeyPair, parts: &[&[u8]]| key.sign(&parts.concat()).expect("it signs anything").to_bytes().to_vec();
        let begin = [b"\0EXTERNAL\0\0VERSION\0", &version[..], b"\0PAYLOAD\0", payload].concat();
        let external = sign(&self.holder, &[&begin, b"\0PREVSIG\0", previous]);
        let begin = [b"\0BLOCK\0\0VERSION\0", &version[..], b"\0PAYLOAD\0", payload].concat();
        let next = [b"\0ALGORITHM\0", &0_i32.to_le_bytes()[..], b"\0NEXTKEY\0", &self.next.public().to_bytes()].concat();
        let end = [b"\0PREVSIG\0", &previous[..], b"\0EXTERNALSIG\0", &external].concat();
        let signature = sign(&self.last, &[&begin, &next, &end]);
        let public_key = self.holder.public().to_proto();
        token.blocks.push(schema::SignedBlock {
            block: payload.to_vec(),
            next_key: self.next.public().to_proto(),
            signature,
            external_signature: Some(schema::ExternalSignature { signature: external, public_key }),
            version: Some(1),
        });
        token.proof.content = Some(schema::proof::Content::NextSecret(self.next.private().to_bytes().to_vec()));
        token.encode_to_vec()
    }
}

/// A grant that restricts every part, none of them to nothing.
fn full_grant() -> Grant {
    fn all<T: std::str::FromStr + Ord>(texts: &[&str]) -> std::collections::BTreeSet<T> {
        texts.iter().map(|text| text.parse().ok().expect("it is one")).collect()
    }
    let name = |text: &str| weir_units::Name::new(text).expect("a name");
    let set = ModuleSet { hashes: [ModuleHash([7; 32])].into(), signers: [identity(5).public()].into() };
    Grant {
        profiles: Some([name("research")].into()),
        modules: Modules::from(set),
        filters: all(&["udp"]),
        interfaces: Some(all(&["eth0", "eth1"])),
        view: Some(PacketView::HEADERS),
        writes: Some([name("dscp"), name("ttl")].into()),
        unmetered: [identity(5).public()].into(),
        ceilings: Ceilings {
            cpu: Some(CpuShare(100_000)),
            memory: Some(Bytes(16 << 20)),
            bandwidth: Some(BitsPerSecond(1_000_000)),
            records_per_second: Some(1000),
            kept_packets: Some(100),
            sessions: Some(10),
            ..Ceilings::NONE
        },
        nodes: Some(all(&["node", "*.example.org"]).into_iter().collect()),
        not_before: Some(UnixSecond::default()),
        expires: UnixSecond::new(4_000_000_000),
        delegations: Some(4),
    }
}

/// The names of facts, and the kinds of their terms: texts, numbers, dates, keys, nothing; and lists of texts, hashes
/// and keys.
const FACTS: [(&str, &str); 19] = [
    ("root", "k"),
    ("holder", "k"),
    ("profile", "t"),
    ("modules", "HK"),
    ("filter", "t"),
    ("interfaces", "T"),
    ("view", "t"),
    ("writes", "T"),
    ("unmetered", "K"),
    ("cpu", "n"),
    ("memory", "n"),
    ("bandwidth", "n"),
    ("records", "n"),
    ("kept", "n"),
    ("sessions", "n"),
    ("nodes", "T"),
    ("not_before", "d"),
    ("expires", "d"),
    ("delegations", "n"),
];
/// Texts, some within the grant, some outside it, and some close to it.
const WORDS: [&str; 20] = [
    "research",
    "other",
    "eth0",
    "eth1",
    "eth2",
    "dscp",
    "ttl",
    "addresses",
    "node",
    "*.node",
    "*.example.org",
    "*.a.example.org",
    "a.example.org",
    "*.org",
    "udp",
    "udp or tcp",
    "all",
    "payload=none",
    "payload=1",
    "payload=none,addresses=anonymised,macs=zeroed",
];
/// Keys: the root's, those of the chain's holders, and others.
static KEYS: LazyLock<Vec<PublicKey>> = LazyLock::new(|| (1..=6).map(|seed| identity(seed).public()).collect());

/// Bytes that choose the facts of a block.
struct Choices<'a> {
    rest: &'a [u8],
    symbols: SymbolTable,
}

impl Choices<'_> {
    /// A block of valid form with the required facts, and further facts that the input chooses.
    fn block(bytes: &[u8]) -> Vec<u8> {
        let mut this = Choices { rest: bytes, symbols: SymbolTable::new() };
        let kind = this.symbols.insert("credential");
        let terms = vec![Content::String(kind), Content::Integer(1), Content::Null(schema::Empty {})];
        let mut facts = vec![this.fact("weir", terms)];
        let key = this.key();
        facts.push(this.fact("holder", vec![key]));
        while !this.rest.is_empty() && facts.len() < 10 {
            let (name, kinds) = FACTS[usize::from(this.byte()) % FACTS.len()];
            // Sometimes with the terms of another fact.
            let other = usize::from(this.byte());
            let kinds = if other < 240 { kinds } else { FACTS[other % FACTS.len()].1 };
            let terms = kinds.chars().map(|kind| this.term(kind)).collect();
            facts.push(this.fact(name, terms));
        }
        schema::Block { symbols: this.symbols.strings(), version: Some(6), facts, ..schema::Block::default() }.encode_to_vec()
    }

    fn byte(&mut self) -> u8 {
        self.rest.split_off_first().copied().unwrap_or(0)
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    fn key(&mut self) -> Content {
        Content::Bytes(KEYS[usize::from(self.byte()) % KEYS.len()].as_bytes().to_vec())
    }

    fn text(&mut self) -> Content {
        // Sometimes an invalid one.
        let text = match WORDS.get(usize::from(self.byte()) % (WORDS.len() + 4)) {
            Some(word) => (*word).to_owned(),
            None => (0..self.byte() % 32).map(|_| char::from(self.byte())).collect(),
        };
        Content::String(self.symbols.insert(&text))
    }

    fn term(&mut self, kind: char) -> Content {
        match kind {
            't' => self.text(),
            'n' => Content::Integer(self.number().cast_signed()),
            'd' => Content::Date(self.number()),
            'k' => self.key(),
            'T' => self.list(Self::text),
            'H' => self.list(|this| Content::Bytes(vec![this.byte(); 32])),
            _ => self.list(Self::key),
        }
    }

    fn list(&mut self, each: impl Fn(&mut Self) -> Content) -> Content {
        let count = self.byte() % 4;
        let array = (0..count).map(|_| schema::Term { content: Some(each(self)) }).collect();
        Content::Array(schema::Array { array })
    }

    fn fact(&mut self, name: &str, terms: Vec<Content>) -> schema::Fact {
        let terms = terms.into_iter().map(|content| schema::Term { content: Some(content) }).collect();
        schema::Fact { predicate: schema::Predicate { name: self.symbols.insert(name), terms } }
    }
}
