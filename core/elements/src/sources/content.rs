//! The bytes of packets that a source makes.

use std::rc::Rc;
use weir_graph::arguments::ElementArguments;
use weir_graph::engine::{GraphPacket, HEADROOM, Reason, Services, SourceBlock};

/// The bytes of a packet without DATA.
pub const DATA_DEFAULT: &[u8] = b"weir sends this text as a packet of sixty-four bytes, if none else.";

/// The most bytes of a packet.
pub const LENGTH_MAX: u32 = 65_535;

/// The bytes of a source's packets: all share them, or they are random.
pub struct PacketContent {
    is_random: bool,
    data: Vec<u8>,
    length: Option<u32>,
    bytes: Rc<SourceBlock>,
}

impl PacketContent {
    /// Returns packets with these bytes, cut or repeated to a length if there is one.
    pub fn new(data: Vec<u8>, length: Option<u32>) -> Self {
        let bytes = Rc::new(Vec::new().into());
        let mut content = Self { is_random: false, data, length, bytes };
        content.make();
        content
    }

    /// Returns packets with random bytes.
    pub fn random(length: u32) -> Self {
        Self { is_random: true, ..Self::new(Vec::new(), Some(length)) }
    }

    /// Returns true if taking a packet takes random numbers.
    pub fn is_random(&self) -> bool {
        self.is_random
    }

    /// Reads the argument LENGTH, also by its older name.
    pub fn read_length(args: &mut ElementArguments<'_, '_>) -> Option<u32> {
        let length = args.keyword("LENGTH").within(0..=LENGTH_MAX).optional();
        args.keyword("DATASIZE").within(0..=LENGTH_MAX).optional().or(length)
    }

    fn make(&mut self) {
        let length = self.length.map_or(self.data.len(), |length| length as usize);
        let bytes: Vec<u8> = match self.data.is_empty() {
            true => vec![0; length],
            false => self.data.iter().copied().cycle().take(length).collect(),
        };
        self.bytes = Rc::new(bytes.into());
    }

    /// Returns the bytes that the length is applied to.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Sets the bytes that the length is applied to.
    pub fn set_data(&mut self, data: Vec<u8>) {
        self.data = data;
        self.make();
    }

    /// Returns the length of a packet.
    pub fn length(&self) -> usize {
        self.bytes.bytes().len()
    }

    /// Sets the length of a packet, at most [`LENGTH_MAX`], by the value of a handler.
    pub fn write_length(&mut self, value: &str) -> Result<String, Reason> {
        self.length = Some(crate::values::read::<u32>(value)?.min(LENGTH_MAX));
        self.make();
        Ok(String::new())
    }

    /// Returns a packet.
    pub fn packet(&self, services: &mut Services) -> GraphPacket {
        if !self.is_random {
            return services.pool.of_source(Rc::clone(&self.bytes), 0..self.length());
        }
        let mut packet = services.pool.of_length(self.length(), HEADROOM);
        for part in packet.bytes_mut().chunks_mut(8) {
            part.copy_from_slice(&services.random().to_le_bytes()[..part.len()]);
        }
        packet
    }
}
