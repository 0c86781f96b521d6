//! Checks the addresses of a node: its local socket, `metrics` and `[remote]`.

use super::{Remarks, Subject};
use std::net::{SocketAddr, TcpListener};
use weir_units::Shown as _;

impl Remarks {
    /// Checks that the addresses can be bound, for a moment, and that the file of the node's key can be read.
    pub(super) fn addresses(&mut self, subject: &Subject<'_>) {
        let (node, line) = (&subject.config.node, subject.lines.node);
        if let Err(error) = weir_os::socket::check(&node.socket) {
            let what = format!("[node]: `socket` is {}: {error}", node.socket.shown());
            match () {
                () if error.is_taken_by_a_server() => self.busy(subject.context, line, what),
                () if error.is_permission_denied() => self.permission(subject.context, line, what),
                () => self.problem(line, what),
            }
        }
        // Both addresses are bound at the same time, so that an error is found if they are equal.
        let metrics = node.metrics.map(|address| self.bind(subject, line, "metrics", address));
        let Some(remote) = &subject.config.remote else { return };
        let listens = self.bind(subject, None, "[remote]", remote.listen);
        drop((metrics, listens));
        // The key is only opened: the key agent alone reads it.
        let key = crate::server::daemon::resolve_path(subject.path, &remote.key);
        if let Err(error) = weir_os::private::open_secret(&key) {
            let what = format!("[remote]: {}: {error}", key.shown());
            self.io_error(subject.context, None, error.kind(), what);
        }
    }

    fn bind(
        &mut self,
        subject: &Subject<'_>,
        line: Option<usize>,
        of: &str,
        address: SocketAddr,
    ) -> Option<TcpListener> {
        let bound = TcpListener::bind(address);
        let failed = |error: std::io::Error| {
            self.io_error(subject.context, line, error.kind(), format!("{of}: {address}: {error}"));
        };
        bound.map_err(failed).ok()
    }
}
