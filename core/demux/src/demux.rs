//! The joined filters, and their evaluation for a packet.

use crate::channels::ChannelSet;
use crate::classes::{ClassTree, NO_VALUE};
use crate::expression::{Expression, ExpressionId, Expressions};
use crate::interpret::header_length;
use crate::machine::LoadWidth;
use crate::packet::{LoadFailure, MoreBytes, Packet};
use crate::program::FilterProgram;

/// The number of words of a leaf's rows that are evaluated together.
pub(crate) const GROUP: usize = 4;

/// The joined filters of all channels.
///
/// Evaluation begins with *splits* on the fields that most filters use, such as EtherType and IP protocol, so that only
/// the fields that matter for the packet are looked up afterwards. It ends in a *leaf*, which has a bit for each
/// accepting path of a filter that is still possible. The value of each field rules out some of these paths. A path
/// that no field rules out accepts the packet (T. V. Lakshman, D. Stiliadis: "High-Speed Policy-based Packet Forwarding
/// Using Efficient Multi-dimensional Range Matching", SIGCOMM 1998). A path has the same bit in its word as its channel
/// has in a [`ChannelSet`].
#[derive(Debug, Default)]
pub struct Demux {
    pub(crate) fields: Vec<LookupField>,
    pub(crate) nodes: Vec<LookupNode>,
    pub(crate) root: usize,
    pub(crate) expressions: Expressions,
    /// The channels whose filters are interpreted.
    pub(crate) interpreted: Vec<(usize, FilterProgram)>,
    /// The bytes of memory that the tables take.
    pub(crate) memory: usize,
    /// The units of work that joining took.
    pub(crate) work: u64,
}

/// A field: an expression that filters test, such as the EtherType, and the table of the classes of its values.
#[derive(Debug)]
pub(crate) struct LookupField {
    pub(crate) source: ValueSource,
    pub(crate) tree: ClassTree,
}

/// The way in which an expression is computed. The two common kinds are computed without branches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ValueSource {
    Load {
        width: LoadWidth,
        at: u32,
    },
    /// A load at the length of an IPv4 header plus `k`. The header's first byte is at `header`.
    AboveIpv4 {
        width: LoadWidth,
        header: u32,
        k: u32,
    },
    /// Any other expression.
    Any(ExpressionId),
}

/// A node of the tree that evaluation descends.
#[derive(Debug)]
pub(crate) enum LookupNode {
    Split {
        field: usize,
        /// For each class of the field's values, the index of the child node.
        children: Vec<u32>,
    },
    Leaf(Leaf),
}

/// The accepting paths that are still possible after the splits.
#[derive(Debug, Default)]
pub(crate) struct Leaf {
    /// Channels that accept every packet that reaches the leaf.
    pub(crate) certain: ChannelSet,
    pub(crate) fields: Vec<LeafField>,
    /// For each word of a row, the index of the word of a [`ChannelSet`] that it belongs to. The number of words is a
    /// multiple of [`GROUP`].
    pub(crate) words: Vec<u8>,
    /// The rows of all fields, one after the other.
    pub(crate) rows: Vec<u64>,
}

/// A field that a leaf looks up.
#[derive(Debug)]
pub(crate) struct LeafField {
    /// The index of the field in [`Demux::fields`].
    pub(crate) field: usize,
    /// For each class of the field's values, the start of its row. A row has a bit for each path that the class does
    /// not rule out.
    pub(crate) row_of: Vec<u32>,
}

impl ValueSource {
    pub(crate) fn new(id: ExpressionId, expressions: &Expressions) -> Self {
        match expressions.get(id) {
            Expression::Load { width, at } => Self::Load { width, at },
            Expression::LoadIndexed { width, base, k } => match expressions.get(base) {
                Expression::HeaderLength(header) => Self::AboveIpv4 { width, header, k },
                _ => Self::Any(id),
            },
            _ => Self::Any(id),
        }
    }
}

impl Demux {
    /// Sets `wanted` to the channels whose filters accept the packet.
    ///
    /// The number of look-ups does not depend on the number of channels. More channels only mean longer bit sets, and
    /// perhaps more [interpreted](Self::interpreted) filters.
    ///
    /// # Errors
    ///
    /// [`MoreBytes`] if a filter reads bytes beyond the packet's `head`. The contents of `wanted` are then unspecified.
    #[inline]
    pub fn channels(&self, packet: &Packet<'_>, wanted: &mut ChannelSet) -> Result<(), MoreBytes> {
        let mut at = self.root;
        loop {
            match self.nodes.get(at) {
                Some(LookupNode::Split { field, children }) => {
                    let class = match self.class(*field, packet) {
                        Ok(class) => class,
                        Err(LoadFailure::Reject) => NO_VALUE,
                        Err(LoadFailure::More(more)) => return Err(more),
                    };
                    at = children
                        .get(class)
                        .and_then(|&child| usize::try_from(child).ok())
                        .unwrap_or(usize::MAX);
                }
                Some(LookupNode::Leaf(leaf)) => {
                    *wanted = leaf.certain;
                    if !leaf.fields.is_empty() {
                        self.look_up_fields(leaf, packet, wanted)?;
                    }
                    break;
                }
                None => {
                    *wanted = ChannelSet::NONE;
                    break;
                }
            }
        }
        for (channel, program) in &self.interpreted {
            if program.accepts(packet)? {
                wanted.insert(*channel);
            }
        }
        Ok(())
    }

    /// The channels that accept every packet, if the result of [`channels`](Self::channels) does not depend on the
    /// packet.
    pub fn constant(&self) -> Option<ChannelSet> {
        match self.nodes.get(self.root) {
            _ if !self.interpreted.is_empty() => None,
            Some(LookupNode::Leaf(leaf)) if leaf.fields.is_empty() => Some(leaf.certain),
            Some(_) => None,
            None => Some(ChannelSet::NONE),
        }
    }

    /// The channels whose filters could not be joined within the limits. Their filters are interpreted one by one.
    pub fn interpreted(&self) -> impl Iterator<Item = usize> + '_ {
        self.interpreted.iter().map(|(channel, _)| *channel)
    }

    /// The most instructions that are interpreted for a packet.
    pub fn interpreted_instructions(&self) -> usize {
        self.interpreted.iter().map(|(_, program)| program.longest_path()).sum()
    }

    /// The bytes of memory that the tables take.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// The units of work that joining took; a unit is about a table look-up.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// The class of a field's value in a packet.
    #[inline(always)]
    fn class(&self, field: usize, packet: &Packet<'_>) -> Result<usize, LoadFailure> {
        let Some(field) = self.fields.get(field) else { return Err(LoadFailure::Reject) };
        let value = match field.source {
            ValueSource::Load { width, at } => packet.load(width, at)?,
            ValueSource::AboveIpv4 { width, header, k } => {
                let at = header_length(packet, header)?.checked_add(k).ok_or(LoadFailure::Reject)?;
                packet.load(width, at)?
            }
            ValueSource::Any(id) => self.evaluate(id, packet)?,
        };
        Ok(field.tree.class(value))
    }

    #[inline(never)]
    fn evaluate(&self, id: ExpressionId, packet: &Packet<'_>) -> Result<u32, LoadFailure> {
        self.expressions.value(id, packet)
    }

    /// Looks up the fields of a leaf and adds the channels that accept the packet to `wanted`.
    #[inline(always)]
    fn look_up_fields(
        &self,
        leaf: &Leaf,
        packet: &Packet<'_>,
        wanted: &mut ChannelSet,
    ) -> Result<(), MoreBytes> {
        let mut rows = [0_usize; LEAF_FIELDS_MAX];
        for (number, field) in leaf.fields.iter().enumerate() {
            let class = match self.class(field.field, packet) {
                Ok(class) => class,
                Err(LoadFailure::Reject) => NO_VALUE,
                Err(LoadFailure::More(more)) => {
                    if leaf.needs(field, rows.get(..number).unwrap_or_default()) {
                        return Err(more);
                    }
                    NO_VALUE
                }
            };
            if let Some(row) = rows.get_mut(number) {
                *row = field.row(class);
            }
        }
        let rows = rows.get(..leaf.fields.len()).unwrap_or_default();
        for (group, words) in leaf.words.as_chunks::<GROUP>().0.iter().enumerate() {
            let possible = leaf.possible_paths(rows, group);
            for (word, bits) in words.iter().zip(possible) {
                if let Some(wanted) = wanted.words.get_mut(usize::from(*word)) {
                    *wanted |= bits;
                }
            }
        }
        Ok(())
    }
}

/// The most fields of a leaf.
pub(crate) const LEAF_FIELDS_MAX: usize = 32;

impl LeafField {
    /// The start of the row for a class.
    #[inline(always)]
    fn row(&self, class: usize) -> usize {
        self.row_of.get(class).and_then(|&row| usize::try_from(row).ok()).unwrap_or(usize::MAX)
    }
}

impl Leaf {
    /// The paths that no row rules out, for one group of words.
    #[inline(always)]
    fn possible_paths(&self, rows: &[usize], group: usize) -> [u64; GROUP] {
        let mut possible = [u64::MAX; GROUP];
        for row in rows {
            let bits = self.rows.get(row.saturating_add(group * GROUP)..).and_then(|rest| rest.first_chunk());
            let bits = bits.unwrap_or(&[0; GROUP]);
            possible.iter_mut().zip(bits).for_each(|(possible, bits)| *possible &= bits);
        }
        possible
    }

    /// Returns true if a path that is still possible depends on this field. Called only where the field needs more
    /// bytes of the packet.
    #[cold]
    fn needs(&self, field: &LeafField, rows: &[usize]) -> bool {
        let without = [field.row(NO_VALUE)];
        (0..self.words.len() / GROUP).any(|group| {
            let possible = self.possible_paths(rows, group);
            let independent = self.possible_paths(&without, group);
            possible.iter().zip(independent).any(|(possible, independent)| possible & !independent != 0)
        })
    }
}
