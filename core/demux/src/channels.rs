//! Sets of channels.

/// The most channels. Channels are numbered from 0.
pub const CHANNELS_MAX: usize = 1024;
const WORDS: usize = CHANNELS_MAX / 64;

/// A set of channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChannelSet {
    pub(crate) words: [u64; WORDS],
}

impl ChannelSet {
    /// No channels.
    pub const NONE: Self = Self { words: [0; WORDS] };

    /// Adds a channel. A number of [`CHANNELS_MAX`] or more is ignored.
    pub fn insert(&mut self, channel: usize) {
        if let Some(word) = self.words.get_mut(channel / 64) {
            *word |= 1 << (channel % 64);
        }
    }

    /// Removes a channel.
    pub fn remove(&mut self, channel: usize) {
        if let Some(word) = self.words.get_mut(channel / 64) {
            *word &= !(1 << (channel % 64));
        }
    }

    /// Adds all channels of the other set.
    pub fn insert_all(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }

    /// Removes all channels that are in the other set.
    pub fn remove_all(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= !other);
    }

    /// Removes all channels that are not in the other set.
    pub fn keep(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= other);
    }

    /// Returns true if the channel is in the set.
    pub fn contains(&self, channel: usize) -> bool {
        self.words.get(channel / 64).is_some_and(|word| word >> (channel % 64) & 1 == 1)
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The number of channels in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| usize::try_from(word.count_ones()).unwrap_or(0)).sum()
    }

    /// Appends the channels to a list, lowest first. Only words with channels below `below` are looked at.
    #[inline]
    pub fn collect_into(&self, below: usize, to: &mut Vec<usize>) {
        for (at, &word) in self.words.iter().enumerate().take(below.div_ceil(64)) {
            let mut rest = word;
            while rest != 0 {
                to.push(at * 64 + rest.trailing_zeros() as usize);
                rest &= rest - 1;
            }
        }
    }

    /// The channels, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            std::iter::successors((word != 0).then_some(word), |rest| {
                Some(rest & (rest - 1)).filter(|rest| *rest != 0)
            })
            .map(move |rest| at * 64 + usize::try_from(rest.trailing_zeros()).unwrap_or(0))
        })
    }
}

impl FromIterator<usize> for ChannelSet {
    fn from_iter<I: IntoIterator<Item = usize>>(channels: I) -> Self {
        let mut set = Self::NONE;
        channels.into_iter().for_each(|channel| set.insert(channel));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_returned_in_ascending_order() {
        let mut set: ChannelSet = [1023, 0, 63, 64, 1024, 65, 7].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 7, 63, 64, 65, 1023]);
        assert_eq!(set.len(), 6);
        assert!(set.contains(1023) && !set.contains(1) && !set.contains(1024));
        set.remove(64);
        set.remove(5000);
        let mut list = vec![5];
        set.collect_into(65, &mut list);
        assert_eq!(list, [5, 0, 7, 63, 65]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 7, 63, 65, 1023]);
        assert!(!set.is_empty() && ChannelSet::NONE.is_empty());
        set.keep(&[7, 64, 1023].into_iter().collect());
        assert_eq!(set.iter().collect::<Vec<_>>(), [7, 1023]);
        set.remove_all(&[7, 8].into_iter().collect());
        assert_eq!(set.iter().collect::<Vec<_>>(), [1023]);
        set.insert_all(&[3, 1023].into_iter().collect());
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 1023]);
    }
}
