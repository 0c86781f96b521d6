//! Reads a capture in every way and compares the results. For fuzzers and tests.

use weir_abi::Descriptor;
use weir_netio::{Capture, CaptureInput, CaptureNext, CaptureOptions, ReadAheadMode, Totals};
use weir_units::Bytes;

/// The result of reading a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Descriptors, without the addresses, and the packets' bytes.
    pub packets: Vec<(Descriptor, Vec<u8>)>,
    /// The number of packets of each block.
    pub blocks: Vec<usize>,
    /// The totals.
    pub totals: Totals,
    /// The error that ended reading.
    pub error: Option<String>,
}

/// Reads all of `input`.
///
/// # Errors
///
/// The message of the error if it cannot be opened.
pub fn read(input: CaptureInput, options: CaptureOptions) -> Result<Reading, String> {
    let mut capture = Capture::open_with(input, options).map_err(|error| error.to_string())?;
    let (mut packets, mut blocks, mut error) = (Vec::new(), Vec::new(), None);
    loop {
        match capture.next_block() {
            Ok(CaptureNext::Block(block)) => {
                assert_eq!(block.first_packet(), packets.len() as u64);
                let mut bytes = Vec::new();
                for (i, descriptor) in block.descriptors().iter().enumerate() {
                    block.copy_packet(i, &mut bytes);
                    assert_eq!(bytes.len() as u64, u64::from(descriptor.cap_len));
                    packets.push((Descriptor { data: 0, ..*descriptor }, bytes.clone()));
                }
                assert_eq!(block.batches().map(|batch| batch.count).sum::<usize>(), block.len());
                blocks.push(block.len());
            }
            Ok(CaptureNext::Full) => panic!("there is no room although no block is in use"),
            Ok(CaptureNext::End) => break,
            Err(failure) => {
                assert!(error.is_none(), "a second error: {failure}");
                error = Some(failure.to_string());
            }
        }
    }
    let totals = capture.totals();
    assert_eq!(totals.packets, packets.len() as u64);
    Ok(Reading { packets, blocks, totals, error })
}

/// Reads `bytes` as a mapped file, in windows of one page, as a stream, as a copied file, and read ahead. The
/// results have to be equal.
///
/// # Errors
///
/// As [`read`].
///
/// # Panics
///
/// If two ways of reading give different results.
pub fn read_all(bytes: &[u8]) -> Result<Reading, String> {
    let way = |options| read(CaptureInput::Bytes(bytes.to_vec()), options);
    let mapped = way(CaptureOptions::default());
    let streamed = way(CaptureOptions { stream: true, ..CaptureOptions::default() });
    assert_eq!(mapped, streamed, "mapped and streamed");
    let copied = way(CaptureOptions { copy: true, ..CaptureOptions::default() });
    assert_eq!(mapped, copied, "mapped and copied");
    for ahead in [ReadAheadMode::Thread, ReadAheadMode::Callers] {
        let read_ahead = way(CaptureOptions { copy: true, ahead, ..CaptureOptions::default() });
        assert_eq!(mapped, read_ahead, "read when needed, and ahead ({ahead:?})");
    }
    let paged = way(CaptureOptions { window: Bytes(4096), ..CaptureOptions::default() });
    // The ends of blocks depend on windows.
    let without_blocks =
        |reading: &Result<Reading, String>| reading.clone().map(|r| Reading { blocks: vec![], ..r });
    assert_eq!(without_blocks(&mapped), without_blocks(&paged), "mapped whole and in pages");
    mapped
}
