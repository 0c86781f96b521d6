//! Pseudonyms of addresses under attack: an attacker who knows some addresses computes others, under either
//! construction.
//!
//! A flip is the XOR of a bit of an address with the bit of its pseudonym. Under Crypto-PAn, bits i and i + 1 have
//! the same flip if bit i of the address equals bit i of a secret pad, because both are computed from the same block.
//! Under ipcrypt-pfx flips are independent.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_wire::view::{Transform, ViewKey};

const IPCRYPT_PFX: &str = "addresses=anonymised";
const CRYPTO_PAN: &str = "addresses=crypto-pan";

fn transform(view: &str, key: u64) -> Transform {
    Transform::new(view.parse().unwrap(), &ViewKey::derive(&[0x2f; 32], &key.to_be_bytes()))
}

/// A generator of pseudorandom numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// An address of `bits` bits, the first of which is the highest one. It is not an IPv6 group, as parts of those
    /// are not anonymised.
    fn address(&mut self, bits: u32) -> u128 {
        let number = u128::from(self.next()) << 64 | u128::from(self.next());
        match bits {
            32 => number >> 96 << 96,
            _ if number >> 120 == 0xff => number >> 1,
            _ => number,
        }
    }
}

/// The flips of an address of `bits` bits, from the highest bit on.
fn flips(transform: &mut Transform, address: u128, bits: u32) -> u128 {
    let given: IpAddr = if bits == 32 {
        Ipv4Addr::from(u32::try_from(address >> 96).unwrap()).into()
    } else {
        Ipv6Addr::from(address).into()
    };
    match transform.address(given) {
        IpAddr::V4(shown) => address ^ u128::from(u32::from(shown)) << 96,
        IpAddr::V6(shown) => address ^ u128::from(shown),
    }
}

fn bit(bits: u128, at: u32) -> bool {
    bits >> (127 - at) & 1 == 1
}

/// Chi-squared, with 3 degrees of freedom, of the values of neighbouring flips, for each pair from bit `from` on. No
/// two addresses have the first `from` bits in common, so all flips are independent under a good construction.
fn chi_squared(view: &str, from: u32) -> Vec<f64> {
    const COUNT: u32 = 1_000_000;
    let mut transform = transform(view, 1);
    let mut random = Random(5);
    let mut counts = vec![[0_u32; 4]; usize::try_from(31 - from).unwrap()];
    for number in 0..COUNT {
        // From 16.0.0.0 on; the last bits are random.
        let prefix = (1 << (from - 4)) + number;
        let last = u32::try_from(random.next() >> (32 + from)).unwrap();
        let address = u128::from(prefix << (32 - from) | last) << 96;
        let flips = flips(&mut transform, address, 32);
        for (pair, counts) in (from..31).zip(&mut counts) {
            counts[usize::from(bit(flips, pair)) * 2 + usize::from(bit(flips, pair + 1))] += 1;
        }
    }
    let expected = f64::from(COUNT) / 4.0;
    counts
        .iter()
        .map(|counts| counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum())
        .collect()
}

/// The threshold. An independent pair exceeds it once in 700,000 tests, of which there are 10 here.
const THRESHOLD: f64 = 30.0;

#[test]
fn pairs_of_neighbouring_flips_of_a_million_addresses_are_independent() {
    let good = chi_squared(IPCRYPT_PFX, 21);
    assert_eq!(good.len(), 10);
    assert!(good.iter().all(|value| *value < THRESHOLD), "{good:.1?}");
    // The same test detects Crypto-PAn for every pair.
    let weak = chi_squared(CRYPTO_PAN, 21);
    assert!(weak.iter().all(|value| *value > 1000.0 * THRESHOLD), "{weak:.1?}");
}

/// The proportion of equal neighbouring flips, over many keys.
fn equal(view: &str, bits: u32, keys: u64, count: u32) -> f64 {
    let mut random = Random(9);
    let (mut equal, mut all) = (0, 0);
    for key in 0..keys {
        let mut transform = transform(view, key);
        for _ in 0..count {
            let flips = flips(&mut transform, random.address(bits), bits);
            let same = !(flips ^ flips << 1) >> (128 - (bits - 1)) << (128 - (bits - 1));
            // The last bit has no successor.
            equal += same.count_ones();
            all += bits - 1;
        }
    }
    f64::from(equal) / f64::from(all)
}

#[test]
fn neighbouring_flips_are_equal_in_half_of_the_cases_and_under_crypto_pan_in_three_quarters() {
    let (good, weak) = (equal(IPCRYPT_PFX, 32, 100, 300), equal(CRYPTO_PAN, 32, 100, 300));
    println!("equal neighbouring flips: ipcrypt-pfx {:.1} %, Crypto-PAn {:.1} %", good * 100.0, weak * 100.0);
    assert!((good - 0.5).abs() < 0.02, "{good}");
    assert!((weak - 0.75).abs() < 0.02, "{weak}");
}

/// The pad as recovered by an attacker: for each bit, the number of addresses that indicate 0 and 1; and those
/// addresses.
struct Pad(Vec<[u32; 2]>, Vec<u128>);

impl Pad {
    /// Recovers the pad from `known` addresses. If two neighbouring flips differ, the bit of the address differs from
    /// that of the pad.
    fn from_known(transform: &mut Transform, random: &mut Random, known: u32, bits: u32) -> Self {
        let mut votes = vec![[0; 2]; usize::try_from(bits - 1).unwrap()];
        let mut addresses = Vec::new();
        for _ in 0..known {
            let address = random.address(bits);
            let flips = flips(transform, address, bits);
            addresses.push(address);
            for (at, votes) in (0..).zip(&mut votes) {
                if bit(flips, at) != bit(flips, at + 1) {
                    votes[usize::from(!bit(address, at))] += 1;
                }
            }
        }
        Self(votes, addresses)
    }

    /// A bit of the pad, if all addresses agree on it.
    fn bit(&self, at: u32) -> Option<bool> {
        match self.0.get(usize::try_from(at).unwrap())? {
            [0, 0] => None,
            [_, 0] => Some(false),
            [0, _] => Some(true),
            _ => None,
        }
    }

    fn recovered(&self) -> u32 {
        u32::try_from((0..).take(self.0.len()).filter(|at| self.bit(*at).is_some()).count()).unwrap()
    }

    fn contradictions(&self) -> u32 {
        u32::try_from(self.0.iter().filter(|votes| votes.iter().all(|votes| *votes > 0)).count()).unwrap()
    }

    /// The number of times that the recovered pad predicts two equal flips of another address, and the number of
    /// times that they are equal. Only bits behind the longest prefix in common with a known address count: the flips
    /// of that prefix are known under every prefix-preserving construction.
    fn predictions(&self, address: u128, flips: u128) -> (u32, u32) {
        let common = self.1.iter().map(|known| (known ^ address).leading_zeros()).max().unwrap_or(0);
        let says = |at: &u32| self.bit(*at) == Some(bit(address, *at));
        let said: Vec<u32> = (0..).take(self.0.len()).skip_while(|at| *at <= common).filter(says).collect();
        let right = said.iter().filter(|at| bit(flips, **at) == bit(flips, **at + 1)).count();
        (u32::try_from(said.len()).unwrap(), u32::try_from(right).unwrap())
    }

    /// The bits of an address that an attacker learns from its pseudonym: all bits less the entropy left by the
    /// recovered part of the pad. The first flip is the same for all addresses, and so known.
    fn leaked(&self, address: u128, flips: u128, bits: u32) -> f64 {
        let shown = address ^ flips;
        // The flip of bit i is the pseudonym's bit XOR the address's bit, so only these have to be tracked.
        let mut is_one = f64::from(u8::from(bit(address, 0)));
        let mut left = 0.0;
        for at in 0..bits - 1 {
            // If the next flip is equal, the next bit of the address changes exactly if the pseudonym's does.
            let changes = bit(shown, at) != bit(shown, at + 1);
            let same = |of: bool| if changes { !of } else { of };
            // The probability that the next bit is 1 after 0 and after 1.
            let next = |of: bool| {
                let likely = match self.bit(at) {
                    None => 0.75,
                    Some(pad) if pad == of => 1.0,
                    Some(_) => 0.5,
                };
                if same(of) { likely } else { 1.0 - likely }
            };
            let entropy = |p: f64| {
                if p <= 0.0 || p >= 1.0 { 0.0 } else { -p * p.log2() - (1.0 - p) * (1.0 - p).log2() }
            };
            left += (1.0 - is_one) * entropy(next(false)) + is_one * entropy(next(true));
            is_one = (1.0 - is_one) * next(false) + is_one * next(true);
        }
        f64::from(bits) - left
    }
}

/// The results of the attack, as means over many keys.
#[derive(Debug, Default)]
struct Found {
    recovered: f64,
    contradictions: f64,
    predictions: u32,
    right: u32,
    leaked: f64,
}

fn attack(view: &str, known: u32, bits: u32) -> Found {
    const KEYS: u32 = 200;
    const OTHERS: u32 = 50;
    let mut found = Found::default();
    for key in 0..KEYS {
        let (mut transform, mut random) = (transform(view, key.into()), Random(u64::from(key) << 32 | 77));
        let pad = Pad::from_known(&mut transform, &mut random, known, bits);
        found.recovered += f64::from(pad.recovered()) / f64::from(KEYS);
        found.contradictions += f64::from(pad.contradictions()) / f64::from(KEYS);
        for _ in 0..OTHERS {
            let address = random.address(bits);
            let flips = flips(&mut transform, address, bits);
            let (said, right) = pad.predictions(address, flips);
            found.predictions += said;
            found.right += right;
            found.leaked += pad.leaked(address, flips, bits) / f64::from(KEYS * OTHERS);
        }
    }
    found
}

#[test]
fn eight_known_addresses_reveal_the_pad_of_crypto_pan() {
    for (bits, recovered, leaked) in [(32, 25.0..29.0, 12.0..16.0), (128, 110.0..118.0, 52.0..64.0)] {
        let found = attack(CRYPTO_PAN, 8, bits);
        println!("Crypto-PAn, {bits} bits: {found:.1?}");
        assert!(found.contradictions == 0.0, "{found:?}");
        // Every recovered bit is right: all predictions for other addresses hold.
        assert!(found.predictions > 100_000 && found.right == found.predictions, "{found:?}");
        assert!(recovered.contains(&found.recovered), "{bits}: {found:?}");
        assert!(leaked.contains(&found.leaked), "{bits}: {found:?}");
    }
}

#[test]
fn eight_known_addresses_reveal_nothing_under_ipcrypt_pfx() {
    for bits in [32, 128] {
        let found = attack(IPCRYPT_PFX, 8, bits);
        println!("ipcrypt-pfx, {bits} bits: {found:.1?}");
        // Most addresses contradict each other. If they agree by chance, their predictions are random.
        assert!(found.contradictions > 0.7 * f64::from(bits - 1), "{found:?}");
        let right = f64::from(found.right) / f64::from(found.predictions);
        assert!(found.predictions > 10_000 && (right - 0.5).abs() < 0.02, "{right}: {found:?}");
        // With more addresses they agree only on the first bits, which all addresses have in common.
        let more = attack(IPCRYPT_PFX, 100, bits);
        assert!(more.recovered < 3.0 && more.predictions == 0, "{more:?}");
    }
}

/// An address has the same pseudonym in a packet as on its own.
#[test]
fn the_pseudonym_of_an_address_is_that_in_packets() {
    use super::packets::{self, Over, V4};
    let bytes = packets::framed(&packets::ipv4(17, &packets::udp(Over::V4)));
    for (view, shows) in [
        (IPCRYPT_PFX, None),
        (CRYPTO_PAN, None),
        ("addresses=zeroed", Some([0; 4])),
        ("ttl=zeroed", Some(V4[0])),
    ] {
        let mut transform = super::transform(view);
        let (out, _) = super::shown(&mut transform, &bytes, bytes.len(), weir_wire::LinkType::Ethernet);
        let alone = transform.address(IpAddr::from(V4[0]));
        assert_eq!(alone, IpAddr::from(<[u8; 4]>::try_from(&out[26..30]).unwrap()));
        assert!(shows.is_none_or(|shows| alone == IpAddr::from(shows)), "{view}");
    }
}
