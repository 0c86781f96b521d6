//! Rows of a stream with a field of every type.

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use weir_records::{Durability, ModuleFiles, RecordsError};
use {
    weir_admission::{DeclaredStream, Manifest},
    weir_session::{Record, RecordOrder},
};

/// The value of a field.
#[derive(Clone, Copy)]
pub enum Cell<'a> {
    Bits(u64),
    Ip(&'a str),
    Text(&'a [u8]),
    Null,
}

pub fn manifest() -> Manifest {
    manifest_with("")
}

/// Returns the manifest with these keys in each field of the first stream.
pub fn manifest_with(keys: &str) -> Manifest {
    let mut text = String::from(
        "name = 'probe'\nversion = '2.1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n\
         [[stream]]\nname = 'all'\nsummary = 'every type'\n",
    );
    for (ty, unit) in [
        ("u8", ""),
        ("u16", ""),
        ("u32", "bytes"),
        ("u64", "packets"),
        ("i32", ""),
        ("i64", ""),
        ("f32", ""),
        ("f64", "1"),
        ("bool", ""),
        ("timestamp", ""),
        ("duration", ""),
        ("ip", ""),
        ("string", ""),
        ("bytes", ""),
    ] {
        text += &format!(
            "[[stream.field]]\nname = 'a-{ty}'\ntype = '{ty}'\nunit = '{unit}'\nsummary = 'as {ty}'\n{keys}\n"
        );
    }
    text += "[[stream]]\nname = 'none'\n[[stream.field]]\nname = 'x'\ntype = 'u8'\n";
    text += "[[stream]]\nname = 'small'\n[[stream.field]]\nname = 'n'\ntype = 'u64'\n[[stream.field]]\nname = 'noise'\ntype = 'u64'\n";
    Manifest::parse(text.as_bytes()).unwrap()
}

/// Lays out the values as a module would, and writes the row.
pub fn write(
    files: &mut ModuleFiles,
    manifest: &Manifest,
    stream: u16,
    cells: &[Cell<'_>],
) -> Result<(), RecordsError> {
    let (row, tail) = lay_out(&manifest.streams[usize::from(stream)], cells);
    files.write(&Record { order: RecordOrder::packet(0), stream, row: &row, tail: &tail })
}

pub fn lay_out(stream: &DeclaredStream, cells: &[Cell<'_>]) -> (Vec<u8>, Vec<u8>) {
    assert_eq!(stream.fields.len(), cells.len());
    let (mut row, mut tail) = (vec![0; stream.row_bytes()], Vec::new());
    for (field, cell) in stream.fields.iter().zip(cells) {
        if let Some(presence) = field.presence {
            row[presence] = u8::from(!matches!(cell, Cell::Null));
        }
        let place = &mut row[field.offset..field.offset + field.ty.size()];
        match cell {
            // A null field can hold anything.
            Cell::Null => place.fill(0xff),
            Cell::Bits(bits) => place.copy_from_slice(&bits.to_le_bytes()[..place.len()]),
            Cell::Ip(text) => {
                let address: Ipv6Addr = match text.parse().unwrap() {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    IpAddr::V6(v6) => v6,
                };
                place.copy_from_slice(&address.octets());
            }
            Cell::Text(text) => {
                place[..4].copy_from_slice(&u32::try_from(tail.len()).unwrap().to_le_bytes());
                place[4..].copy_from_slice(&u32::try_from(text.len()).unwrap().to_le_bytes());
                tail.extend_from_slice(text);
            }
        }
    }
    (row, tail)
}

/// Two rows with the extreme values of every type.
pub fn extremes() -> [Vec<Cell<'static>>; 2] {
    use Cell::{Bits, Ip, Text};
    let low = vec![
        Bits(0),
        Bits(0),
        Bits(0),
        Bits(0),
        Bits(u64::from(i32::MIN.cast_unsigned())),
        Bits(i64::MIN.cast_unsigned()),
        Bits(u64::from((-1.5f32).to_bits())),
        Bits((-1e300f64).to_bits()),
        Bits(0),
        Bits(0),
        Bits((-1i64).cast_unsigned()),
        Ip("10.0.0.1"),
        Text(b""),
        Text(b"\x00\xff"),
    ];
    let high = vec![
        Bits(255),
        Bits(65_535),
        Bits(u64::from(u32::MAX)),
        Bits(u64::MAX),
        Bits(u64::from(i32::MAX.cast_unsigned())),
        Bits(i64::MAX.cast_unsigned()),
        Bits(u64::from(1.5f32.to_bits())),
        Bits(f64::NAN.to_bits()),
        Bits(1),
        Bits(1_700_000_000_123_456_789),
        Bits(1_500_000),
        Ip("2001:db8::1"),
        Text("näme \u{fffd}".as_bytes()),
        Text(b""),
    ];
    [low, high]
}

/// Writes the extremes into `dir`/probe and returns the path of the stream `all`.
pub fn write_extremes(dir: &Path) -> std::path::PathBuf {
    let manifest = manifest();
    let mut files = ModuleFiles::create(Some(dir), "probe", &manifest, Durability::AtEnd).unwrap();
    for cells in extremes() {
        write(&mut files, &manifest, 0, &cells).unwrap();
    }
    files.finish().unwrap().remove(0).path.unwrap()
}
