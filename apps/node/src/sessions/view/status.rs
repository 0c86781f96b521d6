//! The status of the views in use.

use super::KeyedView;
use crate::control::status::ViewStatus;
use crate::sessions::node::{Node, SessionChannel};
use crate::sessions::view::SelectionKey;
use std::sync::atomic::Ordering;

impl Node {
    /// Returns each view in use, with its transformed packets and its readers.
    pub(crate) fn view_statuses(&self) -> Vec<ViewStatus> {
        let of_selections = self.selections.iter().filter_map(|(key, selection)| {
            let (keyed_view, packets) = (key.keyed_views().last()?, selection.transformed()?);
            let uses_it = |channel: &SessionChannel| {
                let used = channel.visibility.selection();
                used.is_some_and(|used| std::sync::Arc::ptr_eq(used, &selection.selection))
            };
            Some(status(selection.number, &key.interface, &keyed_view, packets, self.readers(uses_it)))
        });
        let mut statuses: Vec<ViewStatus> = of_selections.collect();
        for (name, session) in &self.sessions {
            for (module_name, module) in &session.modules {
                let Some((number, packets)) = &module.own_selection else { continue };
                let Some(channel) = session.channels.get(&module.spec.channel) else { continue };
                let key = SelectionKey::for_channel(&channel.spec);
                let Some(keyed_view) = key.keyed_views().last() else { continue };
                let readers = vec![format!("{name}/{module_name}")];
                let packets = packets.load(Ordering::Relaxed);
                statuses.push(status(*number, &key.interface, &keyed_view, packets, readers));
            }
        }
        statuses.sort_by_key(|status| status.number);
        statuses
    }

    /// Returns the modules on the channels for which `uses_it` returns true, as `SESSION/MODULE`.
    fn readers(&self, uses_it: impl Fn(&SessionChannel) -> bool) -> Vec<String> {
        let mut readers = Vec::new();
        for (name, session) in &self.sessions {
            for (module_name, module) in &session.modules {
                if session.channels.get(&module.spec.channel).is_some_and(&uses_it) {
                    readers.push(format!("{name}/{module_name}"));
                }
            }
        }
        readers
    }
}

fn status(
    number: u64,
    interface: &str,
    keyed_view: &KeyedView,
    packets: u64,
    readers: Vec<String>,
) -> ViewStatus {
    ViewStatus {
        number,
        interface: interface.to_owned(),
        view: keyed_view.view.to_string(),
        owner: keyed_view.first_grant.map(|first| first.to_string()),
        packets,
        readers,
    }
}
