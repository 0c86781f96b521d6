//! Admission of a request that is only judged: nothing is reserved, and running sessions are not affected. A later request
//! can still be refused, if others take the capacity meanwhile.

use super::processors::VirtualCpuRequest;
use crate::control::link_spec::OutputSpec;
use crate::control::spec::{Change, ProcessorSpec, SessionSpec};
use crate::core_thread::runner::CoreThread;
use crate::sessions::error::NodeError;
use crate::sessions::link::IncomingOutput;
use crate::sessions::node::{Node, SessionState};
use weir_session::ReservationError;
use weir_units::Nanos;

impl Node {
    /// Checks that a change of a session would be accepted now.
    ///
    /// # Errors
    ///
    /// The reason for which the change would be refused.
    pub(crate) fn check_change(&self, change: &Change) -> Result<(), NodeError> {
        let (state, _, spec) = self.changed_session(change)?;
        let memory = state.memory.check_change(spec.memory);
        memory.map_err(|error| NodeError::of_memory(&spec.name, error))?;
        self.check_processors(&change.processors, Some(state))?;
        self.check_outputs(&change.outputs, &spec, Some(state))
    }

    /// Checks that a new session would be accepted now.
    ///
    /// # Errors
    ///
    /// The reason for which the session would be refused.
    pub(crate) fn check_new_session(&self, spec: &SessionSpec) -> Result<(), NodeError> {
        if self.sessions.contains_key(&spec.name) {
            return Err(NodeError::Exists(spec.name.clone()));
        }
        if self.sessions.len() >= crate::control::config::SESSIONS_MAX {
            return Err(NodeError::TooMany(self.sessions.len()));
        }
        let left = self.memory.left();
        if spec.memory > left {
            let error = ReservationError::Left { wanted: spec.memory, left };
            return Err(NodeError::of_memory(&spec.name, error));
        }
        self.check_processors(&spec.all_processors(), None)?;
        self.check_outputs(&spec.outputs, spec, None)
    }

    /// Checks that cores have capacity for virtual CPUs. A present virtual CPU stays on its core, as in a real change.
    fn check_processors(
        &self,
        processors: &[ProcessorSpec],
        session: Option<&SessionState>,
    ) -> Result<(), NodeError> {
        let mut requests = Vec::new();
        for spec in processors {
            let kept = session.and_then(|session| session.vps.get(&spec.name)).cloned();
            let number = kept.as_ref().and_then(|vp| self.cores.get(vp.core)).map(CoreThread::number);
            if number.is_some() && spec.core.is_some_and(|core| Some(core) != number) {
                return Err(self.no_core(spec));
            }
            let overrun = kept.as_ref().map_or(Nanos(0), |vp| self.overrun(vp));
            let spec = ProcessorSpec { core: number.or(spec.core), ..spec.clone() };
            // There is one session.
            requests.push(VirtualCpuRequest { session_index: 0, spec, kept, overrun });
        }
        self.place_all(&requests, &[], false).map(drop).map_err(|(_, error)| error)
    }

    /// Checks that links have capacity for output channels, which replace the present ones of their names.
    fn check_outputs(
        &self,
        outputs: &[OutputSpec],
        spec: &SessionSpec,
        session: Option<&SessionState>,
    ) -> Result<(), NodeError> {
        let present = |output: &OutputSpec| session.and_then(|session| session.outputs.get(&output.name));
        let given_up: Vec<_> = outputs.iter().filter_map(present).map(|output| output.released()).collect();
        let entering: Vec<_> =
            outputs.iter().map(|output| IncomingOutput { session: &spec.name, spec: output }).collect();
        self.check_bandwidth(&[], &given_up, &entering).map_err(|(_, error)| error)
    }
}
