//! Pattern sets for the host function `find`, compiled when a module starts.

use crate::run::prefilter::Prefilter;
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind, packed};
use memchr::memmem::Finder;
use weir_abi::limit;

/// The most patterns of a packed search. With more patterns the search would make too many failing comparisons, and the
/// automaton is faster.
const PACKED_MAX: usize = 32;
/// The shortest pattern of a packed search, in bytes. With shorter patterns, too, the automaton is faster.
const PACKED_LEN_MIN: usize = 3;

/// The most bytes of all patterns of a packed search together. The search may compare every pattern at each position of
/// the text, so its time is bounded by the text's length times this number.
const PACKED_BYTES_MAX: usize = 256;

/// A compiled set of byte strings.
#[derive(Debug)]
pub(crate) struct Patterns {
    searcher: Searcher,
    /// Finds the first place where a pattern may begin. `None` for a set whose automaton is faster than a copy and the
    /// failing comparisons, and for a processor without the instructions.
    prefilter: Option<Prefilter>,
}

/// The search for a set of byte strings.
#[derive(Debug)]
enum Searcher {
    /// One pattern: SIMD substring search.
    One(Box<Finder<'static>>),
    /// A few patterns: a packed search, which compares the first bytes of all patterns at once (SIMD).
    Packed(Box<packed::Searcher>),
    /// Many patterns, or case-insensitive ones: an Aho-Corasick automaton.
    Automaton(AhoCorasick),
}

/// The reason why a set of patterns cannot be compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternError {
    /// The list is truncated or empty, or has an empty pattern.
    Malformed,
    /// The list has more patterns or bytes than the limit.
    TooMany,
}

impl Patterns {
    /// Compiles a list of patterns; each is a 32-bit little-endian length, and then its bytes. Memory and time are linear in
    /// the length of the list, which is limited, because the automaton is a contiguous NFA and not a DFA.
    pub(crate) fn compile(list: &[u8], ignore_case: bool) -> Result<Self, PatternError> {
        if list.len() > (limit::PATTERN_BYTES + 4 * limit::PATTERNS) as usize {
            return Err(PatternError::TooMany);
        }
        let mut patterns: Vec<&[u8]> = Vec::new();
        let mut rest = list;
        while let Some((len, tail)) = rest.split_first_chunk::<4>() {
            let len = u32::from_le_bytes(*len) as usize;
            let (pattern, tail) = tail.split_at_checked(len).ok_or(PatternError::Malformed)?;
            if pattern.is_empty() {
                return Err(PatternError::Malformed);
            }
            patterns.push(pattern);
            rest = tail;
        }
        if !rest.is_empty() || patterns.is_empty() {
            return Err(PatternError::Malformed);
        }
        if patterns.len() > limit::PATTERNS as usize
            || list.len() - 4 * patterns.len() > limit::PATTERN_BYTES as usize
        {
            return Err(PatternError::TooMany);
        }
        if let ([pattern], false) = (patterns.as_slice(), ignore_case) {
            let searcher = Searcher::One(Box::new(Finder::new(pattern).into_owned()));
            return Ok(Self { searcher, prefilter: Prefilter::new(&patterns) });
        }
        if !ignore_case
            && patterns.len() <= PACKED_MAX
            && patterns.iter().all(|pattern| pattern.len() >= PACKED_LEN_MIN)
            && list.len() - 4 * patterns.len() <= PACKED_BYTES_MAX
            && let Some(searcher) = packed_searcher(&patterns)
        {
            let searcher = Searcher::Packed(Box::new(searcher));
            return Ok(Self { searcher, prefilter: Prefilter::new(&patterns) });
        }
        AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .match_kind(MatchKind::LeftmostLongest)
            .ascii_case_insensitive(ignore_case)
            .build(patterns)
            .map(|automaton| Self { searcher: Searcher::Automaton(automaton), prefilter: None })
            .map_err(|_| PatternError::TooMany)
    }

    /// Returns the index of the pattern and the position of the leftmost match, and of several matches at that position those
    /// of the longest.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<(u32, u32)> {
        let (pattern, at) = match &self.searcher {
            Searcher::One(finder) => (0, finder.find(bytes)?),
            Searcher::Packed(searcher) => {
                let found = searcher.find(bytes)?;
                (found.pattern().as_usize(), found.start())
            }
            Searcher::Automaton(automaton) => {
                let found = automaton.find(bytes)?;
                (found.pattern().as_usize(), found.start())
            }
        };
        Some((u32::try_from(pattern).ok()?, u32::try_from(at).ok()?))
    }
}

impl Patterns {
    /// Returns a place in `len` bytes before which no pattern begins, in text that can change during the search. `None` if
    /// no pattern occurs.
    ///
    /// # Safety
    /// `text` is readable for `len` bytes.
    #[inline]
    pub(crate) unsafe fn first_candidate(&self, text: *const u8, len: usize) -> Option<usize> {
        match &self.prefilter {
            // SAFETY: by the promise of the caller.
            Some(prefilter) => unsafe { prefilter.first_candidate(text, len) },
            None => Some(0),
        }
    }
}

/// Searches text for a list of patterns as the host function `find` does: in bytes that do not change, and in bytes that
/// can change meanwhile. `None` for a list that is refused. For the fuzz target `search`.
pub fn find_both_ways(list: &[u8], text: &[u8]) -> Option<[Option<(u32, u32)>; 2]> {
    let patterns = Patterns::compile(list, false).ok()?;
    // SAFETY: the text is readable.
    let candidate = unsafe { patterns.first_candidate(text.as_ptr(), text.len()) };
    let in_rest = candidate.and_then(|at| {
        let (pattern, distance) = patterns.find(text.get(at..)?)?;
        Some((pattern, distance + u32::try_from(at).ok()?))
    });
    Some([patterns.find(text), in_rest])
}

/// Builds a packed searcher. Returns `None` if the processor lacks the instructions for it.
fn packed_searcher(patterns: &[&[u8]]) -> Option<packed::Searcher> {
    packed::Config::new().match_kind(packed::MatchKind::LeftmostLongest).builder().extend(patterns).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(patterns: &[&[u8]]) -> Vec<u8> {
        patterns
            .iter()
            .flat_map(|p| u32::try_from(p.len()).unwrap().to_le_bytes().into_iter().chain(p.iter().copied()))
            .collect()
    }

    #[test]
    fn the_leftmost_longest_match_is_found() {
        let one = Patterns::compile(&list(&[b"bin"]), false).unwrap();
        assert_eq!((one.find(b"/bin/bin"), one.find(b"/BIN")), (Some((0, 1)), None));
        let many = Patterns::compile(&list(&[b"ab", b"abc", b"x"]), false).unwrap();
        assert_eq!(
            (many.find(b"..abcx"), many.find(b"xab"), many.find(b"")),
            (Some((1, 2)), Some((2, 0)), None)
        );
        let any_case = Patterns::compile(&list(&[b"bin"]), true).unwrap();
        assert_eq!(any_case.find(b"/BiN"), Some((0, 1)));
    }

    #[test]
    fn the_packed_search_finds_what_the_automaton_finds() {
        // Patterns and texts over two letters, so that matches overlap and share beginnings.
        let word = |n: usize, len: usize| -> Vec<u8> { (0..len).map(|i| b"ab"[n >> i & 1]).collect() };
        for n in 0..500 {
            let patterns: Vec<Vec<u8>> = (0..4).map(|k| word(n * 31 + k * 7919, 3 + (n + k) % 4)).collect();
            let patterns: Vec<&[u8]> = patterns.iter().map(Vec::as_slice).collect();
            let text = word(n * 2_654_435_761, 60);
            let packed = packed_searcher(&patterns)
                .map(|searcher| Patterns { searcher: Searcher::Packed(Box::new(searcher)), prefilter: None });
            let many =
                AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&patterns).unwrap();
            let many = many.find(&text).map(|found| found.range());
            if let Some(packed) = packed {
                let found = packed.find(&text).map(|(pattern, at)| {
                    let at = at as usize;
                    at..at + patterns[pattern as usize].len()
                });
                assert_eq!(found, many, "{patterns:?} in {text:?}");
            }
        }
    }

    #[test]
    fn a_list_that_is_truncated_empty_or_too_long_is_refused() {
        for bad in [&b""[..], &[1, 0, 0], &[2, 0, 0, 0, b'a'], &[0, 0, 0, 0], &[255, 255, 255, 255, 1]] {
            assert_eq!(Patterns::compile(bad, false).unwrap_err(), PatternError::Malformed, "{bad:?}");
        }
        let many: Vec<&[u8]> = vec![b"a"; 1025];
        assert_eq!(Patterns::compile(&list(&many), false).unwrap_err(), PatternError::TooMany);
        assert_eq!(
            Patterns::compile(&list(&[&vec![b'a'; 70_000]]), false).unwrap_err(),
            PatternError::TooMany
        );
    }
}
