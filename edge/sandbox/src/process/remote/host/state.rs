//! The blocks of state of a module in a sandbox process.

use super::super::wire::{REPORT_BYTES_MAX, SandboxRequest, blocks_len, read_blocks};
use super::{CONTROL_TIMEOUT, EndReason, RemoteInstance};
use std::io;
use std::time::Instant;

impl RemoteInstance {
    /// As [`Instance::state`](crate::Instance::state). The contents come from the module's process, so they are untrusted, as the
    /// contents of any memory of a module.
    ///
    /// # Errors
    /// The module has ended, or a call is suspended.
    pub fn state(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let sizes: Vec<usize> = self.admitted.info().states.iter().map(ExactSizeIterator::len).collect();
        self.exchange(&SandboxRequest::ReadState, blocks_len(&sizes), |answer| {
            read_blocks(answer, &sizes).map_err(EndReason::from)
        })
    }

    /// As [`Instance::set_state`](crate::Instance::set_state).
    ///
    /// # Errors
    /// As [`state`](Self::state), or the blocks have other sizes.
    pub fn set_state(&mut self, blocks: Vec<Vec<u8>>) -> io::Result<()> {
        let sizes = self.admitted.info().states.iter().map(ExactSizeIterator::len);
        if !sizes.eq(blocks.iter().map(Vec::len)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // The content of the report is ignored, because setting the state has no results.
        self.exchange(&SandboxRequest::SetState(blocks), REPORT_BYTES_MAX, |_| Ok(()))
    }

    /// Sends a request, and reads the answer, which has at most `answer_max` bytes.
    fn exchange<R>(
        &mut self,
        request: &SandboxRequest,
        answer_max: usize,
        read: impl FnOnce(&[u8]) -> Result<R, EndReason>,
    ) -> io::Result<R> {
        if self.has_ended || self.is_suspended {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let begin = Instant::now();
        // The process reads the request only while it runs.
        self.process.resume();
        let sent = self.process.send(&request.write(), CONTROL_TIMEOUT);
        let answer = self.receive_up_to(answer_max, sent, CONTROL_TIMEOUT);
        let read = answer.and_then(|answer| read(&answer)).and_then(|read| {
            self.account_time(begin)?;
            Ok(read)
        });
        read.map_err(|end| {
            _ = self.apply_report(Err(end));
            io::ErrorKind::BrokenPipe.into()
        })
    }
}
