//! A run over packets of a node's interface: a session of its own, within the user's rights, for some seconds.

use super::process::RunProcess;
use super::{Run, RunState};
use crate::access::random_text;
use crate::credentials;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use weir_node::client::{Client, ClientError, NodeLocation};
use weir_node::control::protocol::ControlRequest;

/// The interval at which the end of the time is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The digits of a session's name that distinguish it from others.
const NAME_DIGITS: usize = 8;

/// The parts of a run over an interface.
pub(super) struct InterfacePlan {
    pub(super) interface: String,
    /// The modules with their parameters, as a session has them.
    pub(super) modules: Vec<serde_json::Value>,
    pub(super) time: Duration,
    /// The program `weir`.
    pub(super) program: PathBuf,
    /// Options that name the node.
    pub(super) node_options: Vec<OsString>,
}

/// Starts the run in a thread.
pub(super) fn start(plan: InterfacePlan, run: Arc<Run>, node: Arc<NodeLocation>) -> io::Result<()> {
    std::thread::Builder::new()
        .name("weir-ui-run".to_owned())
        .spawn(move || {
            run.set(match execute(&plan, &run, &node) {
                Ok(()) => RunState::Done(serde_json::Value::Null),
                Err(why) => RunState::Failed(why),
            });
        })
        .map(drop)
}

/// Creates a session, follows its records for the time of the run, and closes the session.
fn execute(plan: &InterfacePlan, run: &Run, node: &NodeLocation) -> Result<(), String> {
    let session = format!("ui-{}", random_text().get(..NAME_DIGITS).unwrap_or_default());
    // A session that states no memory can ask for more than a modest credential has left.
    let left = credentials::memory_left(node).map_err(|error| error.to_string())?;
    let request = |request: serde_json::Value| -> Result<(), String> {
        let mut request: ControlRequest =
            serde_json::from_value(request).map_err(|error| error.to_string())?;
        if let (ControlRequest::Create(session), Some(left)) = (&mut request, left) {
            session.memory = session.memory.min(left);
        }
        let executed = Client::connect_to(node).and_then(|mut client| client.execute(request, &[]));
        executed.map(drop).map_err(|error: ClientError| error.to_string())
    };
    request(serde_json::json!({
        "create": { "name": session, "channel": [{ "interface": plan.interface }] }
    }))?;
    let load = |module: &serde_json::Value| {
        request(serde_json::json!({ "load": { "session": session, "module": module } }))
    };
    let followed = plan.modules.iter().try_for_each(load).and_then(|()| follow(plan, run, &session));
    let closed = request(serde_json::json!({ "close": { "session": session } }));
    followed.and(closed)
}

/// Follows the session's records into the report until the time is over or the run is ended.
fn follow(plan: &InterfacePlan, run: &Run, session: &str) -> Result<(), String> {
    let mut arguments: Vec<OsString> = vec!["follow".into(), session.into(), "--report".into()];
    arguments.push(run.report_path().into());
    arguments.extend(plan.node_options.iter().cloned());
    let (process, input) = RunProcess::start(&plan.program, &arguments).map_err(|error| error.to_string())?;
    drop(input);
    run.begin(&process);
    let begin = Instant::now();
    while begin.elapsed() < plan.time && !run.is_ended.load(Relaxed) && !process.has_ended() {
        let ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        run.progress.store(ms, Relaxed);
        std::thread::sleep(CHECK_INTERVAL);
    }
    process.interrupt();
    process.wait().map(drop)
}
