//! The parsing helpers of both SDKs on the same bytes: well-formed messages, and damaged ones. Other tools are the oracles.

use crate::examples::{native_program, root};
use crate::toolchain::{has_c, has_rust, options, rust_options};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use weir_admission::{Admitted, Tier};
use weir_author::{ModuleLanguage, build, new};

/// The helpers of the Rust SDK, compiled here too.
#[allow(dead_code, unused_imports, unreachable_pub, clippy::cast_possible_truncation)]
#[path = "../../../guest/sdk-rust/src/parse/mod.rs"]
mod helpers;

use helpers::{Cursor, DnsName, NameCase, ParseError, extension_type, handshake_type, record_type};

/// A line for the programs: kind, bytes, number.
struct Input {
    kind: &'static str,
    bytes: Vec<u8>,
    number: usize,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn ending<T>(result: Result<T, ParseError>) -> &'static str {
    if result.is_ok() { "ok" } else { "failed" }
}

/// George Marsaglia's xorshift64. The numbers are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.byte()).collect()
    }

    /// Changes, removes or adds a few bytes.
    fn damage(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        for _ in 0..self.below(4) {
            let at = self.below(bytes.len() + 1);
            match self.below(4) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.byte()),
                _ if at < bytes.len() => {
                    bytes[at] = [self.byte(), 0, 1, 0x7f, 0x80, 0xc0, 0xff][self.below(7)];
                }
                _ => {}
            }
        }
        bytes
    }

    /// A message of labels, ends and pointers, most of which lead to an earlier label, and a place in it.
    fn names(&mut self) -> (Vec<u8>, usize) {
        let mut bytes = self.bytes(12);
        let mut starts = Vec::new();
        for _ in 0..self.below(40) {
            starts.push(bytes.len());
            match self.below(8) {
                0 | 1 => bytes.push(0),
                2 => {
                    let to = match self.below(10) {
                        0 => self.below(400),
                        _ => starts[self.below(starts.len())],
                    };
                    bytes.extend_from_slice(&u16::try_from(0xc000 | to).unwrap().to_be_bytes());
                }
                _ => {
                    let len = if self.below(6) == 0 { 63 } else { self.below(12) };
                    bytes.push(u8::try_from(len).unwrap());
                    bytes.extend((0..len).map(|i| b"aZ09-._\0"[i % 8]));
                }
            }
        }
        let start = if starts.is_empty() { 0 } else { self.below(starts.len()) };
        let any = self.below(bytes.len() + 2);
        let place = starts.get(start).filter(|_| !any.is_multiple_of(4)).copied().unwrap_or(any);
        (bytes, place)
    }
}

/// The line that the C program prints, by the Rust SDK.
fn line(input: &Input) -> String {
    let mut text = String::new();
    let mut cursor = Cursor::new(&input.bytes);
    let number = |cursor: Cursor<'_>, number: Result<i64, ParseError>| match number {
        Ok(number) => format!("{number} {}", input.bytes.len() - cursor.rest().len()),
        Err(_) => "failed".to_owned(),
    };
    match input.kind {
        "varint" => {
            let value = cursor.varint().map(helpers::zigzag);
            number(cursor, value)
        }
        "signed" => {
            let value = cursor.signed_varint();
            number(cursor, value)
        }
        "quic" => {
            let value = cursor.quic_varint().map(|value| i64::try_from(value).unwrap());
            number(cursor, value)
        }
        "numbers" => {
            let value = sum_of_numbers(&mut cursor).map(u64::cast_signed);
            number(cursor, value)
        }
        "tlv" => elements(cursor.tlvs::<8, 1, 2>(), |_| true),
        "wide" => elements(cursor.tlvs::<8, 4, 1>(), |ty| ty % 2 == 0),
        "option" => elements(cursor.options(), |_| true),
        "der" => {
            let end = der(cursor, &input.bytes, 0, &mut text);
            text + ending(end)
        }
        "tls" => {
            let end = tls(cursor, &mut text);
            text + ending(end)
        }
        "dhcp" => {
            let end = dhcp(cursor, &mut text);
            text + ending(end)
        }
        "dns" => {
            let end = message(cursor, &mut text);
            text + ending(end)
        }
        kind => {
            let case = if kind == "lower" { NameCase::Lower } else { NameCase::AsIs };
            let name = cursor.bytes(input.number).and_then(|_| cursor.dns_name(&input.bytes, case));
            match name {
                Ok(name) => format!("{} {}", hex(name.text()), input.bytes.len() - cursor.rest().len()),
                Err(_) => "failed".to_owned(),
            }
        }
    }
}

fn sum_of_numbers(c: &mut Cursor<'_>) -> Result<u64, ParseError> {
    let first = u64::from(c.u8()?) + u64::from(c.be16()?) + u64::from(c.be24()?) + u64::from(c.be32()?);
    let second = first.wrapping_add(c.be64()?) + u64::from(c.le16()?) + u64::from(c.le32()?);
    Ok(second.wrapping_add(c.le64()?))
}

fn elements<'a>(
    list: impl Iterator<Item = Result<helpers::Tlv<'a>, ParseError>>,
    is_shown: fn(u32) -> bool,
) -> String {
    let mut text = String::new();
    for element in list {
        match element {
            Ok(tlv) if is_shown(tlv.ty) => {
                let _ = write!(text, "{}:{} ", tlv.ty, tlv.value.rest().len());
            }
            Ok(_) => {}
            Err(_) => return text + "failed",
        }
    }
    text + "ok"
}

fn der(mut cursor: Cursor<'_>, all: &[u8], depth: u32, text: &mut String) -> Result<(), ParseError> {
    let offset = |cursor: &Cursor<'_>| cursor.rest().as_ptr() as usize - all.as_ptr() as usize;
    loop {
        let start = offset(&cursor);
        let Some(element) = cursor.der()? else { return Ok(()) };
        let _ = write!(
            text,
            "{start}:{depth}:{}:{}:{}:{}:{} ",
            offset(&element.value) - start,
            element.value.rest().len(),
            if element.is_constructed { "cons" } else { "prim" },
            element.class as u8,
            element.tag,
        );
        if element.is_constructed && depth < 20 {
            der(element.value, all, depth + 1, text)?;
        }
    }
}

fn tls(mut cursor: Cursor<'_>, text: &mut String) -> Result<(), ParseError> {
    while let Some(mut record) = cursor.tls_record()? {
        let len = record.body.rest().len();
        let _ = write!(text, "record {} {} {len} {} ", record.ty, record.version, record.missing);
        while let (record_type::HANDSHAKE, Ok(Some(mut message))) = (record.ty, record.body.tls_message()) {
            let _ = write!(text, "message {} {} {} ", message.ty, message.body.rest().len(), message.missing);
            let hello = match message.ty {
                handshake_type::CLIENT_HELLO => message.body.tls_client_hello(),
                handshake_type::SERVER_HELLO => message.body.tls_server_hello(),
                _ => continue,
            };
            let Ok(hello) = hello else {
                text.push_str("failed ");
                continue;
            };
            let _ = write!(
                text,
                "hello {} {:02x} {} {} ",
                hello.version,
                hello.random[31],
                hello.session_id.len(),
                hello.suites.rest().len()
            );
            let mut end = Ok(());
            for extension in hello.extensions() {
                match extension {
                    Ok(extension) => {
                        let _ = write!(text, "{}:{} ", extension.ty, extension.value.rest().len());
                        if extension.ty == extension_type::SERVER_NAME {
                            let name = helpers::server_name(extension.value);
                            *text += &hex(name.unwrap_or_default());
                            *text += ending(name);
                            *text += " ";
                        }
                    }
                    Err(error) => end = Err(error),
                }
            }
            *text += ending(end);
            *text += " ";
        }
    }
    Ok(())
}

fn message(mut cursor: Cursor<'_>, text: &mut String) -> Result<(), ParseError> {
    let message = cursor.rest();
    let h = cursor.dns_header()?;
    let _ = write!(
        text,
        "header {} {} {} {} {} {} ",
        h.id, h.flags, h.questions, h.answers, h.authorities, h.additionals
    );
    for _ in 0..h.questions {
        let r = cursor.dns_question(message, NameCase::AsIs)?;
        let _ = write!(text, "question {} {} {} ", r.name.text().len(), r.ty, r.class);
    }
    for _ in 0..h.answers {
        let r = cursor.dns_record(message, NameCase::AsIs)?;
        let len = r.data.rest().len();
        let _ = write!(text, "record {} {} {} {} {len} ", r.name.text().len(), r.ty, r.class, r.ttl);
    }
    Ok(())
}

fn dhcp(mut cursor: Cursor<'_>, text: &mut String) -> Result<(), ParseError> {
    let h = cursor.dhcp_header()?;
    let _ = write!(text, "header {} {} ", 1 + u8::from(h.is_from_server), h.id);
    for bytes in [&h.client[..], &h.assigned, &h.server, &h.relay, h.hardware] {
        let _ = write!(text, "{} ", hex(bytes));
    }
    for option in cursor.dhcp_options::<DHCP_OPTIONS>() {
        let option = option?;
        let _ = write!(text, "{}:{} ", option.ty, hex(option.value.rest()));
    }
    Ok(())
}

/// Returns the lines that a program prints for these inputs; `None` if it cannot be started.
fn printed_by(program: &mut Command, inputs: &[Input]) -> Option<Vec<String>> {
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let mut stdin = child.stdin.take().unwrap();
    let text = inputs.iter().fold(String::new(), |mut text, input| {
        let _ = writeln!(text, "{} {} {}", input.kind, hex(&input.bytes), input.number);
        text
    });
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().ok()?;
    assert!(output.status.success());
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

/// A ClientHello in a record, with a server name and other extensions.
fn client_hello() -> Vec<u8> {
    let name = b"www.example";
    let mut extensions = vec![0, 23, 0, 0];
    let lens = [name.len() + 5, name.len() + 3].map(|len| u16::try_from(len).unwrap().to_be_bytes());
    extensions.extend([0, 0].iter().chain(&lens[0]).chain(&lens[1]).chain(&[0]));
    extensions.extend(u16::try_from(name.len()).unwrap().to_be_bytes().iter().chain(name));
    extensions.extend([0, 16, 0, 5, 0, 3, 2, b'h', b'2']);
    let mut body = vec![3, 3];
    body.extend(0..32);
    body.extend([4, 1, 2, 3, 4, 0, 4, 0x13, 1, 0x13, 2, 1, 0]);
    body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes().iter().chain(&extensions));
    let mut message = vec![1, 0];
    message.extend(u16::try_from(body.len()).unwrap().to_be_bytes().iter().chain(&body));
    let mut record = vec![22, 3, 1];
    record.extend(u16::try_from(message.len()).unwrap().to_be_bytes().iter().chain(&message));
    record
}

/// A response with a question and an answer that points to it.
const RESPONSE: &[u8] = b"\x12\x34\x81\x80\0\x01\0\x02\0\0\0\0\x03wWw\x07example\0\0\x01\0\x01\
    \xc0\x0c\0\x01\0\x01\0\0\x0e\x10\0\x04\xc0\0\x02\x01\xc0\x10\0\x02\0\x01\0\0\0\x05\0\x06\x03ns1\xc0\x10";

/// The most options that the programs read.
const DHCP_OPTIONS: u32 = 8;

/// An answer of a DHCP server, with these options.
fn dhcp_answer(options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2, 1, 6, 0, 0x12, 0x34, 0x56, 0x78, 0, 0, 0x80, 0];
    bytes.extend([0, 0, 0, 0, 192, 0, 2, 77, 192, 0, 2, 1, 198, 51, 100, 9]);
    bytes.extend([2, 0, 0x5e, 0x10, 0, 0xff]);
    bytes.resize(236, 0);
    bytes.extend([0x63, 0x82, 0x53, 0x63]);
    bytes.extend(options);
    bytes
}

/// An acknowledgement with padding, a lease of an hour, an option without a value, and bytes behind the end.
const DHCP: &[u8] = b"\x35\x01\x05\x36\x04\xc0\0\x02\x01\0\x33\x04\0\0\x0e\x10\x50\0\xff\0\0\x07";

/// A sequence of an OID, a long tag, a context tag with a long length, and nested sets.
const DER: &[u8] = b"\x30\x1b\x06\x03\x2a\x86\x48\x5f\x81\x7f\x02\x01\x02\xa0\x82\0\x06\x31\x04\x31\x02\x05\0\x04\x01\xff\x05\0";

fn inputs() -> Vec<Input> {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut inputs = Vec::new();
    for seed in 0..4000 {
        for kind in ["varint", "signed", "quic", "numbers", "tlv", "wide", "option"] {
            let len = random.below(48);
            let mut bytes = random.bytes(len);
            match kind {
                "varint" | "signed" => {
                    let ends = random.below(12);
                    for (at, byte) in bytes.iter_mut().enumerate() {
                        *byte = if at < ends { *byte | 128 } else { *byte & 127 };
                    }
                    if seed % 2 == 0 && bytes.len() > 9 {
                        bytes[9] = [0, 1, 2, 126, 127][random.below(5)];
                    }
                }
                "tlv" | "wide" | "option" if seed % 2 == 0 => bytes.iter_mut().for_each(|byte| *byte %= 4),
                _ => {}
            }
            inputs.push(Input { kind, bytes, number: 0 });
        }
        let (bytes, number) = random.names();
        inputs.push(Input { kind: if seed % 2 == 0 { "name" } else { "lower" }, bytes, number });
        for (kind, whole) in [("tls", client_hello()), ("dns", RESPONSE.to_vec()), ("der", DER.to_vec())] {
            inputs.push(Input { kind, bytes: random.damage(whole), number: 0 });
        }
        // Most damage is in the options, and some in the header.
        let bytes = match seed % 4 {
            0 => random.damage(dhcp_answer(DHCP)),
            _ => dhcp_answer(&random.damage(DHCP.to_vec())),
        };
        inputs.push(Input { kind: "dhcp", bytes, number: 0 });
    }
    inputs
}

#[test]
fn both_sdks_parse_well_formed_and_damaged_bytes_alike() {
    let home = tempfile::tempdir().unwrap();
    let Some(program) = native_program("parse.c", home.path()) else { return };
    let inputs = inputs();
    let c = printed_by(&mut Command::new(program), &inputs).unwrap();
    assert_eq!(c.len(), inputs.len());
    for kind in [
        "varint", "signed", "quic", "numbers", "tlv", "wide", "option", "name", "lower", "tls", "dns", "der",
        "dhcp",
    ] {
        let of_kind: Vec<_> = inputs.iter().zip(&c).filter(|(input, _)| input.kind == kind).collect();
        for (input, c) in &of_kind {
            assert_eq!(line(input), **c, "{kind} {} {}", hex(&input.bytes), input.number);
        }
        let failed = of_kind.iter().filter(|(_, c)| c.ends_with("failed")).count();
        assert!(failed > 20 && of_kind.len() - failed > 20, "{kind}: {failed} of {}", of_kind.len());
    }
}

#[test]
fn messages_have_the_values_that_they_were_made_with() {
    let of = |kind, bytes: &[u8]| line(&Input { kind, bytes: bytes.to_vec(), number: 0 });
    assert_eq!(
        of("tls", &client_hello()),
        "record 22 769 86 0 message 1 82 0 hello 771 1f 4 4 23:0 0:16 7777772e6578616d706c65ok 16:5 ok ok"
    );
    assert_eq!(
        of("dns", RESPONSE),
        "header 4660 33152 1 2 0 0 question 11 1 1 record 11 1 1 3600 4 record 7 2 1 5 6 ok"
    );
    let header = "header 2 305419896 00000000 c000024d c0000201 c6336409 02005e1000ff ";
    assert_eq!(of("dhcp", &dhcp_answer(DHCP)), format!("{header}53:05 54:c0000201 0: 51:00000e10 80: ok"));
    // The end counts as an option. A list can end without it, as its bytes do.
    let most = [80, 0].repeat(7);
    assert_eq!(
        of("dhcp", &dhcp_answer(&[&most[..], &[255]].concat())),
        format!("{header}{}ok", "80: ".repeat(7))
    );
    assert_eq!(of("dhcp", &dhcp_answer(&most)), format!("{header}{}ok", "80: ".repeat(7)));
    let more = [80, 0].repeat(8);
    assert_eq!(
        of("dhcp", &dhcp_answer(&[&more[..], &[255]].concat())),
        format!("{header}{}failed", "80: ".repeat(8))
    );
    // A message of BOOTP, the protocol before DHCP, and one whose hardware address is longer than its field.
    for (place, value) in [(236, 0), (2, 17), (0, 3)] {
        let mut bytes = dhcp_answer(DHCP);
        bytes[place] = value;
        assert_eq!(of("dhcp", &bytes), "failed");
    }
    // RFC 9000, A.1.
    for (bytes, number) in [
        (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], "151288809941952652 8"),
        (&[0x9d, 0x7f, 0x3e, 0x7d], "494878333 4"),
        (&[0x7b, 0xbd], "15293 2"),
        (&[0x40, 0x25], "37 2"),
        (&[0x25], "37 1"),
    ] {
        assert_eq!(of("quic", bytes), number);
    }
    // A list of as many elements as its limit, and of one more.
    assert_eq!(of("tlv", &[1, 0, 0].repeat(8)), "1:0 ".repeat(8) + "ok");
    assert_eq!(of("tlv", &[1, 0, 0].repeat(9)), "1:0 ".repeat(8) + "failed");
    // The longest name has 255 bytes in a message, and a name has at most 16 pointers.
    let longest = [[&[63][..], &[b'x'; 63]].concat().repeat(3), [&[61][..], &[b'x'; 61], &[0]].concat()];
    assert!(!of("name", &longest.concat()).ends_with("failed"));
    let longer = [longest[0].clone(), [&[62][..], &[b'x'; 62], &[0]].concat()].concat();
    assert_eq!(of("name", &longer), "failed");
    let chain = |jumps: u8| {
        let pointers = (0..jumps).flat_map(|i| [0xc0, (2 * i).saturating_sub(1)]);
        let bytes: Vec<u8> = [0].into_iter().chain(pointers).collect();
        line(&Input { kind: "name", number: bytes.len() - 2, bytes })
    };
    assert_eq!((chain(16), chain(17)), (" 33".to_owned(), "failed".to_owned()));
    assert_eq!(DnsName::ROOT.text(), b"");
}

#[test]
fn leb128_is_read_as_wasmparser_reads_it() {
    for input in inputs().iter().filter(|input| matches!(input.kind, "varint" | "signed")) {
        let mut reader = wasmparser::BinaryReader::new(&input.bytes, 0);
        let number = match input.kind {
            "varint" => reader.read_var_u64().map(helpers::zigzag),
            _ => reader.read_var_i64(),
        };
        let expected = match number {
            Ok(number) => format!("{number} {}", reader.current_position()),
            Err(_) => "failed".to_owned(),
        };
        assert_eq!(line(input), expected, "{} {}", input.kind, hex(&input.bytes));
    }
}

#[test]
fn names_are_read_as_dnspython_reads_them() {
    let names: Vec<Input> = inputs().into_iter().filter(|input| input.kind == "name").collect();
    let script = root().join("apps/author/tests/parse_names.py");
    let has_dnspython = Command::new("python3").args(["-c", "import dns.name"]).output();
    if !has_dnspython.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: dnspython is not installed");
        return;
    }
    let expected = printed_by(Command::new("python3").arg(script), &names).unwrap();
    assert_eq!(expected.len(), names.len());
    assert!(expected.iter().filter(|line| *line != "failed").count() > 500);
    for (input, expected) in names.iter().zip(expected) {
        assert_eq!(line(input), expected, "{} {}", hex(&input.bytes), input.number);
    }
}

/// A UDP packet with this payload from a DHCP server to a client.
fn dhcp_frame(payload: &[u8]) -> Vec<u8> {
    let len = |header: usize| u16::try_from(header + payload.len()).unwrap().to_be_bytes();
    let mut frame = [&[2; 12][..], &[8, 0, 0x45, 0], &len(28), &[0, 0, 0, 0, 64, 17, 0, 0]].concat();
    frame.extend([192, 0, 2, 1, 192, 0, 2, 77, 0, 67, 0, 68]);
    frame.extend(len(8).iter().chain(&[0, 0]).chain(payload));
    frame
}

#[test]
fn dhcp_options_are_those_that_tshark_finds() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let messages: Vec<Vec<u8>> = (0..400)
        .map(|_| {
            let mut options = Vec::new();
            for _ in 0..1 + random.below(usize::try_from(DHCP_OPTIONS).unwrap() - 1) {
                // Types with the lengths that they have; a type of 0 is padding.
                let (ty, len) =
                    [(0, 0), (1, 4), (3, 8), (12, 9), (15, 40), (51, 4), (53, 1), (54, 4), (60, 255)]
                        [random.below(9)];
                options.push(ty);
                if ty != 0 {
                    options.push(len);
                    options.extend((0..len).map(|_| b'a' + u8::try_from(random.below(8)).unwrap()));
                }
            }
            // The end, with bytes behind it that are no options.
            options.extend([255, 53, 1, 2]);
            dhcp_answer(&options)
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let frames: Vec<_> = messages.iter().map(|message| dhcp_frame(message)).collect();
    let fields =
        ["dhcp.type", "dhcp.id", "dhcp.ip.your", "dhcp.hw.mac_addr", "dhcp.option.type", "dhcp.option.value"];
    let output = Command::new("tshark")
        .args(["-T", "fields", "-r"])
        .arg(crate::fields::capture(&folder, &frames))
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .output();
    let Ok(output) = output else {
        println!("SKIPPED: tshark is not installed");
        return;
    };
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.lines().count(), messages.len(), "{}", String::from_utf8_lossy(&output.stderr));
    for (message, printed) in messages.iter().zip(printed.lines()) {
        let ours = line(&Input { kind: "dhcp", bytes: message.clone(), number: 0 });
        let options: Vec<(&str, &str)> =
            ours.split(' ').filter_map(|part| part.split_once(':')).filter(|(ty, _)| *ty != "0").collect();
        let [op, id, assigned, mac, types, values] = printed.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{printed}");
        };
        assert_eq!([op, id, assigned, mac], ["2", "0x12345678", "192.0.2.77", "02:00:5e:10:00:ff"]);
        // tshark gives padding and the end the type 0.
        let types: Vec<&str> = types.split(',').filter(|ty| *ty != "0").collect();
        let values: Vec<&str> = values.split(',').filter(|value| !value.is_empty()).collect();
        assert_eq!(options.iter().map(|(ty, _)| *ty).collect::<Vec<_>>(), types, "{}", hex(message));
        assert_eq!(options.iter().map(|(_, value)| *value).collect::<Vec<_>>(), values, "{}", hex(message));
        assert!(ours.ends_with(" ok"), "{ours}");
    }
}

/// Certificates of two kinds, as openssl makes them and takes them apart.
#[test]
fn certificates_have_the_elements_that_openssl_finds() {
    let home = tempfile::tempdir().unwrap();
    let der_file = home.path().join("certificate");
    for key in [&["rsa:2048"][..], &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]] {
        let made = Command::new("openssl")
            .args(["req", "-x509", "-nodes", "-subj", "/O=Example/CN=www.example", "-outform", "DER"])
            .args(["-addext", "subjectAltName=DNS:www.example,IP:192.0.2.1", "-newkey"])
            .args(key)
            .arg("-keyout")
            .arg(home.path().join("key"))
            .arg("-out")
            .arg(&der_file)
            .output();
        if !made.is_ok_and(|output| output.status.success()) {
            println!("SKIPPED: openssl makes no certificates here");
            return;
        }
        let bytes = std::fs::read(&der_file).unwrap();
        let ours = line(&Input { kind: "der", bytes, number: 0 });
        let ours: Vec<String> = ours
            .split(' ')
            .filter(|element| *element != "ok")
            .map(|element| element.split(':').take(5).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(ours, elements_by_openssl(&der_file));
        assert!(ours.len() > 40);
    }
}

/// Lines such as `    4:d=1  hl=4 l= 508 cons: SEQUENCE`, as numbers with spaces between them.
fn elements_by_openssl(path: &Path) -> Vec<String> {
    let output =
        Command::new("openssl").args(["asn1parse", "-inform", "DER", "-in"]).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .map(|line| {
            let parts: Vec<&str> = line.splitn(4, ':').collect();
            let marks = parts[1].replace("d=", " ").replace("hl=", " ").replace("l=", " ");
            let words = parts[0].split_whitespace().chain(marks.split_whitespace());
            words.collect::<Vec<_>>().join(" ")
        })
        .collect()
}

/// Modules that call every helper, in both languages.
#[test]
fn every_helper_has_a_bound() {
    let manifest = "version = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n\
        [tcp]\nstreams = 256\nbuffer = '1 MiB'\n";
    let languages = [
        (ModuleLanguage::C, has_c(), "parse-probe.c", include_str!("parse_probe.c"), options()),
        (ModuleLanguage::Rust, has_rust(), "src/lib.rs", include_str!("parse_probe.rs"), rust_options()),
    ];
    for (lang, is_installed, file, source, options) in languages {
        if !is_installed {
            continue;
        }
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("parse-probe");
        new(&dir, lang).unwrap();
        std::fs::write(dir.join("weir.toml"), format!("name = 'parse-probe'\n{manifest}")).unwrap();
        std::fs::write(dir.join(file), source).unwrap();
        let built = build(&dir, &options).unwrap();
        assert_eq!(built.messages, "", "{lang:?}");
        let admitted = Admitted::admit(std::fs::read(built.path).unwrap(), &[]).unwrap();
        assert_eq!(admitted.tier(), Tier::Proved, "{lang:?}");
    }
}
