//! Status of views.

use super::KeyedView;
use crate::control::status::ViewStatus;
use crate::sessions::node::{Node, SessionChannel};
use crate::sessions::view::SelectionKey;
use std::sync::atomic::Ordering;

impl Node {
    /// Returns each view in use, with its transformed packets and its readers.
    pub(crate) fn view_statuses(&self) -> Vec<ViewStatus> {
        let shared = self.selections.iter().filter_map(|(share, there)| {
            let (view_key, packets) = (share.keyed_views().last()?, there.transformed()?);
            let is_its = |channel: &SessionChannel| {
                channel.visibility.selection().is_some_and(|it| std::sync::Arc::ptr_eq(it, &there.selection))
            };
            Some(status(there.number, &share.interface, &view_key, packets, self.readers(is_its)))
        });
        let mut statuses: Vec<ViewStatus> = shared.collect();
        for (name, session) in &self.sessions {
            for (module_name, module) in &session.modules {
                let Some((number, packets)) = &module.shown else { continue };
                let Some(channel) = session.channels.get(&module.spec.channel) else { continue };
                let share = SelectionKey::for_channel(&channel.spec);
                let Some(view_key) = share.keyed_views().last() else { continue };
                let readers = vec![format!("{name}/{module_name}")];
                let packets = packets.load(Ordering::Relaxed);
                statuses.push(status(*number, &share.interface, &view_key, packets, readers));
            }
        }
        statuses.sort_by_key(|status| status.number);
        statuses
    }

    /// Returns the modules of the channels that fulfil a condition.
    fn readers(&self, is_its: impl Fn(&SessionChannel) -> bool) -> Vec<String> {
        let mut readers = Vec::new();
        for (name, session) in &self.sessions {
            for (module_name, module) in &session.modules {
                if session.channels.get(&module.spec.channel).is_some_and(&is_its) {
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
    view_key: &KeyedView,
    packets: u64,
    readers: Vec<String>,
) -> ViewStatus {
    ViewStatus {
        number,
        interface: interface.to_owned(),
        view: view_key.view.to_string(),
        owner: view_key.whose.map(|first| first.to_string()),
        packets,
        readers,
    }
}
