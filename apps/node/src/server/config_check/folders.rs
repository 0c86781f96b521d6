//! Checks a node's folders and files, without creating or changing any.

use super::{Remarks, Subject};
use crate::server::daemon::{DaemonError, LEDGER};
use crate::server::revocation_files;
use crate::server::state_version;
use crate::sessions::view::Secret;
use std::io::{self, ErrorKind};
use std::path::Path;
use weir_ledger_files::LedgerError;
use weir_os::may_write;
use weir_os::private::{PrivateFolder, check_makeable};
use weir_units::Escape as _;

impl Remarks {
    /// Checks the state folder and the folder of traces.
    pub(super) fn check_folders(&mut self, subject: &Subject<'_>) {
        let (node, line) = (&subject.config.node, subject.lines.node);
        let prefix = format!("[node]: `state` is {}", node.state.escaped());
        if let Some(folder) = self.check_private_folder(subject, line, &prefix, &node.state) {
            self.check_state_folder(subject, &folder);
        }
        let cpu = &subject.config.cpu;
        if let Some(path) = &cpu.trace {
            let prefix = format!("[cpu]: `trace` is {}", path.escaped());
            let Some(folder) = self.check_private_folder(subject, subject.lines.cpu, &prefix, path) else {
                return;
            };
            let cores = cpu.module_cores().into_iter().map(|core| format!("core-{core}"));
            let links = subject.config.links.iter().map(|link| format!("link-{}", link.interface));
            for name in cores.chain(links).map(|name| format!("{name}.trace")) {
                self.check_file(subject, subject.lines.cpu, &folder, &name);
            }
        }
    }

    /// Checks a private folder of the node. Returns the folder if it exists and can be used. `prefix` is the beginning of the
    /// messages.
    fn check_private_folder(
        &mut self,
        subject: &Subject<'_>,
        line: Option<usize>,
        prefix: &str,
        path: &Path,
    ) -> Option<PrivateFolder> {
        let opened = PrivateFolder::open_read_only(path);
        opened
            .map_err(|error| {
                self.add_io_error(subject.context, line, error.kind(), format!("{prefix}: {error}"))
            })
            .ok()?
    }

    /// Checks a file that the node writes in a private folder.
    fn check_file(&mut self, subject: &Subject<'_>, line: Option<usize>, folder: &PrivateFolder, name: &str) {
        match folder.open_file(name) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let what = format!("{}: {error}", folder.path().join(name).escaped());
                self.add_io_error(subject.context, line, error.kind(), what);
            }
            _ => {}
        }
    }

    /// Checks the ledger's folder, the views' secret and the stored revocations. The ledger is verified at the end of the
    /// check, as it can be long.
    fn check_state_folder(&mut self, subject: &Subject<'_>, folder: &PrivateFolder) {
        let (path, line) = (folder.path(), subject.lines.node);
        if let Err(error) = state_version::check(folder) {
            self.add_io_error(subject.context, line, error.kind(), error.to_string());
        }
        let ledger = path.join(LEDGER);
        match weir_ledger_files::is_held(&ledger) {
            Ok(true) if !subject.context.is_node_running() => {
                self.add_problem(line, LedgerError::Busy(ledger).to_string());
            }
            Ok(_) => {}
            Err(error) => {
                let kind = if let LedgerError::Folder { source, .. } = &error {
                    source.kind()
                } else {
                    ErrorKind::Other
                };
                self.add_io_error(subject.context, line, kind, error.to_string());
            }
        }
        if let Err(error) = Secret::check(folder) {
            self.add_io_error(subject.context, line, error.kind(), error.to_string());
        }
        if subject.config.remote.is_some()
            && let Err(error) = revocation_files::check(path)
        {
            let kind =
                if let DaemonError::Read { source, .. } = &error { source.kind() } else { ErrorKind::Other };
            self.add_io_error(subject.context, line, kind, error.to_string());
        }
    }

    /// Checks the folders of records. The process is confined already, as in a node, which creates these folders then.
    pub(super) fn check_record_folders(&mut self, subject: &Subject<'_>) {
        let state = &subject.config.node.state;
        // A start creates a missing state folder, and can write in the new folder.
        if !state.is_dir() {
            return;
        }
        for session in subject.config.sessions.iter().filter(|session| !session.modules.is_empty()) {
            let path = state.join(crate::sessions::writer::RECORDS).join(session.name.as_str());
            if let Err(error) = check_writable(&path) {
                let what = format!("session `{}`: {}: {error}", session.name, path.escaped());
                self.add_io_error(subject.context, subject.lines.session(&session.name), error.kind(), what);
            }
        }
    }
}

/// Checks that a folder can be written in, or can be created.
fn check_writable(path: &Path) -> io::Result<()> {
    check_makeable(path)?;
    if path.is_dir() { may_write(path) } else { Ok(()) }
}
