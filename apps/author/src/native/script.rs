//! The script of a native replay: the calls of a sandboxed module, with the answers of its host functions.

use super::stubs::reads_parameter;
use weir_abi::entry::EntryPoint;
use weir_abi::host::HostFunction;
use weir_abi::{DESCRIPTOR_BYTES, table};
use weir_admission::{Admitted, ParameterValue};

/// A packet of a batch.
#[derive(Clone, Copy, Debug)]
pub struct ScriptPacket<'a> {
    /// The index of the packet in its batch.
    pub index: u32,
    /// The number of the packet in the capture, from 1.
    pub number: u64,
    /// The captured bytes.
    pub bytes: &'a [u8],
}

/// A script for `player.c`. Numbers are little-endian; a step begins with a letter.
#[derive(Clone, Debug)]
pub struct NativeScript(Vec<u8>);

impl NativeScript {
    /// Begins the script of a module. `tables` are the contents of its named tables, by their index in the manifest.
    pub fn new(admitted: &Admitted, tables: &[Option<Vec<u8>>]) -> Self {
        let mut this = Self(Vec::new());
        for (index, value) in admitted.values().iter().enumerate() {
            this.0.push(b'P');
            this.u32(index);
            this.0.extend_from_slice(&value.as_int().unwrap_or(0).to_le_bytes());
            this.0.extend_from_slice(&value.as_float().unwrap_or(0.0).to_bits().to_le_bytes());
            // The length of a number is 0, although it can be read as bytes.
            let is_number = value.as_int().is_some() || value.as_float().is_some();
            this.block(&if is_number { Vec::new() } else { ParameterValue::encoded(value) });
        }
        for (index, stream) in admitted.manifest().streams.iter().enumerate() {
            let strings: Vec<usize> = stream
                .fields
                .iter()
                .filter(|field| field.ty.is_indirect())
                .map(|field| field.offset)
                .collect();
            this.0.push(b'S');
            this.0.push(u8::try_from(index).unwrap_or(u8::MAX));
            this.u32(strings.len());
            strings.into_iter().for_each(|offset| this.u32(offset));
        }
        for (index, declared) in admitted.manifest().tables.iter().enumerate() {
            let Some(window) = declared.window() else { continue };
            let content = tables.get(index).and_then(Option::as_ref);
            let mut window_bytes = vec![0; table::HEADER_BYTES as usize];
            if let Some(content) = content {
                window_bytes[table::VERSION..][..8].copy_from_slice(&1u64.to_le_bytes());
                let len = u32::try_from(content.len()).unwrap_or(u32::MAX);
                window_bytes[table::LEN..][..4].copy_from_slice(&len.to_le_bytes());
                window_bytes.extend_from_slice(content);
            }
            this.0.push(b'M');
            this.0.extend_from_slice(&window.to_le_bytes());
            this.block(&window_bytes);
        }
        this
    }

    /// Adds a call of the module. For a batch, `arguments` are the guest address of the descriptors and the mask of the packets.
    pub fn call(
        &mut self,
        entry: EntryPoint,
        arguments: [u64; 3],
        descriptors: &[u8],
        packets: &[ScriptPacket<'_>],
    ) {
        self.0.extend_from_slice(&[b'C', entry as u8]);
        arguments.iter().for_each(|argument| self.0.extend_from_slice(&argument.to_le_bytes()));
        // Only those up to the last packet of the call, which are many fewer where ticks divide a batch.
        let last = packets.last().map_or(0, |packet| (packet.index as usize + 1) * DESCRIPTOR_BYTES);
        self.block(descriptors.get(..last).unwrap_or(descriptors));
        self.u32(packets.len());
        for packet in packets {
            self.0.extend_from_slice(&packet.index.to_le_bytes());
            self.0.extend_from_slice(&packet.number.to_le_bytes());
            let at =
                packet.index as usize * DESCRIPTOR_BYTES + std::mem::offset_of!(weir_abi::Descriptor, data);
            let address: [u8; 4] =
                descriptors.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
            self.0.extend_from_slice(&address);
            self.block(packet.bytes);
        }
    }

    /// Adds the answer to a call of a host function: the result, or `None` if the call ended the module's call, and the bytes
    /// that the function wrote to the module's memory. Calls that read parameters are not in the script.
    pub fn answer(&mut self, function: HostFunction, result: Option<u64>, output: &[u8]) {
        if reads_parameter(function) {
            return;
        }
        self.0.extend_from_slice(&[b'H', function as u8, result.is_some().into()]);
        self.0.extend_from_slice(&result.unwrap_or(0).to_le_bytes());
        self.block(output);
    }

    /// Adds an event of a TCP stream; an empty one if there was no further event. `reply` is the module's reply to the event
    /// before, `bytes` are those that are not in a packet.
    pub fn stream_event(&mut self, packet: u32, reply: i32, event: &[u8], bytes: &[u8]) {
        self.0.push(b'E');
        self.0.extend_from_slice(&packet.to_le_bytes());
        self.0.extend_from_slice(&reply.to_le_bytes());
        self.u32(event.len());
        self.0.extend_from_slice(event);
        self.block(bytes);
    }

    /// Ends a call, which has returned or ended by a fault.
    pub fn end_call(&mut self, has_returned: bool) {
        self.0.extend_from_slice(&[b'X', has_returned.into()]);
    }

    /// Returns the number of bytes so far.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the script has no steps.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes of the whole script.
    pub(super) fn finished(&self) -> Vec<u8> {
        [self.0.as_slice(), b"Q"].concat()
    }

    fn u32(&mut self, number: usize) {
        self.0.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
    }

    fn block(&mut self, bytes: &[u8]) {
        self.u32(bytes.len());
        self.0.extend_from_slice(bytes);
    }
}
