//! Who wants a packet: all filters at once.

use crate::channels::ChannelSet;
use crate::classes::{NO_VALUE, Tree};
use crate::expression::{Expression, ExpressionId, Expressions};
use crate::interpret::header_length;
use crate::machine::LoadWidth;
use crate::packet::{Lack, MoreBytes, Packet};
use crate::program::FilterProgram;

/// Words of a leaf's rows are looked at in groups of so many.
pub(crate) const GROUP: usize = 4;

/// All channels' filters, joined.
///
/// It begins with *splits* on what most filters ask for (EtherType, IP protocol), so that only what is of interest for such a packet is looked
/// at after them. A *leaf* has the ways to acceptance that are left as bits: each expression's value gives the ways that it
/// leaves open, and what all of them leave open is accepted (T. V. Lakshman, D. Stiliadis: "High-Speed Policy-based Packet Forwarding Using
/// Efficient Multi-dimensional Range Matching", SIGCOMM 1998). The ways lie so that a way's bit is that of its channel.
#[derive(Debug, Default)]
pub struct Demux {
    pub(crate) fields: Vec<LookupField>,
    pub(crate) nodes: Vec<LookupNode>,
    pub(crate) root: usize,
    pub(crate) expressions: Expressions,
    pub(crate) interpreted: Vec<(usize, FilterProgram)>,
    pub(crate) memory: usize,
    pub(crate) work: u64,
}

/// An expression that is looked up, with its classes.
#[derive(Debug)]
pub(crate) struct LookupField {
    pub(crate) source: ValueSource,
    pub(crate) tree: Tree,
}

/// How an expression is computed: the usual ones in a straight line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ValueSource {
    Load {
        width: LoadWidth,
        at: u32,
    },
    /// Above an IPv4 header.
    AboveIpv4 {
        width: LoadWidth,
        header: u32,
        k: u32,
    },
    Any(ExpressionId),
}

#[derive(Debug)]
pub(crate) enum LookupNode {
    Split {
        field: usize,
        /// By class.
        children: Vec<u32>,
    },
    Leaf(Leaf),
}

/// The ways that are left.
#[derive(Debug, Default)]
pub(crate) struct Leaf {
    /// Channels that take every packet that comes here.
    pub(crate) certain: ChannelSet,
    pub(crate) factors: Vec<Factor>,
    /// For each word of a row, to which word of the channel set it belongs. A multiple of [`GROUP`].
    pub(crate) words: Vec<u8>,
    /// All factors' rows.
    pub(crate) rows: Vec<u64>,
}

/// A field of a leaf.
#[derive(Debug)]
pub(crate) struct Factor {
    pub(crate) field: usize,
    /// For each class, where its row begins: the ways that it leaves open.
    pub(crate) row_of: Vec<u32>,
}

impl ValueSource {
    pub(crate) fn new(id: ExpressionId, expressions: &Expressions) -> Self {
        match expressions.get(id) {
            Expression::Load { width, at } => Self::Load { width, at },
            Expression::LoadBehind { width, base, k } => match expressions.get(base) {
                Expression::HeaderLength(header) => Self::AboveIpv4 { width, header, k },
                _ => Self::Any(id),
            },
            _ => Self::Any(id),
        }
    }
}

impl Demux {
    /// Puts the channels whose filters accept the packet into `wanted`, in place of what was there.
    ///
    /// What it costs does not depend on how many channels there are, but for the words of their bits, and for those whose filters had to be left as
    /// they are ([`interpreted`](Self::interpreted)).
    ///
    /// # Errors
    ///
    /// [`MoreBytes`], where a filter looks at bytes that are not at hand: `wanted` then holds nothing of use.
    #[inline]
    pub fn channels(&self, packet: &Packet<'_>, wanted: &mut ChannelSet) -> Result<(), MoreBytes> {
        let mut at = self.root;
        loop {
            match self.nodes.get(at) {
                Some(LookupNode::Split { field, children }) => {
                    let class = match self.class(*field, packet) {
                        Ok(class) => class,
                        Err(Lack::Reject) => NO_VALUE,
                        Err(Lack::More(more)) => return Err(more),
                    };
                    at = children
                        .get(class)
                        .and_then(|&child| usize::try_from(child).ok())
                        .unwrap_or(usize::MAX);
                }
                Some(LookupNode::Leaf(leaf)) => {
                    *wanted = leaf.certain;
                    if !leaf.factors.is_empty() {
                        self.factors(leaf, packet, wanted)?;
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

    /// Channels whose filters could not be joined with the others within the limits. They are interpreted, one after the other.
    pub fn interpreted(&self) -> impl Iterator<Item = usize> + '_ {
        self.interpreted.iter().map(|(channel, _)| *channel)
    }

    /// Instructions of theirs that are executed for a packet, at most.
    pub fn interpreted_instructions(&self) -> usize {
        self.interpreted.iter().map(|(_, program)| program.longest()).sum()
    }

    /// Bytes of memory that the tables take.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Units of work that it took to make it; a unit is about a look-up in a table.
    pub fn work(&self) -> u64 {
        self.work
    }

    #[inline(always)]
    fn class(&self, field: usize, packet: &Packet<'_>) -> Result<usize, Lack> {
        let Some(field) = self.fields.get(field) else { return Err(Lack::Reject) };
        let value = match field.source {
            ValueSource::Load { width, at } => packet.load(width, at)?,
            ValueSource::AboveIpv4 { width, header, k } => {
                let at = header_length(packet, header)?.checked_add(k).ok_or(Lack::Reject)?;
                packet.load(width, at)?
            }
            ValueSource::Any(id) => self.any(id, packet)?,
        };
        Ok(field.tree.class(value))
    }

    #[inline(never)]
    fn any(&self, id: ExpressionId, packet: &Packet<'_>) -> Result<u32, Lack> {
        self.expressions.value(id, packet)
    }

    #[inline(always)]
    fn factors(&self, leaf: &Leaf, packet: &Packet<'_>, wanted: &mut ChannelSet) -> Result<(), MoreBytes> {
        let mut rows = [0_usize; FACTORS_MAX];
        for (number, factor) in leaf.factors.iter().enumerate() {
            let class = match self.class(factor.field, packet) {
                Ok(class) => class,
                Err(Lack::Reject) => NO_VALUE,
                Err(Lack::More(more)) => {
                    if leaf.needs(factor, rows.get(..number).unwrap_or_default()) {
                        return Err(more);
                    }
                    NO_VALUE
                }
            };
            if let Some(row) = rows.get_mut(number) {
                *row = factor.row(class);
            }
        }
        let rows = rows.get(..leaf.factors.len()).unwrap_or_default();
        for (group, words) in leaf.words.as_chunks::<GROUP>().0.iter().enumerate() {
            let open = leaf.open(rows, group);
            for (word, bits) in words.iter().zip(open) {
                if let Some(wanted) = wanted.words.get_mut(usize::from(*word)) {
                    *wanted |= bits;
                }
            }
        }
        Ok(())
    }
}

/// Fields of a leaf, at most.
pub(crate) const FACTORS_MAX: usize = 32;

impl Factor {
    #[inline(always)]
    fn row(&self, class: usize) -> usize {
        self.row_of.get(class).and_then(|&row| usize::try_from(row).ok()).unwrap_or(usize::MAX)
    }
}

impl Leaf {
    /// The ways that all rows leave open, of a group of words.
    #[inline(always)]
    fn open(&self, rows: &[usize], group: usize) -> [u64; GROUP] {
        let mut open = [u64::MAX; GROUP];
        for row in rows {
            let bits = self.rows.get(row.saturating_add(group * GROUP)..).and_then(|rest| rest.first_chunk());
            let bits = bits.unwrap_or(&[0; GROUP]);
            open.iter_mut().zip(bits).for_each(|(open, bits)| *open &= bits);
        }
        open
    }

    /// Whether a way that is still open depends on this factor. Asked where that would mean getting more of the packet.
    #[cold]
    fn needs(&self, factor: &Factor, rows: &[usize]) -> bool {
        let without = [factor.row(NO_VALUE)];
        (0..self.words.len() / GROUP).any(|group| {
            let (open, independent) = (self.open(rows, group), self.open(&without, group));
            open.iter().zip(independent).any(|(open, independent)| open & !independent != 0)
        })
    }
}
