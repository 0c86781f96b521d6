//! The memory that the record files of a module take.

use weir_admission::Manifest;
use weir_units::Bytes;

/// The most memory of the rows of a module that are in no log yet, in bytes. One row more is added before rows are written
/// to a log.
pub(crate) const WAITING_MAX: usize = 64 << 10;
/// The row groups of each stream, in the mean, at which the files of a module are full: those of more than an hour if they
/// end by their age.
const GROUPS_MAX: usize = 14;
/// The bounds of the number of column chunks at which the files of a module are full, unless it has more columns. A
/// column chunk is a column of a row group.
const CHUNKS_MIN: usize = 256;
const CHUNKS_MAX: usize = 512;
/// Memory of the metadata of a column chunk, with statistics.
const CHUNK_BYTES: usize = 1 << 10;
/// Memory of a column: its part of the schemas of the file, of the Parquet writer and of the log.
const COLUMN_BYTES: usize = 2 << 10;
/// Memory of a stream: the buffers of its file and of its log.
const STREAM_BYTES: usize = 16 << 10;

/// The sum is rounded up to this size, by which memory of modules grows.
const PAGE_BYTES: usize = 64 << 10;

/// Returns the most memory that the open files of a module take with [`crate::Durability::Seconds`], if they are ended when
/// [`crate::ModuleFiles::is_full`] says so. A module without streams takes none.
///
/// A thread takes more while it ends a row group, for one stream at a time: the Parquet writer about 12 MiB, or 48 MiB
/// after an error on a full disk.
pub fn memory(manifest: &Manifest) -> Bytes {
    let (streams, columns) = (manifest.streams.len(), columns(manifest));
    if streams == 0 {
        return Bytes(0);
    }
    // When the files are nearly full, each stream can end a row group before they are ended.
    let chunks = chunks_max(manifest) + columns;
    let bytes = WAITING_MAX + chunks * CHUNK_BYTES + columns * COLUMN_BYTES + streams * STREAM_BYTES;
    Bytes(bytes.next_multiple_of(PAGE_BYTES) as u64)
}

/// Returns the number of column chunks at which the files of a module are full. Each stream has at least one row group
/// before.
pub(crate) fn chunks_max(manifest: &Manifest) -> usize {
    let columns = columns(manifest);
    (GROUPS_MAX * columns).clamp(CHUNKS_MIN, CHUNKS_MAX).max(columns)
}

fn columns(manifest: &Manifest) -> usize {
    manifest.streams.iter().map(|stream| stream.fields.len()).sum()
}
