//! Replacement of a module by a newer version: the older task leaves the core between two batches, and the newer one returns its
//! place if it fails while it is on trial.

use super::{Runner, VcpuTask};
use crate::core_thread::task::ModuleTask;
use std::sync::mpsc::Sender;
use std::time::Instant;
use weir_sched::cpu::VcpuId;

/// The trial of a newer version of a module.
#[derive(Debug)]
pub(crate) struct ModuleTrial {
    /// End of the trial.
    pub(crate) until: Instant,
    /// Gets the task at its first fault. Dropped when the task leaves the core for another reason.
    pub(crate) failed: Sender<ModuleTask>,
}

impl VcpuTask {
    /// Decides, after a call of the task has ended, whether the task leaves the core: because it has failed its trial, or
    /// because it is idle and its release was requested. If so, takes the task off its queue and returns the receiver to
    /// which the task has to be sent.
    pub(super) fn departure(&mut self) -> Option<Sender<ModuleTask>> {
        let failed =
            self.trial.take_if(|_| self.task.has_failed()).filter(|trial| Instant::now() < trial.until);
        let receiver = match failed {
            Some(trial) => trial.failed,
            None => self.idle_receiver.take_if(|_| self.task.is_idle())?,
        };
        self.task.leave_queue();
        Some(receiver)
    }
}

impl Runner {
    /// Sends the task of a module to `receiver` once the module is between two batches: at once, or after its present packets. From
    /// then on its packets wait in the queue. `receiver` is dropped if the module is not on this core.
    pub(crate) fn release_task(&mut self, module: u64, receiver: Sender<ModuleTask>) {
        let vcpu = self.vcpu_of_module.get(&module).and_then(|id| self.vcpus.get_mut(id));
        let Some(entry) = vcpu.and_then(|vcpu| vcpu.tasks.get_mut(&module)) else { return };
        if entry.stop_receiver.is_some() {
            return;
        }
        if !entry.task.is_idle() {
            entry.task.set_draining(true);
            entry.idle_receiver = Some(receiver);
        } else if let Some(mut task) = self.remove_task(module) {
            task.leave_queue();
            _ = receiver.send(task);
        }
    }

    /// Ends a [release](Self::release_task) that has not happened yet: the module goes on.
    pub(crate) fn keep_task(&mut self, module: u64) {
        let vcpu = self.vcpu_of_module.get(&module).and_then(|id| self.vcpus.get_mut(id));
        if let Some(entry) = vcpu.and_then(|vcpu| vcpu.tasks.get_mut(&module)) {
            entry.task.set_draining(false);
            entry.idle_receiver = None;
        }
        let now = self.now();
        self.queue_packets(module, now);
    }

    /// Ends the trial of a module: from now on it stays after a fault.
    pub(crate) fn end_trial(&mut self, module: u64) {
        let vcpu = self.vcpu_of_module.get(&module).and_then(|id| self.vcpus.get_mut(id));
        if let Some(entry) = vcpu.and_then(|vcpu| vcpu.tasks.get_mut(&module)) {
            entry.trial = None;
            entry.task.set_on_trial(false);
        }
    }

    /// Stops a module whose task has left its core and its queue, as [`stop_task`](Self::stop_task) does.
    pub(crate) fn stop_returned_task(&mut self, id: VcpuId, task: ModuleTask, receiver: Sender<ModuleTask>) {
        let number = task.number;
        match self.add_task(id, task) {
            Ok(()) => self.stop_task(number, receiver),
            Err(task) => _ = receiver.send(*task),
        }
    }

    /// Adds a task to a virtual CPU. With `trial`, the task leaves the core again at its first fault.
    ///
    /// # Errors
    /// The task, if the virtual CPU is gone or full.
    pub(crate) fn add_task_on_trial(
        &mut self,
        id: VcpuId,
        mut task: ModuleTask,
        trial: Option<ModuleTrial>,
    ) -> Result<(), Box<ModuleTask>> {
        let number = task.number;
        task.set_on_trial(trial.is_some());
        self.add_task(id, task)?;
        if let Some(entry) = self.vcpus.get_mut(&id).and_then(|vcpu| vcpu.tasks.get_mut(&number)) {
            entry.trial = trial;
        }
        Ok(())
    }
}
