//! Completion of the files that a crashed process has left.

use crate::{ExportError, ExportFormat};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use weir_admission::Name;
use weir_os::private::PrivateFolder;

/// Appended to the name of a file until it is complete.
const PART_SUFFIX: &str = ".part";
/// The bytes that are read at once in search of the last line feed.
const BLOCK_BYTES: u64 = 64 << 10;
/// The bytes of a message's header in IPFIX.
const MESSAGE_HEADER_BYTES: u64 = 16;

/// Completes the `.part` files of a crashed process in the folder of a node's module: cuts a broken row at the end, and gives
/// each file its name, unless that is taken. Removes files without rows. Files that another process is writing are unchanged.
///
/// # Errors
/// Each file has its own result. After an error the file keeps its `.part` name.
pub fn recover(folder: &Path) -> Vec<Result<PathBuf, ExportError>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let parts = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let complete = name.strip_suffix(PART_SUFFIX)?.to_owned();
        ExportFormat::of_file(&complete).map(|format| (format, name, complete))
    });
    let mut parts: Vec<(ExportFormat, String, String)> = parts.collect();
    parts.sort_by(|one, two| one.1.cmp(&two.1));
    if parts.is_empty() {
        return Vec::new();
    }
    let failed = |path: PathBuf, source: io::Error| Err(ExportError::Recover { path, source });
    let opened = match PrivateFolder::open(folder) {
        Ok(opened) => opened,
        Err(error) => return vec![failed(folder.to_owned(), error.into())],
    };
    let recover_one = |(format, part, complete): &(ExportFormat, String, String)| match recover_file(
        &opened,
        *format,
        (part, complete),
    ) {
        Ok(true) => Some(Ok(opened.path().join(complete))),
        Ok(false) => None,
        Err(error) => Some(failed(opened.path().join(part), error)),
    };
    parts.iter().filter_map(recover_one).collect()
}

/// Completes one file. Returns false if there is nothing to complete.
fn recover_file(
    folder: &PrivateFolder,
    format: ExportFormat,
    (part, complete): (&str, &str),
) -> io::Result<bool> {
    let Some(file) = folder.create_locked(part).map_err(io::Error::from)? else { return Ok(false) };
    if folder.open_file(complete).is_ok() {
        return Ok(false);
    }
    let end = match format {
        ExportFormat::Zeek | ExportFormat::Eve => end_of_lines(&file)?,
        ExportFormat::Ipfix => end_of_messages(&file)?,
    };
    if end == 0 {
        folder.remove(part)?;
        return Ok(false);
    }
    file.set_len(end)?;
    file.sync_data()?;
    folder.rename(part, complete)?;
    folder.sync()?;
    Ok(true)
}

/// Returns the offset behind the last line feed.
fn end_of_lines(file: &File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut block = vec![0; usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX)];
    while end > 0 {
        let begin = end.saturating_sub(BLOCK_BYTES);
        let len = usize::try_from(end - begin).unwrap_or(0);
        let Some(bytes) = block.get_mut(..len) else { break };
        file.read_exact_at(bytes, begin)?;
        if let Some(at) = bytes.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

/// Returns the offset behind the last whole message.
fn end_of_messages(file: &File) -> io::Result<u64> {
    let len = file.metadata()?.len();
    let (mut end, mut header) = (0, [0; 4]);
    while end + MESSAGE_HEADER_BYTES <= len {
        match file.read_exact_at(&mut header, end) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            read => read?,
        }
        let bytes = u64::from(u16::from_be_bytes([header[2], header[3]]));
        if bytes < MESSAGE_HEADER_BYTES || end + bytes > len {
            break;
        }
        end += bytes;
    }
    Ok(end)
}

impl ExportFormat {
    /// Returns the format of a file in a node's folder of records by its name, which is a [`Name`] with the format's extension;
    /// `None` for other names.
    pub fn of_file(name: &str) -> Option<Self> {
        let (stem, extension) = name.rsplit_once('.')?;
        Name::new(stem).ok()?;
        [Self::Zeek, Self::Eve, Self::Ipfix].into_iter().find(|format| format.extension() == extension)
    }

    /// Returns the extension of files.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Zeek => "log",
            Self::Eve => "json",
            Self::Ipfix => "ipfix",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_crashed_process_are_cut_behind_their_last_row_and_get_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        let message = |len: u8| [&[0, 10, 0, len][..], &vec![7; usize::from(len) - 4]].concat();
        let long = [b"#fields\tx\n1\n".to_vec(), b"2".repeat(200_000)].concat();
        write("conn.log.part", &long);
        write("eve.json.part", b"{}\n{}\n{\"a");
        write("conn.ipfix.part", &[message(20), message(30), message(40)[..39].to_vec()].concat());
        write("dns.ipfix.part", &message(16)[..10]);
        write("dns.log.part", b"#sep");
        write("http.log.part", b"1\n");
        write("http.log", b"an earlier one\n");
        write("other.csv.part", b"1\n2");
        write("UPPER.log.part", b"1\n2");
        let recovered: Vec<PathBuf> = recover(folder.path()).into_iter().map(Result::unwrap).collect();
        let names = ["conn.ipfix", "conn.log", "eve.json"];
        assert_eq!(recovered, names.map(|name| folder.path().join(name)));
        let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
        assert_eq!(read("conn.log"), b"#fields\tx\n1\n");
        assert_eq!(read("eve.json"), b"{}\n{}\n");
        assert_eq!(read("conn.ipfix"), [message(20), message(30)].concat());
        assert_eq!(read("http.log"), b"an earlier one\n");
        let mut left: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".part"))
            .collect();
        left.sort();
        assert_eq!(left, ["UPPER.log.part", "http.log.part", "other.csv.part"]);
        assert_eq!(recover(folder.path()).len(), 0);
    }
}
