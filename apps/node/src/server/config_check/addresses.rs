//! Checks the addresses of a node: its local socket, `metrics` and `[remote]`.

use super::{Remarks, Subject};
use std::net::{SocketAddr, TcpListener};
use weir_units::Escape as _;

impl Remarks {
    /// Checks that the addresses can be bound, for a moment, and that the file of the node's key can be read.
    pub(super) fn check_addresses(&mut self, subject: &Subject<'_>) {
        let (node, line) = (&subject.config.node, subject.lines.node);
        if let Err(error) = weir_os::socket::check(&node.socket) {
            let what = format!("[node]: `socket` is {}: {error}", node.socket.escaped());
            match () {
                () if error.is_taken_by_a_server() => self.add_busy(subject.context, line, what),
                () if error.is_permission_denied() => self.add_permission_error(subject.context, line, what),
                () => self.add_problem(line, what),
            }
        }
        // Both addresses are bound at the same time, so that an error is found if they are equal.
        let metrics_listener = node.metrics.map(|address| self.bind(subject, line, "metrics", address));
        let Some(remote) = &subject.config.remote else { return };
        let remote_listener = self.bind(subject, None, "[remote]", remote.listen);
        drop((metrics_listener, remote_listener));
        // The file of the key is opened and not read: only the key agent reads the key.
        let key = crate::server::daemon::resolve_path(subject.path, &remote.key);
        if let Err(error) = weir_os::private::open_secret(&key) {
            let what = format!("[remote]: {}: {error}", key.escaped());
            self.add_io_error(subject.context, None, error.kind(), what);
        }
    }

    /// Binds an address. `section` names its place in the configuration.
    fn bind(
        &mut self,
        subject: &Subject<'_>,
        line: Option<usize>,
        section: &str,
        address: SocketAddr,
    ) -> Option<TcpListener> {
        let bound = TcpListener::bind(address);
        let failed = |error: std::io::Error| {
            self.add_io_error(subject.context, line, error.kind(), format!("{section}: {address}: {error}"));
        };
        bound.map_err(failed).ok()
    }
}
