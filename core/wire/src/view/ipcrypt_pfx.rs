//! ipcrypt-pfx: prefix-preserving encryption of addresses (F. Denis, "Methods for IP Address Encryption and
//! Obfuscation", draft-denis-ipcrypt).
//!
//! Each bit of an address is flipped or not by a pseudo-random function of the bits before it. The function encrypts
//! a block under two independent AES-128 keys, and takes the lowest bit of the XOR of both. The block is the prefix
//! as a number with a 1 in front of it, so the prefix length is part of the block. No two prefixes have the same
//! block, and flips are independent. In [`crypto_pan`](super::crypto_pan), the flips of neighbouring bits
//! are often computed from the same block.
//!
//! An IPv4 address is treated as an IPv6 address with the prefix ::ffff:0:0/96, and this prefix stays.

use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Block};
use std::fmt;

/// The keyed function that decides which bits of an address are flipped.
#[derive(Clone)]
pub(super) struct IpcryptPfx {
    first: Aes128,
    second: Aes128,
}

impl IpcryptPfx {
    /// Creates the function from two keys of 16 bytes each. If both are equal, the second one is changed, because with
    /// equal keys no bit would ever be flipped.
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let (first, second) = key.split_at(16);
        let half = |half: &[u8]| Array(std::array::from_fn(|i| half[i]));
        let (first, mut second): (Block, Block) = (half(first), half(second));
        if first == second {
            second[0] ^= 1;
        }
        Self { first: Aes128::new(&first), second: Aes128::new(&second) }
    }

    /// The flips of the `N` bits of an address from bit `from` on, as a number of `N` bits: 1 for each flipped bit. Bit
    /// 0 is the highest one. The blocks are encrypted together under each key, so that they share the CPU's pipeline.
    #[inline(always)]
    pub(super) fn flips<const N: usize>(&self, address: u128, from: u32) -> u128 {
        let mut first = [Array([0; 16]); N];
        for (len, block) in (from..).zip(&mut first) {
            *block = Array(block_of(address, len));
        }
        let mut second = first;
        self.first.encrypt_blocks(&mut first);
        self.second.encrypt_blocks(&mut second);
        first.iter().zip(&second).fold(0, |flips, (first, second)| flips << 1 | flip(first, second))
    }

    /// The flips of the first 16 bits of every IPv4 address, indexed by these bits.
    pub(super) fn upper_halves(&self) -> Box<[u16]> {
        let mut flips = vec![0_u16];
        for len in 0..16 {
            let prefixes = (0_u128..1 << len).map(|prefix| MAPPED | prefix << (32 - len));
            let mut first: Vec<Block> = prefixes.map(|prefix| Array(block_of(prefix, 96 + len))).collect();
            let mut second = first.clone();
            self.first.encrypt_blocks(&mut first);
            self.second.encrypt_blocks(&mut second);
            flips = flips
                .iter()
                .zip(first.iter().zip(&second))
                .flat_map(|(before, (first, second))| {
                    let flip = before << 1 | u16::from((first[15] ^ second[15]) & 1);
                    [flip, flip]
                })
                .collect();
        }
        // The flip of the last of the 16 bits depends on the 15 bits before it, so both values of the last bit have the
        // same entry.
        flips.into_boxed_slice()
    }
}

/// The prefix of IPv4-mapped addresses.
pub(super) const MAPPED: u128 = 0xffff_0000_0000;

/// The AES block that decides whether the bit after the first `len` bits is flipped: these bits as a number, with a 1
/// in front.
#[inline(always)]
fn block_of(address: u128, len: u32) -> [u8; 16] {
    (1 << len | address.checked_shr(128 - len).unwrap_or(0)).to_be_bytes()
}

#[inline(always)]
fn flip(first: &Block, second: &Block) -> u128 {
    u128::from((first[15] ^ second[15]) & 1)
}

impl fmt::Debug for IpcryptPfx {
    /// Omits the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IpcryptPfx").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    fn encrypted(scheme: &IpcryptPfx, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(address) => {
                let bits = u32::from(address);
                let flips = scheme.flips::<32>(MAPPED | u128::from(bits), 96);
                Ipv4Addr::from(bits ^ u32::try_from(flips).unwrap()).into()
            }
            IpAddr::V6(address) => {
                let bits = u128::from(address);
                Ipv6Addr::from(bits ^ scheme.flips::<128>(bits, 0)).into()
            }
        }
    }

    fn key(text: &str) -> [u8; 32] {
        std::array::from_fn(|i| u8::from_str_radix(&text[i * 2..i * 2 + 2], 16).unwrap())
    }

    /// The test vectors of the draft: a key, and pairs of an address and its encryption.
    const VECTORS: [(&str, &str); 2] = [
        (
            "0123456789abcdeffedcba98765432101032547698badcfeefcdab8967452301",
            "0.0.0.0 151.82.155.134  255.255.255.255 94.185.169.89  192.0.2.1 100.115.72.131
            2001:db8::1 c180:5dd4:2587:3524:30ab:fa65:6ab6:f88",
        ),
        (
            "2b7e151628aed2a6abf7158809cf4f3ca9f5ba40db214c3798f2e1c23456789a",
            "10.0.0.47 19.214.210.244  10.0.0.129 19.214.210.80  10.0.0.234 19.214.210.30
            172.16.5.193 210.78.229.136  172.16.97.42 210.78.179.241  172.16.248.177 210.78.121.215
            2001:db8::a5c9:4e2f:bb91:5a7d 7cec:702c:1243:f70:1956:125:b9bd:1aba
            2001:db8::7234:d8f1:3c6e:9a52 7cec:702c:1243:f70:a3ef:c8e:95c1:cd0d
            2001:db8::f1e0:937b:26d4:8c1a 7cec:702c:1243:f70:443c:c8e:6a62:b64d
            2001:db8:3a5c:0:e7d1:4b9f:2c8a:f673 7cec:702c:3503:bef:e616:96bd:be33:a9b9
            2001:db8:9f27:0:b4e2:7a3d:5f91:c8e6 7cec:702c:a504:b74e:194a:3d90:b047:2d1a",
        ),
    ];

    #[test]
    fn the_published_test_vectors_are_reproduced() {
        let mut count = 0;
        for (text, vectors) in VECTORS {
            let scheme = IpcryptPfx::new(&key(text));
            let words: Vec<IpAddr> = vectors.split_whitespace().map(|word| word.parse().unwrap()).collect();
            for pair in words.chunks_exact(2) {
                assert_eq!(encrypted(&scheme, pair[0]), pair[1], "{}", pair[0]);
                count += 1;
            }
        }
        assert_eq!(count, 4 + 11);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Results equal those of another implementation.
        #[test]
        fn results_equal_those_of_another_implementation(key: [u8; 32], v4: u32, v6: u128) {
            let (scheme, oracle) = (IpcryptPfx::new(&key), ipcrypt_rs::IpcryptPfx::new(key));
            for address in [Ipv4Addr::from(v4).into(), Ipv6Addr::from(v6).into()] {
                prop_assert_eq!(encrypted(&scheme, address), oracle.encrypt_ipaddr(address));
            }
        }

        #[test]
        fn the_first_16_bits_are_as_if_computed_one_by_one(key: [u8; 32], address: u16) {
            let scheme = IpcryptPfx::new(&key);
            let flips = scheme.flips::<16>(MAPPED | u128::from(address) << 16, 96);
            prop_assert_eq!(u128::from(scheme.upper_halves()[usize::from(address)]), flips);
        }

        /// The flips of some bits are the same alone as among all bits.
        #[test]
        fn bits_can_be_flipped_part_by_part(key: [u8; 32], address: u128) {
            let scheme = IpcryptPfx::new(&key);
            let (upper, lower) = (scheme.flips::<64>(address, 0), scheme.flips::<64>(address, 64));
            prop_assert_eq!(upper << 64 | lower, scheme.flips::<128>(address, 0));
        }

        /// Two pseudonyms have exactly as many first bits in common as their addresses.
        #[test]
        fn prefixes_are_preserved(key: [u8; 32], address: u128, other: u128, common in 0..128u32) {
            let scheme = IpcryptPfx::new(&key);
            let other = address ^ other >> common;
            let [first, second] = [address, other].map(|address| address ^ scheme.flips::<128>(address, 0));
            prop_assert_eq!((first ^ second).leading_zeros(), (address ^ other).leading_zeros());
            let [a, b] = [address >> 96, other >> 96].map(|address| MAPPED | address);
            let [first, second] = [a, b].map(|address| address ^ scheme.flips::<32>(address, 96));
            prop_assert_eq!((first ^ second).leading_zeros(), (a ^ b).leading_zeros());
        }
    }

    /// Equal keys would encrypt nothing.
    #[test]
    fn two_equal_keys_are_made_different() {
        let scheme = IpcryptPfx::new(&[5; 32]);
        let address: IpAddr = "2001:db8::1".parse().unwrap();
        assert_ne!(encrypted(&scheme, address), address);
        assert_eq!(format!("{scheme:?}"), "IpcryptPfx { .. }");
    }
}
