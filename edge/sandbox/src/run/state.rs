//! The blocks of state that a newer version of a module takes over.

use crate::run::instance::Instance;
use std::io;
use std::ops::Range;

impl Instance {
    /// Returns the contents of the manifest's blocks of state, in the manifest's order.
    ///
    /// # Errors
    /// A call is suspended, or the start of the instance failed.
    pub fn state(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let (memory, places) = self.state_memory()?;
        places.into_iter().map(|place| memory.get(place).map(<[u8]>::to_vec).ok_or_else(no_state)).collect()
    }

    /// Sets the contents of the manifest's blocks of state, in the manifest's order.
    ///
    /// # Errors
    /// As [`state`](Self::state), or the blocks have other sizes. Blocks before the wrong one are set.
    pub fn set_state(&mut self, blocks: &[Vec<u8>]) -> io::Result<()> {
        let (memory, places) = self.state_memory()?;
        if places.len() != blocks.len() {
            return Err(no_state());
        }
        for (place, block) in places.into_iter().zip(blocks) {
            let bytes = memory.get_mut(place).filter(|bytes| bytes.len() == block.len());
            bytes.ok_or_else(no_state)?.copy_from_slice(block);
        }
        Ok(())
    }

    /// Returns the private memory, and the places of the blocks in it.
    fn state_memory(&mut self) -> io::Result<(&mut [u8], Vec<Range<usize>>)> {
        self.check_not_suspended()?;
        let (Some(wasm), Some(store)) = (&self.wasm, &mut self.store) else { return Err(no_state()) };
        let place = |range: &Range<u32>| range.start as usize..range.end as usize;
        let places = store.data().admitted.info().states.iter().map(place).collect();
        Ok((wasm.memory.bytes_mut(store), places))
    }
}

/// The error for a state that cannot be read or set.
fn no_state() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the module's state is not accessible")
}
