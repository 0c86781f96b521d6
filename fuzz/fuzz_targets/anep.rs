//! Reads arbitrary bytes as packets of active networks: whatever is read is written to the same bytes again, and the
//! decision about it follows its flags.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use weir_anep::{AnepHandling, AnepOption, AnepPacket, OptionKind, add_checksum, check_checksum, handling};

fuzz_target!(|bytes: &[u8]| {
    let Ok(read) = AnepPacket::read(bytes) else { return };
    let options: Vec<AnepOption> = read.options().collect();
    assert_eq!(read.header().write(&options, read.payload()).as_deref(), Ok(bytes));
    let header = bytes.len() - read.payload().len();
    assert!(options.iter().map(|option| 4 + option.value.len()).sum::<usize>() == header - 8);
    assert_ne!(handling(&read, true, |_| true), AnepHandling::Forward);
    let unknown = handling(&read, false, |_| false);
    assert!(unknown != AnepHandling::Process && (bytes[1] < 0x80 || unknown == AnepHandling::Discard));
    let is_right = check_checksum(bytes).is_ok();
    if read.value(OptionKind::Checksum).is_none() {
        assert!(is_right);
        if let Ok(summed) = add_checksum(bytes) {
            assert_eq!(check_checksum(&summed), Ok(()));
        }
    }
});
