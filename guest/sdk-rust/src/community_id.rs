//! Community ID: a label of a flow that many tools compute alike.

use crate::{be16, flag, sha1, Packet};

/// The length of a Community ID in bytes.
const LEN: usize = 30;
/// The bytes of the longest message that is digested: a seed, two IPv6 addresses, a protocol and two ports.
const MESSAGE_BYTES: usize = 2 + 2 * 16 + 2 + 2 * 2;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP_V6: u8 = 58;
const SCTP: u8 = 132;

/// A Community ID, version 1, such as `1:LQU9qZlK+B5F3KDmev6m5PMibrg=`. As a field of a row: `Str::new(&id)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommunityId([u8; LEN]);

impl AsRef<[u8]> for CommunityId {
    #[inline(always)]
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Returns the Community ID, version 1, of the packet's flow, over the outermost IP header
/// (<https://github.com/corelight/community-id-spec>). It is the same for both directions, and in Zeek, Suricata and other
/// tools with the same seed; most use the seed 0. `None` for a packet without IP, and if the ports are not known.
pub fn community_id(packet: &Packet<'_>, seed: u16) -> Option<CommunityId> {
    let (source, destination) = (packet.src()?, packet.dst()?);
    let ports = ports(packet)?;
    let is_first = match ports {
        Ports::OneWay(..) => true,
        Ports::None => source <= destination,
        Ports::Of(from, to) => (source, from) <= (destination, to),
    };
    let mut message = Message { bytes: [0; MESSAGE_BYTES], len: 0 };
    message.push(&seed.to_be_bytes());
    let ends = if is_first { [source, destination] } else { [destination, source] };
    for address in ends {
        if packet.has(flag::IPV4) {
            message.push(&address.to_v4()?);
        } else {
            message.push(&address.0);
        }
    }
    message.push(&[packet.ip_proto, 0]);
    if let Ports::Of(from, to) | Ports::OneWay(from, to) = ports {
        let (first, second) = if is_first { (from, to) } else { (to, from) };
        message.push(&first.to_be_bytes());
        message.push(&second.to_be_bytes());
    }
    // At most 40 bytes. The compiler does not see that the mask has no effect; so the analyser finds a bound of the cost.
    let len = core::hint::black_box(message.len) & 63;
    let digest = sha1(message.bytes.get(..len)?).ok()?;
    Some(CommunityId(text(&digest)))
}

#[derive(Clone, Copy)]
enum Ports {
    /// A protocol without ports.
    None,
    /// Ports, or the type of an ICMP message and that of its answer.
    Of(u16, u16),
    /// The type and code of an ICMP message without an answer.
    OneWay(u16, u16),
}

fn ports(packet: &Packet<'_>) -> Option<Ports> {
    match packet.ip_proto {
        TCP | UDP => {
            let is_known = packet.has(flag::L4) || packet.src_port | packet.dst_port != 0;
            is_known.then_some(Ports::Of(packet.src_port, packet.dst_port))
        }
        SCTP if packet.payload_len < 4 => None,
        SCTP => packet.l4().and_then(|header| Some(Ports::Of(be16(header, 0)?, be16(header, 2)?))),
        ICMP | ICMP_V6 => {
            let [ty, code] = *packet.l4()?.first_chunk()?;
            Some(match counterpart(packet.ip_proto, ty) {
                Some(answer) => Ports::Of(ty.into(), answer.into()),
                None => Ports::OneWay(ty.into(), code.into()),
            })
        }
        _ => Some(Ports::None),
    }
}

/// Returns the ICMP or ICMPv6 type that answers a type, or that it answers.
fn counterpart(protocol: u8, ty: u8) -> Option<u8> {
    const PAIRS_V4: [(u8, u8); 5] = [(8, 0), (10, 9), (13, 14), (15, 16), (17, 18)];
    const PAIRS_V6: [(u8, u8); 6] = [(128, 129), (130, 131), (133, 134), (135, 136), (139, 140), (144, 145)];
    let pairs = if protocol == ICMP { &PAIRS_V4[..] } else { &PAIRS_V6[..] };
    pairs.iter().find_map(|&(a, b)| match ty {
        ty if ty == a => Some(b),
        ty if ty == b => Some(a),
        _ => None,
    })
}

struct Message {
    bytes: [u8; MESSAGE_BYTES],
    len: usize,
}

impl Message {
    #[inline(always)]
    fn push(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            room.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }
}

/// Returns the version and the digest in Base64 (RFC 4648).
fn text(digest: &[u8; 20]) -> [u8; LEN] {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = [b'='; LEN];
    text[..2].copy_from_slice(b"1:");
    for (group, out) in digest.chunks(3).zip(text[2..].chunks_mut(4)) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        // Two bytes at the end make three digits; the rest is padding.
        for (digit, out) in out.iter_mut().enumerate().take(group.len() + 1) {
            *out = ALPHABET[(word >> (18 - 6 * digit)) as usize & 63];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_becomes_base64_with_padding() {
        assert_eq!(&text(&[0; 20]), b"1:AAAAAAAAAAAAAAAAAAAAAAAAAAA=");
        let mut digest = [0xff; 20];
        digest[19] = 0;
        assert_eq!(&text(&digest), b"1://///////////////////////wA=".as_slice());
    }

    #[test]
    fn types_of_icmp_have_their_answers() {
        assert_eq!((counterpart(ICMP, 8), counterpart(ICMP, 0)), (Some(0), Some(8)));
        assert_eq!((counterpart(ICMP_V6, 8), counterpart(ICMP_V6, 129)), (None, Some(128)));
    }
}
