//! A module that calls every helper of `weir_guest::parse`. apps/author/tests/parse.rs checks that it is proved.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::parse::{dhcp_option, extension_type, handshake_type, server_name, zigzag, Cursor, NameCase, ParseError};
use weir_guest::{Packet, StreamEvent, StreamReply, Verdict};

struct Probe {
    sum: u64,
}

impl Probe {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        let payload = packet.payload();
        let results = [
            self.numbers(Cursor::new(payload)),
            self.der(Cursor::new(payload)),
            self.lists(Cursor::new(payload)),
            self.dns(payload),
            self.dhcp(Cursor::new(payload)),
            self.tls(Cursor::new(payload)),
        ];
        if results.iter().all(Result::is_ok) { Verdict::Pass } else { Verdict::Drop }
    }

    fn stream(&mut self, event: &StreamEvent) -> StreamReply {
        _ = self.tls(Cursor::new(event.bytes()));
        StreamReply::CONTINUE
    }

    fn add(&mut self, number: u64) {
        self.sum = self.sum.wrapping_add(number);
    }

    fn numbers(&mut self, mut c: Cursor) -> Result<(), ParseError> {
        self.add(u64::from(c.u8()?) + u64::from(c.be16()?) + u64::from(c.be24()?) + u64::from(c.be32()?));
        self.add(c.be64()?);
        self.add(u64::from(c.le16()?) + u64::from(c.le32()?));
        self.add(c.le64()?);
        self.add(c.quic_varint()?);
        self.add(zigzag(c.varint()?) as u64);
        self.add(c.signed_varint()? as u64);
        c.bytes(3)?;
        self.add(c.most(9).rest().len() as u64);
        Ok(())
    }

    fn der(&mut self, mut c: Cursor) -> Result<(), ParseError> {
        let Some(mut outer) = c.der()? else { return Ok(()) };
        for _ in 0..16 {
            let Some(inner) = outer.value.der()? else { break };
            self.add(inner.tag.into());
        }
        Ok(())
    }

    fn lists(&mut self, c: Cursor) -> Result<(), ParseError> {
        for tlv in c.tlvs::<32, 1, 2>() {
            self.add(tlv?.ty.into());
        }
        for option in c.options() {
            for inner in option?.value.tlvs::<8, 1, 1>() {
                // An iterator has its bound also where a module goes on behind an error.
                let Ok(inner) = inner else { continue };
                if inner.ty == 4 {
                    break;
                }
                self.add(1);
            }
        }
        Ok(())
    }

    fn dns(&mut self, message: &[u8]) -> Result<(), ParseError> {
        let mut c = Cursor::new(message);
        let header = c.dns_header()?;
        self.add(header.id.into());
        self.add(c.dns_question(message, NameCase::Lower)?.ty.into());
        for _ in 0..4 {
            self.add(c.dns_record(message, NameCase::AsIs)?.ttl.into());
        }
        Ok(())
    }

    #[inline(never)]
    fn dhcp(&mut self, mut c: Cursor) -> Result<(), ParseError> {
        let header = c.dhcp_header()?;
        self.add(u64::from(header.id) + header.hardware.len() as u64);
        for option in c.dhcp_options::<64>() {
            let mut option = option?;
            if option.ty == dhcp_option::MESSAGE_TYPE {
                self.add(option.value.u8()?.into());
            }
        }
        Ok(())
    }

    fn tls(&mut self, mut c: Cursor) -> Result<(), ParseError> {
        for _ in 0..4 {
            let Some(record) = c.tls_record()? else { break };
            self.hello(record.body)?;
        }
        Ok(())
    }

    #[inline(never)]
    fn hello(&mut self, mut body: Cursor) -> Result<(), ParseError> {
        let Some(mut message) = body.tls_message()? else { return Ok(()) };
        let hello = match message.ty {
            handshake_type::CLIENT_HELLO => message.body.tls_client_hello()?,
            _ => message.body.tls_server_hello()?,
        };
        for extension in hello.extensions() {
            let extension = extension?;
            if extension.ty == extension_type::SERVER_NAME {
                self.add(server_name(extension.value)?.len() as u64);
            }
        }
        Ok(())
    }
}

weir_guest::module! {
    state: Probe = Probe { sum: 0 };
    packet: Probe::packet;
    stream: Probe::stream;
}
