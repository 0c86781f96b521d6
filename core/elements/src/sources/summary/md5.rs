//! MD5 digests, by which summaries tell equal payloads. They protect against nothing.
//!
//! - R. Rivest: "The MD5 Message-Digest Algorithm", RFC 1321.

/// The bytes of a digest.
pub const DIGEST_BYTES: usize = 16;

const BLOCK_BYTES: usize = 64;

/// The integer part of 2^32 times the absolute sine of 1 to 64 (section 3.4).
const SINES: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

/// The rotations of the four rounds.
const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// Returns the digest of these bytes.
pub fn digest(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    blocks.iter().for_each(|block| add_block(&mut state, block));
    // One bit, zeros, and the number of bits: one or two blocks.
    let mut end = [0; 2 * BLOCK_BYTES];
    end[..rest.len()].copy_from_slice(rest);
    end[rest.len()] = 0x80;
    let length = if rest.len() < BLOCK_BYTES - 8 { BLOCK_BYTES } else { 2 * BLOCK_BYTES };
    let bits = (bytes.len() as u64).wrapping_mul(8);
    end[length - 8..length].copy_from_slice(&bits.to_le_bytes());
    let (blocks, _) = end[..length].as_chunks::<BLOCK_BYTES>();
    blocks.iter().for_each(|block| add_block(&mut state, block));
    let mut digest = [0; DIGEST_BYTES];
    for (place, word) in digest.chunks_exact_mut(4).zip(state) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

fn add_block(state: &mut [u32; 4], block: &[u8; BLOCK_BYTES]) {
    let (parts, _) = block.as_chunks::<4>();
    let word = |index: usize| u32::from_le_bytes(parts[index % 16]);
    let [mut a, mut b, mut c, mut d] = *state;
    for (step, sine) in SINES.iter().enumerate() {
        let round = step / 16;
        let (mixed, index) = match round {
            0 => ((b & c) | (!b & d), step),
            1 => ((b & d) | (c & !d), 5 * step + 1),
            2 => (b ^ c ^ d, 3 * step + 5),
            _ => (c ^ (b | !d), 7 * step),
        };
        let sum = a.wrapping_add(mixed).wrapping_add(word(index)).wrapping_add(*sine);
        (a, d, c) = (d, c, b);
        b = b.wrapping_add(sum.rotate_left(ROTATIONS[round][step % 4]));
    }
    for (total, value) in state.iter_mut().zip([a, b, c, d]) {
        *total = total.wrapping_add(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The examples of RFC 1321, section A.5.
    #[test]
    fn digests_are_those_of_the_standard() {
        assert_eq!(text(b""), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(text(b"a"), "0cc175b9c0f1b6a831c399e269772661");
        assert_eq!(text(b"message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
        let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        assert_eq!(text(letters.as_bytes()), "d174ab98d277d9f5a5611c2c9f419d9f");
        let digits = "1234567890".repeat(8);
        assert_eq!(text(digits.as_bytes()), "57edf4a22be3c955ac49da2e2107b67a");
    }
}
