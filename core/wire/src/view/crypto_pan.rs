//! Crypto-PAn: prefix-preserving anonymisation of addresses (J. Xu, J. Fan, M. H. Ammar, S. B. Moon,
//! "Prefix-preserving IP address anonymization: measurement-based security evaluation and a new cryptography-based
//! scheme", ICNP 2002). IPv4 is as published by its authors; IPv6 uses the same construction over 128 bits.
//!
//! Each bit of an address is flipped or not by a pseudo-random function of the bits before it: the most significant
//! bit of an AES-128 block that begins with them and continues with a secret pad (section 4.2 of the paper). Two
//! addresses with exactly their first n bits in common get pseudonyms with exactly their first n bits in common. With
//! the key, and only with it, the address of a pseudonym can be computed.

use aes::Aes128;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use std::fmt;

/// The keyed function that decides which bits of an address are flipped.
#[derive(Clone)]
pub(super) struct CryptoPan {
    cipher: Aes128,
    pad: u128,
}

impl CryptoPan {
    /// Creates the function from a key of 32 bytes: 16 for AES, and 16 from which the pad is derived.
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let (cipher, pad) = key.split_at(16);
        let half = |half: &[u8]| Array(std::array::from_fn(|i| half[i]));
        let cipher = Aes128::new(&half(cipher));
        let mut pad = half(pad);
        cipher.encrypt_block(&mut pad);
        Self { cipher, pad: u128::from_be_bytes(pad.0) }
    }

    /// The flips of the `N` bits of an address from bit `from` on, as a number of `N` bits: 1 for each flipped bit. Bit
    /// 0 is the highest one. The blocks are encrypted together, so that they share the CPU's pipeline.
    #[inline(always)]
    pub(super) fn flips<const N: usize>(&self, address: u128, from: u32) -> u128 {
        let mut blocks = [Array([0; 16]); N];
        for (len, block) in (from..).zip(&mut blocks) {
            *block = Array(self.block(address, len));
        }
        self.cipher.encrypt_blocks(&mut blocks);
        blocks.iter().fold(0, |flips, block| flips << 1 | u128::from(block.0[0] >> 7))
    }

    /// The flips of the first 16 bits of every address, indexed by these bits.
    pub(super) fn upper_halves(&self) -> Box<[u16]> {
        let mut flips = vec![0_u16];
        for len in 0..16 {
            let mut blocks: Vec<_> = (0_u128..1 << len)
                .map(|prefix| Array(self.block(prefix.checked_shl(128 - len).unwrap_or(0), len)))
                .collect();
            self.cipher.encrypt_blocks(&mut blocks);
            flips = flips
                .iter()
                .zip(&blocks)
                .flat_map(|(before, block)| {
                    let flip = before << 1 | u16::from(block.0[0] >> 7);
                    [flip, flip]
                })
                .collect();
        }
        // The flip of the last of the 16 bits depends on the 15 bits before it, so both values of the last bit have the
        // same entry.
        flips.into_boxed_slice()
    }

    /// The AES block that decides whether the bit after the first `len` bits is flipped: these bits, and then the rest
    /// of the pad.
    #[inline(always)]
    fn block(&self, address: u128, len: u32) -> [u8; 16] {
        let rest = u128::MAX.checked_shr(len).unwrap_or(0);
        (address & !rest | self.pad & rest).to_be_bytes()
    }
}

impl fmt::Debug for CryptoPan {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CryptoPan").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    fn anonymised(key: &[u8; 32], address: IpAddr) -> IpAddr {
        let scheme = CryptoPan::new(key);
        match address {
            IpAddr::V4(address) => {
                let bits = u32::from(address);
                let flips = scheme.flips::<32>(u128::from(bits) << 96, 0);
                Ipv4Addr::from(bits ^ u32::try_from(flips).unwrap()).into()
            }
            IpAddr::V6(address) => {
                let bits = u128::from(address);
                Ipv6Addr::from(bits ^ scheme.flips::<128>(bits, 0)).into()
            }
        }
    }

    /// The key and the trace published by the authors with their program (`sample_trace_raw.dat`,
    /// `sample_trace_sanitized.dat`).
    const SAMPLE_KEY: [u8; 32] = [
        21, 34, 23, 141, 51, 164, 207, 128, 19, 10, 91, 22, 73, 144, 125, 16, 216, 152, 143, 131, 121, 121,
        101, 39, 98, 87, 76, 45, 42, 132, 34, 2,
    ];

    const SAMPLE_TRACE: &str = "
        128.11.68.132 135.242.180.132   129.118.74.4 134.136.186.123    130.132.252.244 133.68.164.234
        141.223.7.43 141.167.8.160      141.233.145.108 141.129.237.235 152.163.225.39 151.140.114.167
        156.29.3.236 147.225.12.42      165.247.96.84 162.9.99.234      166.107.77.190 160.132.178.185
        192.102.249.13 252.138.62.131   192.215.32.125 252.43.47.189    192.233.80.103 252.25.108.8
        192.41.57.43 252.222.221.184    193.150.244.223 253.169.52.216  195.205.63.100 255.186.223.5
        198.200.171.101 249.199.68.213  198.26.132.101 249.36.123.202   198.36.213.5 249.7.21.132
        198.51.77.238 249.18.186.254    199.217.79.101 248.38.184.213   202.49.198.20 245.206.7.234
        203.12.160.252 244.248.163.4    204.184.162.189 243.192.77.90   204.202.136.230 243.178.4.198
        204.29.20.4 243.33.20.123       205.178.38.67 242.108.198.51    205.188.147.153 242.96.16.101
        205.188.248.25 242.96.88.27     205.245.121.43 242.21.121.163   207.105.49.5 241.118.205.138
        207.135.65.238 241.202.129.222  207.155.9.214 241.220.250.22    207.188.7.45 241.255.249.220
        207.25.71.27 241.33.119.156     207.33.151.131 241.1.233.131    208.147.89.59 227.237.98.191
        208.234.120.210 227.154.67.17   208.28.185.184 227.39.94.90     208.52.56.122 227.8.63.165
        209.12.231.7 226.243.167.8      209.238.72.3 226.6.119.243      209.246.74.109 226.22.124.76
        209.68.60.238 226.184.220.233   209.85.249.6 226.170.70.6       212.120.124.31 228.135.163.231
        212.146.8.236 228.19.4.234      212.186.227.154 228.59.98.98    212.204.172.118 228.71.195.169
        212.206.130.201 228.69.242.193  216.148.237.145 235.84.194.111  216.157.30.252 235.89.31.26
        216.184.159.48 235.96.225.78    216.227.10.221 235.28.253.36    216.254.18.172 235.7.16.162
        216.32.132.250 235.192.139.38   216.35.217.178 235.195.157.81   24.0.250.221 100.15.198.226
        24.13.62.231 100.2.192.247      24.14.213.138 100.1.42.141      24.5.0.80 100.9.15.210
        24.7.198.88 100.10.6.25         24.94.26.44 100.88.228.35       38.15.67.68 64.3.66.187
        4.3.88.225 124.60.155.63        63.14.55.111 95.9.215.7         63.195.241.44 95.179.238.44
        63.97.7.140 95.97.9.123         64.14.118.196 0.255.183.58      64.34.154.117 0.221.154.117
        64.39.15.238 0.219.7.41";

    /// IPv6 with the same key: as in the Go package of Yawning Angel (`cryptopan_test.go`), and as computed by the
    /// Python package yacryptopan.
    const SAMPLE_IPV6: &str = "
        ::1 78ff:f001:9fc0:20df:8380:b1f1:704:ed            ::2 78ff:f001:9fc0:20df:8380:b1f1:704:ef
        ::ffff 78ff:f001:9fc0:20df:8380:b1f1:704:f838       2001:db8::1 4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e
        2001:db8::2 4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1c   ff00:: cef0:f003:e03c:700:9c70:5e0e:f6fb:c1ef";

    #[test]
    fn the_published_traces_are_reproduced() {
        let words: Vec<IpAddr> = [SAMPLE_TRACE, SAMPLE_IPV6]
            .iter()
            .flat_map(|table| table.split_whitespace())
            .map(|word| word.parse().unwrap())
            .collect();
        assert_eq!(words.len(), (70 + 6) * 2);
        for pair in words.chunks_exact(2) {
            assert_eq!(anonymised(&SAMPLE_KEY, pair[0]), pair[1], "{}", pair[0]);
        }
    }

    #[test]
    fn a_key_of_consecutive_bytes_gives_what_yacryptopan_gives() {
        let key = std::array::from_fn(|i| u8::try_from(i).unwrap());
        for (address, expected) in
            [("192.0.2.1", "2.90.93.17"), ("2001:db8::1", "dd92:2c44:3fc0:ff1e:7ff9:c7f0:8180:7e00")]
        {
            assert_eq!(anonymised(&key, address.parse().unwrap()), expected.parse::<IpAddr>().unwrap());
        }
    }

    proptest! {
        #[test]
        fn the_first_16_bits_are_as_if_computed_one_by_one(key: [u8; 32], address: u16) {
            let scheme = CryptoPan::new(&key);
            let flips = scheme.flips::<16>(u128::from(address) << 112, 0);
            prop_assert_eq!(u128::from(scheme.upper_halves()[usize::from(address)]), flips);
        }

        /// The flips of some bits are the same alone as among all bits.
        #[test]
        fn bits_can_be_flipped_part_by_part(key: [u8; 32], address: u128) {
            let scheme = CryptoPan::new(&key);
            let (upper, lower) = (scheme.flips::<64>(address, 0), scheme.flips::<64>(address, 64));
            prop_assert_eq!(upper << 64 | lower, scheme.flips::<128>(address, 0));
        }
    }

    #[test]
    fn a_key_is_not_shown() {
        assert_eq!(format!("{:?}", CryptoPan::new(&SAMPLE_KEY)), "CryptoPan { .. }");
    }
}
