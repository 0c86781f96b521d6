//! The folders of a node and the files in them, looked at as a start opens them. None is made or changed.

use super::{Remarks, Subject};
use crate::server::daemon::{DaemonError, LEDGER};
use crate::server::revoked;
use crate::sessions::view::Secret;
use std::io::{self, ErrorKind};
use std::path::Path;
use weir_ledger_files::LedgerError;
use weir_os::may_write;
use weir_os::private::{PrivateFolder, check_makeable};
use weir_units::Shown as _;

impl Remarks {
    /// Looks at the state folder and that of traces.
    pub(super) fn folders(&mut self, subject: &Subject<'_>) {
        let (node, line) = (&subject.config.node, subject.places.node);
        let at = format!("[node]: `state` is {}", node.state.shown());
        if let Some(folder) = self.folder(subject, line, &at, &node.state) {
            self.state(subject, &folder);
        }
        let cpu = &subject.config.cpu;
        if let Some(path) = &cpu.trace {
            let at = format!("[cpu]: `trace` is {}", path.shown());
            let Some(folder) = self.folder(subject, subject.places.cpu, &at, path) else { return };
            let cores = cpu.module_cores().into_iter().map(|core| format!("core-{core}"));
            let links = subject.config.links.iter().map(|link| format!("link-{}", link.interface));
            for name in cores.chain(links).map(|name| format!("{name}.trace")) {
                self.file(subject, subject.places.cpu, &folder, &name);
            }
        }
    }

    /// Looks at a folder of the node's own. Returns it if it is there and can be used.
    fn folder(
        &mut self,
        subject: &Subject<'_>,
        line: Option<usize>,
        at: &str,
        path: &Path,
    ) -> Option<PrivateFolder> {
        let looked = PrivateFolder::look(path);
        looked
            .map_err(|error| self.of_kind(subject.standing, line, error.kind(), format!("{at}: {error}")))
            .ok()?
    }

    /// Looks at a file that the node writes in such a folder.
    fn file(&mut self, subject: &Subject<'_>, line: Option<usize>, folder: &PrivateFolder, name: &str) {
        match folder.open_file(name) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let what = format!("{}: {error}", folder.path().join(name).shown());
                self.of_kind(subject.standing, line, error.kind(), what);
            }
            _ => {}
        }
    }

    /// Looks at the ledger's folder, the views' secret and the kept revocations. The ledger itself is read at the end of a check, as it can be long.
    fn state(&mut self, subject: &Subject<'_>, folder: &PrivateFolder) {
        let (path, line) = (folder.path(), subject.places.node);
        let ledger = path.join(LEDGER);
        match weir_ledger_files::is_held(&ledger) {
            Ok(true) if !subject.standing.is_beside() => {
                self.problem(line, LedgerError::Busy(ledger).to_string());
            }
            Ok(_) => {}
            Err(error) => {
                let kind = if let LedgerError::Folder { source, .. } = &error {
                    source.kind()
                } else {
                    ErrorKind::Other
                };
                self.of_kind(subject.standing, line, kind, error.to_string());
            }
        }
        if let Err(error) = Secret::look(folder) {
            self.of_kind(subject.standing, line, error.kind(), error.to_string());
        }
        if subject.config.remote.is_some()
            && let Err(error) = revoked::look(path)
        {
            let kind =
                if let DaemonError::Read { source, .. } = &error { source.kind() } else { ErrorKind::Other };
            self.of_kind(subject.standing, line, kind, error.to_string());
        }
    }

    /// Looks at the folders of records, by the rights that a node has left when it makes them.
    pub(super) fn records(&mut self, subject: &Subject<'_>) {
        let state = &subject.config.node.state;
        // A start makes a state folder that is missing, and then may write in it.
        if !state.is_dir() {
            return;
        }
        for session in subject.config.sessions.iter().filter(|session| !session.modules.is_empty()) {
            let path = state.join(crate::sessions::writer::RECORDS).join(session.name.as_str());
            if let Err(error) = writable(&path) {
                let what = format!("session `{}`: {}: {error}", session.name, path.shown());
                self.of_kind(subject.standing, subject.places.session(&session.name), error.kind(), what);
            }
        }
    }
}

/// Checks that a folder is there and can be written in, or can be made.
fn writable(path: &Path) -> io::Result<()> {
    check_makeable(path)?;
    if path.is_dir() { may_write(path) } else { Ok(()) }
}
