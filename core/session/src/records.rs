//! Records that a module has emitted, in memory until they are written to a file.

/// The position in a block at which a record was emitted: at packet i, or in a tick before packet i. Records are written
/// in this order, so the order does not depend on the threads that ran the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordOrder(u32);

impl RecordOrder {
    /// Returns the position of records emitted in a tick before packet `index` of the block.
    pub const fn tick(index: u32) -> Self {
        Self(index * 2)
    }

    /// Returns the position of records emitted while packet `index` of the block was processed.
    pub const fn packet(index: u32) -> Self {
        Self(index * 2 + 1)
    }

    /// Returns the index of the packet, or of the packet after the tick.
    pub const fn index(self) -> usize {
        (self.0 / 2) as usize
    }

    /// Returns true for a packet's record, false for a tick's.
    pub const fn is_packet(self) -> bool {
        self.0 % 2 == 1
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    order: RecordOrder,
    stream: u16,
    /// The length of the row, in bytes.
    row_len: u32,
    /// The length of row and tail, in bytes.
    len: u32,
    /// The offset of the row in [`Records::bytes`].
    start: usize,
}

/// Records in the order in which they were emitted.
#[derive(Debug, Default)]
pub struct Records {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    /// The number of records from earlier calls, which stay if the present call is lost.
    settled: usize,
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The position in the block at which the record was emitted.
    pub order: RecordOrder,
    /// The index of the stream in the manifest.
    pub stream: u16,
    /// The row as declared. String fields hold an offset into the tail, and a length.
    pub row: &'a [u8],
    /// The bytes of the string fields.
    pub tail: &'a [u8],
}

impl Records {
    /// Begins a record with its row. [`Self::append_tail`] then appends the bytes of its string fields.
    #[inline]
    pub fn begin(&mut self, order: RecordOrder, stream: u16, row: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(row);
        let len = u32::try_from(row.len()).unwrap_or(u32::MAX);
        self.entries.push(Entry { order, stream, row_len: len, len, start });
    }

    /// Returns the row of the last record, so that the caller can normalise it; empty without a record.
    #[inline]
    pub fn last_row(&mut self) -> &mut [u8] {
        let Some(entry) = self.entries.last() else { return &mut [] };
        self.bytes.get_mut(entry.start..entry.start + entry.row_len as usize).unwrap_or_default()
    }

    /// Appends the bytes of a string field of the last record to its tail. Writes their offset and length into the
    /// field, which is at `offset` in the row.
    pub fn append_tail(&mut self, offset: usize, bytes: &[u8]) {
        let Some(entry) = self.entries.last_mut() else { return };
        let tail_offset = entry.len - entry.row_len;
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let field_start = entry.start + offset;
        if let Some(field) = self.bytes.get_mut(field_start..field_start + 8) {
            field[..4].copy_from_slice(&tail_offset.to_le_bytes());
            field[4..].copy_from_slice(&len.to_le_bytes());
        }
        entry.len += len;
        self.bytes.extend_from_slice(bytes);
    }

    /// Marks the beginning of a call. If the call is lost, all records that were emitted before its beginning stay, even
    /// records of an earlier block with the same [`RecordOrder`].
    #[inline]
    pub fn begin_call(&mut self) {
        self.settled = self.entries.len();
    }

    /// Removes the records of a lost call: the last records with this `order` that were emitted since
    /// [`Self::begin_call`]. Returns their number.
    pub fn remove_lost(&mut self, order: RecordOrder) -> u64 {
        let before = self.entries.len();
        while self.entries.len() > self.settled
            && let Some(entry) = self.entries.pop_if(|entry| entry.order == order)
        {
            self.bytes.truncate(entry.start);
        }
        (before - self.entries.len()) as u64
    }

    /// Keeps the first `len` records and removes the rest.
    pub fn truncate(&mut self, len: usize) {
        if let Some(first) = self.entries.get(len) {
            self.bytes.truncate(first.start);
            self.entries.truncate(len);
            self.settled = self.settled.min(len);
        }
    }

    /// Appends the records of `others`.
    pub fn append(&mut self, others: &Self) {
        let offset = self.bytes.len();
        self.bytes.extend_from_slice(&others.bytes);
        self.entries
            .extend(others.entries.iter().map(|entry| Entry { start: offset + entry.start, ..*entry }));
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of bytes of all rows and tails.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all records, and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
        self.settled = 0;
    }

    /// Returns all records, in the order of emission.
    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        self.entries.iter().map(|entry| {
            let all = &self.bytes[entry.start..entry.start + entry.len as usize];
            let (row, tail) = all.split_at(entry.row_len as usize);
            Record { order: entry.order, stream: entry.stream, row, tail }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_its_row_and_the_bytes_of_its_strings() {
        let mut records = Records::default();
        records.begin(RecordOrder::packet(3), 1, &[7; 12]);
        records.last_row()[1..3].fill(0);
        records.last_row()[11..].fill(0);
        records.append_tail(4, b"abc");
        records.begin(RecordOrder::tick(4), 0, &[9; 2]);
        let all: Vec<_> = records.iter().collect();
        assert_eq!(
            (all[0].order, all[0].stream, all[0].tail),
            (RecordOrder::packet(3), 1, b"abc".as_slice())
        );
        assert_eq!(all[0].row, [7, 0, 0, 7, 0, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(
            (all[1].order, all[1].row, all[1].tail),
            (RecordOrder::tick(4), [9u8; 2].as_slice(), b"".as_slice())
        );
        assert!(
            RecordOrder::packet(3) < RecordOrder::tick(4) && RecordOrder::tick(4) < RecordOrder::packet(4)
        );
    }

    #[test]
    fn a_lost_call_removes_its_own_records_and_no_others() {
        let mut records = Records::default();
        records.begin(RecordOrder::packet(0), 0, b"first block");
        records.begin_call();
        records.begin(RecordOrder::packet(0), 0, b"second block");
        records.begin(RecordOrder::packet(1), 0, b"lost");
        records.append_tail(0, b"with it");
        assert_eq!(records.remove_lost(RecordOrder::packet(1)), 1);
        assert_eq!(records.remove_lost(RecordOrder::packet(1)), 0);
        let rows = |records: &Records| records.iter().map(|r| r.row.to_vec()).collect::<Vec<_>>();
        assert_eq!(rows(&records), [b"first block".to_vec(), b"second block".to_vec()]);
        records.remove_lost(RecordOrder::packet(0));
        records.remove_lost(RecordOrder::packet(0));
        assert_eq!(rows(&records), [b"first block".to_vec()]);
        let mut all = Records::default();
        all.append(&records);
        all.append(&records);
        assert_eq!(rows(&all), [b"first block".to_vec(), b"first block".to_vec()]);
        records.clear();
        records.begin(RecordOrder::packet(0), 0, b"lost");
        records.remove_lost(RecordOrder::packet(0));
        assert!(records.is_empty() && records.bytes() == 0);
    }

    #[test]
    fn records_left_after_a_truncation_are_whole_and_others_can_follow() {
        let mut records = Records::default();
        for row in [b"one", b"two", b"six"] {
            records.begin(RecordOrder::packet(0), 0, row);
            records.append_tail(0, b"tail");
        }
        records.begin_call();
        records.truncate(9);
        assert_eq!(records.len(), 3);
        records.truncate(1);
        records.begin(RecordOrder::packet(1), 0, b"new");
        let rows: Vec<_> = records.iter().map(|r| (r.row.to_vec(), r.tail.to_vec())).collect();
        assert_eq!(rows, [(b"one".to_vec(), b"tail".to_vec()), (b"new".to_vec(), Vec::new())]);
        records.remove_lost(RecordOrder::packet(1));
        assert_eq!((records.len(), records.bytes()), (1, 7));
        records.truncate(0);
        assert!(records.is_empty() && records.bytes() == 0);
    }
}
