//! The limits of a check: a running node may have what it tries, and it may run as another user than the node.

use super::Remarks;
use crate::control::config::NodeConfiguration;
use crate::server::daemon::LEDGER;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use weir_admission::Name;
use weir_netio::LiveError;
use weir_os::private::{PrivateError, PrivateFolder, effective_user};

/// The standing of a check towards the node. That of a start has neither.
#[derive(Clone, Debug, Default)]
pub(crate) struct CheckContext {
    /// The node that runs with the same state folder.
    beside: Option<Name>,
    /// The user of this process, where the node's is another one.
    other: Option<u32>,
}

impl CheckContext {
    /// The standing of a check that is no start.
    pub(crate) fn of_check(config: &NodeConfiguration) -> Self {
        let user = effective_user();
        let other = Some(user).filter(|user| is_another(config, *user));
        let is_held = match weir_ledger_files::is_held(&config.node.state.join(LEDGER)) {
            Ok(is_held) => is_held,
            // The state may be closed to this user. The socket's folder often is not.
            Err(_) => weir_os::socket::check(&config.node.socket)
                .is_err_and(|error| other.is_some() && error.is_taken_by_a_server()),
        };
        Self { beside: is_held.then(|| config.node.name.clone()), other }
    }

    /// Returns true if a node runs with the same state folder.
    pub(crate) fn is_beside(&self) -> bool {
        self.beside.is_some()
    }

    /// Returns true if the node's user is another one.
    pub(crate) fn is_of_another(&self) -> bool {
        self.other.is_some()
    }

    /// The remark about something that is in use, where a running node may have it.
    pub(super) fn busy(&self, what: &str) -> Option<String> {
        let node = self.beside.as_ref()?;
        Some(format!("{what}; node `{node}` runs with this state folder, and may be what has it"))
    }

    /// The remark about something that this process has no right to, where the node may have it.
    pub(super) fn barred(&self, what: &str) -> Option<String> {
        let user = self.other?;
        Some(format!("not tried, as user {user} is not the node's and has not its rights: {what}"))
    }

    /// The remark about an error of an interface, where it tells nothing about a start.
    pub(super) fn of_live(&self, error: &LiveError) -> Option<String> {
        match error {
            LiveError::Busy { .. } => self.busy(&error.to_string()),
            LiveError::Permission { .. } => self.barred(&error.to_string()),
            _ => None,
        }
    }
}

/// Returns true if the node's user is another one than this, as far as what it has left says: its socket, or the folder of its state.
fn is_another(config: &NodeConfiguration, user: u32) -> bool {
    let socket = config.node.socket.symlink_metadata();
    if socket.is_ok_and(|known| known.file_type().is_socket() && known.uid() != user) {
        return true;
    }
    if user == 0 {
        return is_of_a_service(&config.node.state);
    }
    match PrivateFolder::look(&config.node.state) {
        Err(PrivateError::Owner { .. }) => true,
        Err(PrivateError::Io(error)) => error.kind() == ErrorKind::PermissionDenied,
        _ => false,
    }
}

/// Returns true for a link of root's to the folder of another user: a service manager makes it for a user that is there as long as the service (`DynamicUser=`).
fn is_of_a_service(state: &Path) -> bool {
    let is_link = state.symlink_metadata().is_ok_and(|known| known.is_symlink() && known.uid() == 0);
    is_link && state.metadata().is_ok_and(|known| known.uid() != 0)
}

impl Remarks {
    /// A problem, or a warning where a running node may have what is in use.
    pub(super) fn busy(&mut self, standing: &CheckContext, line: Option<usize>, what: String) {
        match standing.busy(&what) {
            Some(remark) => self.warning(line, remark),
            None => self.problem(line, what),
        }
    }

    /// A problem, or a warning where the node may have rights that this process lacks.
    pub(super) fn barred(&mut self, standing: &CheckContext, line: Option<usize>, what: String) {
        match standing.barred(&what) {
            Some(remark) => self.warning(line, remark),
            None => self.problem(line, what),
        }
    }

    /// A problem or a warning, by the kind of the system's error.
    pub(super) fn of_kind(
        &mut self,
        standing: &CheckContext,
        line: Option<usize>,
        kind: ErrorKind,
        what: String,
    ) {
        match kind {
            ErrorKind::PermissionDenied => self.barred(standing, line, what),
            ErrorKind::AddrInUse => self.busy(standing, line, what),
            _ => self.problem(line, what),
        }
    }

    /// A problem or a warning about an interface.
    pub(super) fn of_live(&mut self, standing: &CheckContext, line: Option<usize>, error: &LiveError) {
        match standing.of_live(error) {
            Some(remark) => self.warning(line, remark),
            None => self.problem(line, error.to_string()),
        }
    }
}
