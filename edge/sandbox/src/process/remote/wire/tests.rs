use super::*;
use weir_admission::manifest_of;

const MANIFEST: &str = "name='m'\nversion='1'\nabi=2\nlicense='MIT'\nsummary='s'\nkind='active'\n\
    [[stream]]\nname='rows'\n[[stream.field]]\nname='a'\ntype='u8'\n[[stream.field]]\nname='b'\ntype='u64'\n\
    [[stream]]\nname='texts'\n[[stream.field]]\nname='x'\ntype='string'\n[[stream.field]]\nname='y'\ntype='string'\noptional=true\n\
    [[output]]\nname='up'\n";

fn manifest() -> Manifest {
    let text = r#"(module (memory (export "memory") 1) (func (export "weir_packet") (param i32) (result i32) i32.const 0))"#;
    let mut bytes = wat::parse_str(text).unwrap();
    let mut section = b"\x0dweir.manifest".to_vec();
    section.extend_from_slice(MANIFEST.as_bytes());
    bytes.push(0);
    bytes.push(u8::try_from(section.len() & 0x7f).unwrap() | 0x80);
    bytes.push(u8::try_from(section.len() >> 7).unwrap());
    bytes.extend(section);
    manifest_of(&bytes).unwrap().0
}

fn expected(manifest: &Manifest) -> Expected<'_> {
    Expected {
        manifest,
        mask: 0b1011,
        first: 64,
        before: 0,
        limits: OutputLimits::of_batch(&Profile::default(), 3).with_texts(100, 8),
        memory: Bytes(1 << 20),
        frame_bytes: 1500,
        writes: WriteFields::ALL,
    }
}

/// A row of the stream `texts`, whose second field is null if the presence byte is 0.
fn text_row(presence: u8) -> [u8; 20] {
    let mut row = [0; 20];
    row[16] = presence;
    row
}

/// A valid report.
fn report() -> CallReport {
    let mut records = Records::default();
    records.begin(RecordOrder::packet(65), 0, &[7; 16]);
    records.begin(RecordOrder::packet(67), 1, &text_row(1));
    records.append_tail(0, b"first");
    records.append_tail(8, b"second");
    records.begin(RecordOrder::packet(67), 1, &text_row(0));
    records.append_tail(0, b"alone");
    let mut frames = Records::default();
    frames.begin(RecordOrder::packet(67), 0, &[9; 60]);
    CallReport {
        drops: 0b10,
        unserved: 0b1,
        memory: Bytes(65_536),
        counters: InstanceCounters { packets: 2, lost: 1, faults: 1, ..InstanceCounters::default() },
        records,
        frames,
        patches: vec![Patch { packet: 67, offset: 15, bytes: vec![1, 2].into(), fields: WriteFields::ALL }],
        log: vec![LogLine { level: 2, text: "hello".to_owned() }],
        faults: vec!["`unreachable` executed".to_owned()],
        ..CallReport::default()
    }
}

fn shown(records: &Records) -> Vec<(RecordOrder, u16, Vec<u8>, Vec<u8>)> {
    records.iter().map(|r| (r.order, r.stream, r.row.to_vec(), r.tail.to_vec())).collect()
}

#[test]
fn a_valid_report_is_read_unchanged() {
    let manifest = manifest();
    let read = CallReport::read(&report().write(), expected(&manifest)).unwrap();
    let honest = report();
    assert_eq!(
        (read.drops, read.unserved, read.memory, read.counters),
        (honest.drops, honest.unserved, honest.memory, honest.counters)
    );
    // Padding between two fields is zeroed.
    let mut row = [7; 16];
    row[1..8].fill(0);
    let records = shown(&read.records);
    assert_eq!(records[0], (RecordOrder::packet(65), 0, row.to_vec(), Vec::new()));
    assert_eq!(records[1].3, b"firstsecond");
    assert_eq!(records[1].2, shown(&honest.records)[1].2);
    assert_eq!(shown(&read.frames), shown(&honest.frames));
    assert_eq!((read.patches, read.log, read.faults), (honest.patches, honest.log, honest.faults));
    let all = SandboxRequest::Begin(
        PendingChanges {
            begins_block: true,
            open: Some(3),
            ignores_patches: true,
            is_withdrawn: true,
            writes: WriteFields::from_bits(3),
        },
        Call::Batch(BatchInput { descriptors: 0xE000_0040, mask: u64::MAX, first: 960 }),
        FuelSlice { fuel: 12, until: Some(Cycles(u64::MAX)) },
    );
    for request in [
        all,
        SandboxRequest::Begin(
            PendingChanges::default(),
            Call::Event(ModuleEvent::LowMemory { left: Bytes(5) }),
            FuelSlice::UNLIMITED,
        ),
        SandboxRequest::Begin(
            PendingChanges::default(),
            Call::Tick { now: Timestamp(1), periods: 2, before: 3 },
            FuelSlice::UNLIMITED,
        ),
        SandboxRequest::Map {
            is_packets: true,
            areas: vec![AreaRange { offset: 4096, len: 1 << 26 }, AreaRange { offset: 0, len: 5 }],
            is_fixed: true,
        },
        SandboxRequest::Resume(FuelSlice { fuel: 1, until: None }),
        SandboxRequest::Abort,
    ] {
        let bytes = request.write();
        assert_eq!(format!("{:?}", SandboxRequest::read(&bytes).unwrap()), format!("{request:?}"));
    }
    let request = StartRequest {
        module: vec![1; 300],
        settings: vec![("ports".to_owned(), vec!["53".to_owned(), "99".to_owned()])],
        profile: "p".to_owned(),
        calibration: "c".to_owned(),
        is_suspendable: true,
        imported: 1,
        functions: 2,
        added: 1,
        call_limit: 3,
        is_unmetered: true,
        is_given: true,
        code: vec![4; 1000],
        object: vec![5; 7],
    };
    assert_eq!(StartRequest::read(&request.write()).unwrap(), request);
}

#[test]
fn a_report_that_no_module_could_cause_is_refused() {
    let manifest = manifest();
    let refused = |change: fn(&mut CallReport)| {
        let mut report = report();
        change(&mut report);
        CallReport::read(&report.write(), expected(&manifest)).is_err()
    };
    assert!(!refused(|_| {}));
    assert!(refused(|report| report.memory = Bytes((1 << 20) + 1)));
    // A stream or output that does not exist, rows of another length, positions outside the batch.
    assert!(refused(|report| report.records.begin(RecordOrder::packet(65), 2, &[0; 16])));
    assert!(refused(|report| report.records.begin(RecordOrder::packet(65), 0, &[0; 15])));
    for order in
        [66, 68, 129, 0, u32::MAX].map(RecordOrder::packet).into_iter().chain([0, 64].map(RecordOrder::tick))
    {
        let mut report = report();
        report.records.begin(order, 0, &[0; 16]);
        assert!(CallReport::read(&report.write(), expected(&manifest)).is_err(), "{order:?}");
    }
    assert!(refused(|report| report.frames.begin(RecordOrder::packet(65), 1, &[0; 60])));
    assert!(refused(|report| report.frames.begin(RecordOrder::packet(65), 0, &[0; 13])));
    assert!(refused(|report| report.frames.begin(RecordOrder::packet(65), 0, &[0; 1501])));
    // Strings that are missing, or that belong to no field.
    assert!(refused(|report| report.records.begin(RecordOrder::packet(65), 1, &[1; 16])));
    assert!(refused(|report| {
        report.records.begin(RecordOrder::packet(65), 0, &[0; 16]);
        report.records.append_tail(8, b"no field's");
    }));
    // A packet that is not in the call's mask, and one that does not exist.
    for packet in [0, 63, 66, 64 + 64, u32::MAX] {
        let mut report = report();
        report.patches.push(Patch { packet, offset: 0, bytes: Vec::new().into(), fields: WriteFields::ALL });
        assert!(CallReport::read(&report.write(), expected(&manifest)).is_err(), "{packet}");
    }
    assert!(refused(|report| report.patches[0].bytes = vec![0; 257].into()));
    assert!(refused(|report| report.log[0].level = 3));
    assert!(refused(|report| report.log = vec![report.log[0].clone(); 101]));
    assert!(refused(|report| report.faults = vec![String::new(); 9]));
    // A report cannot extend the fields that the module may write.
    let few = Expected { writes: WriteFields::from_bits(1), ..expected(&manifest) };
    let read = CallReport::read(&report().write(), few).unwrap();
    assert_eq!(read.patches[0].fields, WriteFields::from_bits(1));
    // Masks are reduced to the call's packets, and texts cannot forge a line.
    let mut forged = report();
    (forged.drops, forged.unserved) = (u64::MAX, u64::MAX);
    forged.faults = vec!["a\nb\u{1b}[2J".to_owned()];
    let read = CallReport::read(&forged.write(), expected(&manifest)).unwrap();
    assert_eq!((read.drops, read.unserved), (0b1011, 0b1011));
    assert!(!read.faults[0].contains(['\n', '\u{1b}']));
}

/// The part of a report with one record of two strings, each given by its place and its length in `tail`.
fn record_of_texts(strings: [(u32, u32); 2], tail: &[u8]) -> Vec<u8> {
    let mut writer = WireWriter::default();
    writer.number32(1);
    writer.number32(65);
    writer.flag(true);
    writer.number32(1);
    let words = strings.into_iter().flat_map(|(from, len)| [from, len]);
    // Behind the two strings are the presence byte of the second, and padding.
    writer.bytes(&words.flat_map(u32::to_le_bytes).chain([1, 0, 0, 0]).collect::<Vec<_>>());
    writer.bytes(tail);
    writer.0
}

#[test]
fn strings_that_overlap_or_are_too_long_are_refused() {
    let manifest = manifest();
    let read = |strings, tail: &[u8]| {
        let limits = OutputLimits::of_batch(&Profile::default(), 3);
        let expected = Expected { limits, ..expected(&manifest) };
        take_records(&mut WireReader(&record_of_texts(strings, tail)), expected).map(|read| read.bytes())
    };
    let most = limit::RECORD_STRING_BYTES;
    let tail = vec![7; most as usize];
    // Each byte is copied once.
    assert_eq!(read([(0, most - 1), (most - 1, 1)], &tail), Ok(20 + tail.len()));
    for strings in [
        [(0, most), (0, most)],
        [(0, most), (most - 1, 1)],
        [(0, 1), (0, 1)],
        [(0, u32::MAX), (0, u32::MAX)],
        [(u32::MAX, u32::MAX), (0, most)],
    ] {
        assert_eq!(read(strings, &tail), Err(InvalidMessage), "{strings:?}");
    }
    assert_eq!(read([(0, most), (most, 1)], &vec![7; most as usize + 1]), Err(InvalidMessage));
}

#[test]
fn a_report_is_checked_against_the_profile_and_its_call() {
    let manifest = manifest();
    let read =
        |report: &CallReport, expected: Expected<'_>| CallReport::read(&report.write(), expected).is_ok();
    let under = |profile: &Profile| Expected {
        limits: OutputLimits::of_batch(profile, 3).with_texts(100, 8),
        ..expected(&manifest)
    };
    let given = |change: fn(&mut Profile)| {
        let mut profile = Profile::default();
        change(&mut profile);
        profile
    };
    assert!(read(&report(), under(&Profile::default())));
    for profile in
        [given(|profile| profile.frames = 0), given(|profile| profile.records = 0), given(|p| p.patches = 0)]
    {
        assert!(!read(&report(), under(&profile)));
    }
    // The limit holds for each packet of the call.
    let mut many = report();
    let one = given(|profile| profile.frames = 1);
    (0..2).for_each(|_| many.frames.begin(RecordOrder::packet(64), 0, &[9; 60]));
    assert!(read(&many, under(&one)));
    many.frames.begin(RecordOrder::packet(64), 0, &[9; 60]);
    assert!(!read(&many, under(&one)));
    // A call without packets makes no patches, emits at its own position in the block, and sends no frames at the
    // start.
    let call = |is_start| Expected {
        mask: 0,
        before: 5,
        limits: OutputLimits::of_call(&Profile::default(), is_start),
        ..expected(&manifest)
    };
    let mut tick = CallReport { memory: Bytes(1), ..CallReport::default() };
    tick.records.begin(RecordOrder::tick(5), 0, &[7; 16]);
    assert!(read(&tick, call(true)) && read(&tick, call(false)));
    tick.frames.begin(RecordOrder::tick(5), 0, &[9; 60]);
    assert!(!read(&tick, call(true)) && read(&tick, call(false)));
    tick.frames.begin(RecordOrder::tick(4), 0, &[9; 60]);
    assert!(!read(&tick, call(false)));
    assert!(!read(&report(), call(false)));
}

#[test]
fn any_bytes_are_read_or_refused() {
    let manifest = manifest();
    let honest = report().write();
    // Truncated anywhere; extended; each byte changed; and lengths as large as possible.
    for end in 0..honest.len() {
        assert!(CallReport::read(&honest[..end], expected(&manifest)).is_err(), "{end}");
    }
    assert!(CallReport::read(&[honest.as_slice(), &[0]].concat(), expected(&manifest)).is_err());
    let check = |bytes: &[u8]| {
        let Ok(read) = CallReport::read(bytes, expected(&manifest)) else { return };
        assert!(read.records.iter().all(|row| {
            let stream = &manifest.streams[usize::from(row.stream)];
            row.row.len() == stream.row_bytes()
                && stream.fields.iter().all(|field| field.read(row.row, row.tail).is_some())
        }));
        assert!(read.frames.iter().all(|frame| frame.stream == 0 && (14..=1500).contains(&frame.row.len())));
        assert!(read.patches.iter().all(|patch| [64, 65, 67].contains(&patch.packet)));
        assert!(read.drops & !0b1011 == 0 && read.unserved & !0b1011 == 0 && read.memory.0 <= 1 << 20);
    };
    for at in 0..honest.len() {
        for value in [0, 1, 2, 0x7f, 0x80, 0xff, honest[at] ^ 1] {
            let mut bytes = honest.clone();
            bytes[at] = value;
            check(&bytes);
            if let Some(word) = bytes.get_mut(at..at + 4) {
                word.fill(0xff);
                check(&bytes);
            }
        }
    }
    // The same for requests of the node: a sandbox process that reads an invalid request ends.
    let request = SandboxRequest::Begin(
        PendingChanges::default(),
        Call::Stop { now: Timestamp(1) },
        FuelSlice::UNLIMITED,
    )
    .write();
    for end in 0..request.len() {
        assert!(SandboxRequest::read(&request[..end]).is_err(), "{end}");
    }
}

#[test]
fn blocks_of_state_are_read_in_their_declared_sizes_alone() {
    let (blocks, sizes) = (vec![vec![7, 8, 9], vec![1; 300]], [3, 300]);
    let answer = write_blocks(&blocks);
    assert_eq!((read_blocks(&answer, &sizes), answer.len()), (Ok(blocks.clone()), blocks_len(&sizes)));
    for other in [vec![3], vec![300, 3], vec![3, 299], vec![3, 301], vec![3, 300, 0], Vec::new()] {
        assert_eq!(read_blocks(&answer, &other), Err(InvalidMessage), "{other:?}");
    }
    for len in 0..answer.len() {
        assert_eq!(read_blocks(&answer[..len], &sizes), Err(InvalidMessage), "{len} bytes");
    }
    assert_eq!(read_blocks(&[&answer[..], &[0]].concat(), &sizes), Err(InvalidMessage));
    // Counts and lengths that no memory could hold.
    for at in [0, 4, 11] {
        let mut forged = answer.clone();
        forged[at..at + 4].fill(0xff);
        assert_eq!(read_blocks(&forged, &sizes), Err(InvalidMessage), "byte {at}");
    }
    let SandboxRequest::SetState(sent) =
        SandboxRequest::read(&SandboxRequest::SetState(blocks.clone()).write()).unwrap()
    else {
        panic!("another request")
    };
    assert_eq!(sent, blocks);
}
