//! Two or more endpoints on a simulated network, which loses, repeats and reorders datagrams.

use crate::association::pair::Seeded;
use core::net::SocketAddr;
use rand_core::RngCore;
use std::collections::BTreeMap;
use weir_trust::datagrams::{
    DatagramEndpoint, DatagramEvent, DatagramLimits, PACKET_TAG_BYTES, PacketError, Spi, Transmit,
};
use weir_trust::key::{Identity, PublicKey};
use weir_units::Nanos;

pub const MS: u64 = Nanos::MILLISECOND.0;
pub const SECOND: u64 = Nanos::SECOND.0;
/// The time that a datagram takes.
pub const DELAY: u64 = 10 * MS;
/// The first byte of a packet of the tests: another one than that of all other datagrams.
const PACKET: u8 = 1;
const AUTHENTICATED: &[u8] = b"authenticated in the clear";

/// One party on the network.
pub struct Side {
    pub identity: Identity,
    pub address: SocketAddr,
    pub endpoint: DatagramEndpoint,
    pub limits: DatagramLimits,
    pub random: Seeded,
    /// The credentials that this side shows to peers that ask.
    pub offers: Vec<u8>,
    pub accepts: bool,
    /// The events so far, with their times.
    pub events: Vec<(u64, DatagramEvent)>,
    /// The packets that arrived.
    pub packets: Vec<(PublicKey, Vec<u8>)>,
    pub refused: Vec<PacketError>,
}

impl Side {
    pub fn key(&self) -> PublicKey {
        self.identity.public()
    }

    pub fn ups(&self) -> usize {
        self.events.iter().filter(|(_, event)| matches!(event, DatagramEvent::Up { .. })).count()
    }

    /// The number of complete associations of peers.
    pub fn is_up(&self) -> bool {
        self.endpoint.peers().count() == 1
    }
}

/// A datagram on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flight {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
}

/// A change to a datagram: the datagrams that are sent in its place.
pub type Tamper<'a> = Box<dyn FnMut(usize, Flight) -> Vec<Flight> + 'a>;

pub struct Network<'a> {
    pub now: u64,
    pub sides: Vec<Side>,
    pub log: Vec<Flight>,
    flights: BTreeMap<(u64, u64), Flight>,
    sent: u64,
    random: Seeded,
    /// The share of datagrams that is lost, that is repeated, and that is delayed, each in percent.
    pub disorder: u64,
    /// The longest datagram that the path carries.
    pub carries: usize,
    pub tamper: Tamper<'a>,
}

pub fn address(host: u8) -> SocketAddr {
    SocketAddr::new([192, 0, 2, host].into(), 3322)
}

impl<'a> Network<'a> {
    /// Two parties: the first has the smaller key.
    pub fn new(seed: u64, limits: DatagramLimits) -> Self {
        let mut identities = [Identity::from_seed(&[1; 32]), Identity::from_seed(&[2; 32])];
        identities.sort_by_key(Identity::public);
        let mut network = Self {
            now: SECOND,
            sides: Vec::new(),
            log: Vec::new(),
            flights: BTreeMap::new(),
            sent: 0,
            random: Seeded(seed),
            disorder: 0,
            carries: 1_500,
            tamper: Box::new(|_, flight| vec![flight]),
        };
        for (host, identity) in (1..).zip(identities) {
            network.join(identity, address(host), limits, seed);
        }
        network.sides[0].offers = b"what the first may do".to_vec();
        network.sides[1].offers = b"what the second may do".to_vec();
        network
    }

    pub fn join(&mut self, identity: Identity, address: SocketAddr, limits: DatagramLimits, seed: u64) {
        let mut random = Seeded(
            seed.wrapping_mul(1_000_003) ^ u64::from(address.port()) ^ (self.sides.len() as u64) << 20,
        );
        let endpoint = DatagramEndpoint::new(identity.public(), limits, &mut random).unwrap();
        self.sides.push(Side {
            identity,
            address,
            endpoint,
            limits,
            random,
            offers: Vec::new(),
            accepts: true,
            events: Vec::new(),
            packets: Vec::new(),
            refused: Vec::new(),
        });
    }

    /// The side loses all its state.
    pub fn restart(&mut self, side: usize) {
        let side = &mut self.sides[side];
        let seed = side.random.next_u64();
        side.random = Seeded(seed);
        side.endpoint = DatagramEndpoint::new(side.key(), side.limits, &mut side.random).unwrap();
    }

    /// One side opens an association with another one.
    pub fn connect(&mut self, from: usize, to: usize) -> Spi {
        let (address, key) = (self.sides[to].address, self.sides[to].key());
        let now = Nanos(self.now);
        let side = &mut self.sides[from];
        let offers = side.offers.clone();
        let spi = side.endpoint.connect(now, address, Some(key), &offers, &mut side.random).unwrap();
        self.collect(from);
        spi
    }

    /// Sends a packet from one side to another. Returns it.
    pub fn send(&mut self, from: usize, to: usize, data: &[u8]) -> Result<Flight, PacketError> {
        let (key, now) = (self.sides[to].key(), Nanos(self.now));
        let side = &mut self.sides[from];
        let seal = side.endpoint.seal_packet(now, &key)?;
        let head = [&[PACKET][..], &seal.spi().to_bytes(), &seal.counter().to_be_bytes()].concat();
        let mut sealed = vec![0; data.len() + PACKET_TAG_BYTES];
        assert!(seal.seal(AUTHENTICATED, data, &mut sealed));
        let to = side.endpoint.address(&key).unwrap();
        let flight = Flight { from: side.address, to, bytes: [head, sealed].concat() };
        self.launch(flight.clone());
        Ok(flight)
    }

    /// Puts a datagram on the network.
    pub fn launch(&mut self, flight: Flight) {
        self.log.push(flight.clone());
        let number = self.log.len() - 1;
        for flight in (self.tamper)(number, flight) {
            if flight.bytes.len() > self.carries || self.chance() {
                continue;
            }
            let copies = 1 + u64::from(self.chance());
            for _ in 0..copies {
                let late = if self.chance() { self.random.next_u64() % (10 * DELAY) } else { 0 };
                self.sent += 1;
                self.flights.insert((self.now + DELAY + late, self.sent), flight.clone());
            }
        }
    }

    fn chance(&mut self) -> bool {
        self.random.next_u64() % 100 < self.disorder
    }

    /// Sends what a side wants to send, and handles its events.
    pub fn collect(&mut self, side: usize) {
        loop {
            let this = &mut self.sides[side];
            let from = this.address;
            if let Some(event) = this.endpoint.poll_event() {
                if let DatagramEvent::Asks { spi, .. } = event {
                    // A peer that is late is no failure of the test.
                    _ = if this.accepts {
                        let offers = this.offers.clone();
                        this.endpoint.accept(Nanos(self.now), spi, &offers)
                    } else {
                        this.endpoint.refuse(Nanos(self.now), spi)
                    };
                }
                this.events.push((self.now, event));
            } else if let Some(Transmit { to, bytes }) = this.endpoint.poll_transmit() {
                self.launch(Flight { from, to, bytes });
            } else {
                return;
            }
        }
    }

    /// Gives a datagram to the side at its destination.
    pub fn deliver(&mut self, flight: &Flight) {
        let Some(to) = self.sides.iter().position(|side| side.address == flight.to) else { return };
        let (side, now) = (&mut self.sides[to], Nanos(self.now));
        if flight.bytes.first() == Some(&PACKET) {
            let Some((head, sealed)) = flight.bytes.split_first_chunk::<13>() else { return };
            let spi = Spi::new(u32::from_be_bytes(head[1..5].try_into().unwrap()));
            let Some(spi) = spi else { return };
            let counter = u64::from_be_bytes(head[5..].try_into().unwrap());
            let mut plain = vec![0; sealed.len()];
            let endpoint = &mut side.endpoint;
            match endpoint.open_packet(now, flight.from, spi, counter, AUTHENTICATED, sealed, &mut plain) {
                Ok(opened) => side.packets.push((opened.peer, plain[..opened.bytes].to_vec())),
                Err(error) => side.refused.push(error),
            }
        } else {
            side.endpoint.handle_datagram(now, flight.from, &flight.bytes, &side.identity, &mut side.random);
        }
        self.collect(to);
    }

    /// Runs the network until a time.
    pub fn run_until(&mut self, until: u64) {
        self.run(until, |_| false);
    }

    /// Runs the network for this time.
    pub fn run_for(&mut self, time: u64) {
        self.run_until(self.now + time);
    }

    /// Runs the network until a condition holds. Returns false if it does not until then.
    pub fn run(&mut self, until: u64, mut is_done: impl FnMut(&Network) -> bool) -> bool {
        loop {
            if is_done(self) {
                return true;
            }
            let arrival = self.flights.first_key_value().map(|(at, _)| at.0);
            let now = Nanos(self.now);
            let timers = self.sides.iter().filter_map(|side| side.endpoint.next_timeout(now)).map(|at| at.0);
            let next = timers.chain(arrival).min().unwrap_or(u64::MAX).max(self.now);
            if next > until {
                self.now = until;
                return false;
            }
            self.now = next;
            if arrival.is_some_and(|at| at <= self.now) {
                let (_, flight) = self.flights.pop_first().unwrap();
                self.deliver(&flight);
                continue;
            }
            for side in 0..self.sides.len() {
                let now = Nanos(self.now);
                let this = &mut self.sides[side];
                if this.endpoint.next_timeout(now).is_some_and(|at| at <= now) {
                    this.endpoint.handle_timeout(now, &this.identity, &mut this.random);
                    self.collect(side);
                }
            }
        }
    }

    /// Both sides have one complete association, and packets of each side arrive at the other one.
    pub fn assert_joined(&mut self, what: &str) {
        assert!(self.sides[0].is_up() && self.sides[1].is_up(), "{what}: {:?}", self.events());
        let disorder = std::mem::take(&mut self.disorder);
        for (from, to) in [(0, 1), (1, 0)] {
            let before = self.sides[to].packets.len();
            self.send(from, to, b"a packet").unwrap();
            self.run_for(2 * DELAY);
            let key = self.sides[from].key();
            assert_eq!(self.sides[to].packets[before..], [(key, b"a packet".to_vec())], "{what}");
        }
        self.disorder = disorder;
    }

    pub fn events(&self) -> Vec<&Vec<(u64, DatagramEvent)>> {
        self.sides.iter().map(|side| &side.events).collect()
    }

    /// The credentials of the first complete association of a side.
    pub fn credentials(&self, side: usize) -> &[u8] {
        let up = self.sides[side].events.iter().find_map(|(_, event)| match event {
            DatagramEvent::Up { credentials, .. } => Some(credentials),
            _ => None,
        });
        up.expect("there is an association")
    }
}
