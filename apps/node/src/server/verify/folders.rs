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
use weir_units::Shown as _;

impl Remarks {
    /// Checks the state folder and the folder of traces.
    pub(super) fn folders(&mut self, subject: &Subject<'_>) {
        let (node, line) = (&subject.config.node, subject.lines.node);
        let at = format!("[node]: `state` is {}", node.state.shown());
        if let Some(folder) = self.folder(subject, line, &at, &node.state) {
            self.state(subject, &folder);
        }
        let cpu = &subject.config.cpu;
        if let Some(path) = &cpu.trace {
            let at = format!("[cpu]: `trace` is {}", path.shown());
            let Some(folder) = self.folder(subject, subject.lines.cpu, &at, path) else { return };
            let cores = cpu.module_cores().into_iter().map(|core| format!("core-{core}"));
            let links = subject.config.links.iter().map(|link| format!("link-{}", link.interface));
            for name in cores.chain(links).map(|name| format!("{name}.trace")) {
                self.file(subject, subject.lines.cpu, &folder, &name);
            }
        }
    }

    /// Checks a private folder of the node. Returns it if it exists and can be used.
    fn folder(
        &mut self,
        subject: &Subject<'_>,
        line: Option<usize>,
        at: &str,
        path: &Path,
    ) -> Option<PrivateFolder> {
        let looked = PrivateFolder::open_read_only(path);
        looked
            .map_err(|error| self.io_error(subject.context, line, error.kind(), format!("{at}: {error}")))
            .ok()?
    }

    /// Checks a file that the node writes in a private folder.
    fn file(&mut self, subject: &Subject<'_>, line: Option<usize>, folder: &PrivateFolder, name: &str) {
        match folder.open_file(name) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let what = format!("{}: {error}", folder.path().join(name).shown());
                self.io_error(subject.context, line, error.kind(), what);
            }
            _ => {}
        }
    }

    /// Checks the ledger's folder, the views' secret and the stored revocations. The ledger is verified at the end of the
    /// check, as it can be long.
    fn state(&mut self, subject: &Subject<'_>, folder: &PrivateFolder) {
        let (path, line) = (folder.path(), subject.lines.node);
        if let Err(error) = state_version::check(folder) {
            self.io_error(subject.context, line, error.kind(), error.to_string());
        }
        let ledger = path.join(LEDGER);
        match weir_ledger_files::is_held(&ledger) {
            Ok(true) if !subject.context.is_node_running() => {
                self.problem(line, LedgerError::Busy(ledger).to_string());
            }
            Ok(_) => {}
            Err(error) => {
                let kind = if let LedgerError::Folder { source, .. } = &error {
                    source.kind()
                } else {
                    ErrorKind::Other
                };
                self.io_error(subject.context, line, kind, error.to_string());
            }
        }
        if let Err(error) = Secret::check(folder) {
            self.io_error(subject.context, line, error.kind(), error.to_string());
        }
        if subject.config.remote.is_some()
            && let Err(error) = revocation_files::check(path)
        {
            let kind =
                if let DaemonError::Read { source, .. } = &error { source.kind() } else { ErrorKind::Other };
            self.io_error(subject.context, line, kind, error.to_string());
        }
    }

    /// Checks the folders of records, with the rights of the confined process, which creates them in a node.
    pub(super) fn records(&mut self, subject: &Subject<'_>) {
        let state = &subject.config.node.state;
        // A start creates a missing state folder, and then can write in it.
        if !state.is_dir() {
            return;
        }
        for session in subject.config.sessions.iter().filter(|session| !session.modules.is_empty()) {
            let path = state.join(crate::sessions::writer::RECORDS).join(session.name.as_str());
            if let Err(error) = writable(&path) {
                let what = format!("session `{}`: {}: {error}", session.name, path.shown());
                self.io_error(subject.context, subject.lines.session(&session.name), error.kind(), what);
            }
        }
    }
}

/// Checks that a folder can be written in, or can be created.
fn writable(path: &Path) -> io::Result<()> {
    check_makeable(path)?;
    if path.is_dir() { may_write(path) } else { Ok(()) }
}
