//! The parts of a task by which a newer version of the module replaces it.

use super::ModuleTask;
use std::io;
use std::sync::Arc;
use weir_datapath::driver::Sandbox as _;
use weir_datapath::queue::PacketQueue;

impl ModuleTask {
    /// Sets whether the module takes no more packets from its queue. Packets in hand are not affected.
    pub(crate) fn set_draining(&mut self, is_draining: bool) {
        self.is_draining = is_draining;
    }

    /// Ends the work with packets, and leaves the queue to the other version: this task gets a queue of its own, which stays empty.
    pub(crate) fn leave_queue(&mut self) {
        self.abort();
        self.queue = Arc::new(PacketQueue::new(1, 1));
    }

    /// Takes packets from this queue from now on.
    pub(crate) fn set_queue(&mut self, queue: Arc<PacketQueue>) {
        self.queue = queue;
        self.is_draining = false;
    }

    /// Sets whether the module is on trial.
    pub(crate) fn set_on_trial(&mut self, is_on_trial: bool) {
        self.is_on_trial = is_on_trial;
    }

    /// Returns true if the module has had a fault while it is on trial, so that its later packets are those of the older version.
    pub(super) fn has_failed_trial(&self) -> bool {
        self.is_on_trial && self.has_failed()
    }

    /// Returns true if the module is between two calls and holds no packet, so that another task can go on with its queue.
    pub(crate) fn is_idle(&self) -> bool {
        !self.driver.instance.is_suspended() && self.serving.is_none() && !self.has_packets_in_hand()
    }

    /// Returns true if a call of the module trapped or was aborted, or the module has ended.
    pub(crate) fn has_failed(&self) -> bool {
        self.driver.instance.counters().faults > 0 || self.driver.instance.has_ended()
    }

    /// Gives this task the contents of the blocks of state of `older`. Both manifests declare the same blocks, in the order
    /// that `places` gives for the blocks of this task.
    ///
    /// # Errors
    /// One of the modules has ended, or a call is suspended. The task cannot be used then.
    pub(crate) fn take_state_of(&mut self, older: &mut ModuleTask, places: &[usize]) -> io::Result<()> {
        let mut blocks = older.driver.instance.state()?;
        let sorted =
            places.iter().map(|place| blocks.get_mut(*place).map(std::mem::take).unwrap_or_default());
        self.driver.instance.set_state(sorted.collect())
    }

    /// Ends a task that has left its queue, without a stop call of the module. Its last output is sent, which can take a second.
    pub(crate) fn finish_without_stop(mut self) {
        self.send_output(weir_units::Nanos(0));
        self.send_rest();
    }
}
