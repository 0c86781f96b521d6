//! The libraries that the program needs from the system.

/// The C library and its parts. Nothing else may come in: what is linked is mapped in every process of a node.
const ALLOWED: &[&str] =
    &["libc.so", "libm.so", "libgcc_s.so", "libdl.so", "libpthread.so", "librt.so", "ld-linux"];

fn number<const N: usize>(bytes: &[u8], at: usize) -> usize {
    let field: [u8; N] = bytes[at..at + N].try_into().unwrap();
    field.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte))
}

/// The names of DT_NEEDED in an ELF file of 64 bits, lowest byte first (elf(5)).
fn needed(file: &[u8]) -> Vec<String> {
    assert_eq!(&file[..6], b"\x7fELF\x02\x01", "an ELF file of 64 bits, lowest byte first");
    let (table, size, count) = (number::<8>(file, 32), number::<2>(file, 54), number::<2>(file, 56));
    let headers: Vec<usize> = (0..count).map(|i| table + i * size).collect();
    // PT_LOAD is 1, PT_DYNAMIC 2.
    let at_address = |address: usize| {
        let header = headers.iter().find(|&&header| {
            let (begin, len) = (number::<8>(file, header + 16), number::<8>(file, header + 32));
            number::<4>(file, header) == 1 && (begin..begin + len).contains(&address)
        });
        header.map(|header| address - number::<8>(file, header + 16) + number::<8>(file, header + 8)).unwrap()
    };
    let Some(dynamic) = headers.iter().find(|&&header| number::<4>(file, header) == 2) else {
        return Vec::new();
    };
    let (begin, len) = (number::<8>(file, dynamic + 8), number::<8>(file, dynamic + 32));
    let entries: Vec<(usize, usize)> = (begin..begin + len)
        .step_by(16)
        .map(|at| (number::<8>(file, at), number::<8>(file, at + 8)))
        .collect();
    // DT_STRTAB is 5, DT_NEEDED 1.
    let strings = at_address(entries.iter().find(|(tag, _)| *tag == 5).unwrap().1);
    let name = |offset: usize| {
        let bytes = file[strings + offset..].iter().take_while(|&&byte| byte != 0).copied().collect();
        String::from_utf8(bytes).unwrap()
    };
    entries.iter().filter(|(tag, _)| *tag == 1).map(|&(_, offset)| name(offset)).collect()
}

#[test]
fn the_program_needs_no_library_but_those_of_c() {
    let needed = needed(&std::fs::read(env!("CARGO_BIN_EXE_weir")).unwrap());
    assert!(needed.iter().all(|name| ALLOWED.iter().any(|allowed| name.starts_with(allowed))), "{needed:?}");
    // The test is linked as the program is: what it needs is read from its file.
    assert!(needed.iter().any(|name| name.starts_with("libc.so")), "{needed:?}");
}
