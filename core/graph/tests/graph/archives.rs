use crate::round_trip;
use weir_graph::language::{
    AnyClass, ArchiveFault, ArchiveMember, ConfigurationSource, is_archive, parse, read_archive,
    write_archive,
};

fn member(name: &str, data: &[u8]) -> ArchiveMember {
    ArchiveMember { name: name.to_owned(), data: data.to_vec() }
}

#[test]
fn the_member_config_is_the_configuration() {
    let members = [
        member("fast.cc", b"odd"),
        member("config", b"a :: A -> B;"),
        member("a long name of a member", &[0, 1, 255]),
    ];
    let archive = write_archive(&members);
    assert!(is_archive(&archive));
    assert_eq!(read_archive(&archive).unwrap(), members);
    let flat = parse(&ConfigurationSource { name: "x", bytes: &archive }, &[], &AnyClass).unwrap();
    assert_eq!(flat.elements.len(), 2);
    assert_eq!(flat.members, [members[0].clone(), members[2].clone()]);
    round_trip::check(&flat);
}

/// The oracle is ar(1) of binutils.
#[test]
fn ar_reads_and_writes_the_same_archives() {
    use std::process::Command;
    let folder = std::env::temp_dir().join(format!("weir-graph-ar-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let names = ["config", "a_name_that_is_longer_than_sixteen"];
    for name in names {
        std::fs::write(folder.join(name), format!("content of {name}")).unwrap();
    }
    let written = Command::new("ar").arg("rcS").arg("theirs.a").args(names).current_dir(&folder).output();
    if written.is_ok_and(|output| output.status.success()) {
        let members = read_archive(&std::fs::read(folder.join("theirs.a")).unwrap()).unwrap();
        let expected = names.map(|name| member(name, format!("content of {name}").as_bytes()));
        assert_eq!(members, expected);
        std::fs::write(folder.join("ours.a"), write_archive(&expected)).unwrap();
        let printed =
            Command::new("ar").args(["p", "ours.a", names[1]]).current_dir(&folder).output().unwrap();
        assert_eq!(printed.stdout, expected[1].data, "{printed:?}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn damaged_archives_are_refused() {
    let archive = write_archive(&[member("config", b"a :: A;"), member("x", b"12")]);
    for len in 9..archive.len() {
        let read = read_archive(&archive[..len]);
        // The first member ends with padding, and can be the last one.
        let first = 8 + 60 + 7;
        assert!(len == first || len == first + 1 || read == Err(ArchiveFault::Truncated), "{len}: {read:?}");
    }
    let mut bad = archive.clone();
    bad[8 + 58] = b'x';
    assert_eq!(read_archive(&bad), Err(ArchiveFault::Magic));
    bad = archive.clone();
    bad[8 + 48..8 + 58].copy_from_slice(b"9999999999");
    assert_eq!(read_archive(&bad), Err(ArchiveFault::Truncated));
    bad[8 + 48] = b'-';
    assert_eq!(read_archive(&bad), Err(ArchiveFault::Number));
    bad = archive;
    bad[8..10].copy_from_slice(b"/7");
    bad[10..24].fill(b' ');
    assert_eq!(read_archive(&bad), Err(ArchiveFault::LongName));
    let without = write_archive(&[member("x", b"")]);
    let errors = parse(&ConfigurationSource { name: "x.a", bytes: &without }, &[], &AnyClass).unwrap_err();
    assert_eq!(errors.to_string(), "x.a:1: bad archive: no member 'config'");
}
