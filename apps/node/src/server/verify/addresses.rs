//! The addresses of a node: its socket, and those of `metrics` and `[remote]`.

use super::{Remarks, Subject};
use std::net::{SocketAddr, TcpListener};
use weir_units::Shown as _;

impl Remarks {
    /// Tries the addresses, and the file of the node's key. What is bound is bound for the time of the check alone.
    pub(super) fn addresses(&mut self, subject: &Subject<'_>) {
        let (node, line) = (&subject.config.node, subject.places.node);
        if let Err(error) = weir_os::socket::check(&node.socket) {
            let what = format!("[node]: `socket` is {}: {error}", node.socket.shown());
            match () {
                () if error.is_taken_by_a_server() => self.busy(subject.standing, line, what),
                () if error.is_of_rights() => self.barred(subject.standing, line, what),
                () => self.problem(line, what),
            }
        }
        // All at a time, as in a start: two of them may be the same.
        let metrics = node.metrics.map(|address| self.bound(subject, line, "metrics", address));
        let Some(remote) = &subject.config.remote else { return };
        let listens = self.bound(subject, None, "[remote]", remote.listen);
        drop((metrics, listens));
        // The key itself is read only by the process that keeps it.
        let key = crate::server::daemon::beside(subject.path, &remote.key);
        if let Err(error) = weir_os::private::open_secret(&key) {
            let what = format!("[remote]: {}: {error}", key.shown());
            self.of_kind(subject.standing, None, error.kind(), what);
        }
    }

    fn bound(
        &mut self,
        subject: &Subject<'_>,
        line: Option<usize>,
        of: &str,
        address: SocketAddr,
    ) -> Option<TcpListener> {
        let bound = TcpListener::bind(address);
        let failed = |error: std::io::Error| {
            self.of_kind(subject.standing, line, error.kind(), format!("{of}: {address}: {error}"));
        };
        bound.map_err(failed).ok()
    }
}
