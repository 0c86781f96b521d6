//! The flow hash: symmetric in direction, cheap, and well mixed in its top and low bits.
//!
//! It is built from the folded multiplication of wyhash and its relatives: the high half of a 64x64-bit product, XORed
//! with the low half. Each half covers the bits that the other mixes badly. The two endpoints are ordered before they
//! are mixed, which makes the result the same in both directions. The constants are fixed, so that with the same number
//! of worker threads every run on every machine divides the flows among them in the same way. A sender can therefore
//! choose addresses whose hashes collide. A table that must resist such senders needs a hash with a secret key.

// The fractional digits of pi, as nothing-up-my-sleeve numbers.
const K0: u64 = 0xa409_3822_299f_31d0;
const K1: u64 = 0x243f_6a88_85a3_08d3;
const K2: u64 = 0x1319_8a2e_0370_7344;
const K3: u64 = 0x4528_21e6_38d0_1377;
const K4: u64 = 0xbe54_66cf_34e9_0c6d;

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let (low, high) = a.carrying_mul(b, 0);
    low ^ high
}

/// Mixes two endpoints. Their order does not change the result.
#[inline(always)]
fn mix(a: u64, b: u64) -> u64 {
    fold(fold(a.min(b) ^ K0, a.max(b) ^ K1), K2)
}

/// The flow hash of an IPv4 packet: of its addresses, ports (0 if there are none) and protocol.
#[inline(always)]
pub(crate) fn ipv4(src: u32, dst: u32, src_port: u16, dst_port: u16, protocol: u8) -> u64 {
    // The protocol is the same in both endpoints, so it does not change their order. An endpoint has 56 bits, so it
    // cannot equal K0, which has 64. XOR of equal numbers would make the product 0.
    let endpoint =
        |address: u32, port: u16| u64::from(protocol) << 48 | u64::from(address) << 16 | u64::from(port);
    mix(endpoint(src, src_port), endpoint(dst, dst_port))
}

/// The flow hash of an IPv6 packet: of its addresses, ports (0 if there are none) and protocol.
#[inline(always)]
pub(crate) fn ipv6(src: [u64; 2], dst: [u64; 2], src_port: u16, dst_port: u16, protocol: u8) -> u64 {
    // The multiplication by K4 spreads port and protocol over all 64 bits. Without it, they would be added to the
    // lowest bits of the folded address alone, where a change of the port could cancel a small change of that address.
    let port_bits = |port: u16| (u64::from(port) | u64::from(protocol) << 16 | 1 << 24).wrapping_mul(K4);
    let endpoint = |[high, low]: [u64; 2], port: u16| fold(high ^ K3, low ^ K1).wrapping_add(port_bits(port));
    mix(endpoint(src, src_port), endpoint(dst, dst_port))
}

/// The flow hash of any other packet: of its link addresses (0 if the link does not have both) and EtherType.
#[inline(always)]
pub(crate) fn link(src: u64, dst: u64, ether_type: u16) -> u64 {
    mix(src, dst) ^ u64::from(ether_type).wrapping_mul(K4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator of test input that is unrelated to the hash: xorshift64*.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
        }
    }

    /// Flips each of `inputs` bits and returns the worst deviation from "half of the output bits change", over all
    /// output bits.
    fn worst_bias(inputs: u32, samples: u32, hash: impl Fn([u64; 5]) -> u64) -> f64 {
        let mut random = Random(7);
        let mut worst: f64 = 0.0;
        for bit in 0..inputs {
            let mut changed = [0_u32; 64];
            for _ in 0..samples {
                let key: [u64; 5] = std::array::from_fn(|_| random.next());
                let mut other = key;
                other[usize::try_from(bit / 64).unwrap()] ^= 1 << (bit % 64);
                let difference = hash(key) ^ hash(other);
                for (output, count) in changed.iter_mut().enumerate() {
                    *count += u32::from(difference >> output & 1 == 1);
                }
            }
            for count in changed {
                worst = worst.max((f64::from(count) / f64::from(samples) - 0.5).abs());
            }
        }
        worst
    }

    fn v4_of(key: [u64; 5]) -> u64 {
        let [addresses, ports, ..] = key;
        let half = |x: u64, shift: u32| u32::try_from(x >> shift & 0xffff_ffff).unwrap();
        let port = |shift: u32| u16::try_from(ports >> shift & 0xffff).unwrap();
        ipv4(
            half(addresses, 0),
            half(addresses, 32),
            port(0),
            port(16),
            u8::try_from(ports >> 32 & 0xff).unwrap(),
        )
    }

    fn v6_of([a, b, c, d, rest]: [u64; 5]) -> u64 {
        let port = |shift: u32| u16::try_from(rest >> shift & 0xffff).unwrap();
        ipv6([a, b], [c, d], port(0), port(16), u8::try_from(rest >> 32 & 0xff).unwrap())
    }

    #[test]
    fn every_input_bit_changes_every_output_bit_half_of_the_time() {
        // 4000 samples: three standard deviations are 0.024, and the worst of some ten thousand is about 0.036.
        let (v4, v6) = (worst_bias(64 + 40, 4000, v4_of), worst_bias(256 + 40, 4000, v6_of));
        assert!(v4 < 0.045 && v6 < 0.045, "worst bias {v4:.3} (IPv4), {v6:.3} (IPv6)");
    }

    #[test]
    fn neighbouring_flows_fill_the_slots_of_a_table_evenly_by_top_and_by_low_bits() {
        // 64 hosts of one network and 256 consecutive ports towards one server, as a load generator makes them.
        let flows = (0..64_u32).flat_map(|host| (0..256_u16).map(move |port| (host, 40_000 + port)));
        let v4 = flows.clone().map(|(host, port)| ipv4(0x0a00_0001 + host, 0x0a00_0001, port, 443, 6));
        let v6 =
            flows.map(|(host, port)| ipv6([0xfd00 << 48, u64::from(host)], [0xfd00 << 48, 1], port, 443, 6));
        for (name, hashes) in [("IPv4", v4.collect::<Vec<_>>()), ("IPv6", v6.collect())] {
            for (bits, shift) in [("top", 56), ("middle", 28), ("low", 0)] {
                let mut slots = [0_u32; 256];
                for hash in &hashes {
                    slots[usize::try_from(hash >> shift & 255).unwrap()] += 1;
                }
                // 64 expected in each of 256 slots: chi squared has mean 255 and standard deviation 22.6.
                let chi: f64 = slots.iter().map(|&n| (f64::from(n) - 64.0).powi(2) / 64.0).sum();
                assert!((150.0..370.0).contains(&chi), "{name}, {bits} bits: chi squared {chi:.0} of 255");
            }
        }
    }
}
