//! The memory and processor time of a node with all processes that it has started, as the kernel counts them.

use crate::error::LabError;
use crate::memory::mebibytes_of;
use crate::native::process_time;
use std::collections::BTreeMap;
use std::time::Duration;

/// The argument of the program `weir` that runs a sandbox process.
const SANDBOX: &str = "sandbox";

/// The processes of a node.
#[derive(Clone, Debug)]
pub(super) struct NodeProcesses {
    /// The node itself, and its helpers without modules: the spawner, for example.
    own: Vec<u32>,
    /// Sandbox processes.
    sandboxes: Vec<u32>,
}

/// Resident memory in MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Resident {
    /// Pages of each process, so pages that several processes share count several times.
    pub rss: f64,
    /// As `rss`, but a page that n processes share counts for 1/n in each.
    pub pss: f64,
    /// The part of `pss` that is no file and no shared memory: heaps, and the memory of modules.
    pub anonymous: f64,
}

/// Processor time so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessorTime {
    pub own: Duration,
    pub sandboxes: Duration,
}

impl NodeProcesses {
    /// Finds the processes of the node with this ID.
    pub(super) fn of(node: u32) -> Result<Self, LabError> {
        let mut parents = BTreeMap::new();
        let folder = std::fs::read_dir("/proc").map_err(LabError::file("/proc".as_ref()))?;
        for id in folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            // A process that has ended meanwhile is none of the node's.
            let text = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            if let Some(parent) = parent_of(&text) {
                parents.insert(id, parent);
            }
        }
        let mut processes = Self { own: vec![node], sandboxes: Vec::new() };
        for id in parents.keys().copied().filter(|id| is_descendant(&parents, *id, node)) {
            let arguments = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            if arguments.split(|byte| *byte == 0).nth(1) == Some(SANDBOX.as_bytes()) {
                processes.sandboxes.push(id);
            } else {
                processes.own.push(id);
            }
        }
        Ok(processes)
    }

    /// The number of processes.
    pub(super) fn count(&self) -> usize {
        self.own.len() + self.sandboxes.len()
    }

    /// The number of sandbox processes.
    pub(super) fn sandboxes(&self) -> usize {
        self.sandboxes.len()
    }

    /// The memory of all processes.
    pub(super) fn resident(&self) -> Result<Resident, LabError> {
        let mut sum = Resident::default();
        for id in self.own.iter().chain(&self.sandboxes) {
            let path = format!("/proc/{id}/smaps_rollup");
            let text = std::fs::read_to_string(&path).map_err(LabError::file(path.as_ref()))?;
            let one = resident_of(&text).ok_or_else(|| {
                LabError::NoData(format!(
                    "{path} lacks `Rss`, `Pss` or `Pss_Anon` (Linux 5.4 or newer has them)"
                ))
            })?;
            sum.rss += one.rss;
            sum.pss += one.pss;
            sum.anonymous += one.anonymous;
        }
        Ok(sum)
    }

    /// The processor time of all processes.
    pub(super) fn time(&self) -> Result<ProcessorTime, LabError> {
        let sum = |ids: &[u32]| {
            ids.iter().try_fold(Duration::ZERO, |sum, id| {
                let ended = || LabError::NoData(format!("process {id} of the node has ended"));
                Ok::<_, LabError>(sum + process_time(*id).ok_or_else(ended)?)
            })
        };
        Ok(ProcessorTime { own: sum(&self.own)?, sandboxes: sum(&self.sandboxes)? })
    }
}

impl ProcessorTime {
    /// The percentages of a core that the node and its sandbox processes have used since `before`, in `time`.
    pub(super) fn percent_since(self, before: Self, time: Duration) -> [f64; 2] {
        let percent = |now: Duration, before: Duration| {
            now.saturating_sub(before).as_secs_f64() * 100.0 / time.as_secs_f64()
        };
        [percent(self.own, before.own), percent(self.sandboxes, before.sandboxes)]
    }
}

/// The parent in the text of /proc/PID/stat; `None` for a process that has ended and that its parent has not waited for. The
/// name of the program, in parentheses, can have any characters.
fn parent_of(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    fields.next().filter(|state| *state != "Z")?;
    fields.next()?.parse().ok()
}

/// Returns true if a process was started by `ancestor`, or by one that it has started.
fn is_descendant(parents: &BTreeMap<u32, u32>, id: u32, ancestor: u32) -> bool {
    let mut at = id;
    // IDs are read one after the other and can be reused meanwhile, so the length of the path is limited.
    for _ in 0..parents.len() {
        match parents.get(&at) {
            Some(parent) if *parent == ancestor => return true,
            Some(parent) => at = *parent,
            None => return false,
        }
    }
    false
}

/// The memory in the text of /proc/PID/smaps_rollup.
fn resident_of(rollup: &str) -> Option<Resident> {
    Some(Resident {
        rss: mebibytes_of(rollup, "Rss:")?,
        pss: mebibytes_of(rollup, "Pss:")?,
        anonymous: mebibytes_of(rollup, "Pss_Anon:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_parent_is_found_behind_any_name_of_a_program() {
        assert_eq!(parent_of("12 (weir) S 7 12 12 0"), Some(7));
        assert_eq!(parent_of("12 (a) S 3 (b)) R 9 12"), Some(9));
        assert_eq!(parent_of("12 (weir) Z 7 12 12 0"), None);
        assert_eq!(parent_of("12 (weir"), None);
    }

    #[test]
    fn descendants_are_children_and_their_children_only() {
        let parents = BTreeMap::from([(2, 1), (3, 2), (4, 1), (5, 6), (6, 5)]);
        let of_2: Vec<u32> = parents.keys().copied().filter(|id| is_descendant(&parents, *id, 2)).collect();
        let of_1: Vec<u32> = parents.keys().copied().filter(|id| is_descendant(&parents, *id, 1)).collect();
        assert_eq!((of_2, of_1), (vec![3], vec![2, 3, 4]));
    }

    #[test]
    fn memory_is_read_from_the_sums_of_a_process_s_mappings() {
        let rollup =
            "1-2 ---p 0 0 0 [rollup]\nRss: 4096 kB\nPss: 2048 kB\nPss_Dirty: 9 kB\nPss_Anon: 1024 kB\n";
        assert_eq!(resident_of(rollup), Some(Resident { rss: 4.0, pss: 2.0, anonymous: 1.0 }));
        assert_eq!(resident_of("Rss: 4096 kB\nPss: 2048 kB\n"), None);
    }

    #[test]
    fn a_process_that_was_started_is_found_and_its_memory_and_time_count() {
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", "cat; true"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut processes = NodeProcesses::of(shell.id()).unwrap();
        for _ in 0..1000 {
            if processes.count() == 2 {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            processes = NodeProcesses::of(shell.id()).unwrap();
        }
        let (resident, time) = (processes.resident(), processes.time());
        let alone = NodeProcesses { own: vec![shell.id()], sandboxes: Vec::new() }.resident();
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert_eq!((processes.count(), processes.sandboxes()), (2, 0));
        let (resident, alone) = (resident.unwrap(), alone.unwrap());
        assert!(resident.rss > alone.rss && resident.pss > alone.pss && alone.anonymous > 0.0);
        assert!(resident.rss >= resident.pss && resident.pss > resident.anonymous);
        assert!(time.unwrap().own > Duration::ZERO);
        assert!(processes.time().is_err(), "the processes have ended");
    }
}
