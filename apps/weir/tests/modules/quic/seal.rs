//! Makes QUIC packets with ring, and ClientHello messages with their JA4 fingerprint.

use ring::{aead, hkdf};
use sha2::{Digest, Sha256};

pub const V1: u32 = 1;
pub const V2: u32 = 0x6B33_43CF;
pub const DRAFT_29: u32 = 0xFF00_001D;
pub const DRAFT_27: u32 = 0xFF00_001B;

pub fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand_label(secret: &hkdf::Prk, label: &str, len: usize) -> Vec<u8> {
    let label = format!("tls13 {label}");
    let head =
        [&u16::try_from(len).unwrap().to_be_bytes()[..], &[u8::try_from(label.len()).unwrap()]].concat();
    let mut out = vec![0; len];
    secret.expand(&[&head, label.as_bytes(), &[0]], Length(len)).unwrap().fill(&mut out).unwrap();
    out
}

/// Keys of one side: key, IV, and header protection.
fn keys(version: u32, dcid: &[u8], side: &str) -> [Vec<u8>; 3] {
    let salt = match version {
        V2 => "0dede3def700a6db819381be6e269dcbf9bd2ed9",
        DRAFT_29 => "afbfec289993d24c9e9786f19c6111e04390a899",
        DRAFT_27 => "c3eef712c72ebb5a11a7d2432bb46365bef9f502",
        _ => "38762cf7f55934b34d179ae6a4c80cadccbb7f0a",
    };
    let initial = hkdf::Salt::new(hkdf::HKDF_SHA256, &unhex(salt)).extract(dcid);
    let secret = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &expand_label(&initial, side, 32));
    let prefix = if version == V2 { "quicv2" } else { "quic" };
    [("key", 16), ("iv", 12), ("hp", 16)]
        .map(|(name, len)| expand_label(&secret, &format!("{prefix} {name}"), len))
}

pub fn varint(value: u64) -> Vec<u8> {
    match value {
        0..0x40 => vec![u8::try_from(value).unwrap()],
        0x40..0x4000 => (u16::try_from(value).unwrap() | 0x4000).to_be_bytes().to_vec(),
        0x4000..0x4000_0000 => (u32::try_from(value).unwrap() | 0x8000_0000).to_be_bytes().to_vec(),
        _ => (value | 0xC000_0000_0000_0000).to_be_bytes().to_vec(),
    }
}

/// An Initial packet before its protection.
#[derive(Clone)]
pub struct Initial {
    pub version: u32,
    /// The version whose keys protect it, if another one.
    pub keys_of: u32,
    pub dcid: Vec<u8>,
    pub scid: Vec<u8>,
    /// The connection identifier that gives the keys.
    pub secret: Vec<u8>,
    pub token: Vec<u8>,
    pub number: u32,
    pub number_len: usize,
    pub side: &'static str,
    pub frames: Vec<u8>,
    /// The least length of the packet, which PADDING frames fill.
    pub len: usize,
}

impl Initial {
    pub fn of(dcid: &[u8], scid: &[u8], frames: impl AsRef<[u8]>) -> Self {
        Self {
            version: V1,
            keys_of: V1,
            dcid: dcid.to_vec(),
            scid: scid.to_vec(),
            secret: dcid.to_vec(),
            token: Vec::new(),
            number: 0,
            number_len: 1,
            side: "client in",
            frames: frames.as_ref().to_vec(),
            len: 1200,
        }
    }

    pub fn version(self, version: u32) -> Self {
        Self { version, keys_of: version, ..self }
    }

    pub fn seal(&self) -> Vec<u8> {
        let [key, iv, hp] = keys(self.keys_of, &self.secret, self.side);
        let ty = if self.version == V2 { 0xD0 } else { 0xC0 };
        let mut head = vec![ty | u8::try_from(self.number_len - 1).unwrap()];
        head.extend(self.version.to_be_bytes());
        for cid in [&self.dcid, &self.scid] {
            head.push(u8::try_from(cid.len()).unwrap());
            head.extend(cid);
        }
        head.extend(varint(self.token.len() as u64));
        head.extend(&self.token);
        let mut plain = self.frames.clone();
        // The length field has 2 bytes.
        let rest = head.len() + 2 + self.number_len + 16;
        plain.resize(plain.len().max(self.len.saturating_sub(rest)), 0);
        let len = u16::try_from(self.number_len + plain.len() + 16).unwrap() | 0x4000;
        head.extend(len.to_be_bytes());
        let number_at = head.len();
        head.extend(&self.number.to_be_bytes()[4 - self.number_len..]);
        let mut nonce: [u8; 12] = iv.try_into().unwrap();
        for (byte, number) in nonce[8..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= number;
        }
        let sealing = aead::LessSafeKey::new(aead::UnboundKey::new(&aead::AES_128_GCM, &key).unwrap());
        let nonce = aead::Nonce::assume_unique_for_key(nonce);
        sealing.seal_in_place_append_tag(nonce, aead::Aad::from(&head), &mut plain).unwrap();
        let mut packet = [head, plain].concat();
        let hp = aead::quic::HeaderProtectionKey::new(&aead::quic::AES_128, &hp).unwrap();
        let mask = hp.new_mask(&packet[number_at + 4..number_at + 20]).unwrap();
        packet[0] ^= mask[0] & 0x0F;
        for i in 0..self.number_len {
            packet[number_at + i] ^= mask[1 + i];
        }
        packet
    }
}

/// A packet with a long header whose contents cannot be read: 1 is 0-RTT, 2 Handshake.
pub fn opaque(ty: u8, version: u32, dcid: &[u8], scid: &[u8], len: u16) -> Vec<u8> {
    let ty = if version == V2 { (ty + 1) & 3 } else { ty };
    let mut packet = vec![0xC0 | ty << 4];
    packet.extend(version.to_be_bytes());
    for cid in [dcid, scid] {
        packet.push(u8::try_from(cid.len()).unwrap());
        packet.extend(cid);
    }
    packet.extend((len | 0x4000).to_be_bytes());
    packet.extend((0..len).map(|i| u8::try_from(i * 37 % 251).unwrap()));
    packet
}

pub fn version_negotiation(dcid: &[u8], scid: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x80 | 0x2A, 0, 0, 0, 0];
    for cid in [dcid, scid] {
        packet.push(u8::try_from(cid.len()).unwrap());
        packet.extend(cid);
    }
    packet.extend(V1.to_be_bytes());
    packet.extend(0x5A6A_7A8A_u32.to_be_bytes());
    packet
}

/// A Retry packet of version 1, with its integrity tag.
pub fn retry(dcid: &[u8], scid: &[u8], original: &[u8], token: &[u8]) -> Vec<u8> {
    let mut packet = vec![0xF0, 0, 0, 0, 1];
    for cid in [dcid, scid] {
        packet.push(u8::try_from(cid.len()).unwrap());
        packet.extend(cid);
    }
    packet.extend(token);
    let key = aead::UnboundKey::new(&aead::AES_128_GCM, &unhex("be0c690b9f66575a1d766b54e368c84e")).unwrap();
    let nonce = aead::Nonce::try_assume_unique_for_key(&unhex("461599d35d632bf2239825bb")).unwrap();
    let aad = [&[u8::try_from(original.len()).unwrap()], original, &packet].concat();
    let mut tag = Vec::new();
    aead::LessSafeKey::new(key).seal_in_place_append_tag(nonce, aead::Aad::from(aad), &mut tag).unwrap();
    packet.extend(tag);
    packet
}

/// A CRYPTO frame.
pub fn crypto(offset: u64, bytes: &[u8]) -> Vec<u8> {
    [&[6][..], &varint(offset), &varint(bytes.len() as u64), bytes].concat()
}

/// A ClientHello.
#[derive(Clone)]
pub struct Hello {
    pub name: Option<String>,
    pub alpn: Vec<String>,
    pub ciphers: Vec<u16>,
    /// Extensions beside those of the other fields, by number, with their contents.
    pub extensions: Vec<(u16, Vec<u8>)>,
    pub algorithms: Vec<u16>,
    pub versions: Vec<u16>,
}

impl Hello {
    pub fn of(name: &str) -> Self {
        Self {
            name: Some(name.to_owned()),
            alpn: vec!["h3".to_owned()],
            ciphers: vec![0x1301, 0x1302, 0x1303],
            extensions: vec![(51, vec![7; 70]), (57, vec![9; 60]), (45, vec![1, 1])],
            algorithms: vec![0x0403, 0x0804, 0x0401],
            versions: vec![0x0304],
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let u16_list = |list: &[u16]| list.iter().flat_map(|value| value.to_be_bytes()).collect::<Vec<u8>>();
        let with_length =
            |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
        let mut all = Vec::new();
        if let Some(name) = &self.name {
            all.push((0, with_length(&[&[0][..], &with_length(name.as_bytes())].concat())));
        }
        if !self.alpn.is_empty() {
            let list = self
                .alpn
                .iter()
                .flat_map(|value| [&[u8::try_from(value.len()).unwrap()], value.as_bytes()].concat());
            all.push((16, with_length(&list.collect::<Vec<u8>>())));
        }
        if !self.versions.is_empty() {
            let list = u16_list(&self.versions);
            all.push((43, [&[u8::try_from(list.len()).unwrap()], &list[..]].concat()));
        }
        if !self.algorithms.is_empty() {
            all.push((13, with_length(&u16_list(&self.algorithms))));
        }
        all.extend(self.extensions.clone());
        let extensions: Vec<u8> =
            all.iter().flat_map(|(ty, data)| [&ty.to_be_bytes()[..], &with_length(data)].concat()).collect();
        let mut body = [&[3, 3][..], &[0xAB; 32], &[0]].concat();
        body.extend(with_length(&u16_list(&self.ciphers)));
        body.extend([1, 0]);
        body.extend(with_length(&extensions));
        let len = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[1][..], &len[1..], &body].concat()
    }

    /// JA4 as FoxIO describes it, for QUIC.
    pub fn ja4(&self) -> String {
        let plain = |value: &&u16| *value & 0x0F0F != 0x0A0A;
        let hash = |text: &str| -> String {
            let digest = Sha256::digest(text.as_bytes());
            digest[..6].iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let list =
            |values: &[u16]| values.iter().map(|value| format!("{value:04x}")).collect::<Vec<_>>().join(",");
        let mut ciphers: Vec<u16> = self.ciphers.iter().filter(plain).copied().collect();
        ciphers.sort_unstable();
        let numbers: Vec<u16> = self.extensions.iter().map(|(number, _)| *number).collect();
        let mut extensions: Vec<u16> = numbers.iter().filter(plain).copied().collect();
        extensions.extend((!self.versions.is_empty()).then_some(43));
        extensions.extend((!self.algorithms.is_empty()).then_some(13));
        extensions.sort_unstable();
        let count = extensions.len() + usize::from(self.name.is_some()) + usize::from(!self.alpn.is_empty());
        let alpn = self.alpn.first().map_or("00".to_owned(), |value| {
            let bytes = value.as_bytes();
            [bytes[0] as char, bytes[bytes.len() - 1] as char].iter().collect()
        });
        let algorithms: Vec<u16> = self.algorithms.iter().filter(plain).copied().collect();
        format!(
            "q13{}{:02}{count:02}{alpn}_{}_{}",
            if self.name.is_some() { 'd' } else { 'i' },
            ciphers.len(),
            hash(&list(&ciphers)),
            hash(&format!("{}_{}", list(&extensions), list(&algorithms)))
        )
    }
}
