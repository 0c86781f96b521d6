//! Arbitrary bytes as a connection to the server of a node's page: the HTTP parser, the checks of each request, and the
//! messages. Shared by the fuzz target `page` and a test with fixed seeds.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use weir_http::{HttpRequest, HttpResponse, Limits, answer_to_bytes};
use weir_node::client::NodeLocation;
use weir_ui::route::PageRoute;
use weir_ui::{Ui, UiOptions, server};

const HOST: &str = "127.0.0.1:7380";
const LIMITS: Limits = Limits {
    connections: 1,
    head_bytes: 8 << 10,
    head_time: std::time::Duration::from_millis(50),
    connection_time: Some(std::time::Duration::from_millis(200)),
};

static PAGE: LazyLock<Arc<Ui>> = LazyLock::new(|| {
    let options = UiOptions {
        // A folder that does not exist: a request that reaches the node would fail with status 502.
        node: NodeLocation::Local(PathBuf::from("/nonexistent/node.sock")),
        node_text: "none".to_owned(),
        node_options: Vec::new(),
        port: 0,
        is_read_only: false,
        program: PathBuf::from("/nonexistent/weir"),
        revocation_list: None,
        modules: Vec::new(),
    };
    Arc::new(Ui::new(options, HOST.to_owned()))
});

/// Sends the bytes as they are, and as the rest of a request of an own page.
///
/// # Panics
/// A response is a failure of the server, or lacks the page's security headers.
pub fn exercise(bytes: &[u8]) {
    // The parts of a target, as text.
    if let Ok(text) = std::str::from_utf8(bytes) {
        let mut parts = text.splitn(3, ' ');
        let [method, path, query] = [(); 3].map(|()| parts.next().unwrap_or_default());
        let _ = PageRoute::parse(method, path, query);
    }
    let answer = |request: HttpRequest| -> HttpResponse { server::answer(&PAGE, request) };
    let handler = Arc::new(answer);
    let own = [format!("POST /api/open HTTP/1.1\r\nHost: {HOST}\r\n").as_bytes(), bytes].concat();
    for sent in [bytes, &own] {
        let said = answer_to_bytes(sent, LIMITS, &handler);
        let said = String::from_utf8_lossy(&said);
        for status in ["500", "502"] {
            assert!(!said.starts_with(&format!("HTTP/1.1 {status}")), "{said}");
        }
        // The HTTP parser refuses malformed heads by itself, without a body of the page.
        if said.contains("content-type: application/json") || said.contains("content-type: text/html") {
            assert!(said.contains("content-security-policy: "), "{said}");
        }
    }
}
