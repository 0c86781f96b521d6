//! Filters that come and go: most of them are joined, and those that came last are joined by themselves.
//!
//! Joining all filters takes longer the more there are, and would be done anew for each that comes. So those that have come since are kept apart, and are
//! few: it takes two look-ups for a packet until all are joined again. A filter that goes is joined with nothing; what it selects is left out.

use crate::channels::ChannelSet;
use crate::demux::Demux;
use crate::join::{JoinError, JoinLimits};
use crate::packet::{MoreBytes, Packet};
use crate::program::FilterProgram;
use std::sync::Arc;

/// Filters that are kept apart, at most. Of n filters that come one by one each is then joined anew n / 32 times with all others, and with 16 young ones on
/// average: for as many as there can be that is about the least.
pub const YOUNG_MAX: usize = 32;

/// Filters of channels, at their numbers.
pub type Filters = Vec<Option<Arc<FilterProgram>>>;

/// Says who wants a packet, of filters that came at different times. It never changes: where a filter comes or goes there is another one.
#[derive(Debug, Default)]
pub struct Joined {
    settled: Part,
    young: Part,
}

/// Filters that are joined.
#[derive(Clone, Debug, Default)]
struct Part {
    demux: Arc<Demux>,
    /// Channels whose filters these still are.
    present: ChannelSet,
    /// There are others whose filters have gone.
    has_stale: bool,
}

impl Part {
    fn new(demux: Demux, present: ChannelSet) -> Self {
        Self { demux: Arc::new(demux), present, has_stale: false }
    }

    /// What is left of it where only these have kept their filters.
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
    /// Puts the channels whose filters accept the packet into `wanted`, in place of what was there.
    ///
    /// # Errors
    ///
    /// As [`Demux::channels`].
    #[inline]
    pub fn channels(&self, packet: &Packet<'_>, wanted: &mut ChannelSet) -> Result<(), MoreBytes> {
        self.settled.demux.channels(packet, wanted)?;
        if self.settled.has_stale {
            wanted.keep(&self.settled.present);
        }
        if !self.young.present.is_empty() {
            let mut more = ChannelSet::NONE;
            self.young.demux.channels(packet, &mut more)?;
            more.keep(&self.young.present);
            wanted.insert_all(&more);
        }
        Ok(())
    }

    /// Whether all filters are joined, and no others with them.
    pub fn is_settled(&self) -> bool {
        self.young.present.is_empty() && !self.settled.has_stale
    }
}

/// Joins filters that come and go.
#[derive(Clone, Debug)]
pub struct Joiner {
    limits: JoinLimits,
    filters: Filters,
    joined: Arc<Joined>,
}

impl Joiner {
    /// Begins without any.
    pub fn new(limits: JoinLimits) -> Self {
        Self { limits, filters: Filters::new(), joined: Arc::default() }
    }

    /// The present filters.
    pub fn filters(&self) -> &Filters {
        &self.filters
    }

    /// What says who wants a packet by the present filters.
    pub fn joined(&self) -> &Arc<Joined> {
        &self.joined
    }

    /// From now on these are the filters. Where none has come, this does not fail.
    ///
    /// # Errors
    ///
    /// They cannot be joined within the limits; then the filters are what they were.
    pub fn change(&mut self, filters: Filters) -> Result<&Arc<Joined>, JoinError> {
        let same = |channel: usize| match (self.filters.get(channel), filters.get(channel)) {
            (Some(Some(before)), Some(Some(now))) => Arc::ptr_eq(before, now) || before == now,
            _ => false,
        };
        let kept: ChannelSet = (0..filters.len()).filter(|&channel| same(channel)).collect();
        let (settled, young) = (self.joined.settled.keep(&kept), self.joined.young.keep(&kept));
        let there = (0..filters.len()).filter(|&channel| filters.get(channel).is_some_and(Option::is_some));
        let mut new: ChannelSet = there.collect();
        new.remove_all(&kept);
        if !new.is_empty() || filters.len() > crate::CHANNELS_MAX {
            let mut apart = young.present;
            apart.insert_all(&new);
            self.joined = Arc::new(match self.with_young(&settled, &apart, &filters) {
                Some(joined) => joined,
                None => whole(&filters, &self.limits)?,
            });
        } else if settled.present != self.joined.settled.present || young.present != self.joined.young.present
        {
            self.joined = Arc::new(Joined { settled, young });
        }
        self.filters = filters;
        Ok(&self.joined)
    }

    /// The settled ones as they are, and these joined by themselves; nothing where that cannot be, and all have to be joined.
    fn with_young(&self, settled: &Part, apart: &ChannelSet, filters: &Filters) -> Option<Joined> {
        if apart.len() > YOUNG_MAX || filters.len() > crate::CHANNELS_MAX {
            return None;
        }
        // What is interpreted for a packet is limited for all together.
        let limits = JoinLimits {
            interpreted: self.limits.interpreted.saturating_sub(settled.demux.interpreted_instructions()),
            ..self.limits
        };
        let programs: Vec<Option<&FilterProgram>> = filters
            .iter()
            .enumerate()
            .map(|(channel, filter)| filter.as_deref().filter(|_| apart.contains(channel)))
            .collect();
        let demux = Demux::new(&programs, &limits).ok()?;
        Some(Joined { settled: settled.clone(), young: Part::new(demux, *apart) })
    }

    /// All filters have been [joined](whole) meanwhile. Says whether they are still the present ones; where not, nothing has changed.
    pub fn settle(&mut self, filters: &Filters, joined: Joined) -> bool {
        let is_same = *filters == self.filters;
        if is_same {
            self.joined = Arc::new(joined);
        }
        is_same
    }
}

/// Joins all these filters. This takes long where they are many.
///
/// # Errors
///
/// [`JoinError`].
pub fn whole(filters: &Filters, limits: &JoinLimits) -> Result<Joined, JoinError> {
    let programs: Vec<Option<&FilterProgram>> = filters.iter().map(Option::as_deref).collect();
    let present = (0..filters.len()).filter(|&channel| filters.get(channel).is_some_and(Option::is_some));
    let (demux, present) = (Demux::new(&programs, limits)?, present.collect());
    Ok(Joined { settled: Part::new(demux, present), young: Part::default() })
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
    fn a_filter_that_comes_is_joined_with_few_and_one_that_goes_with_none() {
        let mut joiner = Joiner::new(JoinLimits::default());
        let mut filters: Filters = (0..100).map(|_| filter(1)).collect();
        joiner.change(filters.clone()).unwrap();
        assert!(joiner.joined().is_settled(), "more than are kept apart");
        let settled = Arc::clone(&joiner.joined().settled.demux);
        filters.push(filter(2));
        joiner.change(filters.clone()).unwrap();
        assert!(!joiner.joined().is_settled() && Arc::ptr_eq(&settled, &joiner.joined().settled.demux));
        assert_eq!((wanted(joiner.joined(), 1).len(), wanted(joiner.joined(), 2)), (100, vec![100]));
        // The place of one that goes is another's, and what it selected is nobody's.
        filters[7] = filter(2);
        filters[8] = None;
        joiner.change(filters.clone()).unwrap();
        assert!(Arc::ptr_eq(&settled, &joiner.joined().settled.demux));
        assert_eq!((wanted(joiner.joined(), 1).len(), wanted(joiner.joined(), 2)), (98, vec![7, 100]));
        let young = Arc::clone(&joiner.joined().young.demux);
        filters[100] = None;
        joiner.change(filters.clone()).unwrap();
        assert!(Arc::ptr_eq(&young, &joiner.joined().young.demux));
        assert_eq!(wanted(joiner.joined(), 2), [7]);

        // All are joined while others come and go, or not.
        let all = whole(&filters, &JoinLimits::default()).unwrap();
        let again = whole(&filters, &JoinLimits::default()).unwrap();
        assert!(joiner.settle(&filters, all) && joiner.joined().is_settled());
        assert_eq!((wanted(joiner.joined(), 1).len(), wanted(joiner.joined(), 2)), (98, vec![7]));
        let before = filters.clone();
        filters[9] = filter(3);
        joiner.change(filters).unwrap();
        assert!(!joiner.settle(&before, again));
        assert_eq!(wanted(joiner.joined(), 3), [9]);
    }

    #[test]
    fn the_same_filters_again_are_the_same_tables() {
        let mut joiner = Joiner::new(JoinLimits::default());
        let first = Arc::clone(joiner.change(vec![filter(1), None, filter(2)]).unwrap());
        let second = Arc::clone(joiner.change(vec![filter(1), None, filter(2)]).unwrap());
        assert!(Arc::ptr_eq(&first, &second));
    }

    #[test]
    fn what_is_refused_changes_nothing_and_what_has_gone_takes_no_room() {
        let hard = |byte| {
            // The sum of two bytes is nothing that can be looked up.
            let code = |code, k| Instruction { code, jt: 0, jf: 0, k };
            let program = [code(0x30, 0), code(0x07, 0), code(0x50, byte), code(0x16, 0)];
            Some(Arc::new(FilterProgram::new(&program).unwrap()))
        };
        // Room for the four instructions of two of them.
        let limits = JoinLimits { filter_work: 0, interpreted: 8, ..JoinLimits::default() };
        let mut joiner = Joiner::new(limits);
        joiner.change(vec![hard(1), hard(2)]).unwrap();
        let error = joiner.change(vec![hard(1), hard(2), hard(3)]).unwrap_err();
        assert!(matches!(error, JoinError::TooMuchToInterpret { instructions: 12, .. }), "{error}");
        assert_eq!(joiner.filters().len(), 2);
        joiner.change(vec![hard(1), None, hard(3)]).unwrap();
        let all = whole(joiner.filters(), &limits).unwrap();
        let filters = joiner.filters().clone();
        assert!(joiner.settle(&filters, all));
        // Both of the settled ones go, one after the other, and others come for them.
        joiner.change(vec![hard(1), hard(4), None]).unwrap();
        joiner.change(vec![None, hard(4), hard(5)]).unwrap();
        assert!(joiner.change(vec![hard(6), hard(4), hard(5)]).is_err());
        let many = vec![filter(1); 1025];
        assert_eq!(joiner.change(many).unwrap_err(), JoinError::TooManyChannels(1025));
    }
}
