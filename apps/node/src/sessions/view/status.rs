//! What views are there, for whoever asks.

use super::KeyedView;
use crate::control::protocol::ViewStatus;
use crate::sessions::node::{Node, SessionChannel};
use crate::sessions::view::SelectionKey;
use std::sync::atomic::Ordering;

impl Node {
    /// Each view by which packets are shown, with what was done for it and who reads it.
    pub(crate) fn view_shots(&self) -> Vec<ViewStatus> {
        let shared = self.selections.iter().filter_map(|(share, there)| {
            let (lens, packets) = (share.lenses().last()?, there.transformed()?);
            let is_its = |channel: &SessionChannel| {
                channel.sight.selection().is_some_and(|it| std::sync::Arc::ptr_eq(it, &there.selection))
            };
            Some(shot(there.number, &share.interface, &lens, packets, self.readers(is_its)))
        });
        let mut shots: Vec<ViewStatus> = shared.collect();
        for (name, session) in &self.sessions {
            for (module_name, module) in &session.modules {
                let Some((number, packets)) = &module.shown else { continue };
                let Some(channel) = session.channels.get(&module.spec.channel) else { continue };
                let share = SelectionKey::of(&channel.spec);
                let Some(lens) = share.lenses().last() else { continue };
                let readers = vec![format!("{name}/{module_name}")];
                let packets = packets.load(Ordering::Relaxed);
                shots.push(shot(*number, &share.interface, &lens, packets, readers));
            }
        }
        shots.sort_by_key(|shot| shot.number);
        shots
    }

    /// The modules of these channels.
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

fn shot(number: u64, interface: &str, lens: &KeyedView, packets: u64, readers: Vec<String>) -> ViewStatus {
    ViewStatus {
        number,
        interface: interface.to_owned(),
        view: lens.view.to_string(),
        of: lens.whose.map(|first| first.to_string()),
        packets,
        readers,
    }
}
