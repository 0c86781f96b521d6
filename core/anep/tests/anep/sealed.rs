//! Tests of authenticated and encrypted packets, and of fragments, with attackers.

use crate::network::{Network, SECOND};
use weir_anep::{
    AnepError, AnepHeader, AnepOpenError, AnepOption, AnepPacket, AnepReceiver, AnepSealError,
    FragmentLimits, FragmentNumber, OptionKind, PeerPacket, Protection, ReassemblyFailure, SEAL_BYTES, seal,
};
use weir_trust::datagrams::{DatagramLimits, PATH_BYTES_MIN, PacketError};
use weir_trust::key::PublicKey;
use weir_units::Nanos;

const HEADER: AnepHeader = AnepHeader { flags: 0x80, type_id: 7 };

/// Two sides with an association, the second of which receives packets.
struct Pair {
    network: Network<'static>,
    receiver: AnepReceiver,
    number: FragmentNumber,
}

impl Pair {
    fn new(limits: FragmentLimits) -> Self {
        let mut network = Network::new(51, DatagramLimits::default());
        network.connect(0, 1);
        network.run_for(7 * crate::network::DELAY);
        network.assert_joined("before");
        Self { network, receiver: AnepReceiver::new(limits), number: FragmentNumber::default() }
    }

    fn sender(&self) -> PublicKey {
        self.network.sides[0].key()
    }

    fn seal(&mut self, protection: Protection, packet: &[u8]) -> Result<Vec<Vec<u8>>, AnepSealError> {
        let (peer, now) = (self.network.sides[1].key(), Nanos(self.network.now));
        seal(&mut self.network.sides[0].endpoint, now, &peer, protection, packet, &mut self.number)
    }

    fn receive(&mut self, datagram: &[u8]) -> Result<Option<PeerPacket>, AnepOpenError> {
        let (from, now) = (self.network.sides[0].address, Nanos(self.network.now));
        self.receiver.handle(&mut self.network.sides[1].endpoint, now, from, datagram)
    }
}

fn pair() -> Pair {
    Pair::new(FragmentLimits::default())
}

fn packet(payload: &[u8]) -> Vec<u8> {
    let option = AnepOption { is_private: true, discards: false, number: 5, value: b"four" };
    HEADER.write(&[option], payload).unwrap()
}

const BOTH: [Protection; 2] = [Protection::Authenticated, Protection::Encrypted];

#[test]
fn a_sealed_packet_has_the_layout_of_the_document_and_arrives_as_it_was() {
    for protection in BOTH {
        let mut pair = pair();
        let packet = packet(b"the payload");
        let [sealed] = &pair.seal(protection, &packet).unwrap()[..] else { panic!() };
        assert_eq!(sealed.len(), packet.len() + SEAL_BYTES);
        let read = AnepPacket::read(sealed).unwrap();
        assert_eq!(read.header(), HEADER);
        let kind = [OptionKind::Authentication, OptionKind::Encryption][usize::from(protection != BOTH[0])];
        // Header and option, then the option of the seal: its head, index, counter and authenticator.
        assert_eq!(sealed[16..20], [0x40, u8::try_from(kind.number()).unwrap(), 0, 8]);
        assert_eq!(sealed[24..32], [0, 0, 0, 0, 0, 0, 0, sealed[31]]);
        assert_eq!(read.value(kind).unwrap().len(), 28);
        let is_readable = sealed.windows(11).any(|part| part == b"the payload");
        assert_eq!(is_readable, protection == Protection::Authenticated);
        let received = pair.receive(sealed).unwrap();
        assert_eq!(received, Some(PeerPacket { peer: pair.sender(), protection, packet }));
        let again = pair.receive(sealed);
        assert!(matches!(again, Err(AnepOpenError::Association(PacketError::Again(_)))));
    }
}

#[test]
fn no_bit_of_a_sealed_packet_can_be_changed_and_none_is_read_when_cut() {
    for protection in BOTH {
        let mut pair = pair();
        let packet = packet(b"the payload");
        let sealed = pair.seal(protection, &packet).unwrap().swap_remove(0);
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(pair.receive(&changed).is_err(), "bit {bit}");
        }
        for length in 0..sealed.len() {
            let mut cut = sealed[..length].to_vec();
            assert!(pair.receive(&cut).is_err());
            // With a length in the header that fits.
            if length >= 8 {
                cut[6..8].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
                assert!(pair.receive(&cut).is_err());
            }
        }
        assert!(pair.receive(&sealed).unwrap().is_some(), "the genuine packet is accepted after all that");
    }
}

#[test]
fn one_kind_of_seal_is_not_accepted_as_the_other() {
    for (protection, other) in [(BOTH[0], 17), (BOTH[1], 16)] {
        for payload in [&b""[..], b"payload"] {
            let mut pair = pair();
            let mut sealed = pair.seal(protection, &packet(payload)).unwrap().swap_remove(0);
            sealed[17] = other;
            let refused = AnepOpenError::Association(PacketError::Damaged);
            assert_eq!(pair.receive(&sealed), Err(refused));
        }
    }
}

#[test]
fn packets_that_are_not_sealed_or_come_back_are_refused() {
    let mut pair = pair();
    assert_eq!(pair.receive(&packet(b"payload")), Err(AnepOpenError::Unsealed));
    assert_eq!(pair.receive(b"weir"), Err(AnepError::Short(4).into()));
    // Both kinds at once, and a seal that is not the last option.
    let value = [1; 28];
    let [one, other] =
        [OptionKind::Authentication, OptionKind::Encryption].map(|kind| AnepOption::known(kind, &value));
    let last = AnepOption { is_private: false, discards: false, number: 99, value: &[] };
    for options in [[one, other], [one, last]] {
        assert_eq!(pair.receive(&HEADER.write(&options, &[]).unwrap()), Err(AnepOpenError::Unsealed));
    }
    // The sender gets its own packet.
    let sealed = pair.seal(BOTH[0], &packet(b"payload")).unwrap().swap_remove(0);
    let (address, now) = (pair.network.sides[1].address, Nanos(pair.network.now));
    let reflected = pair.receiver.handle(&mut pair.network.sides[0].endpoint, now, address, &sealed);
    assert!(matches!(reflected, Err(AnepOpenError::Association(PacketError::Unknown(_)))));
}

#[test]
fn options_that_sealing_adds_cannot_be_sent() {
    let mut pair = pair();
    for (kind, bytes) in [
        (OptionKind::Checksum, 4),
        (OptionKind::Authentication, 28),
        (OptionKind::Encryption, 28),
        (OptionKind::Fragment, 8),
    ] {
        let packet = HEADER.write(&[AnepOption::known(kind, &vec![0; bytes])], &[]).unwrap();
        assert_eq!(pair.seal(BOTH[0], &packet), Err(AnepSealError::Reserved(kind.number())));
    }
    assert!(matches!(pair.seal(BOTH[0], b"no packet"), Err(AnepSealError::Packet(_))));
}

#[test]
fn packets_of_every_length_arrive_in_fragments_in_any_order() {
    for protection in BOTH {
        let mut pair = pair();
        let peer = pair.network.sides[1].key();
        let path_bytes = pair.network.sides[0].endpoint.path_bytes(&peer).unwrap();
        assert!(path_bytes >= PATH_BYTES_MIN);
        // The longest packet in one datagram, and the shortest one in two.
        let edge = path_bytes - SEAL_BYTES - 16;
        for bytes in [edge, edge + 1, 5_000, 65_535 - 16] {
            let packet = packet(&(0..bytes).map(|at| u8::try_from(at % 253).unwrap()).collect::<Vec<u8>>());
            let mut datagrams = pair.seal(protection, &packet).unwrap();
            assert!(datagrams.iter().all(|datagram| datagram.len() <= path_bytes));
            assert_eq!(datagrams.len() > 1, packet.len() + SEAL_BYTES > path_bytes);
            datagrams.reverse();
            let last = datagrams.pop().unwrap();
            for datagram in &datagrams {
                assert_eq!(pair.receive(datagram), Ok(None));
            }
            let received = pair.receive(&last).unwrap().unwrap();
            assert_eq!(received, PeerPacket { peer: pair.sender(), protection, packet });
            assert_eq!(pair.receiver.stored(), (0, 0));
        }
    }
}

#[test]
fn fragments_that_are_forged_are_not_stored() {
    let mut pair = pair();
    let datagrams = pair.seal(BOTH[0], &packet(&[7; 5_000])).unwrap();
    for datagram in &datagrams {
        let mut forged = datagram.clone();
        *forged.last_mut().unwrap() ^= 1;
        assert!(pair.receive(&forged).is_err());
        assert_eq!(pair.receiver.stored(), (0, 0));
    }
    assert_eq!(pair.receive(&datagrams[0]), Ok(None));
    let (bytes, _) = pair.receiver.stored();
    assert_eq!(bytes, 5_016);
    // A packet that stays incomplete is discarded in time.
    let at = pair.receiver.handle_timeout(Nanos(pair.network.now)).unwrap();
    assert_eq!(pair.receiver.handle_timeout(at), None);
    assert_eq!(pair.receiver.stored(), (0, 1));
}

/// Seals a fragment as a hostile peer with valid keys can.
fn fragment(pair: &mut Pair, number: u32, total: u16, offset: u16, data: &[u8]) -> Vec<u8> {
    let value = [&number.to_be_bytes()[..], &total.to_be_bytes(), &offset.to_be_bytes()].concat();
    let peer = pair.network.sides[1].key();
    let endpoint = &mut pair.network.sides[0].endpoint;
    let seal = endpoint.seal_packet(Nanos(pair.network.now), &peer).unwrap();
    let numbers = [&seal.spi().to_bytes()[..], &seal.counter().to_be_bytes(), &[0; 16]].concat();
    let options = [
        AnepOption::known(OptionKind::Fragment, &value),
        AnepOption::known(OptionKind::Authentication, &numbers),
    ];
    let mut packet = HEADER.write(&options, data).unwrap();
    let mut tag = [0; 16];
    assert!(seal.seal(&packet, &[], &mut tag));
    packet[36..52].copy_from_slice(&tag);
    packet
}

#[test]
fn a_hostile_peer_is_limited_and_its_contradictions_discard_its_packet() {
    let mut pair = pair();
    let contradiction = Err(AnepOpenError::Fragment(ReassemblyFailure::Contradiction));
    for (total, offset, bytes) in
        [(4_000, 600, 1_000), (4_000, 0, 1_000), (4_000, 999, 600), (4_001, 2_000, 600)]
    {
        let one = fragment(&mut pair, 1, 4_000, 500, &[1; 600]);
        assert_eq!(pair.receive(&one), Ok(None));
        let other = fragment(&mut pair, 1, total, offset, &vec![2; bytes]);
        assert_eq!(pair.receive(&other), contradiction);
        assert_eq!(pair.receiver.stored().0, 0);
    }
    for (total, offset, bytes) in
        [(4_000, 0, 0), (4_000, 0, 511), (4_000, 3_500, 501), (0, 0, 1), (600, 65_535, 600)]
    {
        let wrong = fragment(&mut pair, 2, total, offset, &vec![2; bytes]);
        let refused = pair.receive(&wrong);
        assert!(
            matches!(refused, Err(AnepOpenError::Fragment(ReassemblyFailure::Place { .. }))),
            "{refused:?}"
        );
    }
    // Many packets of which one fragment arrives: four of 65,535 bytes stay.
    for number in 0..1_000 {
        let one = fragment(&mut pair, number, u16::MAX, 0, &[1; 600]);
        assert_eq!(pair.receive(&one), Ok(None));
        assert!(pair.receiver.stored().0 <= 4 * 65_535);
    }
    // What the fragments make is no packet.
    let whole = fragment(&mut pair, 7, 600, 0, &[9; 600]);
    assert_eq!(pair.receive(&whole), Err(AnepError::Version(9).into()));
    let sender = pair.sender();
    pair.receiver.forget(&sender);
    assert_eq!(pair.receiver.stored().0, 0);
}

#[test]
fn the_bytes_of_all_peers_are_limited() {
    let mut pair = Pair::new(FragmentLimits { packets: 100, bytes: 10_000, deadline: Nanos(SECOND) });
    for number in 0..50 {
        let one = fragment(&mut pair, number, 3_000, 0, &[1; 600]);
        assert_eq!(pair.receive(&one), Ok(None));
        assert!(pair.receiver.stored().0 <= 10_000);
    }
    assert_eq!(pair.receiver.stored(), (9_000, 47));
}
