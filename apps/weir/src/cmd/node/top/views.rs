//! Views on the screen of `weir top`: their packets and readers.

use super::grid::{self, count, from_width, number, plain, short, word};
use super::screen::{FAINT, PLAIN, TITLE, WIDE};
use super::state::ScreenState;
use ratatui::text::Line;
use weir_node::control::protocol::Snapshot;

/// Returns the titles and a line for each view; empty without views.
pub fn views(state: &ScreenState, now: &Snapshot, width: usize) -> Vec<Line<'static>> {
    if now.views.is_empty() {
        return Vec::new();
    }
    let columns = [
        word("VIEW ON", 15),
        number("PKT/S", 6),
        number("READERS", 7),
        from_width(WIDE, number("PACKETS", 10)),
        from_width(WIDE, word("OF", 20)),
        word("SHOWS", width.saturating_sub(if width >= WIDE { 68 } else { 34 }).max(10)),
    ];
    let mut lines = vec![grid::titles(&columns, width, TITLE)];
    for (view, rate) in now.views.iter().zip(&state.rates.views) {
        lines.push(grid::line(
            &columns,
            vec![
                (plain(&view.interface), PLAIN),
                (short(*rate), PLAIN),
                (view.readers.len().to_string(), PLAIN),
                (count(view.packets), FAINT),
                (plain(view.owner.as_deref().unwrap_or("operator")), FAINT),
                (plain(&view.view), PLAIN),
            ],
            width,
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_node::control::protocol::ViewStatus;

    #[test]
    fn a_view_is_shown_with_the_number_of_readers() {
        let view = ViewStatus {
            number: 2,
            interface: "eth0\u{1b}".to_owned(),
            view: "payload=none".to_owned(),
            owner: Some("weir-id:abc".to_owned()),
            packets: 1_500,
            readers: vec!["a/rtt".to_owned(), "b/rtt".to_owned()],
        };
        let first = Snapshot { uptime_ns: 1, views: vec![view], ..Snapshot::default() };
        let mut second = first.clone();
        second.uptime_ns += 1_000_000_000;
        second.views[0].packets += 500;
        let mut state = ScreenState::default();
        state.update(first);
        state.update(second.clone());
        let words = |width| {
            let line = views(&state, &second, width).get(1).map(ToString::to_string).unwrap_or_default();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert!(words(80).starts_with("eth0") && words(80).ends_with("500 2 payload=none"), "{}", words(80));
        assert!(words(160).ends_with("500 2 2k weir-id:abc payload=none"), "{}", words(160));
        assert!(words(160).chars().all(weir_units::is_plain));
        assert!(views(&state, &Snapshot::default(), 80).is_empty());
    }
}
