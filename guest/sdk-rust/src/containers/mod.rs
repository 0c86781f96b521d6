//! Containers of a fixed capacity, whose operations have constant bounds of their time.
//!
//! So weir finds a bound of each call, and a module that uses nothing else is proved. No operation allocates memory: a
//! container is part of the module's state. Its first value has to be made of zeros, as `new` makes it, so that it takes
//! no place in the module's file.
//!
//! | container | for |
//! |---|---|
//! | [`Map`] | state for each key; a full set of eight evicts what was used longest ago |
//! | [`Top`] | the keys with the largest sums |
//! | [`CountMin`] | sums of very many keys, at most a little too high |
//! | [`Bloom`] | whether a key is new |
//! | [`HyperLogLog`] | the number of different keys |
//! | [`Lpm`] | the longest prefix of an address |
//! | [`Histogram`] | quantiles |
//! | [`Ring`] | the last values |
//! | [`Stack`] | work that is left, in place of functions that call themselves |
//! | [`TokenBucket`] | a rate: tokens in packet time |
//! | [`TimerWheel`] | timers |
//!
//! They have the layout, the hashes and the answers of `weir_containers.h` for C, whose comments say more about errors
//! and sizes. Loops over entries take a function, because a loop has its bound in one place then.
//!
//! ```
//! use weir_guest::containers::Map;
//! use weir_guest::Ip;
//!
//! let mut bytes: Map<Ip, u64, 64> = Map::new(0);
//! *bytes.add(Ip::v4([192, 0, 2, 1])).value += 1500;
//! assert_eq!(bytes.find(&Ip::v4([192, 0, 2, 1])), Some(&mut 1500));
//! ```

#![forbid(unsafe_code)]

mod bloom;
mod bucket;
mod count_min;
mod histogram;
mod hyper_log_log;
mod key;
mod lpm;
mod map;
mod ring;
mod stack;
mod top;
mod wheel;

pub use bloom::Bloom;
pub use bucket::TokenBucket;
pub use count_min::CountMin;
pub use histogram::Histogram;
pub use hyper_log_log::HyperLogLog;
pub use key::{hash_key, set_seed, Key, Text};
pub use lpm::Lpm;
pub use map::{Added, Map, MapEntry};
pub use ring::Ring;
pub use stack::Stack;
pub use top::{Top, TopEntry};
pub use wheel::{Timer, TimerWheel};

/// Number of entries in a set of [`Map`] and [`Top`]. A key's hash chooses its set; the key is in one of the set's ways.
const WAYS: usize = 8;

/// The part of a hash that marks an entry; never 0, which marks a free one.
#[inline(always)]
const fn tag_of(hash: u64) -> u32 {
    hash as u32 | 1
}

/// Scales the upper half of a hash to a number below `count`.
#[inline(always)]
const fn scale(hash: u64, count: usize) -> usize {
    ((hash >> 32) * count as u64 >> 32) as usize
}

/// Scales the hash number `i` that follows from a hash (A. Kirsch, M. Mitzenmacher, "Less hashing, same performance", ESA
/// 2006).
#[inline(always)]
const fn nth(hash: u64, i: u32, count: usize) -> usize {
    let nth = ((hash >> 32) as u32).wrapping_add(i.wrapping_mul(hash as u32 | 1));
    (nth as u64 * count as u64 >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ip, Prefix};
    use std::collections::{HashMap, VecDeque};
    use std::vec::Vec;

    /// George Marsaglia's xorshift64. The numbers are the same in every run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % limit
        }
    }

    #[test]
    fn a_map_has_the_entries_of_an_exact_one_until_it_evicts() {
        let mut random = Random(1);
        let mut map: Map<u32, u64, 64> = Map::new(0);
        let mut model = HashMap::new();
        let mut evictions = 0;
        for time in 1..100_000u64 {
            let key = random.below(80) as u32;
            match random.below(4) {
                0 => assert_eq!(map.remove(&key), model.remove(&key)),
                1 => assert_eq!(map.find(&key).copied(), model.get(&key).copied()),
                _ => {
                    let is_known = model.contains_key(&key);
                    let added = map.add(key);
                    assert_eq!(*added.value, model.get(&key).copied().unwrap_or(0));
                    *added.value = time;
                    if let Some(evicted) = added.evicted {
                        assert!(!is_known && model.remove(&evicted.key) == Some(evicted.value));
                        evictions += 1;
                    }
                    model.insert(key, time);
                }
            }
            assert_eq!(map.len(), model.len());
        }
        assert!(evictions > 100 && evictions == map.evictions());
        let (mut position, mut seen) = (0, HashMap::new());
        while map.part::<7>(&mut position, |entry| assert_eq!(seen.insert(entry.key, entry.value), None)) {}
        assert_eq!(seen, model);
        map.retain(|entry| entry.key % 2 == 0);
        model.retain(|key, _| key % 2 == 0);
        map.each(|entry| assert_eq!(model.remove(&entry.key), Some(entry.value)));
        assert!(model.is_empty());
    }

    #[test]
    fn a_top_list_is_sorted_and_its_counts_are_never_too_low() {
        let mut random = Random(2);
        let mut top: Top<u32, 256> = Top::new();
        let mut exact = HashMap::new();
        for _ in 0..100_000 {
            let key = (random.below(60) * random.below(60)) as u32;
            top.add(key, 3);
            *exact.entry(key).or_insert(0) += 3;
        }
        let mut listed = Vec::new();
        top.each::<20>(10, |rank, entry| {
            assert_eq!(rank as usize, listed.len() + 1);
            assert!(entry.count >= exact[&entry.key] && entry.count - entry.error <= exact[&entry.key]);
            listed.push(entry.count);
        });
        assert!(listed.len() == 10 && listed.windows(2).all(|pair| pair[0] >= pair[1]));
        let highest = exact.values().max().unwrap();
        assert!(listed[0] >= *highest && top.total() == 300_000);
        assert_eq!(top.find(&0).map(|entry| entry.count), Some(listed[0]));
    }

    #[test]
    fn sketches_have_the_errors_that_their_comments_say() {
        let (mut sketch, mut seen) = (CountMin::<u64, 1024>::new(), Bloom::<u64, 2500>::new());
        let mut distinct = HyperLogLog::<u64, 4096>::new();
        for key in 0..10_000 {
            assert!(sketch.add(&key, 2) >= 2 && sketch.estimate(&key) >= 2);
            let was_known = seen.has(&key);
            assert!(seen.add(&key) != was_known && seen.has(&key) && !seen.add(&key));
            distinct.add(&key);
            assert!(!distinct.add(&key));
        }
        let excess =
            (0..10_000).filter(|key| sketch.estimate(key) - 2 > 2 * sketch.total() * 272 / 204_800).count();
        assert!(excess < 200, "{excess}");
        let wrong = (1 << 40..(1 << 40) + 100_000).filter(|key| seen.has(key)).count();
        assert!(wrong > 50 && wrong < 100_000 / 330, "{wrong}");
        assert!((distinct.count() / 10_000.0 - 1.0).abs() < 3.0 * 1.04 / 64.0);
        let mut few = HyperLogLog::<u64, 4096>::new();
        (0..100).for_each(|key| _ = few.add(&key));
        assert!((few.count() - 100.0).abs() < 5.0);
        distinct.clear();
        distinct.merge(&few);
        assert_eq!(distinct.count(), few.count());
    }

    #[test]
    fn a_trie_finds_what_a_linear_search_finds() {
        let mut random = Random(3);
        static TRIE: std::sync::Mutex<Lpm<700>> = std::sync::Mutex::new(Lpm::new()); // too large for the stack
        let mut trie = TRIE.lock().unwrap();
        let address = |random: &mut Random| {
            let mut bytes = [0u8; 16];
            bytes.fill_with(|| (random.below(3) * 85) as u8);
            if random.below(2) == 0 {
                Ip::v4([bytes[0], bytes[1], bytes[2], bytes[3]])
            } else {
                Ip(bytes)
            }
        };
        let mut prefixes = Vec::new();
        for number in 0..60 {
            let ip = address(&mut random);
            let bits = if ip.to_v4().is_some() { 96 + random.below(33) } else { random.below(129) };
            prefixes.push(Prefix::new(ip, bits as u8));
            assert!(trie.add(&prefixes[number], number as u32));
        }
        let mut found = 0;
        for _ in 0..20_000 {
            let ip = address(&mut random);
            let longest =
                (0..60).filter(|n| prefixes[*n].contains(ip)).max_by_key(|n| (prefixes[*n].bits(), *n));
            assert_eq!(trie.find(ip), longest.map(|n| n as u32));
            found += u32::from(longest.is_some());
        }
        assert!(found > 1000);
        assert!(!Lpm::<2>::new().add(&Prefix::new(Ip::v4([10, 0, 0, 0]), 105), 0));
    }

    #[test]
    fn a_ring_equals_a_queue_and_a_histogram_has_its_error() {
        let mut random = Random(4);
        let (mut ring, mut queue) = (Ring::<u64, 5>::new(0), VecDeque::new());
        let (mut histogram, mut values) = (Histogram::new(), Vec::new());
        for i in 0..20_000u64 {
            if random.below(3) == 0 {
                assert_eq!(ring.pop(), queue.pop_front());
            } else {
                assert_eq!(ring.push(i), queue.len() < 5);
                queue.push_back(i);
                if queue.len() > 5 {
                    queue.pop_front();
                }
            }
            assert_eq!((ring.get(0), ring.len()), (queue.front(), queue.len()));
            let value = random.below(1 << (1 + i % 60));
            histogram.add(value);
            values.push(value);
        }
        let mut all = Vec::new();
        ring.each(|value| all.push(*value));
        assert_eq!(VecDeque::from(all), queue);
        values.sort_unstable();
        for rank in (0..20_000).step_by(37) {
            let quantile = histogram.quantile((rank as f64 + 0.5) / 20_000.0);
            assert!(quantile.abs_diff(values[rank]) <= values[rank] / 32);
        }
        assert_eq!((histogram.min(), histogram.max()), (values.first().copied(), values.last().copied()));
    }

    #[test]
    fn a_stack_equals_a_vector() {
        let mut random = Random(6);
        let (mut stack, mut values) = (Stack::<u64, 5>::new(0), Vec::new());
        for i in 0..20_000u64 {
            if random.below(2) == 0 {
                assert_eq!(stack.pop(), values.pop());
            } else if values.len() < 5 {
                assert!(stack.push(i));
                values.push(i);
            } else {
                assert!(!stack.push(i));
            }
            assert_eq!((stack.len(), stack.is_empty()), (values.len(), values.is_empty()));
        }
        stack.clear();
        assert_eq!(stack.pop(), None);
    }

    #[test]
    fn a_bucket_counts_exactly() {
        let mut random = Random(5);
        let (mut bucket, mut tokens, mut now) = (TokenBucket::new(), 1000 * 1_000_000_000u128, 0);
        for i in 0..100_000 {
            let elapsed = random.below(if i % 1000 == 0 { 3_000_000_000 } else { 3_000_000 });
            now += elapsed;
            tokens = (tokens + u128::from(elapsed) * 100_000).min(1000 * 1_000_000_000);
            let amount = random.below(700);
            let is_enough = tokens >= u128::from(amount) * 1_000_000_000;
            assert_eq!(bucket.take(now, 100_000, 1000, amount), is_enough);
            tokens -= if is_enough { u128::from(amount) * 1_000_000_000 } else { 0 };
        }
        assert!(TokenBucket::new().take(u64::MAX, u64::MAX, u64::MAX, TokenBucket::MAX));
    }

    #[test]
    fn a_timer_expires_once_never_early_and_at_most_a_step_late() {
        let mut random = Random(6);
        let mut wheel = TimerWheel::<u32, 100, 128, 10>::new(0);
        let mut model: HashMap<u32, (Timer, u64)> = HashMap::new();
        let (mut now, mut expired) = (12_345, 0);
        for number in 0..100_000 {
            match random.below(4) {
                0 => {
                    let delay = random.below(1400);
                    match wheel.start(now, delay, number) {
                        Some(timer) => assert!(model.insert(number, (timer, now + delay)).is_none()),
                        None => assert!(model.len() == 100 || delay > 126 * 10),
                    }
                }
                1 => {
                    if let Some(key) = model.keys().next().copied() {
                        let (timer, _) = model.remove(&key).unwrap();
                        assert!(wheel.cancel(timer) && !wheel.cancel(timer));
                    }
                }
                _ => {
                    now += random.below(20);
                    for _ in 0..400 {
                        let Some(value) = wheel.expire(now) else { continue };
                        assert!(model.remove(&value).is_some_and(|(_, due)| due <= now));
                        expired += 1;
                    }
                    assert!(wheel.left(now) == 0 && model.values().all(|(_, due)| due + 10 > now));
                }
            }
            assert_eq!(wheel.len(), model.len());
        }
        assert!(expired > 1000);
    }

    #[test]
    fn keys_have_the_hashes_of_the_headers_bytes() {
        crate::key! {
            struct Pair {
                source: Ip,
                port: u16,
                byte: u8,
            }
        }
        let pair = Pair { source: Ip::v4([1, 2, 3, 4]), port: 0x0605, byte: 7 };
        let mut bytes = [0; 19];
        pair.write(&mut bytes);
        assert_eq!(&bytes[12..], [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(pair.hash(), hash_key(&bytes));
        let text = Text::<20>::until(b"Host: x", b':');
        let mut lower = text;
        lower.lower();
        assert!(text.text() == b"Host" && lower.text() == b"host" && !text.is(&lower));
        assert!(Text::<5>::of(b"hostname").is(&Text::of(b"host")));
    }
}
