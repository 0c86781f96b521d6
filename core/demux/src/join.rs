//! Joins many filters into one [`Demux`], whose documentation describes splits, leaves and rows.
//!
//! A *field* is an expression that filters test, such as the EtherType. The values of a field form *classes*: no filter
//! distinguishes the values of a class (`classes.rs`).

use crate::budget::{Exceeded, LookupBudget};
use crate::channels::{CHANNELS_MAX, ChannelSet};
use crate::classes::{Classes, NO_VALUE};
use crate::demux::{Demux, GROUP, LEAF_FIELDS_MAX, Leaf, LeafField, LookupField, LookupNode, ValueSource};
use crate::expression::{ExpressionId, Expressions};
use crate::paths::{Path, ProgramTerms, TooComplex, paths};
use crate::program::{FilterProgram, Instruction};
use crate::values::{ValueSet, ValueSets};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The most splits on a path from the root to a leaf.
const SPLITS_MAX: usize = 4;
/// After the first split, no further split is made if at most this many fields are left; a leaf looks them up.
/// Processors mispredict the branches of splits, while the look-ups of a leaf's fields do not wait for each other.
const UNSPLIT_FIELDS_MAX: usize = 8;
/// The most words in a row of a leaf: see [`Leaf::words`].
const WORDS_MAX: usize = 256;
/// The most paths that all children of a split may have together, beyond those of the node. A path that does not test
/// the field is in every child.
const ADDED_PATHS_MAX: usize = 8;

/// The limits of joining filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinLimits {
    /// The units of work for the analysis of one filter; a unit is about the time of a table look-up. A filter that
    /// needs more is interpreted.
    pub filter_work: u64,
    /// The most accepting paths of one filter. A filter with more is interpreted.
    pub filter_paths: usize,
    /// The units of work for one attempt to build the tables. If an attempt fails, the filters with the most paths are
    /// interpreted and the others are joined. There are at most twenty attempts.
    pub work: u64,
    /// The most bytes of the tables. If they need more, the attempt to build them fails, as for [`JoinLimits::work`].
    pub memory: usize,
    /// The most instructions that all interpreted filters together may execute for a packet.
    pub interpreted: usize,
}

impl Default for JoinLimits {
    fn default() -> Self {
        Self { filter_work: 50_000, filter_paths: 64, work: 4_000_000, memory: 16 << 20, interpreted: 16_384 }
    }
}

/// The reason why filters cannot be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// More channels than [`CHANNELS_MAX`].
    #[error("{0} channels, {CHANNELS_MAX} are the limit")]
    TooManyChannels(usize),
    /// The filters that have to be interpreted could execute too many instructions for a packet.
    #[error(
        "channel {channel}: the filter is too complex to be joined with the other filters; all complex filters together may \
         execute {limit} instructions for a packet, and with this filter they would execute {instructions}"
    )]
    TooMuchToInterpret {
        /// The channel whose interpreted filter executes the most instructions.
        channel: usize,
        /// The most instructions for a packet of all filters that were found so far to need interpretation.
        instructions: usize,
        /// The most allowed instructions.
        limit: usize,
    },
}

/// The accepting paths of a channel's filter.
struct FilterPaths {
    channel: usize,
    paths: Vec<Path>,
}

impl FilterPaths {
    /// A measure of the filter's share in the tables: the number of its paths and of their demands.
    fn weight(&self) -> usize {
        self.paths.iter().map(|path| 1 + path.len()).sum()
    }
}

impl Demux {
    /// Joins filters. The index of a filter is the number of its channel; a channel without a filter receives nothing.
    ///
    /// The same filters give the same tables. Apart from the channels' numbers, the order of the filters does not
    /// matter.
    ///
    /// # Errors
    ///
    /// [`JoinError`].
    pub fn new(filters: &[Option<&FilterProgram>], limits: &JoinLimits) -> Result<Demux, JoinError> {
        if filters.len() > CHANNELS_MAX {
            return Err(JoinError::TooManyChannels(filters.len()));
        }
        let mut terms = ProgramTerms { expressions: Expressions::new(), values: ValueSets::new() };
        let (mut joinable, mut interpreted, mut work) = (Vec::new(), Vec::new(), 0);
        // Channels that share a filter share its analysis: the accepting paths, or `None` if the filter is too complex.
        let mut paths_of_program: HashMap<&[Instruction], Option<Vec<Path>>> = HashMap::new();
        for (channel, filter) in filters.iter().enumerate() {
            let Some(program) = filter else { continue };
            let paths = paths_of_program.entry(program.instructions()).or_insert_with(|| {
                let mut budget = LookupBudget::new(limits.filter_work);
                let paths = match paths(program, &mut terms, &mut budget) {
                    Ok(paths) if paths.len() <= limits.filter_paths => Some(paths),
                    Ok(_) | Err(TooComplex) => None,
                };
                work += limits.filter_work - budget.remaining();
                paths
            });
            match paths {
                Some(paths) => joinable.push(FilterPaths { channel, paths: paths.clone() }),
                None => interpreted.push((channel, (*program).clone())),
            }
            // The check is made for each filter, so that the analysis of further filters is not in vain.
            check_interpreted(&interpreted, limits.interpreted)?;
        }
        // The filters with the most paths come last, so that they are the first to be interpreted.
        joinable.sort_by_key(|filter| (filter.weight(), filter.channel));
        let mut removed = 1;
        let mut demux = loop {
            if joinable.is_empty() {
                break Demux::default();
            }
            let mut budget = LookupBudget::new(limits.work);
            let joined = TableBuilder::join(&joinable, &terms, &mut budget, limits.memory);
            work += limits.work - budget.remaining();
            match joined {
                Ok(demux) => break demux,
                Err(Exceeded) => {
                    let kept = joinable.len() - removed.min(joinable.len().div_ceil(2));
                    for filter in joinable.drain(kept..) {
                        if let Some(Some(program)) = filters.get(filter.channel) {
                            interpreted.push((filter.channel, (*program).clone()));
                        }
                    }
                    removed *= 2;
                }
            }
        };
        check_interpreted(&interpreted, limits.interpreted)?;
        interpreted.sort_by_key(|(channel, _)| *channel);
        demux.interpreted = interpreted;
        demux.work = work;
        Ok(demux)
    }
}

/// Checks that these filters together do not execute more than `limit` instructions for a packet.
fn check_interpreted(interpreted: &[(usize, FilterProgram)], limit: usize) -> Result<(), JoinError> {
    let instructions = interpreted.iter().map(|(_, program)| program.longest_path()).sum();
    if instructions <= limit {
        return Ok(());
    }
    let longest = interpreted.iter().max_by_key(|(_, program)| program.longest_path());
    let channel = longest.map_or(0, |(channel, _)| *channel);
    Err(JoinError::TooMuchToInterpret { channel, instructions, limit })
}

/// An accepting path of a channel's filter, as the tables use it.
struct AcceptingPath {
    channel: usize,
    /// The fields that the path tests, each with the index of the set that the field's value has to be in. Fields and
    /// sets are indexed as in [`TableBuilder::sets_of_class`].
    demands: Vec<(usize, u16)>,
}

/// The paths of a node that test a certain field, grouped by the set that they require the value to be in.
type PathsBySet = BTreeMap<u16, Vec<u32>>;

/// The state of building the tables of a [`Demux`].
struct TableBuilder<'a> {
    paths: Vec<AcceptingPath>,
    /// For each field and each class of its values, the indices of the sets that contain the class.
    sets_of_class: Vec<Vec<Vec<u16>>>,
    nodes: Vec<LookupNode>,
    /// Nodes by their paths and by the fields that were split on before.
    known: HashMap<(Vec<u32>, Vec<bool>), u32>,
    budget: &'a mut LookupBudget,
    /// The bytes of the tables so far.
    memory: usize,
    memory_max: usize,
}

impl TableBuilder<'_> {
    /// Builds the tables for these filters.
    fn join(
        filters: &[FilterPaths],
        terms: &ProgramTerms,
        budget: &mut LookupBudget,
        memory_max: usize,
    ) -> Result<Demux, Exceeded> {
        // Fields near the packet's start have low indices.
        let mut ids: Vec<ExpressionId> =
            filters.iter().flat_map(|filter| &filter.paths).flatten().map(|&(id, _)| id).collect();
        ids.sort_by_key(|&id| (terms.expressions.highest_offset(id), id));
        ids.dedup();
        budget.spend(ids.len())?;
        let field_of: HashMap<ExpressionId, usize> =
            ids.iter().enumerate().map(|(field, &id)| (id, field)).collect();
        let mut sets: Vec<Vec<ValueSet>> = vec![Vec::new(); ids.len()];
        let mut known: HashMap<(usize, ValueSet), u16> = HashMap::new();
        let mut paths = Vec::new();
        for filter in filters {
            for path in &filter.paths {
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
                paths.push(AcceptingPath { channel: filter.channel, demands });
            }
        }
        let mut expressions = Expressions::new();
        let (mut fields, mut sets_of_class, mut memory) = (Vec::new(), Vec::new(), 0);
        for (&id, sets) in ids.iter().zip(&sets) {
            let classes = Classes::new(sets, terms.expressions.significant_bits(id), &terms.values, budget)?;
            memory += classes.tree.memory();
            let copy = terms.expressions.copy_to(id, &mut expressions).map_err(|_| Exceeded)?;
            fields.push(LookupField { source: ValueSource::new(copy, &expressions), tree: classes.tree });
            sets_of_class.push(classes.sets_of_class);
        }
        let all = (0..u32::try_from(paths.len()).map_err(|_| Exceeded)?).collect();
        let decided = vec![false; fields.len()];
        let mut builder = TableBuilder {
            paths,
            sets_of_class,
            nodes: Vec::new(),
            known: HashMap::new(),
            budget,
            memory,
            memory_max,
        };
        let root = builder.node(all, decided, SPLITS_MAX)?;
        Ok(Demux {
            fields,
            root: index(root),
            memory: builder.memory,
            nodes: builder.nodes,
            expressions,
            interpreted: Vec::new(),
            work: 0,
        })
    }

    /// Makes the node for these paths. The values of the `decided` fields are known to satisfy the paths' demands. At most
    /// `splits` splits may follow, which also bounds the recursion.
    fn node(&mut self, paths: Vec<u32>, decided: Vec<bool>, splits: usize) -> Result<u32, Exceeded> {
        self.budget.spend(1 + paths.len() + decided.len() / 8)?;
        let key = (paths, decided);
        if let Some(&node) = self.known.get(&key) {
            return Ok(node);
        }
        let (paths, decided) = &key;
        let (mut certain, mut certain_paths) = (ChannelSet::NONE, Vec::new());
        for &number in paths {
            let path = &self.paths[index(number)];
            if !certain.contains(path.channel) && path.demands.iter().all(|&(field, _)| decided[field]) {
                certain.insert(path.channel);
                certain_paths.push(number);
            }
        }
        let paths: Vec<u32> = paths
            .iter()
            .copied()
            .filter(|&path| !certain.contains(self.paths[index(path)].channel))
            .collect();
        let mut paths_by_field: BTreeMap<usize, PathsBySet> = BTreeMap::new();
        for &path in &paths {
            for &(field, set) in self.paths[index(path)].demands.iter().filter(|(field, _)| !decided[*field])
            {
                self.budget.spend(1)?;
                paths_by_field.entry(field).or_default().entry(set).or_default().push(path);
            }
        }
        let node = match self.choose_split(&paths, &paths_by_field, splits)? {
            Some(field) => {
                let mut decided = decided.clone();
                decided[field] = true;
                let children = self.children(
                    field,
                    &paths,
                    &paths_by_field[&field],
                    &decided,
                    splits - 1,
                    &certain_paths,
                )?;
                LookupNode::Split { field, children }
            }
            None => LookupNode::Leaf(self.leaf(&paths, &paths_by_field, certain)?),
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

    /// Chooses the field to split on: that with the fewest paths in all children together. `None` if the children would
    /// have too many paths, or if a leaf is better. `paths_by_field` has the paths that test each field.
    fn choose_split(
        &mut self,
        paths: &[u32],
        paths_by_field: &BTreeMap<usize, PathsBySet>,
        splits: usize,
    ) -> Result<Option<usize>, Exceeded> {
        if splits == 0 || splits < SPLITS_MAX && paths_by_field.len() <= UNSPLIT_FIELDS_MAX {
            return Ok(None);
        }
        let mut best = (paths.len() + ADDED_PATHS_MAX, None);
        for (&field, sets) in paths_by_field {
            let others = paths.len() - sets.values().map(Vec::len).sum::<usize>();
            let mut total = 0;
            for containing_sets in self.classes_by_sets(field, sets)?.into_keys() {
                total += others + containing_sets.iter().map(|set| sets[set].len()).sum::<usize>();
            }
            if total < best.0 {
                best = (total, Some(field));
            }
        }
        Ok(best.1)
    }

    /// Groups the classes of a field's values by the sets that contain them. Only sets that a path requires count.
    fn classes_by_sets(
        &mut self,
        field: usize,
        sets: &PathsBySet,
    ) -> Result<BTreeMap<Vec<u16>, Vec<usize>>, Exceeded> {
        let mut distinct: BTreeMap<Vec<u16>, Vec<usize>> = BTreeMap::new();
        for (class, all_sets) in self.sets_of_class[field].iter().enumerate() {
            self.budget.spend(1 + all_sets.len())?;
            let containing_sets = all_sets.iter().copied().filter(|set| sets.contains_key(set)).collect();
            distinct.entry(containing_sets).or_default().push(class);
        }
        Ok(distinct)
    }

    /// Makes the child nodes of a split, one for each class of the field's values. `certain` has a path for each
    /// channel that accepts every packet at the node.
    fn children(
        &mut self,
        field: usize,
        paths: &[u32],
        sets: &PathsBySet,
        decided: &[bool],
        splits: usize,
        certain: &[u32],
    ) -> Result<Vec<u32>, Exceeded> {
        let tests_field: HashSet<u32> = sets.values().flatten().copied().collect();
        let mut others: Vec<u32> = paths.iter().copied().filter(|path| !tests_field.contains(path)).collect();
        // Channels that accept every packet at the node also accept every packet at its children.
        others.extend_from_slice(certain);
        let mut children = vec![0; self.sets_of_class[field].len()];
        for (containing_sets, classes) in self.classes_by_sets(field, sets)? {
            let mut possible = others.clone();
            containing_sets.iter().for_each(|set| possible.extend_from_slice(&sets[set]));
            possible.sort_unstable();
            let child = self.node(possible, decided.to_vec(), splits)?;
            classes.into_iter().for_each(|class| children[class] = child);
        }
        Ok(children)
    }

    /// Makes a leaf for these paths. `paths_by_field` has the paths that test each field.
    fn leaf(
        &mut self,
        paths: &[u32],
        paths_by_field: &BTreeMap<usize, PathsBySet>,
        certain: ChannelSet,
    ) -> Result<Leaf, Exceeded> {
        let mut leaf = Leaf { certain, ..Leaf::default() };
        if paths.is_empty() {
            return Ok(leaf);
        }
        // Paths of different channels can share a word. All paths of one channel have the same bit, so each of them
        // needs a word of its own.
        let (mut bit_of, mut paths_of_channel) = (HashMap::new(), HashMap::new());
        let mut word_of: HashMap<(usize, usize), usize> = HashMap::new();
        for &path in paths {
            self.budget.spend(1)?;
            let channel = self.paths[index(path)].channel;
            let count = paths_of_channel.entry(channel).or_insert(0_usize);
            let word = *word_of.entry((channel / 64, *count)).or_insert_with(|| {
                leaf.words.push(u8::try_from(channel / 64).unwrap_or(u8::MAX));
                leaf.words.len() - 1
            });
            *count += 1;
            bit_of.insert(path, (word, 1_u64 << (channel % 64)));
        }
        leaf.words.resize(leaf.words.len().next_multiple_of(GROUP), 0);
        let words = leaf.words.len();
        if words > WORDS_MAX || paths_by_field.len() > LEAF_FIELDS_MAX {
            return Err(Exceeded);
        }
        let row = |paths: &[u32]| {
            let mut row = vec![0; words];
            for path in paths {
                if let Some(&(word, bit)) = bit_of.get(path) {
                    row[word] |= bit;
                }
            }
            row
        };
        let all_paths = row(paths);
        let mut known: HashMap<Vec<u64>, u32> = HashMap::new();
        for (&field, sets) in paths_by_field {
            let mut independent = all_paths.clone();
            let rows: BTreeMap<u16, Vec<u64>> = sets.iter().map(|(&set, paths)| (set, row(paths))).collect();
            self.budget.spend(rows.len() * words / 8)?;
            for tested in rows.values() {
                independent.iter_mut().zip(tested).for_each(|(independent, tested)| *independent &= !tested);
            }
            let mut row_of = vec![0; self.sets_of_class[field].len()];
            for (containing_sets, classes) in self.classes_by_sets(field, sets)? {
                self.budget.spend((1 + containing_sets.len()) * words / 8)?;
                let mut possible = independent.clone();
                for set in containing_sets {
                    possible.iter_mut().zip(&rows[&set]).for_each(|(possible, tested)| *possible |= tested);
                }
                let next = u32::try_from(leaf.rows.len()).map_err(|_| Exceeded)?;
                let at = *known.entry(possible).or_insert_with_key(|possible| {
                    leaf.rows.extend_from_slice(possible);
                    next
                });
                classes.into_iter().for_each(|class| row_of[class] = at);
            }
            debug_assert!(self.sets_of_class[field][NO_VALUE].is_empty());
            leaf.fields.push(LeafField { field, row_of });
        }
        Ok(leaf)
    }
}

impl Leaf {
    /// The bytes of memory that the leaf takes.
    fn memory(&self) -> usize {
        let classes: usize = self.fields.iter().map(|field| field.row_of.len()).sum();
        self.rows.len() * size_of::<u64>()
            + classes * size_of::<u32>()
            + self.fields.len() * size_of::<LeafField>()
            + self.words.len()
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
