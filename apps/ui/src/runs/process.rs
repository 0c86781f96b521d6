//! A process of weir that belongs to a run.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The most bytes of the summary.
const SUMMARY_BYTES_MAX: u64 = 16 << 20;
/// The most bytes of messages.
const MESSAGE_BYTES_MAX: u64 = 64 << 10;
/// The interval at which the process is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A process whose standard output is a JSON document, and whose standard error has messages for people.
#[derive(Debug)]
pub(super) struct RunProcess {
    child: Mutex<Child>,
    readers: Mutex<Option<[JoinHandle<Vec<u8>>; 2]>>,
}

impl RunProcess {
    /// Starts a process, and returns the writer of its standard input.
    pub(super) fn start(program: &Path, arguments: &[OsString]) -> io::Result<(Arc<Self>, ChildStdin)> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (Some(input), Some(output), Some(messages)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let readers = [read(output, SUMMARY_BYTES_MAX)?, read(messages, MESSAGE_BYTES_MAX)?];
        Ok((Arc::new(Self { child: Mutex::new(child), readers: Mutex::new(Some(readers)) }), input))
    }

    /// Ends the process at once.
    pub(super) fn kill(&self) {
        // An error means that the process has ended already.
        let _ = self.child.lock().unwrap_or_else(PoisonError::into_inner).kill();
    }

    /// Asks the process to finish. By SIGTERM, since background jobs of a shell and their children ignore SIGINT.
    pub(super) fn interrupt(&self) {
        let id = self.child.lock().unwrap_or_else(PoisonError::into_inner).id();
        if let Some(id) = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw) {
            // The process was not waited for yet, so the number is not used again.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
    }

    /// Returns true if the process has ended.
    pub(super) fn has_ended(&self) -> bool {
        !matches!(self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait(), Ok(None))
    }

    /// Waits for the end of the process. Returns the document that it printed, null for none.
    ///
    /// # Errors
    /// The messages of a process that failed.
    pub(super) fn wait(&self) -> Result<serde_json::Value, String> {
        let status = loop {
            let status = self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait();
            match status {
                Ok(Some(status)) => break status,
                Ok(None) => std::thread::sleep(CHECK_INTERVAL),
                Err(error) => return Err(error.to_string()),
            }
        };
        let readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner).take();
        let [output, messages] = readers
            .map_or_else(Default::default, |readers| readers.map(|reader| reader.join().unwrap_or_default()));
        if status.success() {
            return Ok(serde_json::from_slice(&output).unwrap_or_default());
        }
        let messages = weir_units::escaped_lines(String::from_utf8_lossy(&messages).trim()).to_string();
        Err(if messages.is_empty() { format!("weir ended: {status}") } else { messages })
    }
}

impl Drop for RunProcess {
    fn drop(&mut self) {
        self.kill();
        // A process that was not waited for would stay in the process table.
        let _ = self.child.lock().unwrap_or_else(PoisonError::into_inner).wait();
    }
}

/// Reads to the end in a thread, and keeps the first bytes.
fn read(mut source: impl Read + Send + 'static, bytes_max: u64) -> io::Result<JoinHandle<Vec<u8>>> {
    std::thread::Builder::new().name("weir-ui-output".to_owned()).spawn(move || {
        let mut bytes = Vec::new();
        // An error ends the output like its end.
        let _ = source.by_ref().take(bytes_max).read_to_end(&mut bytes);
        let _ = io::copy(&mut source, &mut io::sink());
        bytes
    })
}
