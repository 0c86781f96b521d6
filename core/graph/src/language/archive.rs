//! Archives in the format of ar(1), whose member `config` is a configuration.

use super::error::ArchiveFault;

/// The first bytes of an archive.
const MAGIC: &[u8] = b"!<arch>\n";
/// The bytes of a member's header.
const HEADER_BYTES: usize = 60;
/// The member with the configuration.
pub(crate) const CONFIGURATION_MEMBER: &str = "config";

/// A member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveMember {
    /// The name.
    pub name: String,
    /// The content.
    pub data: Vec<u8>,
}

/// Returns true if the bytes begin as an archive does.
pub fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Returns the members of an archive, in its order. Long names of GNU and BSD are read.
///
/// # Errors
///
/// [`ArchiveFault`], if the bytes are no archive or if a member is not complete.
pub fn read_archive(bytes: &[u8]) -> Result<Vec<ArchiveMember>, ArchiveFault> {
    let mut rest = bytes.strip_prefix(MAGIC).ok_or(ArchiveFault::Magic)?;
    let mut long_names: &[u8] = &[];
    let mut members = Vec::new();
    while !rest.is_empty() {
        let (header, after) = rest.split_at_checked(HEADER_BYTES).ok_or(ArchiveFault::Truncated)?;
        if &header[58..] != b"`\n" {
            return Err(ArchiveFault::Magic);
        }
        let size = number(&header[48..58])?;
        let (data, after) = after.split_at_checked(size).ok_or(ArchiveFault::Truncated)?;
        // Members begin at even offsets. The padding of the last member may be missing.
        rest = if size % 2 == 1 { after.get(1..).unwrap_or_default() } else { after };

        let field = &header[..16];
        if field.starts_with(b"// ") {
            long_names = data;
        } else if field.starts_with(b"/ ") || field.starts_with(b"/SYM64/") {
            // The index of symbols of GNU.
        } else if field[0] == b'/' && field[1].is_ascii_digit() {
            let from = number(&field[1..])?;
            let name = long_names.get(from..).filter(|name| !name.is_empty());
            members.push(member(name.ok_or(ArchiveFault::LongName)?, data));
        } else if let Some(len) = field.strip_prefix(b"#1/") {
            let (name, data) = data.split_at_checked(number(len)?).ok_or(ArchiveFault::LongName)?;
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            members.push(ArchiveMember { name, data: data.to_vec() });
        } else {
            members.push(member(field, data));
        }
    }
    Ok(members)
}

/// Makes a member whose name ends at a slash or at white space.
fn member(name: &[u8], data: &[u8]) -> ArchiveMember {
    let end = name.iter().position(|byte| *byte == b'/' || byte.is_ascii_whitespace());
    let name = String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]).into_owned();
    ArchiveMember { name, data: data.to_vec() }
}

fn number(field: &[u8]) -> Result<usize, ArchiveFault> {
    let text = std::str::from_utf8(field).map_err(|_| ArchiveFault::Number)?;
    text.trim_end_matches(' ').parse().map_err(|_| ArchiveFault::Number)
}

/// Returns the archive of these members, which [`read_archive`] reads. All names are written as BSD's long names if they
/// are long or contain white space or a slash.
pub fn write_archive(members: &[ArchiveMember]) -> Vec<u8> {
    use std::io::Write as _;
    let mut out = MAGIC.to_vec();
    for member in members {
        let name = member.name.as_bytes();
        let is_short = (1..=14).contains(&name.len())
            && name.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'/')
            && !name.starts_with(b"#1/");
        let (field, inline) = match is_short {
            true => (member.name.clone(), &[][..]),
            false => (format!("#1/{}", name.len()), name),
        };
        let size = inline.len() + member.data.len();
        // Writing to memory does not fail.
        let _ = writeln!(out, "{field:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`", 0, 0, 0, 644);
        out.extend_from_slice(inline);
        out.extend_from_slice(&member.data);
        if size % 2 == 1 {
            out.push(b'\n');
        }
    }
    out
}
