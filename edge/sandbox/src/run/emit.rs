//! Records that a module emits: the host function `emit`.

use crate::run::fault::FaultKind;
use crate::run::guest_memory::{GuestMemory, guest_memory};
use crate::run::host::{HostState, order_of};
use std::sync::Arc;
use weir_abi::host::HostFunction;
use weir_abi::{code, limit};
use weir_session::RecordOrder;

/// The host function `emit`.
pub(crate) fn emit(
    host: &mut HostState,
    stream: u32,
    row: u32,
    len: u32,
    current: Option<u32>,
) -> Result<i32, FaultKind> {
    let mut guest = guest_memory(host, HostFunction::Emit)?.for_packet(current);
    let order = order_of(guest.host.phase, current);
    let (Some(declared), Ok(number)) =
        (guest.host.admitted.manifest().streams.get(stream as usize), u16::try_from(stream))
    else {
        return Ok(code::UNKNOWN);
    };
    if len as usize != declared.row_bytes() {
        return Err(FaultKind::RowSize);
    }
    if declared.has_strings() {
        return emit_with_strings(&mut guest, number, (row, len), order);
    }
    guest.bytes(row, len, |row, host| {
        if !host.charge_record(order, row.len()) {
            return code::FULL;
        }
        host.begin_record(order, number, row);
        code::OK
    })
}

/// Emits a record of a stream whose rows point to strings.
fn emit_with_strings(
    guest: &mut GuestMemory<'_>,
    number: u16,
    (row, len): (u32, u32),
    order: RecordOrder,
) -> Result<i32, FaultKind> {
    let mut places = std::mem::take(&mut guest.host.string_places);
    places.clear();
    let found = find_strings(guest, number, row, &mut places);
    let emitted = found.and_then(|string_bytes| {
        let Some(string_bytes) = string_bytes else {
            guest.host.records_dropped += 1;
            return Ok(code::FULL);
        };
        let is_begun = guest.bytes(row, len, |row, host| {
            let bytes = row.len() + usize::try_from(string_bytes).unwrap_or(usize::MAX);
            let is_within_limit = host.charge_record(order, bytes);
            host.string_bytes = host.string_bytes.saturating_add(string_bytes);
            if is_within_limit {
                host.begin_record(order, number, row);
            }
            is_within_limit
        })?;
        if !is_begun {
            return Ok(code::FULL);
        }
        for (offset, address, len) in &places {
            guest.bytes(*address, *len, |bytes, host| host.records.append_tail(*offset, bytes))?;
        }
        Ok(code::OK)
    });
    guest.host.string_places = places;
    emitted
}

/// Finds the strings that a row points to. Returns the number of their bytes, or `None` if they are too many. The address
/// and the length of a string are read once, so that they cannot change between check and use.
///
/// # Errors
/// [`FaultKind::WildPointer`] if the row or a string is not readable. So no record is begun that remains incomplete.
fn find_strings(
    guest: &mut GuestMemory<'_>,
    number: u16,
    row: u32,
    places: &mut Vec<(usize, u32, u32)>,
) -> Result<Option<u64>, FaultKind> {
    let admitted = Arc::clone(&guest.host.admitted);
    let fields = admitted.manifest().streams.get(usize::from(number)).into_iter().flat_map(|s| &s.fields);
    let mut string_bytes = 0u64;
    for field in fields.filter(|field| field.ty.is_indirect()) {
        let address_in_row = |offset: usize| {
            let at = row.checked_add(u32::try_from(offset).unwrap_or(u32::MAX));
            at.ok_or(FaultKind::WildPointer { function: HostFunction::Emit.name() })
        };
        if let Some(presence) = field.presence
            && guest.bytes(address_in_row(presence)?, 1, |byte, _| byte.first() == Some(&0))?
        {
            continue;
        }
        let at = address_in_row(field.offset)?;
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        let place = guest.bytes(at, 8, |bytes, _| (word(bytes), word(bytes.get(4..).unwrap_or_default())));
        let (address, len) = place?;
        string_bytes += u64::from(len);
        if string_bytes > u64::from(limit::RECORD_STRING_BYTES) {
            return Ok(None);
        }
        guest.check(address, len)?;
        places.push((field.offset, address, len));
    }
    Ok(Some(string_bytes))
}

impl HostState {
    /// Begins a record with its row.
    #[inline]
    fn begin_record(&mut self, order: RecordOrder, stream: u16, row: &[u8]) {
        self.records.begin(order, stream, row);
        if let Some(declared) = self.admitted.manifest().streams.get(usize::from(stream)) {
            declared.normalise(self.records.last_row());
        }
    }

    /// Charges one record of `bytes` bytes. Returns false, and counts the record as dropped, if it is over the limit.
    fn charge_record(&mut self, order: RecordOrder, bytes: usize) -> bool {
        if self.emitted.has_used_nothing(self.phase, order) {
            self.string_bytes = 0;
        }
        let is_within_limit = self.emitted.charge(self.phase, order, bytes, self.record_allowance);
        self.records_dropped += u64::from(!is_within_limit);
        is_within_limit
    }
}
