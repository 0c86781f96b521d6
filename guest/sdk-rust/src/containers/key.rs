//! Keys.

use crate::parse::DnsName;
use crate::{Ip, Mac};
use core::sync::atomic::{AtomicU64, Ordering};

/// The seed of all hashes of keys.
static SEED: AtomicU64 = AtomicU64::new(0);

/// Sets the seed of all hashes of keys. Call it in `start`, before the first key.
///
/// A sender who knows the seed can choose keys that collide: they evict each other from a map, and raise estimates. The
/// bounds of time hold even then. weir has no random numbers, so that a capture gives the same rows on every machine: the
/// default seed is 0, and known. A module that must withstand such senders takes a seed from its operator, as a
/// parameter.
pub fn set_seed(seed: u64) {
    SEED.store(crate::hash_words(&[seed, 1]), Ordering::Relaxed);
}

/// A key of a container: an integer, an [`Ip`], a [`Mac`], a [`Text`], a [`DnsName`], or a struct that
/// [`key!`](crate::key!) declares.
pub trait Key: Copy {
    /// The key of zeros.
    const ZERO: Self;
    /// The length of the key's bytes.
    const LEN: usize;

    /// Writes the key's bytes into a slice of this length.
    fn write(&self, out: &mut [u8]);

    /// Returns the hash of the key's bytes.
    fn hash(&self) -> u64;

    /// Returns true if the keys are equal.
    fn is(&self, other: &Self) -> bool;
}

#[inline(always)]
const fn add(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash ^ hash >> 32
}

/// Returns the hash of a key's bytes, the same as `weir_hash_key` of `weir_containers.h`.
#[inline(always)]
pub fn hash_key(bytes: &[u8]) -> u64 {
    let mut hash = add(SEED.load(Ordering::Relaxed), bytes.len() as u64);
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        hash = add(hash, u64::from_le_bytes(*word));
    }
    let mut tail = tail;
    let mut rest = 0;
    if let Some((four, behind)) = tail.split_first_chunk::<4>() {
        rest = u64::from(u32::from_le_bytes(*four));
        tail = behind;
    }
    if let Some((two, behind)) = tail.split_first_chunk::<2>() {
        rest = rest << 16 | u64::from(u16::from_le_bytes(*two));
        tail = behind;
    }
    if let [byte, ..] = tail {
        rest = rest << 8 | u64::from(*byte);
    }
    if bytes.len() % 8 != 0 {
        hash = add(hash, rest);
    }
    // Stafford's variant 13 of the MurmurHash3 finalizer.
    let hash = (hash ^ hash >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let hash = (hash ^ hash >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ hash >> 31
}

/// Compares arrays by words, without a call of a function that compares bytes.
#[inline(always)]
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        if u64::from_le_bytes(*a) != u64::from_le_bytes(*b) {
            return false;
        }
    }
    let mut difference = 0;
    for (a, b) in a_tail.iter().zip(b_tail) {
        difference |= a ^ b;
    }
    difference == 0
}

macro_rules! integers {
    ($($ty:ty)+) => {$(
        impl Key for $ty {
            const ZERO: Self = 0;
            const LEN: usize = core::mem::size_of::<$ty>();

            #[inline(always)]
            fn write(&self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }

            #[inline(always)]
            fn hash(&self) -> u64 {
                hash_key(&self.to_le_bytes())
            }

            #[inline(always)]
            fn is(&self, other: &Self) -> bool {
                self == other
            }
        }
    )+};
}
integers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128);

macro_rules! bytes {
    ($(($($generics:tt)*) $ty:ty, $len:expr, $bytes:tt;)+) => {$(
        impl $($generics)* Key for $ty {
            const ZERO: Self = Self { $bytes: [0; $len] };
            const LEN: usize = $len;

            #[inline(always)]
            fn write(&self, out: &mut [u8]) {
                out.copy_from_slice(&self.$bytes);
            }

            #[inline(always)]
            fn hash(&self) -> u64 {
                hash_key(&self.$bytes)
            }

            #[inline(always)]
            fn is(&self, other: &Self) -> bool {
                is_equal(&self.$bytes, &other.$bytes)
            }
        }
    )+};
}
bytes! {
    () Ip, 16, 0; () Mac, 6, 0;
    () DnsName, 256, bytes;
    (<const N: usize>) Text<N>, N, bytes;
}

/// A text of up to `N` - 1 bytes, at most 255, as a key. Behind the text are zeros.
#[derive(Clone, Copy)]
pub struct Text<const N: usize> {
    /// The length, the text, and zeros.
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// The empty text.
    pub const EMPTY: Self = {
        assert!(N > 1 && N <= 256, "a text has 1 to 255 bytes");
        Self { bytes: [0; N] }
    };

    /// Returns a text of these bytes. A longer text is cut.
    #[inline]
    pub fn of(text: &[u8]) -> Self {
        let mut copy = Self::EMPTY;
        if let [len, bytes @ ..] = copy.bytes.as_mut_slice() {
            for (to, from) in bytes.iter_mut().zip(text) {
                *to = *from;
            }
            *len = text.len().min(N - 1) as u8;
        }
        copy
    }

    /// Returns a text of the bytes before the first `end`, or of all bytes.
    #[inline]
    pub fn until(text: &[u8], end: u8) -> Self {
        let mut copy = Self::EMPTY;
        let mut count = 0;
        if let [len, bytes @ ..] = copy.bytes.as_mut_slice() {
            for (to, from) in bytes.iter_mut().zip(text) {
                if *from == end {
                    break;
                }
                *to = *from;
                count += 1;
            }
            *len = count;
        }
        copy
    }

    /// Changes ASCII letters to lower case.
    #[inline]
    pub fn lower(&mut self) {
        if let [_, bytes @ ..] = self.bytes.as_mut_slice() {
            for byte in bytes {
                *byte = byte.to_ascii_lowercase();
            }
        }
    }

    /// Returns the text.
    #[inline]
    pub fn text(&self) -> &[u8] {
        match self.bytes.as_slice() {
            [len, bytes @ ..] => bytes.get(..usize::from(*len)).unwrap_or_default(),
            [] => &[],
        }
    }
}

impl<const N: usize> AsRef<[u8]> for Text<N> {
    fn as_ref(&self) -> &[u8] {
        self.text()
    }
}

/// Declares a struct that is a [`Key`](crate::containers::Key). Its fields are keys.
///
/// ```
/// weir_guest::key! {
///     /// Two ends.
///     pub struct Pair {
///         source: weir_guest::Ip,
///         port: u16,
///     }
/// }
/// ```
#[macro_export]
macro_rules! key {
    ($(#[$meta:meta])* $visibility:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field_visibility:vis $field:ident: $ty:ty),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        $visibility struct $name {
            $($(#[$field_meta])* $field_visibility $field: $ty),+
        }

        impl $crate::containers::Key for $name {
            const ZERO: Self = Self { $($field: <$ty as $crate::containers::Key>::ZERO),+ };
            const LEN: usize = 0 $(+ <$ty as $crate::containers::Key>::LEN)+;

            #[inline(always)]
            fn write(&self, out: &mut [u8]) {
                let rest = out;
                $(
                    let (own, rest) = rest.split_at_mut(<$ty as $crate::containers::Key>::LEN);
                    $crate::containers::Key::write(&self.$field, own);
                )+
                _ = rest;
            }

            #[inline(always)]
            fn hash(&self) -> u64 {
                let mut bytes = [0; <$name as $crate::containers::Key>::LEN];
                $crate::containers::Key::write(self, &mut bytes);
                $crate::containers::hash_key(&bytes)
            }

            #[inline(always)]
            fn is(&self, other: &Self) -> bool {
                true $(&& $crate::containers::Key::is(&self.$field, &other.$field))+
            }
        }
    };
}
