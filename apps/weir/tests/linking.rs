//! Test of the shared libraries that the program links.

/// The libraries of the C library. A further one would be mapped into every process of a node.
const ALLOWED: &[&str] =
    &["libc.so", "libm.so", "libgcc_s.so", "libdl.so", "libpthread.so", "librt.so", "ld-linux"];

fn little_endian<const N: usize>(bytes: &[u8], at: usize) -> usize {
    let field: [u8; N] = bytes[at..at + N].try_into().unwrap();
    field.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte))
}

/// Returns the `DT_NEEDED` names of a little-endian ELF64 file (elf(5)).
fn needed(file: &[u8]) -> Vec<String> {
    assert_eq!(&file[..6], b"\x7fELF\x02\x01", "an ELF file of 64 bits, little-endian");
    let (table, size, count) =
        (little_endian::<8>(file, 32), little_endian::<2>(file, 54), little_endian::<2>(file, 56));
    let headers: Vec<usize> = (0..count).map(|i| table + i * size).collect();
    // `PT_LOAD` is 1, `PT_DYNAMIC` is 2.
    let at_address = |address: usize| {
        let header = headers.iter().find(|&&header| {
            let (begin, len) = (little_endian::<8>(file, header + 16), little_endian::<8>(file, header + 32));
            little_endian::<4>(file, header) == 1 && (begin..begin + len).contains(&address)
        });
        header
            .map(|header| {
                address - little_endian::<8>(file, header + 16) + little_endian::<8>(file, header + 8)
            })
            .unwrap()
    };
    let Some(dynamic) = headers.iter().find(|&&header| little_endian::<4>(file, header) == 2) else {
        return Vec::new();
    };
    let (begin, len) = (little_endian::<8>(file, dynamic + 8), little_endian::<8>(file, dynamic + 32));
    let entries: Vec<(usize, usize)> = (begin..begin + len)
        .step_by(16)
        .map(|at| (little_endian::<8>(file, at), little_endian::<8>(file, at + 8)))
        .collect();
    // `DT_STRTAB` is 5, `DT_NEEDED` is 1.
    let strings = at_address(entries.iter().find(|(tag, _)| *tag == 5).unwrap().1);
    let name = |offset: usize| {
        let bytes = file[strings + offset..].iter().take_while(|&&byte| byte != 0).copied().collect();
        String::from_utf8(bytes).unwrap()
    };
    entries.iter().filter(|(tag, _)| *tag == 1).map(|&(_, offset)| name(offset)).collect()
}

#[test]
fn the_program_links_only_the_c_library() {
    let needed = needed(&std::fs::read(env!("CARGO_BIN_EXE_weir")).unwrap());
    assert!(needed.iter().all(|name| ALLOWED.iter().any(|allowed| name.starts_with(allowed))), "{needed:?}");
    // Shows that the file was parsed: the program links the C library dynamically.
    assert!(needed.iter().any(|name| name.starts_with("libc.so")), "{needed:?}");
}
