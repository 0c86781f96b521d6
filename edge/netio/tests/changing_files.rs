//! Files that change while they are read: the run goes on, and says where it was cut.

mod builders;

use builders::many;
use std::fs;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use weir_netio::{Block, Capture, Input, Next, Options, Reason, Truncation, Window, watch};
use weir_units::Bytes;

/// Offsets at which the records of a little-endian pcap end.
fn record_ends(bytes: &[u8]) -> Vec<u64> {
    let mut ends = vec![24];
    while let Some(length) = bytes.get(usize::try_from(ends[ends.len() - 1]).unwrap() + 8..) {
        let Some(length) = length.first_chunk::<4>() else { break };
        ends.push(ends[ends.len() - 1] + 16 + u64::from(u32::from_le_bytes(*length)));
    }
    ends
}

fn open(path: &std::path::Path) -> Capture {
    Capture::open(Input::File(path.to_owned())).unwrap()
}

fn block(capture: &mut Capture) -> Option<Block> {
    match capture.next_block().unwrap() {
        Next::Block(block) => Some(block),
        Next::End => None,
        Next::Full => panic!("full"),
    }
}

#[test]
fn a_file_that_is_cut_short_ends_at_the_cut() {
    let bytes = many(5000);
    let ends = record_ends(&bytes);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shrinks.pcap");
    // At a page's begin, inside a page, and between two records.
    for cut in [ends[2500] / 4096 * 4096, ends[2500] + 9, ends[2500], 4096, 24] {
        fs::write(&path, &bytes).unwrap();
        let mut capture = open(&path);
        let first = block(&mut capture).unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(cut).unwrap();

        let mut packets = first.len() as u64;
        while let Some(block) = block(&mut capture) {
            packets += block.len() as u64;
        }
        let totals = capture.totals();
        let whole = ends[1..].iter().filter(|&&end| end <= cut).count() as u64;
        assert_eq!(packets, whole.max(1024), "cut at {cut}");
        assert_eq!(totals.packets, packets);
        let Truncation { offset, reason } = totals.truncated.unwrap();
        assert_eq!(reason, Reason::Lost);
        assert!(offset <= cut.max(ends[1024]), "{offset} for a cut at {cut}");
        // Bytes of a block handed out before are zeros where they are lost, and nothing worse.
        let mut copy = Vec::new();
        first.copy_packet(1023, &mut copy);
        assert_eq!(copy.len() as u64, ends[1024] - ends[1023] - 16);
        assert_eq!(copy.iter().all(|&b| b == 0), cut <= 4096, "cut at {cut}");
    }
}

#[test]
fn a_sandbox_mapping_that_is_watched_reads_zeros_where_the_file_lost_pages() {
    let bytes = many(3000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shrinks.pcap");
    fs::write(&path, &bytes).unwrap();
    let mut capture = open(&path);
    let first = block(&mut capture).unwrap();
    while block(&mut capture).is_some() {}
    assert_eq!(capture.totals().truncated, None);

    let window: Arc<Window> = Arc::clone(first.window());
    let len = usize::try_from(window.len().0).unwrap();
    // SAFETY: a new mapping wherever there is room; unmapped below after its last use.
    let base = unsafe {
        let fd = window.fd().as_raw_fd();
        libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, fd, 0)
    };
    assert_ne!(base, libc::MAP_FAILED);
    let start = base.addr();
    let guard = watch(start..start + len, &window).unwrap();
    let third_page = base.wrapping_byte_add(3 * 4096 + 5).cast::<u8>();
    // SAFETY: inside the mapping above, volatile since the file changes.
    assert_ne!(unsafe { third_page.cast::<[u8; 64]>().read_volatile() }, [0; 64]);

    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5000).unwrap();
    // SAFETY: as above; the page is lost, which the guard takes care of.
    assert_eq!(unsafe { third_page.cast::<[u8; 64]>().read_volatile() }, [0; 64]);
    let lost = capture.totals().truncated.unwrap();
    assert_eq!(lost.reason, Reason::Lost);
    assert_eq!(lost.offset / 4096, 3);
    drop(guard);
    // SAFETY: the mapping above, of which nothing is used any more.
    unsafe { libc::munmap(base, len) };
}

#[test]
fn what_is_appended_after_opening_is_not_read_and_does_no_harm() {
    let bytes = many(3000);
    let ends = record_ends(&bytes);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grows.pcap");
    fs::write(&path, &bytes[..usize::try_from(ends[2000]).unwrap()]).unwrap();
    let mut capture = open(&path);
    let mut packets = block(&mut capture).unwrap().len();
    fs::write(&path, &bytes).unwrap();
    while let Some(block) = block(&mut capture) {
        packets += block.len();
    }
    assert_eq!((packets, capture.totals().truncated), (2000, None));
}

#[test]
fn a_file_that_is_overwritten_ends_somehow_and_no_packet_reaches_out_of_it() {
    let bytes = many(20_000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overwritten.pcap");
    fs::write(&path, &bytes).unwrap();
    let options = Options { window: Bytes(1 << 20), ..Options::default() };
    let mut capture = Capture::open_with(Input::File(path.clone()), options).unwrap();
    let first = block(&mut capture).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![0x41; bytes.len()], 0).unwrap();

    let mut copy = Vec::new();
    first.copy_packet(5, &mut copy);
    assert!(copy.iter().all(|&b| b == 0x41));
    while let Some(block) = block(&mut capture) {
        for d in block.descriptors() {
            let end = u64::from(d.data - weir_abi::ARENA_BASE) + u64::from(d.cap_len);
            assert!(end <= block.window().len().0);
        }
    }
    let totals = capture.totals();
    assert!(matches!(totals.truncated.unwrap().reason, Reason::CapturedLength { stated: 0x4141_4141, .. }));
}

#[test]
fn a_sigbus_that_is_not_ours_still_ends_the_process() {
    const CHILD: &str = "WEIR_NETIO_TEST_CHILD";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    if std::env::var_os(CHILD).is_none() {
        let me = std::env::current_exe().unwrap();
        let test = "a_sigbus_that_is_not_ours_still_ends_the_process";
        let status =
            std::process::Command::new(me).args(["--exact", test]).env(CHILD, "1").output().unwrap().status;
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGBUS));
        return;
    }
    fs::write(&path, many(10)).unwrap();
    let mut capture = open(&path);
    let _block = block(&mut capture).unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    // SAFETY: a new mapping, which nobody watches, of a file that is then emptied: the read is to raise SIGBUS.
    unsafe {
        let base =
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        file.set_len(0).unwrap();
        base.cast::<u8>().read_volatile();
    }
}
