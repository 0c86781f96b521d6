//! Messages of IPFIX, read by a decoder that knows the format alone. Tests of the program read them with other tools.

use super::rows::{FLOW, Given, NOW, REQUEST, flow, hostile_texts, request, row, stream};
use std::collections::HashMap;
use weir_exports::ipfix::{DATAGRAM_BYTES_MAX, IpfixMessages, MESSAGE_BYTES_MAX};

/// An element of a template: number, enterprise number and length.
type Declared = (u16, Option<u32>, u16);

/// A value of a record, with the number and the enterprise number of its element.
type ElementValue = ((u16, Option<u32>), Vec<u8>);

/// The data records of messages, by template; each value with its element's number and enterprise number.
#[derive(Default)]
struct Decoder {
    templates: HashMap<u16, Vec<Declared>>,
    records: Vec<(u16, Vec<ElementValue>)>,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

impl Decoder {
    fn read(&mut self, message: &[u8]) {
        assert_eq!((u16_at(message, 0), usize::from(u16_at(message, 2))), (10, message.len()));
        assert_eq!(
            (u32_at(message, 4), u32_at(message, 12)),
            (u32::try_from(NOW.0 / 1_000_000_000).unwrap(), 9)
        );
        let mut rest = &message[16..];
        let before = u32::try_from(self.records.len()).unwrap();
        assert_eq!(u32_at(message, 8), before, "sequence number");
        while !rest.is_empty() {
            let (number, len) = (u16_at(rest, 0), usize::from(u16_at(rest, 2)));
            let set;
            (set, rest) = rest.split_at(len);
            if number == 2 { self.read_templates(&set[4..]) } else { self.read_records(number, &set[4..]) }
        }
    }

    fn read_templates(&mut self, mut set: &[u8]) {
        while !set.is_empty() {
            let (number, count) = (u16_at(set, 0), u16_at(set, 2));
            set = &set[4..];
            let mut template = Vec::new();
            for _ in 0..count {
                let (element, len) = (u16_at(set, 0), u16_at(set, 2));
                set = &set[4..];
                let mut enterprise = None;
                if element & 0x8000 != 0 {
                    enterprise = Some(u32_at(set, 0));
                    set = &set[4..];
                }
                template.push((element & 0x7fff, enterprise, len));
            }
            self.templates.insert(number, template);
        }
    }

    fn read_records(&mut self, number: u16, mut set: &[u8]) {
        while !set.is_empty() {
            let mut record = Vec::new();
            for (element, enterprise, len) in &self.templates[&number] {
                let len = match (*len, set[0]) {
                    (u16::MAX, 255) => {
                        let len = u16_at(set, 1);
                        set = &set[3..];
                        usize::from(len)
                    }
                    (u16::MAX, len) => {
                        set = &set[1..];
                        usize::from(len)
                    }
                    (len, _) => usize::from(len),
                };
                let value;
                (value, set) = set.split_at(len);
                record.push(((*element, *enterprise), value.to_vec()));
            }
            self.records.push((number, record));
        }
    }
}

fn get(record: &[ElementValue], element: u16, enterprise: Option<u32>) -> Vec<u8> {
    let found: Vec<&Vec<u8>> =
        record.iter().filter(|(key, _)| *key == (element, enterprise)).map(|(_, value)| value).collect();
    assert_eq!(found.len(), 1, "{element}");
    found[0].clone()
}

#[test]
fn a_flow_is_one_record_with_both_directions() {
    let stream = stream("flows", FLOW);
    let mut messages = IpfixMessages::new([&stream], 9, DATAGRAM_BYTES_MAX);
    let mut decoder = Decoder::default();
    for message in messages.templates(NOW) {
        decoder.read(&message);
    }
    let ports = || [Given::Number(40_000), Given::Null];
    for hosts in [["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "192.0.2.2"]] {
        let flow = row(&stream, &flow(6, hosts, ports(), Given::Null));
        assert_eq!(messages.push(0, &flow.record(), NOW), None);
    }
    decoder.read(&messages.flush(NOW).unwrap());
    assert_eq!(messages.flush(NOW), None);
    let [(first, ipv4), (second, ipv6)] = &decoder.records[..] else { panic!("two records") };
    assert_ne!(first, second);
    assert_eq!((get(ipv4, 8, None), get(ipv4, 12, None)), (vec![192, 0, 2, 1], vec![192, 0, 2, 2]));
    assert_eq!(get(ipv6, 28, None)[10..], [0xff, 0xff, 192, 0, 2, 2]);
    let number = |element, enterprise| {
        get(ipv4, element, enterprise).iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    assert_eq!([number(2, None), number(1, None)], [7, 700]);
    assert_eq!([number(2, Some(29_305)), number(1, Some(29_305))], [5, 5_000_000_000]);
    assert_eq!([number(7, None), number(11, None), number(4, None)], [40_000, 0, 6]);
    assert_eq!([number(152, None), number(153, None)], [1_700_000_000_123, 1_700_000_002_623]);
    assert_eq!(number(162, None), 2_500_000);
}

#[test]
fn messages_are_within_their_limit_and_count_all_records() {
    let stream = stream("flows", FLOW);
    let mut messages = IpfixMessages::new([&stream], 9, DATAGRAM_BYTES_MAX);
    let mut decoder = Decoder::default();
    let mut sent = messages.templates(NOW);
    for n in 0..1000u64 {
        let hosts = if n % 3 == 0 { ["192.0.2.1", "192.0.2.2"] } else { ["2001:db8::1", "2001:db8::2"] };
        let flow = row(&stream, &flow(n & 255, hosts, [Given::Number(n), Given::Null], Given::Null));
        sent.extend(messages.push(0, &flow.record(), NOW));
        if n == 500 {
            // Templates are sent again, and wait for no record.
            sent.extend(messages.templates(NOW));
        }
    }
    sent.extend(messages.flush(NOW));
    for message in &sent {
        assert!(message.len() <= DATAGRAM_BYTES_MAX);
        decoder.read(message);
    }
    let ports: Vec<u16> =
        decoder.records.iter().map(|(_, record)| u16_at(&get(record, 7, None), 0)).collect();
    assert_eq!(ports, (0..1000).collect::<Vec<u16>>());
}

#[test]
fn hostile_texts_are_cut_to_the_room_of_a_message_and_counted() {
    let stream = stream("requests", REQUEST);
    for bytes_max in [DATAGRAM_BYTES_MAX, MESSAGE_BYTES_MAX] {
        for text in hostile_texts() {
            let mut messages = IpfixMessages::new([&stream], 9, bytes_max);
            let mut decoder = Decoder::default();
            messages.templates(NOW).iter().for_each(|message| decoder.read(message));
            let request = row(&stream, &request(&text, &text, b"no element"));
            let mut sent: Vec<Vec<u8>> = messages.push(0, &request.record(), NOW).into_iter().collect();
            sent.extend(messages.flush(NOW));
            for message in &sent {
                assert!(message.len() <= bytes_max);
                decoder.read(message);
            }
            let [(_, record)] = &decoder.records[..] else { panic!("one record") };
            let shown = String::from_utf8_lossy(&text);
            for element in [459, 460] {
                let value = String::from_utf8(get(record, element, None)).unwrap();
                assert!(shown.starts_with(&value));
                assert!(
                    value == shown || value.len() > bytes_max / 3,
                    "{} bytes of {}",
                    value.len(),
                    shown.len()
                );
            }
            let is_cut = shown.len() * 2 > bytes_max;
            assert_eq!(messages.cut() > 0, is_cut, "{} bytes", shown.len());
        }
    }
}

#[test]
fn a_stream_without_addresses_and_ports_has_no_template() {
    let stream =
        stream("totals", "time timestamp time\nbytes u64 network.bytes\nname string dns.question.name");
    assert!(!IpfixMessages::can_export(&stream));
    let mut messages = IpfixMessages::new([&stream], 9, DATAGRAM_BYTES_MAX);
    assert_eq!(messages.templates(NOW), Vec::<Vec<u8>>::new());
    let totals = row(&stream, &[Given::Number(0), Given::Number(1), Given::Text(b"x")]);
    assert_eq!((messages.push(0, &totals.record(), NOW), messages.flush(NOW)), (None, None));
}
