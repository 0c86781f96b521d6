//! Files that change while they are read: the run continues, and reports where the capture was cut.

use crate::builders::many;
use std::fs;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use weir_netio::{
    Block, Capture, CaptureInput, CaptureNext, CaptureOptions, EndReason, PacketWindow, Truncation,
    WatchGuard, watch,
};
use weir_units::Bytes;

/// The offsets at which the records of a little-endian pcap end.
fn record_ends(bytes: &[u8]) -> Vec<u64> {
    let mut ends = vec![24];
    while let Some(length) = bytes.get(usize::try_from(ends[ends.len() - 1]).unwrap() + 8..) {
        let Some(length) = length.first_chunk::<4>() else { break };
        ends.push(ends[ends.len() - 1] + 16 + u64::from(u32::from_le_bytes(*length)));
    }
    ends
}

fn open(path: &std::path::Path) -> Capture {
    Capture::open(CaptureInput::File(path.to_owned())).unwrap()
}

fn block(capture: &mut Capture) -> Option<Block> {
    match capture.next_block().unwrap() {
        CaptureNext::Block(block) => Some(block),
        CaptureNext::End => None,
        CaptureNext::Full => panic!("full"),
    }
}

#[test]
fn a_file_that_is_cut_short_ends_at_the_cut() {
    let bytes = many(5000);
    let ends = record_ends(&bytes);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shrinks.pcap");
    // At the start of a page, inside a page, and between two records.
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
        assert_eq!(reason, EndReason::Lost);
        assert!(offset <= cut.max(ends[1024]), "{offset} for a cut at {cut}");
        // Lost bytes of a block returned before read as zeros.
        let mut copy = Vec::new();
        first.copy_packet(1023, &mut copy);
        assert_eq!(copy.len() as u64, ends[1024] - ends[1023] - 16);
        assert_eq!(copy.iter().all(|&b| b == 0), cut <= 4096, "cut at {cut}");
    }
}

#[test]
fn a_copied_file_that_is_cut_short_ends_at_the_cut_and_its_packets_stay() {
    let bytes = many(5000);
    let ends = record_ends(&bytes);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shrinks.pcap");
    fs::write(&path, &bytes).unwrap();
    let options = CaptureOptions { copy: true, ..CaptureOptions::default() };
    let mut capture = Capture::open_with(CaptureInput::File(path.clone()), options).unwrap();
    let first = block(&mut capture).unwrap();
    let cut = ends[4000] + 9;
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(cut).unwrap();

    let mut packets = first.len() as u64;
    while let Some(block) = block(&mut capture) {
        packets += block.len() as u64;
    }
    assert_eq!(packets, 4000);
    let lost = Truncation { offset: ends[4000], reason: EndReason::Lost };
    assert_eq!(capture.totals().truncated, Some(lost));
    let mut copy = Vec::new();
    first.copy_packet(1023, &mut copy);
    let [from, to] = [ends[1023] + 16, ends[1024]].map(|at| usize::try_from(at).unwrap());
    assert!(copy == bytes[from..to]);
    assert_eq!(first.intact(), first.len());
}

#[test]
fn a_copied_file_that_grows_ends_where_it_ended_when_it_was_opened() {
    let bytes = many(3000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grows.pcap");
    fs::write(&path, &bytes).unwrap();
    let options = CaptureOptions { copy: true, ..CaptureOptions::default() };
    let mut capture = Capture::open_with(CaptureInput::File(path.clone()), options).unwrap();
    fs::write(&path, [&bytes[..], &bytes[24..]].concat()).unwrap();
    let mut packets = 0;
    while let Some(block) = block(&mut capture) {
        packets += block.len();
    }
    assert_eq!(packets, 3000);
    assert_eq!(capture.totals().truncated, None);
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

    let window: Arc<PacketWindow> = Arc::clone(first.window());
    let len = usize::try_from(window.len().0).unwrap();
    // SAFETY: a new mapping at a free address, unmapped below after its last use.
    let base = unsafe {
        let fd = window.parts().next().unwrap().fd.as_raw_fd();
        libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, fd, 0)
    };
    assert_ne!(base, libc::MAP_FAILED);
    let start = base.addr();
    let guard = watch(start..start + len, &window).unwrap();
    let third_page = base.wrapping_byte_add(3 * 4096 + 5).cast::<u8>();
    // SAFETY: inside the mapping above; volatile, since the file changes.
    assert_ne!(unsafe { third_page.cast::<[u8; 64]>().read_volatile() }, [0; 64]);

    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5000).unwrap();
    // SAFETY: as above; the page is lost, which the guard handles.
    assert_eq!(unsafe { third_page.cast::<[u8; 64]>().read_volatile() }, [0; 64]);
    let lost = capture.totals().truncated.unwrap();
    assert_eq!(lost.reason, EndReason::Lost);
    assert_eq!(lost.offset / 4096, 3);
    drop(guard);
    // SAFETY: the mapping above, which is no longer used.
    unsafe { libc::munmap(base, len) };
}

/// Another mapping of a window, like a sandbox's.
struct Watched {
    base: *mut libc::c_void,
    len: usize,
    guard: Option<WatchGuard>,
}

// SAFETY: a mapping belongs to the process, not to a thread; it is only read, by volatile reads.
unsafe impl Sync for Watched {}

impl Watched {
    fn map(window: &PacketWindow) -> Watched {
        let len = usize::try_from(window.len().0).unwrap();
        let offset = i64::try_from(window.file_offset()).unwrap();
        // SAFETY: a new mapping at a free address, unmapped when this value is dropped.
        let base = unsafe {
            let fd = window.parts().next().unwrap().fd.as_raw_fd();
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, fd, offset)
        };
        assert_ne!(base, libc::MAP_FAILED);
        let guard = watch(base.addr()..base.addr() + len, window).unwrap();
        Watched { base, len, guard: Some(guard) }
    }

    /// Reads a byte of this page.
    fn touch(&self, page: usize) -> u8 {
        let at = page * 4096 + 77;
        assert!(at < self.len);
        // SAFETY: inside the mapping, by the check above, and watched for lost pages.
        unsafe { self.base.wrapping_byte_add(at).cast::<u8>().read_volatile() }
    }

    fn has_lost_pages(&self) -> bool {
        self.guard.as_ref().is_some_and(WatchGuard::has_lost_pages)
    }

    /// The number of the process's mappings in this range; it is one at first.
    fn mappings(&self) -> usize {
        let ours = self.base.addr()..self.base.addr() + self.len;
        let all = fs::read_to_string("/proc/self/maps").unwrap();
        all.lines()
            .filter(|line| {
                let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
                let [from, to] = [from, to].map(|address| usize::from_str_radix(address, 16).unwrap());
                from < ours.end && ours.start < to
            })
            .count()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.guard = None;
        // SAFETY: the mapping made in `map`, which is no longer used.
        unsafe { libc::munmap(self.base, self.len) };
    }
}

/// A capture of 600 MiB, nearly all of which is a hole, and its first block. The kernel allows a process 65,530
/// mappings.
fn large(path: &std::path::Path) -> (Capture, Block, fs::File) {
    fs::write(path, many(2000)).unwrap();
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(LARGE as u64 * 4096).unwrap();
    let mut capture = open(path);
    let first = block(&mut capture).unwrap();
    assert_eq!(first.window().len(), Bytes(LARGE as u64 * 4096));
    (capture, first, file)
}

/// The length of that capture in pages.
const LARGE: usize = 153_600;

#[test]
fn lost_pages_need_one_mapping_of_zeros_in_any_order_of_reading() {
    let folder = tempfile::tempdir().unwrap();
    let (capture, first, file) = large(&folder.path().join("shrinks.pcap"));
    let [scattered, upwards, downwards, crowded] = [(); 4].map(|()| Watched::map(first.window()));
    assert_eq!([&scattered, &upwards, &downwards, &crowded].map(Watched::mappings), [1; 4]);
    file.set_len(4096).unwrap();

    // The lowest missing page is recorded, in any order of reading.
    for (page, lowest) in [(9000, 9000), (20_000, 9000), (5000, 5000), (7000, 5000)] {
        assert_eq!(scattered.touch(page), 0);
        let lost = capture.totals().truncated.unwrap();
        assert_eq!((lost.offset, lost.reason), (lowest * 4096, EndReason::Lost));
    }
    assert!((1..LARGE).step_by(2).all(|page| upwards.touch(page) == 0));
    assert!((1..LARGE).rev().step_by(2).all(|page| downwards.touch(page) == 0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let crowded = &crowded;
            // Each thread reads in another order, so that several threads lose pages of the same range.
            let step = [1, 7919, 75_011, LARGE - 2][thread];
            scope.spawn(move || assert!((1..9000).all(|i| crowded.touch((i * step) % (LARGE - 1) + 1) == 0)));
        }
    });
    // One mapping for the rest of the file, and one for the zeros.
    for watched in [&scattered, &upwards, &downwards, &crowded] {
        assert_ne!(watched.touch(0), 0, "the file still has this byte");
        assert!(watched.mappings() <= 2, "{} mappings", watched.mappings());
    }
    assert_eq!(capture.totals().truncated.unwrap().offset, 4096);
}

#[test]
fn a_file_that_is_cut_and_grows_again_is_truncated_at_the_first_lost_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("regrows.pcap");
    let (mut capture, first, file) = large(&path);
    let watched = Watched::map(first.window());
    file.set_len(4096).unwrap();
    // Behind the first block, and before the last packets.
    assert_eq!(watched.touch(300), 0);
    fs::write(&path, many(2000)).unwrap();
    file.set_len(LARGE as u64 * 4096).unwrap();

    assert!((1..300).any(|page| watched.touch(page) != 0), "pages that the file has again");
    assert!((300..370).all(|page| watched.touch(page) == 0), "pages behind the lost one");
    let mut last = first;
    while let Some(block) = block(&mut capture) {
        last = block;
    }
    let end = last.descriptors().iter().map(|d| u64::from(d.data - weir_abi::ARENA_BASE + d.cap_len)).max();
    let end = end.unwrap();
    assert!((299 * 4096..=300 * 4096).contains(&end), "{end}");
    assert_eq!(capture.totals().truncated, Some(Truncation { offset: 300 * 4096, reason: EndReason::Lost }));
}

#[test]
fn a_block_reports_how_many_of_its_packets_are_intact() {
    let bytes = many(1000);
    let ends = record_ends(&bytes);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shrinks.pcap");
    for cut in [ends[700], ends[700] - 1, ends[1] + 3, 24, 0] {
        fs::write(&path, &bytes).unwrap();
        let mut capture = open(&path);
        let first = block(&mut capture).unwrap();
        let watched = Watched::map(first.window());
        assert_eq!((first.intact(), first.len()), (1000, 1000));
        assert!(!first.touches_last_page(1000, 1000) && !watched.has_lost_pages());
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(cut).unwrap();
        let whole = ends[1..].iter().filter(|&&end| end <= cut).count();
        assert_eq!(first.intact(), whole, "cut at {cut}");
        // The next packet is in the file's last page. If the file ends inside that page, the rest of it reads as
        // zeros without a fault.
        assert_eq!(first.touches_last_page(whole, whole + 1), cut > 0, "cut at {cut}");
        assert!(!first.touches_last_page(whole, whole));
        assert!(!watched.has_lost_pages(), "no lost page was read");
        let last_page = usize::try_from(ends[1000] / 4096).unwrap();
        assert_eq!(watched.touch(last_page), 0);
        assert!(watched.has_lost_pages());
        assert_eq!(first.intact(), whole);
    }
}

#[test]
fn bytes_appended_after_opening_are_not_read() {
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
fn no_packet_of_an_overwritten_file_extends_beyond_the_file() {
    let bytes = many(20_000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overwritten.pcap");
    fs::write(&path, &bytes).unwrap();
    let options = CaptureOptions { window: Bytes(1 << 20), ..CaptureOptions::default() };
    let mut capture = Capture::open_with(CaptureInput::File(path.clone()), options).unwrap();
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
    assert!(matches!(
        totals.truncated.unwrap().reason,
        EndReason::CapturedLength { stated: 0x4141_4141, .. }
    ));
}

#[test]
fn an_unrelated_sigbus_still_ends_the_process() {
    const CHILD: &str = "WEIR_NETIO_TEST_CHILD";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    if std::env::var_os(CHILD).is_none() {
        let me = std::env::current_exe().unwrap();
        let test = "changing_files::an_unrelated_sigbus_still_ends_the_process";
        let status =
            std::process::Command::new(me).args(["--exact", test]).env(CHILD, "1").output().unwrap().status;
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGBUS));
        return;
    }
    fs::write(&path, many(10)).unwrap();
    let mut capture = open(&path);
    let _block = block(&mut capture).unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    // SAFETY: a new mapping, which is not watched, of a file that is then emptied; the read is to raise SIGBUS.
    unsafe {
        let base =
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        file.set_len(0).unwrap();
        base.cast::<u8>().read_volatile();
    }
}
