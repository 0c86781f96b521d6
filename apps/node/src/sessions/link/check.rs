//! Check of a configuration's output channels against its links, without opening an interface. It serves the check of a
//! configuration (`server::config_check`).

use super::OutputError;
use super::UnknownLink;
use super::outputs::{compile_filter, reserve_queue_memory};
use crate::control::link_spec::{LinkConfig, OutputSpec};
use crate::sessions::error::NodeError;
use crate::sessions::filters::CompiledFilters;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_datapath::egress::LinkError;
use weir_sched::link::LinkScheduler;
use weir_units::Nanos;
use weir_wire::LinkType;
use {
    weir_admission::Name,
    weir_session::{HeldMemory, MemoryReservation},
};

/// A link with its scheduler.
struct CheckedLink {
    config: LinkConfig,
    link_type: LinkType,
    link: LinkScheduler<()>,
}

/// The links of a configuration that are valid, with the output channels that were checked so far.
#[derive(Default)]
pub(crate) struct LinkCheck(BTreeMap<String, CheckedLink>);

impl LinkCheck {
    /// Adds a link whose interface has this link type.
    pub(crate) fn add(&mut self, config: &LinkConfig, link_type: LinkType) -> Result<(), LinkError> {
        let failed = |error| LinkError::Config { interface: config.interface.clone(), error };
        let link = LinkScheduler::new(config.scheduled()).map_err(failed)?;
        let (name, config) = (config.interface.clone(), config.clone());
        self.0.insert(name, CheckedLink { config, link_type, link });
        Ok(())
    }

    /// Checks an output channel as a node does, and reserves its bandwidth. Returns the memory that it takes from the
    /// session.
    pub(crate) fn open(
        &mut self,
        spec: &OutputSpec,
        session: &Name,
        memory: &Arc<MemoryReservation>,
        compiled: &CompiledFilters,
    ) -> Result<HeldMemory, NodeError> {
        let failed = |error: OutputError| NodeError::Output { output: spec.name.clone(), error };
        let known = self.0.keys().cloned().collect();
        let Some(CheckedLink { config, link_type, link }) = self.0.get_mut(&spec.link) else {
            return Err(failed(UnknownLink { given: spec.link.clone(), known }.into()));
        };
        compile_filter(spec, *link_type, compiled).map_err(failed)?;
        if spec.tap.is_some() && *link_type != LinkType::Ethernet {
            let (link, link_type) = (spec.link.clone(), *link_type);
            return Err(failed(OutputError::TapType { link, link_type }));
        }
        let held = reserve_queue_memory(memory, session, spec.memory(config))?;
        let terms = spec.terms(link.config());
        let refused = |refused| OutputError::Refused { link: spec.link.clone(), refused };
        link.open(terms, Nanos(0)).map_err(|error| failed(refused(error)))?;
        Ok(held)
    }
}
