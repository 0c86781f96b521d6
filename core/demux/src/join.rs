//! Many filters become one [`Demux`].

use crate::budget::{Exceeded, LookupBudget};
use crate::channels::{CHANNELS_MAX, ChannelSet};
use crate::classes::{Classes, NO_VALUE};
use crate::demux::{Demux, FACTORS_MAX, Factor, GROUP, Leaf, LookupField, LookupNode, ValueSource};
use crate::expression::{ExpressionId, Expressions};
use crate::paths::{Path, ProgramTerms, TooHard, paths};
use crate::program::{FilterProgram, Instruction};
use crate::values::{ValueSet, ValueSets};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Splits one after the other, at most.
const SPLITS_MAX: usize = 4;
/// After the first split, so many fields are looked up side by side rather than that there is another split: a processor guesses wrong where splits
/// lead, and fields do not wait for each other.
const FIELDS_FEW: usize = 8;
/// Words of a row, at most.
const WORDS_MAX: usize = 256;
/// So many more ways than before a split its children may have together: ways that do not ask for the field are in each of them.
const GROWTH: usize = 8;

/// What joining filters may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinLimits {
    /// Units of work to take one filter apart; a unit is about a look-up in a table. A filter that needs more is interpreted.
    pub filter_work: u64,
    /// Ways to acceptance that one filter may have. One that has more is interpreted.
    pub filter_ways: usize,
    /// Units of work to make the tables. Where that is not enough, the filters with the most ways are interpreted, and the rest is joined,
    /// at most twenty times.
    pub work: u64,
    /// Bytes that the tables may take; likewise.
    pub memory: usize,
    /// Instructions that may be interpreted for a packet, of all filters that are interpreted.
    pub interpreted: usize,
}

impl Default for JoinLimits {
    fn default() -> Self {
        Self { filter_work: 50_000, filter_ways: 64, work: 4_000_000, memory: 16 << 20, interpreted: 16_384 }
    }
}

/// Why filters cannot be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// More channels than [`CHANNELS_MAX`].
    #[error("{0} channels, {CHANNELS_MAX} are the limit")]
    TooManyChannels(usize),
    /// Filters that cannot be joined with others would take too long for each packet.
    #[error(
        "channel {channel}: its filter is too complex to be joined with the others, and of such filters at most {limit} instructions \
         are executed for a packet; with it there are {instructions}"
    )]
    TooMuchToInterpret {
        /// The one of them that has the most instructions.
        channel: usize,
        /// Of all of them that have been looked at so far.
        instructions: usize,
        /// The limit.
        limit: usize,
    },
}

/// A filter taken apart.
struct Parts {
    channel: usize,
    paths: Vec<Path>,
}

impl Parts {
    fn weight(&self) -> usize {
        self.paths.iter().map(|path| 1 + path.len()).sum()
    }
}

impl Demux {
    /// Joins filters: the one at index 3 is that of channel 3; a channel without one gets nothing.
    ///
    /// The same filters give the same tables, in which the filters' order counts for nothing but the channels' numbers.
    ///
    /// # Errors
    ///
    /// [`JoinError`].
    pub fn new(filters: &[Option<&FilterProgram>], limits: &JoinLimits) -> Result<Demux, JoinError> {
        if filters.len() > CHANNELS_MAX {
            return Err(JoinError::TooManyChannels(filters.len()));
        }
        let mut terms = ProgramTerms { expressions: Expressions::new(), values: ValueSets::new() };
        let (mut parts, mut interpreted, mut work) = (Vec::new(), Vec::new(), 0);
        // Many channels can have one filter, which is taken apart once: into these ways, or none where it is too hard.
        let mut taken_apart: HashMap<&[Instruction], Option<Vec<Path>>> = HashMap::new();
        for (channel, filter) in filters.iter().enumerate() {
            let Some(program) = filter else { continue };
            let ways = taken_apart.entry(program.instructions()).or_insert_with(|| {
                let mut budget = LookupBudget::new(limits.filter_work);
                let ways = match paths(program, &mut terms, &mut budget) {
                    Ok(paths) if paths.len() <= limits.filter_ways => Some(paths),
                    Ok(_) | Err(TooHard) => None,
                };
                work += limits.filter_work - budget.left();
                ways
            });
            match ways {
                Some(paths) => parts.push(Parts { channel, paths: paths.clone() }),
                None => interpreted.push((channel, (*program).clone())),
            }
            // Not after all the others have been tried too.
            within(&interpreted, limits.interpreted)?;
        }
        // What is heaviest comes last, and goes first.
        parts.sort_by_key(|part| (part.weight(), part.channel));
        let mut surplus = 1;
        let mut demux = loop {
            if parts.is_empty() {
                break Demux::default();
            }
            let mut budget = LookupBudget::new(limits.work);
            let joined = Joining::join(&parts, &terms, &mut budget, limits.memory);
            work += limits.work - budget.left();
            match joined {
                Ok(demux) => break demux,
                Err(Exceeded) => {
                    for part in parts.drain(parts.len() - surplus.min(parts.len().div_ceil(2))..) {
                        if let Some(Some(program)) = filters.get(part.channel) {
                            interpreted.push((part.channel, (*program).clone()));
                        }
                    }
                    surplus *= 2;
                }
            }
        };
        within(&interpreted, limits.interpreted)?;
        interpreted.sort_by_key(|(channel, _)| *channel);
        demux.interpreted = interpreted;
        demux.work = work;
        Ok(demux)
    }
}

/// Whether these can all be interpreted for each packet.
fn within(interpreted: &[(usize, FilterProgram)], limit: usize) -> Result<(), JoinError> {
    let instructions = interpreted.iter().map(|(_, program)| program.longest()).sum();
    if instructions <= limit {
        return Ok(());
    }
    let longest = interpreted.iter().max_by_key(|(_, program)| program.longest());
    let channel = longest.map_or(0, |(channel, _)| *channel);
    Err(JoinError::TooMuchToInterpret { channel, instructions, limit })
}

/// A way to acceptance: of which channel, and which fields have to be in which of their sets.
struct Way {
    channel: usize,
    demands: Vec<(usize, u16)>,
}

/// The ways of a node that ask for a field, by the set that they ask for.
type Asking = BTreeMap<u16, Vec<u32>>;

struct Joining<'a> {
    ways: Vec<Way>,
    /// For each field and each of its classes, in which sets the class is.
    members: Vec<Vec<Vec<u16>>>,
    nodes: Vec<LookupNode>,
    /// Nodes by their ways and the fields that are decided.
    known: HashMap<(Vec<u32>, Vec<bool>), u32>,
    budget: &'a mut LookupBudget,
    memory: usize,
    memory_max: usize,
}

impl Joining<'_> {
    fn join(
        parts: &[Parts],
        terms: &ProgramTerms,
        budget: &mut LookupBudget,
        memory_max: usize,
    ) -> Result<Demux, Exceeded> {
        // Near fields have low numbers.
        let mut ids: Vec<ExpressionId> =
            parts.iter().flat_map(|part| &part.paths).flatten().map(|&(id, _)| id).collect();
        ids.sort_by_key(|&id| (terms.expressions.reach(id), id));
        ids.dedup();
        budget.spend(ids.len())?;
        let field_of: HashMap<ExpressionId, usize> =
            ids.iter().enumerate().map(|(field, &id)| (id, field)).collect();
        let mut sets: Vec<Vec<ValueSet>> = vec![Vec::new(); ids.len()];
        let mut known: HashMap<(usize, ValueSet), u16> = HashMap::new();
        let mut ways = Vec::new();
        for part in parts {
            for path in &part.paths {
                budget.spend(1 + path.len())?;
                let mut demands = Vec::with_capacity(path.len());
                for &(id, set) in path {
                    let field = field_of.get(&id).copied().ok_or(Exceeded)?;
                    let next = u16::try_from(sets[field].len()).map_err(|_| Exceeded)?;
                    let number = *known.entry((field, set)).or_insert(next);
                    if number == next {
                        sets[field].push(set);
                    }
                    demands.push((field, number));
                }
                demands.sort_unstable();
                ways.push(Way { channel: part.channel, demands });
            }
        }
        let mut expressions = Expressions::new();
        let (mut fields, mut members, mut memory) = (Vec::new(), Vec::new(), 0);
        for (&id, sets) in ids.iter().zip(&sets) {
            let classes = Classes::new(sets, terms.expressions.significant_bits(id), &terms.values, budget)?;
            memory += classes.tree.memory();
            let copy = terms.expressions.copied(id, &mut expressions).map_err(|_| Exceeded)?;
            fields.push(LookupField { source: ValueSource::new(copy, &expressions), tree: classes.tree });
            members.push(classes.members);
        }
        let all = (0..u32::try_from(ways.len()).map_err(|_| Exceeded)?).collect();
        let decided = vec![false; fields.len()];
        let mut joining =
            Joining { ways, members, nodes: Vec::new(), known: HashMap::new(), budget, memory, memory_max };
        let root = joining.node(all, decided, SPLITS_MAX)?;
        Ok(Demux {
            fields,
            root: index(root),
            memory: joining.memory,
            nodes: joining.nodes,
            expressions,
            interpreted: Vec::new(),
            work: 0,
        })
    }

    /// Makes the node for these ways. As deep as there are splits one after the other.
    fn node(&mut self, ways: Vec<u32>, decided: Vec<bool>, splits: usize) -> Result<u32, Exceeded> {
        self.budget.spend(1 + ways.len() + decided.len() / 8)?;
        let key = (ways, decided);
        if let Some(&node) = self.known.get(&key) {
            return Ok(node);
        }
        let (ways, decided) = &key;
        let (mut certain, mut last) = (ChannelSet::NONE, Vec::new());
        for &number in ways {
            let way = &self.ways[index(number)];
            if !certain.contains(way.channel) && way.demands.iter().all(|&(field, _)| decided[field]) {
                certain.insert(way.channel);
                last.push(number);
            }
        }
        let ways: Vec<u32> =
            ways.iter().copied().filter(|&way| !certain.contains(self.ways[index(way)].channel)).collect();
        let mut asking: BTreeMap<usize, Asking> = BTreeMap::new();
        for &way in &ways {
            for &(field, set) in self.ways[index(way)].demands.iter().filter(|(field, _)| !decided[*field]) {
                self.budget.spend(1)?;
                asking.entry(field).or_default().entry(set).or_default().push(way);
            }
        }
        let node = match self.split(&ways, &asking, splits)? {
            Some(field) => {
                let mut decided = decided.clone();
                decided[field] = true;
                let children = self.children(field, &ways, &asking[&field], &decided, splits - 1, &last)?;
                LookupNode::Split { field, children }
            }
            None => LookupNode::Leaf(self.leaf(&ways, &asking, certain)?),
        };
        let size = match &node {
            LookupNode::Split { children, .. } => children.len() * size_of::<u32>(),
            LookupNode::Leaf(leaf) => leaf.memory(),
        };
        self.memory += size_of::<LookupNode>() + size;
        if self.memory > self.memory_max {
            return Err(Exceeded);
        }
        let number = u32::try_from(self.nodes.len()).map_err(|_| Exceeded)?;
        self.nodes.push(node);
        self.known.insert(key, number);
        Ok(number)
    }

    /// On which field to split: the one after which the fewest ways are left in all children together, if they are few enough.
    fn split(
        &mut self,
        ways: &[u32],
        asking: &BTreeMap<usize, Asking>,
        splits: usize,
    ) -> Result<Option<usize>, Exceeded> {
        if splits == 0 || splits < SPLITS_MAX && asking.len() <= FIELDS_FEW {
            return Ok(None);
        }
        let mut best = (ways.len() + GROWTH, None);
        for (&field, sets) in asking {
            let others = ways.len() - sets.values().map(Vec::len).sum::<usize>();
            let mut total = 0;
            for held in self.distinct(field, sets)?.into_keys() {
                total += others + held.iter().map(|set| sets[set].len()).sum::<usize>();
            }
            if total < best.0 {
                best = (total, Some(field));
            }
        }
        Ok(best.1)
    }

    /// What the field's classes are in of the sets that are asked for, and which classes these are.
    fn distinct(&mut self, field: usize, sets: &Asking) -> Result<BTreeMap<Vec<u16>, Vec<usize>>, Exceeded> {
        let mut distinct: BTreeMap<Vec<u16>, Vec<usize>> = BTreeMap::new();
        for (class, members) in self.members[field].iter().enumerate() {
            self.budget.spend(1 + members.len())?;
            let held = members.iter().copied().filter(|set| sets.contains_key(set)).collect();
            distinct.entry(held).or_default().push(class);
        }
        Ok(distinct)
    }

    fn children(
        &mut self,
        field: usize,
        ways: &[u32],
        sets: &Asking,
        decided: &[bool],
        splits: usize,
        certain: &[u32],
    ) -> Result<Vec<u32>, Exceeded> {
        let asks: HashSet<u32> = sets.values().flatten().copied().collect();
        let mut others: Vec<u32> = ways.iter().copied().filter(|way| !asks.contains(way)).collect();
        // The certain channels stay so.
        others.extend_from_slice(certain);
        let mut children = vec![0; self.members[field].len()];
        for (held, classes) in self.distinct(field, sets)? {
            let mut left = others.clone();
            held.iter().for_each(|set| left.extend_from_slice(&sets[set]));
            left.sort_unstable();
            let child = self.node(left, decided.to_vec(), splits)?;
            classes.into_iter().for_each(|class| children[class] = child);
        }
        Ok(children)
    }

    fn leaf(
        &mut self,
        ways: &[u32],
        asking: &BTreeMap<usize, Asking>,
        certain: ChannelSet,
    ) -> Result<Leaf, Exceeded> {
        let mut leaf = Leaf { certain, ..Leaf::default() };
        if ways.is_empty() {
            return Ok(leaf);
        }
        // A channel's ways need words of their own, in which its bit is theirs.
        let (mut place_of, mut next) = (HashMap::new(), HashMap::new());
        let mut word_of: HashMap<(usize, usize), usize> = HashMap::new();
        for &way in ways {
            self.budget.spend(1)?;
            let channel = self.ways[index(way)].channel;
            let copy = next.entry(channel).or_insert(0_usize);
            let word = *word_of.entry((channel / 64, *copy)).or_insert_with(|| {
                leaf.words.push(u8::try_from(channel / 64).unwrap_or(u8::MAX));
                leaf.words.len() - 1
            });
            *copy += 1;
            place_of.insert(way, (word, 1_u64 << (channel % 64)));
        }
        leaf.words.resize(leaf.words.len().next_multiple_of(GROUP), 0);
        let words = leaf.words.len();
        if words > WORDS_MAX || asking.len() > FACTORS_MAX {
            return Err(Exceeded);
        }
        let row = |ways: &[u32]| {
            let mut row = vec![0; words];
            for way in ways {
                if let Some(&(word, bit)) = place_of.get(way) {
                    row[word] |= bit;
                }
            }
            row
        };
        let everything = row(ways);
        let mut known: HashMap<Vec<u64>, u32> = HashMap::new();
        for (&field, sets) in asking {
            let mut independent = everything.clone();
            let rows: BTreeMap<u16, Vec<u64>> = sets.iter().map(|(&set, ways)| (set, row(ways))).collect();
            self.budget.spend(rows.len() * words / 8)?;
            for asks in rows.values() {
                independent.iter_mut().zip(asks).for_each(|(independent, asks)| *independent &= !asks);
            }
            let mut row_of = vec![0; self.members[field].len()];
            for (held, classes) in self.distinct(field, sets)? {
                self.budget.spend((1 + held.len()) * words / 8)?;
                let mut open = independent.clone();
                for set in held {
                    open.iter_mut().zip(&rows[&set]).for_each(|(open, asks)| *open |= asks);
                }
                let next = u32::try_from(leaf.rows.len()).map_err(|_| Exceeded)?;
                let at = *known.entry(open).or_insert_with_key(|open| {
                    leaf.rows.extend_from_slice(open);
                    next
                });
                classes.into_iter().for_each(|class| row_of[class] = at);
            }
            debug_assert!(self.members[field][NO_VALUE].is_empty());
            leaf.factors.push(Factor { field, row_of });
        }
        Ok(leaf)
    }
}

impl Leaf {
    fn memory(&self) -> usize {
        let classes: usize = self.factors.iter().map(|factor| factor.row_of.len()).sum();
        self.rows.len() * size_of::<u64>()
            + classes * size_of::<u32>()
            + self.factors.len() * size_of::<Factor>()
            + self.words.len()
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
