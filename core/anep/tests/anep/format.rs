//! Tests of headers, options and the checksum.

use proptest::prelude::{ProptestConfig, any, proptest};
use weir_anep::{
    AnepError, AnepHandling, AnepHeader, AnepOption, AnepPacket, OptionKind, add_checksum, check_checksum,
    handling,
};

const HEADER: AnepHeader = AnepHeader { flags: 0, type_id: 0x1234 };

fn option(number: u16, value: &[u8]) -> AnepOption<'_> {
    AnepOption { is_private: false, discards: false, number, value }
}

#[test]
fn a_packet_has_the_bytes_of_the_document() {
    let source = AnepOption::known(OptionKind::Source, &[0, 0, 0, 1, 192, 0, 2, 1]);
    let private = AnepOption { is_private: true, ..option(9, &[]) };
    let packet = AnepHeader { flags: 0x80, type_id: 0x1234 }.write(&[source, private], b"code").unwrap();
    let expected = [
        &[1, 0x80, 0x12, 0x34, 0, 6, 0, 28][..],
        &[0x40, 1, 0, 3, 0, 0, 0, 1, 192, 0, 2, 1],
        &[0x80, 9, 0, 1],
        b"code",
    ]
    .concat();
    assert_eq!(packet, expected);
    let read = AnepPacket::read(&packet).unwrap();
    assert_eq!(read.header(), AnepHeader { flags: 0x80, type_id: 0x1234 });
    assert!(read.options().eq([source, private]));
    assert_eq!(read.value(OptionKind::Source), Some(source.value));
    assert_eq!(read.payload(), b"code");
}

#[test]
fn lengths_that_are_wrong_are_refused() {
    let packet = HEADER.write(&[option(5, &[1; 8])], b"payload").unwrap();
    for length in 0..packet.len() {
        let cut = AnepPacket::read(&packet[..length]);
        let expected = match length {
            0..8 => AnepError::Short(length),
            _ => AnepError::Length { stated: 27, found: length },
        };
        assert_eq!(cut, Err(expected));
    }
    let with = |at: usize, bytes: &[u8]| {
        let mut other = packet.clone();
        other[at..at + bytes.len()].copy_from_slice(bytes);
        AnepPacket::read(&other).map(drop)
    };
    assert_eq!(with(0, &[2]), Err(AnepError::Version(2)));
    for words in [0, 1, 7, u16::MAX] {
        assert_eq!(with(4, &words.to_be_bytes()), Err(AnepError::HeaderLength(words)));
    }
    // The header ends within the option, or after it.
    for words in [3, 4, 6] {
        assert!(matches!(with(4, &u16::to_be_bytes(words)), Err(AnepError::Option(_))), "{words}");
    }
    for words in [0, 4, u16::MAX] {
        assert_eq!(with(10, &words.to_be_bytes()), Err(AnepError::Option(8)));
    }
    assert_eq!(HEADER.write(&[], &[0; 65_528]), Err(AnepError::TooLong(65_536)));
    assert!(HEADER.write(&[], &[0; 65_527]).is_ok());
    assert_eq!(HEADER.write(&[option(1 << 14, &[])], &[]), Err(AnepError::Value(1 << 14)));
}

#[test]
fn options_that_weir_handles_have_their_lengths_and_occur_once() {
    let packet = |options: &[AnepOption<'_>]| HEADER.write(options, &[]).unwrap();
    for (number, bytes) in [(1, 4), (2, 0), (3, 8), (16, 24), (17, 32), (18, 4)] {
        let packet = packet(&[option(number, &vec![0; bytes])]);
        assert_eq!(AnepPacket::read(&packet), Err(AnepError::Value(number)), "{number}");
    }
    let twice = packet(&[option(3, &[0; 4]), option(3, &[0; 4])]);
    assert_eq!(AnepPacket::read(&twice), Err(AnepError::Value(3)));
    // Other options may repeat, and private ones are others.
    let private = AnepOption { is_private: true, ..option(3, &[1; 12]) };
    let others = packet(&[private, private, option(900, &[]), option(900, &[])]);
    assert_eq!(AnepPacket::read(&others).unwrap().options().count(), 4);
}

#[test]
fn flags_decide_about_what_a_node_does_not_know() {
    let decide = |header: AnepHeader, options: &[AnepOption<'_>], knows_type| {
        let packet = header.write(options, b"code").unwrap();
        handling(&AnepPacket::read(&packet).unwrap(), knows_type, |number| number == 7)
    };
    let strict = AnepHeader { flags: 0x80, ..HEADER };
    for (header, unknown) in [(HEADER, AnepHandling::Forward), (strict, AnepHandling::Discard)] {
        assert_eq!(decide(header, &[], true), AnepHandling::Process);
        assert_eq!(decide(header, &[], false), unknown);
        // The lower flags mean nothing.
        let other = AnepHeader { flags: header.flags | 0x7f, ..header };
        assert_eq!(decide(other, &[], false), unknown);
        // An option that nothing knows, without and with its flag.
        let ignored = option(900, &[]);
        let needed = AnepOption { discards: true, ..ignored };
        assert_eq!(decide(header, &[ignored], true), AnepHandling::Process);
        for knows_type in [false, true] {
            assert_eq!(decide(header, &[needed], knows_type), AnepHandling::Discard);
        }
        // A private option is known only together with the type.
        let private = AnepOption { is_private: true, discards: true, ..option(7, &[]) };
        assert_eq!(decide(header, &[private], true), AnepHandling::Process);
        assert_eq!(decide(header, &[private], false), AnepHandling::Discard);
        let other = AnepOption { number: 8, ..private };
        assert_eq!(decide(header, &[other], true), AnepHandling::Discard);
        assert_eq!(decide(header, &[AnepOption { discards: false, ..other }], true), AnepHandling::Process);
    }
}

/// The sum of the 16-bit words with the carry added, by its definition in RFC 1071.
fn sum(packet: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in packet.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |byte| u32::from(*byte));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

#[test]
fn the_checksum_detects_every_changed_bit_and_is_optional() {
    for payload in [&b""[..], b"odd", b"even", &[0xff; 1_000]] {
        let plain = HEADER.write(&[option(900, &[1, 2, 3, 4])], payload).unwrap();
        assert_eq!(check_checksum(&plain), Ok(()));
        let packet = add_checksum(&plain).unwrap();
        assert_eq!(sum(&packet), 0xffff);
        assert_eq!(check_checksum(&packet), Ok(()));
        assert_eq!(add_checksum(&packet), Err(AnepError::Value(3)));
        for bit in 0..packet.len() * 8 {
            let mut changed = packet.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            // A changed number of the option makes it another option, so the packet has no checksum.
            let lost =
                AnepPacket::read(&changed).is_ok_and(|read| read.value(OptionKind::Checksum).is_none());
            assert!(check_checksum(&changed).is_err() || lost, "bit {bit}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// A packet that was written reads back, and one that was read is written to the same bytes.
    #[test]
    fn packets_read_back(
        flags in any::<u8>(),
        type_id in any::<u16>(),
        options in proptest::collection::vec(
            (any::<bool>(), any::<bool>(), 19_u16..1 << 14, proptest::collection::vec(any::<[u8; 4]>(), 0..6)), 0..6),
        payload in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let values: Vec<Vec<u8>> = options.iter().map(|(.., words)| words.concat()).collect();
        let options: Vec<AnepOption> = options.iter().zip(&values).map(|((is_private, discards, number, _), value)| {
            AnepOption { is_private: *is_private, discards: *discards, number: *number, value }
        }).collect();
        let header = AnepHeader { flags, type_id };
        let packet = header.write(&options, &payload).unwrap();
        let read = AnepPacket::read(&packet).unwrap();
        assert_eq!((read.header(), read.payload()), (header, payload.as_slice()));
        assert!(read.options().eq(options.iter().copied()));
    }

    /// Any bytes are refused, or are written to the same bytes again.
    #[test]
    fn any_bytes_are_refused_or_written_again(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let mut bytes = bytes;
        if bytes.len() >= 8 {
            let length = u16::try_from(bytes.len()).unwrap();
            bytes[0] = 1;
            let words = 2 + u16::from(bytes[5] % 8);
            bytes[4..6].copy_from_slice(&words.to_be_bytes());
            bytes[6..8].copy_from_slice(&length.to_be_bytes());
        }
        if let Ok(read) = AnepPacket::read(&bytes) {
            let options: Vec<AnepOption> = read.options().collect();
            assert_eq!(read.header().write(&options, read.payload()).unwrap(), bytes);
        }
    }
}
