//! The context of a check: a node may already run and use the checked resources, and may run as another user.

use super::Remarks;
use crate::control::config::NodeConfiguration;
use crate::server::daemon::LEDGER;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use weir_admission::Name;
use weir_netio::LiveError;
use weir_os::private::{PrivateError, PrivateFolder, effective_user};

/// The relation of a check to the node. In a start both fields are `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct CheckContext {
    /// The name of a node that runs with the same state folder.
    running_node: Option<Name>,
    /// The user of this process, if the node runs as another user.
    other_user: Option<u32>,
}

impl CheckContext {
    /// Determines the context of `weir config check`, which is no part of a start.
    pub(crate) fn for_check_alone(config: &NodeConfiguration) -> Self {
        let user = effective_user();
        let other_user = Some(user).filter(|user| node_has_other_user(config, *user));
        let is_running = match weir_ledger_files::is_held(&config.node.state.join(LEDGER)) {
            Ok(is_running) => is_running,
            // This user may not be allowed to read the state folder. The socket's folder is often readable.
            Err(_) => weir_os::socket::check(&config.node.socket)
                .is_err_and(|error| other_user.is_some() && error.is_taken_by_a_server()),
        };
        Self { running_node: is_running.then(|| config.node.name.clone()), other_user }
    }

    /// Returns true if a node runs with the same state folder.
    pub(crate) fn is_node_running(&self) -> bool {
        self.running_node.is_some()
    }

    /// Returns true if the node runs as another user than this process.
    pub(crate) fn is_other_user(&self) -> bool {
        self.other_user.is_some()
    }

    /// Returns the warning about a resource that is in use, if a running node may be using it.
    pub(super) fn busy_warning(&self, what: &str) -> Option<String> {
        let node = self.running_node.as_ref()?;
        Some(format!("{what}; node `{node}` runs with this state folder, and may be using this resource"))
    }

    /// Returns the warning about a resource to which this process has no right, if the node may have that right.
    pub(super) fn permission_warning(&self, what: &str) -> Option<String> {
        let user = self.other_user?;
        Some(format!("not checked, as user {user} is not the node's user and lacks its rights: {what}"))
    }

    /// Returns the warning about an error of an interface that may not occur in a start, or `None` if the error is a
    /// problem.
    pub(super) fn interface_warning(&self, error: &LiveError) -> Option<String> {
        match error {
            LiveError::Busy { .. } => self.busy_warning(&error.to_string()),
            LiveError::Permission { .. } => self.permission_warning(&error.to_string()),
            _ => None,
        }
    }
}

/// Returns true if the node runs as another user than `user`, judged by the owner of its socket or state folder.
fn node_has_other_user(config: &NodeConfiguration, user: u32) -> bool {
    let socket = config.node.socket.symlink_metadata();
    if socket.is_ok_and(|known| known.file_type().is_socket() && known.uid() != user) {
        return true;
    }
    if user == 0 {
        return is_dynamic_user_link(&config.node.state);
    }
    match PrivateFolder::open_read_only(&config.node.state) {
        Err(PrivateError::Owner { .. }) => true,
        Err(PrivateError::Io(error)) => error.kind() == ErrorKind::PermissionDenied,
        _ => false,
    }
}

/// Returns true for a symbolic link of root to another user's folder, which systemd creates for a service with
/// `DynamicUser=`.
fn is_dynamic_user_link(state: &Path) -> bool {
    let is_link = state.symlink_metadata().is_ok_and(|known| known.is_symlink() && known.uid() == 0);
    is_link && state.metadata().is_ok_and(|known| known.uid() != 0)
}

impl Remarks {
    /// Adds a problem, or a warning if a running node may use the resource.
    pub(super) fn add_busy(&mut self, context: &CheckContext, line: Option<usize>, what: String) {
        match context.busy_warning(&what) {
            Some(remark) => self.add_warning(line, remark),
            None => self.add_problem(line, what),
        }
    }

    /// Adds a problem, or a warning if the node may have rights that this process lacks.
    pub(super) fn add_permission_error(&mut self, context: &CheckContext, line: Option<usize>, what: String) {
        match context.permission_warning(&what) {
            Some(remark) => self.add_warning(line, remark),
            None => self.add_problem(line, what),
        }
    }

    /// Adds a problem or a warning, by the kind of the system's error.
    pub(super) fn add_io_error(
        &mut self,
        context: &CheckContext,
        line: Option<usize>,
        kind: ErrorKind,
        what: String,
    ) {
        match kind {
            ErrorKind::PermissionDenied => self.add_permission_error(context, line, what),
            ErrorKind::AddrInUse => self.add_busy(context, line, what),
            _ => self.add_problem(line, what),
        }
    }

    /// Adds a problem or a warning about an interface.
    pub(super) fn add_interface_error(
        &mut self,
        context: &CheckContext,
        line: Option<usize>,
        error: &LiveError,
    ) {
        match context.interface_warning(error) {
            Some(remark) => self.add_warning(line, remark),
            None => self.add_problem(line, error.to_string()),
        }
    }
}
