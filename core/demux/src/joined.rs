//! Filters that are added and removed: most are joined in one table, the recent ones in another.
//!
//! Joining takes longer the more filters there are. So an added filter is joined only with other recent filters, in a
//! table of their own, and a packet takes two evaluations until all filters are joined again. After the removal of a
//! filter nothing is joined: its channel is removed from the results.

use crate::channels::ChannelSet;
use crate::demux::Demux;
use crate::join::{JoinError, JoinLimits};
use crate::packet::{MoreBytes, Packet};
use crate::program::FilterProgram;
use std::sync::Arc;

/// The most filters in the table of recent filters. The number is a compromise: with a larger one, all filters are
/// joined less often, but each added filter is joined with more recent ones. With [`CHANNELS_MAX`](crate::CHANNELS_MAX)
/// channels, this number is about the best.
pub const RECENT_MAX: usize = 32;

/// The filters of channels, indexed by channel number.
pub type Filters = Vec<Option<Arc<FilterProgram>>>;

/// The joined filters of all channels, in two tables. The value is immutable: a change of the filters makes a new
/// value.
#[derive(Debug, Default)]
pub struct Joined {
    /// The filters that were joined when all filters were joined last.
    settled: FilterTable,
    /// The filters that were added since then.
    recent: FilterTable,
}

/// A set of filters that are joined in one table.
#[derive(Clone, Debug, Default)]
struct FilterTable {
    demux: Arc<Demux>,
    /// The channels whose filters in the table are still current.
    present: ChannelSet,
    /// True if the table also contains removed filters.
    has_stale: bool,
}

impl FilterTable {
    fn new(demux: Demux, present: ChannelSet) -> Self {
        Self { demux: Arc::new(demux), present, has_stale: false }
    }

    /// The table with only these channels present.
    fn keep(&self, kept: &ChannelSet) -> Self {
        let mut present = self.present;
        present.keep(kept);
        if present.is_empty() {
            return Self::default();
        }
        Self { demux: Arc::clone(&self.demux), present, has_stale: self.has_stale || present != self.present }
    }
}

impl Joined {
    /// Sets `wanted` to the channels whose filters accept the packet.
    ///
    /// # Errors
    ///
    /// [`MoreBytes`] if a filter reads bytes beyond the packet's `head`. The contents of `wanted` are then unspecified.
    #[inline]
    pub fn channels(&self, packet: &Packet<'_>, wanted: &mut ChannelSet) -> Result<(), MoreBytes> {
        self.settled.demux.channels(packet, wanted)?;
        if self.settled.has_stale {
            wanted.keep(&self.settled.present);
        }
        if !self.recent.present.is_empty() {
            let mut more = ChannelSet::NONE;
            self.recent.demux.channels(packet, &mut more)?;
            more.keep(&self.recent.present);
            wanted.insert_all(&more);
        }
        Ok(())
    }

    /// The channels whose filters accept every packet, if the result of [`channels`](Self::channels) does not depend on
    /// the packet.
    pub fn constant(&self) -> Option<ChannelSet> {
        let mut wanted = self.settled.demux.constant()?;
        wanted.keep(&self.settled.present);
        if !self.recent.present.is_empty() {
            let mut more = self.recent.demux.constant()?;
            more.keep(&self.recent.present);
            wanted.insert_all(&more);
        }
        Some(wanted)
    }

    /// Returns true if all filters are in one table, which contains no removed filters.
    pub fn is_settled(&self) -> bool {
        self.recent.present.is_empty() && !self.settled.has_stale
    }
}

/// Joins filters as they are added and removed.
#[derive(Clone, Debug)]
pub struct Joiner {
    limits: JoinLimits,
    filters: Filters,
    joined: Arc<Joined>,
}

impl Joiner {
    /// Creates a joiner without filters.
    pub fn new(limits: JoinLimits) -> Self {
        Self { limits, filters: Filters::new(), joined: Arc::default() }
    }

    /// The current filters.
    pub fn filters(&self) -> &Filters {
        &self.filters
    }

    /// The joined current filters.
    pub fn joined(&self) -> &Arc<Joined> {
        &self.joined
    }

    /// Replaces the filters. A change that only removes filters does not fail.
    ///
    /// # Errors
    ///
    /// [`JoinError`], if the filters cannot be joined within the limits; then nothing has changed.
    pub fn change(&mut self, filters: Filters) -> Result<&Arc<Joined>, JoinError> {
        let is_unchanged = |channel: usize| match (self.filters.get(channel), filters.get(channel)) {
            (Some(Some(before)), Some(Some(now))) => Arc::ptr_eq(before, now) || before == now,
            _ => false,
        };
        let kept: ChannelSet = (0..filters.len()).filter(|&channel| is_unchanged(channel)).collect();
        let (settled, recent) = (self.joined.settled.keep(&kept), self.joined.recent.keep(&kept));
        let with_filter =
            (0..filters.len()).filter(|&channel| filters.get(channel).is_some_and(Option::is_some));
        let mut new: ChannelSet = with_filter.collect();
        new.remove_all(&kept);
        if !new.is_empty() || filters.len() > crate::CHANNELS_MAX {
            let mut recent_channels = recent.present;
            recent_channels.insert_all(&new);
            self.joined = Arc::new(match self.with_recent(&settled, &recent_channels, &filters) {
                Some(joined) => joined,
                None => join_all(&filters, &self.limits)?,
            });
        } else if settled.present != self.joined.settled.present
            || recent.present != self.joined.recent.present
        {
            self.joined = Arc::new(Joined { settled, recent });
        }
        self.filters = filters;
        Ok(&self.joined)
    }

    /// Keeps the table of settled filters and joins the filters of `recent_channels` in a table of their own; `None` if
    /// that is impossible, so that all filters have to be joined.
    fn with_recent(
        &self,
        settled: &FilterTable,
        recent_channels: &ChannelSet,
        filters: &Filters,
    ) -> Option<Joined> {
        if recent_channels.len() > RECENT_MAX || filters.len() > crate::CHANNELS_MAX {
            return None;
        }
        // The limit on interpreted instructions applies to both tables together.
        let limits = JoinLimits {
            interpreted: self.limits.interpreted.saturating_sub(settled.demux.interpreted_instructions()),
            ..self.limits
        };
        let programs: Vec<Option<&FilterProgram>> = filters
            .iter()
            .enumerate()
            .map(|(channel, filter)| filter.as_deref().filter(|_| recent_channels.contains(channel)))
            .collect();
        let demux = Demux::new(&programs, &limits).ok()?;
        Some(Joined { settled: settled.clone(), recent: FilterTable::new(demux, *recent_channels) })
    }

    /// Adopts the result of [`join_all`]. Returns true if `filters` are still the current ones; otherwise nothing
    /// changes.
    pub fn settle(&mut self, filters: &Filters, joined: Joined) -> bool {
        let is_same = *filters == self.filters;
        if is_same {
            self.joined = Arc::new(joined);
        }
        is_same
    }
}

/// Joins all filters in one table. This takes long for many filters.
///
/// # Errors
///
/// [`JoinError`].
pub fn join_all(filters: &Filters, limits: &JoinLimits) -> Result<Joined, JoinError> {
    let programs: Vec<Option<&FilterProgram>> = filters.iter().map(Option::as_deref).collect();
    let present = (0..filters.len()).filter(|&channel| filters.get(channel).is_some_and(Option::is_some));
    let (demux, present) = (Demux::new(&programs, limits)?, present.collect());
    Ok(Joined { settled: FilterTable::new(demux, present), recent: FilterTable::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Instruction;

    /// A filter for packets that begin with this byte.
    fn filter(byte: u32) -> Option<Arc<FilterProgram>> {
        let code = |code, jt, jf, k| Instruction { code, jt, jf, k };
        let program = [code(0x30, 0, 0, 0), code(0x15, 0, 1, byte), code(6, 0, 0, 1), code(6, 0, 0, 0)];
        Some(Arc::new(FilterProgram::new(&program).unwrap()))
    }

    fn wanted(joined: &Joined, first: u8) -> Vec<usize> {
        let mut set: ChannelSet = (0..1024).collect();
        joined.channels(&Packet { head: &[first], cap_len: 1, wire_len: 1 }, &mut set).unwrap();
        set.iter().collect()
    }

    #[test]
    fn an_added_filter_is_joined_with_recent_ones_and_a_removed_one_is_masked() {
        let mut joiner = Joiner::new(JoinLimits::default());
        let mut filters: Filters = (0..100).map(|_| filter(1)).collect();
        joiner.change(filters.clone()).unwrap();
        assert!(joiner.joined().is_settled(), "100 filters are too many for the recent table");
        let settled = Arc::clone(&joiner.joined().settled.demux);
        filters.push(filter(2));
        joiner.change(filters.clone()).unwrap();
        assert!(!joiner.joined().is_settled() && Arc::ptr_eq(&settled, &joiner.joined().settled.demux));
        assert_eq!((wanted(joiner.joined(), 1).len(), wanted(joiner.joined(), 2)), (100, vec![100]));
        // The channel number of a removed filter is reused, and the removed filter selects nothing any more.
        filters[7] = filter(2);
        filters[8] = None;
        joiner.change(filters.clone()).unwrap();
        assert!(Arc::ptr_eq(&settled, &joiner.joined().settled.demux));
        assert_eq!((wanted(joiner.joined(), 1).len(), wanted(joiner.joined(), 2)), (98, vec![7, 100]));
        let recent = Arc::clone(&joiner.joined().recent.demux);
        filters[100] = None;
        joiner.change(filters.clone()).unwrap();
        assert!(Arc::ptr_eq(&recent, &joiner.joined().recent.demux));
        assert_eq!(wanted(joiner.joined(), 2), [7]);

        // A result is adopted only if the filters have not changed meanwhile.
        let all = join_all(&filters, &JoinLimits::default()).unwrap();
        let again = join_all(&filters, &JoinLimits::default()).unwrap();
        assert!(joiner.settle(&filters, all) && joiner.joined().is_settled());
        assert_eq!((wanted(joiner.joined(), 1).len(), wanted(joiner.joined(), 2)), (98, vec![7]));
        let before = filters.clone();
        filters[9] = filter(3);
        joiner.change(filters).unwrap();
        assert!(!joiner.settle(&before, again));
        assert_eq!(wanted(joiner.joined(), 3), [9]);
    }

    #[test]
    fn the_result_is_constant_as_long_as_no_filter_reads_the_packet() {
        let all = || {
            let program = [Instruction { code: 6, jt: 0, jf: 0, k: 1 }];
            Some(Arc::new(FilterProgram::new(&program).unwrap()))
        };
        let mut joiner = Joiner::new(JoinLimits::default());
        let constant = |joiner: &Joiner| Some(joiner.joined().constant()?.iter().collect::<Vec<_>>());
        assert_eq!(constant(&joiner), Some(vec![]));
        joiner.change(vec![all(), None, all()]).unwrap();
        assert_eq!((constant(&joiner), wanted(joiner.joined(), 1)), (Some(vec![0, 2]), vec![0, 2]));
        joiner.change(vec![None, filter(1), all()]).unwrap();
        assert_eq!((constant(&joiner), wanted(joiner.joined(), 1)), (None, vec![1, 2]));
        // A removed filter that reads the packet may be in a table until all filters are joined again.
        joiner.change(vec![None, None, all()]).unwrap();
        assert_eq!(wanted(joiner.joined(), 1), [2]);
        let settled = join_all(joiner.filters(), &JoinLimits::default()).unwrap();
        assert_eq!(settled.constant().unwrap().iter().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn unchanged_filters_keep_their_tables() {
        let mut joiner = Joiner::new(JoinLimits::default());
        let first = Arc::clone(joiner.change(vec![filter(1), None, filter(2)]).unwrap());
        let second = Arc::clone(joiner.change(vec![filter(1), None, filter(2)]).unwrap());
        assert!(Arc::ptr_eq(&first, &second));
    }

    #[test]
    fn a_refused_change_has_no_effect_and_removed_filters_free_their_share() {
        let hard = |byte| {
            // A program that returns the sum of two bytes cannot be looked up.
            let code = |code, k| Instruction { code, jt: 0, jf: 0, k };
            let program = [code(0x30, 0), code(0x07, 0), code(0x50, byte), code(0x16, 0)];
            Some(Arc::new(FilterProgram::new(&program).unwrap()))
        };
        // The limit allows the four instructions of two such filters.
        let limits = JoinLimits { filter_work: 0, interpreted: 8, ..JoinLimits::default() };
        let mut joiner = Joiner::new(limits);
        joiner.change(vec![hard(1), hard(2)]).unwrap();
        let error = joiner.change(vec![hard(1), hard(2), hard(3)]).unwrap_err();
        assert!(matches!(error, JoinError::TooMuchToInterpret { instructions: 12, .. }), "{error}");
        assert_eq!(joiner.filters().len(), 2);
        joiner.change(vec![hard(1), None, hard(3)]).unwrap();
        let all = join_all(joiner.filters(), &limits).unwrap();
        let filters = joiner.filters().clone();
        assert!(joiner.settle(&filters, all));
        // Both settled filters are removed in turn, and others are added.
        joiner.change(vec![hard(1), hard(4), None]).unwrap();
        joiner.change(vec![None, hard(4), hard(5)]).unwrap();
        assert!(joiner.change(vec![hard(6), hard(4), hard(5)]).is_err());
        let many = vec![filter(1); 1025];
        assert_eq!(joiner.change(many).unwrap_err(), JoinError::TooManyChannels(1025));
    }
}
