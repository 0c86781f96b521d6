//! Written captures can be read by weir and by other programs, and a full disk costs no complete record.

use crate::builders;
use crate::builders::udp;
use crate::exercise::read;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use weir_netio::{Capture, CaptureInput, CaptureOptions, PacketWriter, WriteError};
use weir_units::{Bytes, Timestamp};
use weir_wire::LinkType;

const START: u64 = 1_700_000_000_123_456_789;

#[test]
fn packets_written_as_pcap_or_pcapng_are_read_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["out.pcap", "out.pcapng", "out"] {
        let path = folder.path().join(name);
        let mut writer = PacketWriter::create(&path, None).unwrap();
        for n in 0..3000u16 {
            let packet = udp(n, n % 50);
            writer.write(Timestamp(START + u64::from(n)), 2000, LinkType::Ethernet, 3, &packet).unwrap();
        }
        let written = writer.finish().unwrap();
        let reading = read(CaptureInput::File(path.clone()), CaptureOptions::default()).unwrap();
        assert_eq!((written.packets, reading.totals.packets, reading.totals.truncated), (3000, 3000, None));
        assert_eq!(written.bytes, Bytes(std::fs::metadata(&path).unwrap().len()));
        for (n, (descriptor, bytes)) in (0u16..).zip(&reading.packets) {
            assert_eq!((descriptor.ts_ns, descriptor.wire_len), (START + u64::from(n), 2000));
            assert!(*bytes == udp(n, n % 50), "{name} {n}");
        }
        let Ok(capinfos) = Command::new("capinfos").args(["-cM"]).arg(&path).output() else {
            let _ = writeln!(std::io::stderr(), "skipped: capinfos is not installed");
            continue;
        };
        let text = String::from_utf8_lossy(&capinfos.stdout).into_owned();
        assert!(capinfos.status.success() && text.contains("3000"), "{name}: {text}");
        let fields = ["-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len", "-e", "udp.srcport"];
        let tshark =
            Command::new("tshark").arg("-r").arg(&path).args(fields).args(["-c", "1"]).output().unwrap();
        let text = String::from_utf8_lossy(&tshark.stdout).into_owned();
        assert_eq!(text.trim(), "1700000000.123456789\t2000\t1000", "{name}");
    }
}

#[test]
fn pcapng_keeps_link_types_apart_and_pcap_refuses_the_second() {
    let folder = tempfile::tempdir().unwrap();
    let packet = udp(1, 1);
    let write = |name: &str| {
        let mut writer = PacketWriter::create(&folder.path().join(name), None)?;
        writer.write(Timestamp(START), 43, LinkType::Ethernet, 0, &packet)?;
        writer.write(Timestamp(START), 29, LinkType::Raw, 1, &packet[14..])?;
        writer.write(Timestamp(START), 43, LinkType::Ethernet, 0, &packet)?;
        writer.finish()
    };
    write("two.pcapng").unwrap();
    let reading =
        read(CaptureInput::File(folder.path().join("two.pcapng")), CaptureOptions::default()).unwrap();
    let what: Vec<_> = reading.packets.iter().map(|(d, _)| (d.interface, d.link_type, d.src_port)).collect();
    assert_eq!(what, [(0, 1, 1001), (1, 101, 1001), (0, 1, 1001)]);

    let error = write("two.pcap").unwrap_err().to_string();
    assert!(error.contains("link type 101") && error.contains(".pcapng"), "{error}");
    // The packets before are in the file, which is not complete.
    assert!(!folder.path().join("two.pcap").exists());
    let reading =
        read(CaptureInput::File(folder.path().join("two.pcap.part")), CaptureOptions::default()).unwrap();
    assert_eq!(reading.totals.packets, 1);
}

#[test]
fn a_written_capture_without_packets_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["none.pcap", "none.pcapng"] {
        let path = folder.path().join(name);
        assert_eq!(PacketWriter::create(&path, None).unwrap().finish().unwrap().packets, 0);
        let totals = read(CaptureInput::File(path), CaptureOptions::default()).unwrap().totals;
        assert_eq!((totals.packets, totals.truncated), (0, None), "{name}");
    }
}

#[test]
fn a_time_after_the_last_one_of_pcap_is_replaced_by_it_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("late.pcap");
    let mut writer = PacketWriter::create(&path, None).unwrap();
    let first_late = (1 << 32) * 1_000_000_000;
    for ts in [u64::MAX, first_late, first_late - 1, 0] {
        writer.write(Timestamp(ts), 43, LinkType::Ethernet, 0, &udp(0, 1)).unwrap();
    }
    assert_eq!(writer.finish().unwrap().late, 2);
    let reading = read(CaptureInput::File(path), CaptureOptions::default()).unwrap();
    let last = u64::from(u32::MAX);
    let seconds: Vec<u64> = reading.packets.iter().map(|packet| packet.0.ts_ns / 1_000_000_000).collect();
    assert_eq!(seconds, [last, last, last, 0]);
}

#[test]
fn a_full_disk_is_an_error_that_states_how_much_is_valid() {
    let mut writer = PacketWriter::create(Path::new("/dev/full"), None).unwrap();
    writer.write(Timestamp(START), 43, LinkType::Ethernet, 0, &udp(0, 1)).unwrap();
    let error = writer.finish().unwrap_err();
    assert!(matches!(&error, WriteError::Write { offset: 0, valid: Bytes(0), packets: 0, .. }));
    assert!(
        error.to_string().starts_with("/dev/full: cannot be written at offset 0: No space left"),
        "{error}"
    );
}

/// A limit on the size of files simulates a full disk.
#[test]
fn after_a_failed_write_the_file_ends_with_a_whole_record() {
    const CHILD: &str = "WEIR_NETIO_TEST_OUTPUT";
    if let Some(path) = std::env::var_os(CHILD) {
        // SAFETY: the limit applies only to this process, a child made for this test.
        unsafe {
            let limit = libc::rlimit { rlim_cur: 1_000_001, rlim_max: 1_000_001 };
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        }
        let mut writer = PacketWriter::create(Path::new(&path), None).unwrap();
        let packet = udp(0, 1001);
        let write =
            |writer: &mut PacketWriter| writer.write(Timestamp(START), 2000, LinkType::Ethernet, 0, &packet);
        let error = (0..10_000).find_map(|_| write(&mut writer).err()).unwrap();
        let WriteError::Write { offset, valid, packets, .. } = error else { panic!("{error}") };
        assert_eq!((offset, packets), (1_000_001, 944));
        assert_eq!(valid, Bytes(24 + packets * 1059));
        assert!(write(&mut writer).is_ok(), "gathered, not written");
        assert!(writer.finish().is_err());
        assert!(!Path::new(&path).exists());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.pcap");
    let me = std::env::current_exe().unwrap();
    let test = "writing::after_a_failed_write_the_file_ends_with_a_whole_record";
    let output = Command::new(me).args(["--exact", test]).env(CHILD, &path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let part = path.with_extension("pcap.part");
    let totals = read(CaptureInput::File(part), CaptureOptions::default()).unwrap().totals;
    assert_eq!((totals.packets, totals.truncated), (944, None));
}

#[test]
fn the_capture_that_is_being_read_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.pcap");
    std::fs::write(&path, builders::many(3)).unwrap();
    let link = folder.path().join("link.pcap");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let capture = Capture::open(CaptureInput::File(path.clone())).unwrap();
    for out in [&path, &link] {
        let error = PacketWriter::create(out, Some(&capture)).unwrap_err();
        assert!(matches!(error, WriteError::Input { .. }), "{error}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), builders::many(3));
    let error = PacketWriter::create(Path::new("/no/such/dir/x.pcap"), None).unwrap_err().to_string();
    assert!(error.contains("/no/such/dir/x.pcap"), "{error}");
}
