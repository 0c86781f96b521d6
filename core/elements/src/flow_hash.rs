//! The hash of flows.

/// Hashes the addresses of a flow, and its other fields, by two multiplications whose halves are combined. So each bit of
/// both changes all of the hash.
#[inline]
pub fn hash_flow(addresses: u64, rest: u64) -> u32 {
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        let half = |shift: u32| u64::try_from((product >> shift) & u128::from(u64::MAX)).unwrap_or(0);
        half(0) ^ half(64)
    };
    let mixed = fold(addresses ^ 0x9e37_79b9_7f4a_7c15, rest ^ 0xd1b5_4a32_d192_ed03);
    u32::try_from(fold(mixed ^ addresses.rotate_left(29), 0xe703_7ed1_a0b4_28db) >> 32).unwrap_or(0)
}
