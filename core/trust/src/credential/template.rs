//! The facts of a credential's blocks: this file alone reads and writes them. The *authority* is the first block.
//!
//! | fact | in | value |
//! |---|---|---|
//! | `weir("credential", 1, null)` | every block | the kind of the block, and the version of the facts |
//! | `root(bytes)` | the authority | the key that has signed the authority |
//! | `holder(bytes)` | every block | the key that may use and delegate the credential |
//! | `profile(name)`, `filter(text)`, `view(text)` | | the texts of the types' `Display` |
//! | `modules([hash, …], [signer, …])` | | SHA-256 of modules' bytes; keys |
//! | `interfaces([name, …])`, `writes([name, …])`, `nodes([pattern, …])` | | |
//! | `unmetered([signer, …])` | the authority | keys; never an empty list |
//! | `cpu(n)`, `memory(n)`, and a fact for each other [`Resource`] | | the amount, in the resource's unit |
//! | `issued(date)` | | the time of signing, by the signer's clock; blocks of earlier versions have none |
//! | `not_before(date)`, `expires(date)` | | `expires` is mandatory in the authority |
//! | `delegations(n)` | | |
//!
//! Lists are in ascending order, without repetitions. A missing fact restricts nothing; a missing `unmetered` gives nothing. The library encodes a block
//! with `null` in Biscuit's newest version, so every block has a `null`. Lists need this version, too, but the library
//! does not choose it for lists. In this version the signed bytes begin with their purpose.

use super::BlockError;
use crate::grant::{Grant, ModuleHash, ModuleSet, Modules, NodePattern, Nodes, Resource, UnixSecond};
use crate::key::PublicKey;
use biscuit_auth::builder::{Fact, Term};
use biscuit_auth::datalog::SymbolTable;
use biscuit_auth::format::schema;
use biscuit_auth::format::schema::term::Content;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::str::FromStr;
use weir_units::{Name, escaped};

/// The number by which blocks encode version 3.3 of Biscuit's Datalog, which introduced lists and `null`.
const BLOCK_VERSION: u32 = 6;
const KIND: &str = "credential";
const VERSION: i64 = 1;

/// All facts except those of [resources](Resource): name, legal values in words, and the function that reads one.
const FACTS: &[(&str, &str, ReadFact)] = &[
    ("weir", "\"credential\", the version and `null`", |draft, terms| {
        let [kind, version, nothing] = terms.exactly()?;
        let is_nothing = matches!(nothing.content, Some(Content::Null(_)));
        let is_kind = terms.text(kind)? == KIND && terms.number(version)? == VERSION.unsigned_abs();
        draft.has_kind = is_kind && is_nothing;
        Some(())
    }),
    ("root", "a public key: 32 bytes", |draft, terms| set(&mut draft.root, terms.read_only(Terms::key)?)),
    ("holder", "a public key: 32 bytes", |draft, terms| set(&mut draft.holder, terms.read_only(Terms::key)?)),
    ("profile", "the name of one profile", |draft, terms| {
        set(&mut draft.grant.profiles, [terms.read_only(Terms::parsed::<Name>)?].into())
    }),
    (
        "modules",
        "a list of SHA-256 hashes and a list of public keys, 32 bytes each, both in ascending order",
        |draft, terms| {
            let [hashes, signers] = terms.exactly()?;
            let hashes = terms.items(hashes, |terms, term| terms.bytes(term).map(ModuleHash))?;
            let signers = terms.items(signers, Terms::key)?;
            draft.grant.modules = Modules::from(ModuleSet { hashes, signers });
            Some(())
        },
    ),
    ("filter", "the text of a filter, as weir writes it", |draft, terms| {
        draft.grant.filters.insert(terms.read_only(Terms::parsed)?);
        Some(())
    }),
    ("interfaces", "a list of names of interfaces, in ascending order", |draft, terms| {
        set(&mut draft.grant.interfaces, terms.read_list(Terms::parsed)?)
    }),
    ("view", "a view, as weir writes it (`payload=none`)", |draft, terms| {
        set(&mut draft.grant.view, terms.read_only(Terms::parsed)?)
    }),
    ("writes", "a list of names of fields, in ascending order", |draft, terms| {
        set(&mut draft.grant.writes, terms.read_list(Terms::parsed)?)
    }),
    (
        "unmetered",
        "a list of public keys, 32 bytes each, in ascending order and not empty",
        |draft, terms| {
            draft.grant.unmetered = terms.read_list(Terms::key)?;
            // An empty list is never written.
            (!draft.grant.unmetered.is_empty()).then_some(())
        },
    ),
    (
        "nodes",
        "a list of node names or domains, in ascending order, none of them covered by another one",
        |draft, terms| {
            let patterns: BTreeSet<NodePattern> = terms.read_list(Terms::parsed)?;
            let nodes: Nodes = patterns.iter().cloned().collect();
            // Patterns that another pattern covers are never written.
            let is_as_written = nodes.iter().len() == patterns.len();
            is_as_written.then(|| draft.grant.nodes = Some(nodes))
        },
    ),
    ("issued", "a date (seconds since 1970-01-01 UTC)", |draft, terms| {
        set(&mut draft.issued, terms.read_only(Terms::second)?)
    }),
    ("not_before", "a date (seconds since 1970-01-01 UTC)", |draft, terms| {
        set(&mut draft.grant.not_before, terms.read_only(Terms::second)?)
    }),
    ("expires", "a date (seconds since 1970-01-01 UTC)", |draft, terms| {
        set(&mut draft.grant.expires, terms.read_only(Terms::second)?)
    }),
    ("delegations", "a whole number from 0 to 4294967295", |draft, terms| {
        set(&mut draft.grant.delegations, u32::try_from(terms.read_only(Terms::number)?).ok()?)
    }),
];

/// A function that reads a fact's terms into the draft. It returns `None` if they are illegal.
type ReadFact = fn(&mut Draft, &Terms<'_>) -> Option<()>;

/// The contents of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    /// The root key, in the authority alone.
    pub(super) root: Option<PublicKey>,
    pub(super) holder: PublicKey,
    /// The time of signing.
    pub(super) issued: Option<UnixSecond>,
    pub(super) grant: Grant,
}

/// The contents of a block while its facts are read.
#[derive(Default)]
struct Draft {
    /// True if the block states that it is a block of a credential, in this version.
    has_kind: bool,
    root: Option<PublicKey>,
    holder: Option<PublicKey>,
    issued: Option<UnixSecond>,
    grant: Grant,
}

impl Draft {
    /// Reads a fact. Returns its name, its legal values in words, and `Some(())` if its terms are legal.
    fn read_fact(
        &mut self,
        name: &str,
        terms: &Terms<'_>,
    ) -> Result<(&'static str, &'static str, Option<()>), BlockError> {
        if let Some((name, wanted, read)) = FACTS.iter().find(|(known, ..)| *known == name) {
            return Ok((name, wanted, read(self, terms)));
        }
        let resource = Resource::by_fact_name(name).ok_or_else(|| BlockError::UnknownFact(escaped(name)))?;
        let amount = terms.read_only(Terms::number);
        let value = amount.map(|amount| self.grant.ceilings.set(resource, Some(amount)));
        Ok((resource.definition().fact_name, resource.definition().fact_values, value))
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the table's functions end with a call of this one and return its result"
)]
fn set<T>(field: &mut Option<T>, value: T) -> Option<()> {
    *field = Some(value);
    Some(())
}

impl Contents {
    /// Returns the facts in the order of [`FACTS`]. The facts of resources come before `nodes`.
    pub(super) fn facts(&self) -> Vec<Fact> {
        let mut facts = Vec::new();
        let mut push = |name: &str, terms: Vec<Term>| facts.push(Fact::new(name.to_owned(), terms));
        let key = |key: &PublicKey| Term::Bytes(key.as_bytes().to_vec());
        let Self { root, holder, issued, grant } = self;
        push("weir", vec![Term::Str(KIND.to_owned()), Term::Integer(VERSION), Term::Null]);
        if let Some(root) = root {
            push("root", vec![key(root)]);
        }
        push("holder", vec![key(holder)]);
        grant.profiles.iter().flatten().for_each(|profile| push("profile", vec![text(profile)]));
        for ModuleSet { hashes, signers } in grant.modules.iter() {
            let hashes = hashes.iter().map(|hash| Term::Bytes(hash.0.to_vec())).collect();
            push("modules", vec![Term::Array(hashes), Term::Array(signers.iter().map(key).collect())]);
        }
        grant.filters.iter().for_each(|filter| push("filter", vec![text(filter)]));
        if let Some(interfaces) = &grant.interfaces {
            push("interfaces", vec![texts(interfaces)]);
        }
        if let Some(view) = &grant.view {
            push("view", vec![text(view)]);
        }
        if let Some(fields) = &grant.writes {
            push("writes", vec![texts(fields)]);
        }
        if !grant.unmetered.is_empty() {
            push("unmetered", vec![Term::Array(grant.unmetered.iter().map(key).collect())]);
        }
        for (resource, amount) in grant.ceilings.stated() {
            push(resource.definition().fact_name, vec![number(amount)]);
        }
        if let Some(nodes) = &grant.nodes {
            push("nodes", vec![texts(nodes.iter())]);
        }
        if let Some(second) = issued {
            push("issued", vec![Term::Date(second.number())]);
        }
        if let Some(second) = grant.not_before {
            push("not_before", vec![Term::Date(second.number())]);
        }
        if let Some(second) = grant.expires {
            push("expires", vec![Term::Date(second.number())]);
        }
        if let Some(times) = grant.delegations {
            push("delegations", vec![number(times.into())]);
        }
        facts
    }

    /// Reads a block, and checks every part. An unexpected part is an error.
    pub(super) fn read(block: &schema::Block, is_authority: bool) -> Result<Self, BlockError> {
        let schema::Block { symbols, context, version, facts, rules, checks, scope, public_keys } = block;
        for (is_present, what) in [
            (!rules.is_empty(), "rules"),
            (!checks.is_empty(), "checks"),
            (!scope.is_empty(), "scopes"),
            (!public_keys.is_empty(), "keys to evaluate scopes with"),
        ] {
            if is_present {
                return Err(BlockError::Evaluated(what));
            }
        }
        if *version != Some(BLOCK_VERSION) {
            return Err(BlockError::Version);
        }
        if context.is_some() {
            return Err(BlockError::Form);
        }
        let count = symbols.len();
        let distinct: BTreeSet<&String> = symbols.iter().collect();
        let table = SymbolTable::from(symbols.clone()).map_err(|_| BlockError::Form)?;
        if distinct.len() != count || facts.len() > FACTS.len() + Resource::ALL.len() {
            // Of more facts than the tables have, at least one is duplicate or unknown. Refusing the block here bounds
            // the set of names in the loop below.
            return Err(BlockError::Form);
        }
        let mut draft = Draft::default();
        let mut stated = BTreeSet::new();
        for fact in facts {
            let name = table.get_symbol(fact.predicate.name).ok_or(BlockError::Form)?;
            let terms = Terms { symbols: &table, terms: &fact.predicate.terms };
            let (name, wanted, value) = draft.read_fact(name, &terms)?;
            if !stated.insert(name) {
                return Err(BlockError::Doubled(name));
            }
            value.ok_or(BlockError::Value { fact: name, wanted })?;
            if name == "weir" && !draft.has_kind {
                return Err(BlockError::Version);
            }
        }
        if !stated.contains("weir") {
            return Err(BlockError::Version);
        }
        match (is_authority, draft.root) {
            (true, None) => return Err(BlockError::Missing("root")),
            (false, Some(_)) => return Err(BlockError::Misplaced("root")),
            _ => {}
        }
        if !is_authority && !draft.grant.unmetered.is_empty() {
            return Err(BlockError::Misplaced("unmetered"));
        }
        if is_authority && draft.grant.expires.is_none() {
            return Err(BlockError::Missing("expires"));
        }
        draft.grant.check()?;
        let holder = draft.holder.ok_or(BlockError::Missing("holder"))?;
        Ok(Self { root: draft.root, holder, issued: draft.issued, grant: draft.grant })
    }
}

fn text(value: impl Display) -> Term {
    Term::Str(value.to_string())
}

fn texts<T: Display>(values: impl IntoIterator<Item = T>) -> Term {
    Term::Array(values.into_iter().map(text).collect())
}

/// Returns an amount as a term. [`Grant::check`] has refused amounts above the maximum of an `i64`.
fn number(amount: u64) -> Term {
    Term::Integer(i64::try_from(amount).unwrap_or(i64::MAX))
}

/// The terms of a fact.
struct Terms<'a> {
    symbols: &'a SymbolTable,
    terms: &'a [schema::Term],
}

impl Terms<'_> {
    /// Returns the terms, if their number is `N`.
    fn exactly<const N: usize>(&self) -> Option<&[schema::Term; N]> {
        self.terms.try_into().ok()
    }

    /// Reads the only term; `None` for another number of terms.
    fn read_only<T>(&self, read: impl Fn(&Self, &schema::Term) -> Option<T>) -> Option<T> {
        let [term] = self.exactly()?;
        read(self, term)
    }

    /// Reads the only term, which is a list in ascending order.
    fn read_list<T: Ord>(&self, read: impl Fn(&Self, &schema::Term) -> Option<T>) -> Option<BTreeSet<T>> {
        let [term] = self.exactly()?;
        self.items(term, read)
    }

    /// Reads the items of a list. `None` if they are not in ascending order.
    fn items<T: Ord>(
        &self,
        term: &schema::Term,
        read: impl Fn(&Self, &schema::Term) -> Option<T>,
    ) -> Option<BTreeSet<T>> {
        let Some(Content::Array(items)) = &term.content else { return None };
        let items: Vec<T> = items.array.iter().map(|term| read(self, term)).collect::<Option<_>>()?;
        let ascends = items.windows(2).all(|pair| pair[0] < pair[1]);
        ascends.then(|| items.into_iter().collect())
    }

    fn text(&self, term: &schema::Term) -> Option<&str> {
        match &term.content {
            Some(Content::String(symbol)) => self.symbols.get_symbol(*symbol),
            _ => None,
        }
    }

    /// Parses a text. `None` if the text is not the one that the value's `Display` writes.
    fn parsed<T: FromStr + Display>(&self, term: &schema::Term) -> Option<T> {
        let text = self.text(term)?;
        text.parse().ok().filter(|value: &T| value.to_string() == text)
    }

    fn bytes(&self, term: &schema::Term) -> Option<[u8; 32]> {
        match &term.content {
            Some(Content::Bytes(bytes)) => bytes.as_slice().try_into().ok(),
            _ => None,
        }
    }

    fn key(&self, term: &schema::Term) -> Option<PublicKey> {
        PublicKey::from_bytes(self.bytes(term)?).ok()
    }

    fn number(&self, term: &schema::Term) -> Option<u64> {
        match &term.content {
            Some(Content::Integer(value)) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    fn second(&self, term: &schema::Term) -> Option<UnixSecond> {
        match &term.content {
            Some(Content::Date(number)) => UnixSecond::new(*number),
            _ => None,
        }
    }
}
