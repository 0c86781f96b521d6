//! Links and output channels on the screen of `weir top`.

use super::grid::{self, bar, count, from_width, number, plain, short, word};
use super::screen::{BAD, FAINT, GOOD, PLAIN, TITLE, WIDE, highlight_above, losses_by_cause};
use super::state::ScreenState;
use ratatui::text::Line;
use weir_node::client::rates::SessionRates;
use weir_node::control::protocol::{SessionStatus, Snapshot};

/// Returns the titles and a line for each link; empty without links.
pub fn links(state: &ScreenState, now: &Snapshot, width: usize) -> Vec<Line<'static>> {
    if now.links.is_empty() {
        return Vec::new();
    }
    let columns = [
        word("LINK", 15),
        word("STATE", 6),
        number("RATE", 6),
        number("RESERVED", 8),
        number("OF", 6),
        number("PKT/S", 6),
        number("BIT/S", 6),
        number("LOST/S", 6),
        from_width(WIDE, number("PACKETS", 10)),
        from_width(WIDE, number("LOST", 8)),
    ];
    let mut lines = vec![grid::titles(&columns, width, TITLE)];
    for (link, rates) in now.links.iter().zip(&state.rates.links) {
        let style = if link.state == "up" { GOOD } else { BAD };
        lines.push(grid::line(
            &columns,
            vec![
                (plain(&link.name), PLAIN),
                (plain(&link.state), style),
                (count(link.rate_bits), PLAIN),
                (count(link.reserved_bits), PLAIN),
                (count(link.reservable_bits), PLAIN),
                (short(rates.packets), PLAIN),
                (short(rates.bits), PLAIN),
                (short(rates.drops), highlight_above(rates.drops, 0.0, BAD)),
                (count(link.packets), FAINT),
                (count(link.lost), FAINT),
            ],
            width,
        ));
    }
    lines
}

/// Returns the titles and a line for each output channel of a session, with its rate and reservation; empty without
/// output channels.
pub fn outputs(session: &SessionStatus, rates: &SessionRates, width: usize) -> Vec<Line<'static>> {
    if session.outputs.is_empty() {
        return Vec::new();
    }
    let columns = [
        word("OUTPUT", if width >= WIDE { 24 } else { 14 }),
        word("WAITING", 10),
        number("BIT/S", 6),
        number("RSV", 6),
        number("CAP", 6),
        number("PKT/S", 6),
        number("DROP/S", 6),
        from_width(WIDE, word("LINK", 30)),
        word("LOST", width.saturating_sub(if width >= WIDE { 107 } else { 62 }).max(10)),
    ];
    let mut lines = vec![grid::titles(&columns, width, TITLE)];
    for (output, rates) in session.outputs.iter().zip(&rates.outputs) {
        #[expect(clippy::cast_precision_loss, reason = "for people to read")]
        let fill = output.waiting as f64 / output.queue.max(1) as f64;
        let rate_or_dash = |bits: u64| if bits == 0 { "-".to_owned() } else { count(bits) };
        let tap = output.tap.as_ref().map_or_else(String::new, |tap| format!(" for {}", plain(tap)));
        lines.push(grid::line(
            &columns,
            vec![
                (plain(&output.name), PLAIN),
                (bar(fill, 10), if fill > 0.9 { BAD } else { GOOD }),
                (short(rates.bits), PLAIN),
                (rate_or_dash(output.reserved_bits), PLAIN),
                (rate_or_dash(output.cap_bits), FAINT),
                (short(rates.packets), PLAIN),
                (short(rates.drops), highlight_above(rates.drops, 0.0, BAD)),
                (plain(&output.link) + &tap, FAINT),
                (losses_by_cause(&output.drops), FAINT),
            ],
            width,
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_node::control::protocol::{LinkStatus, OutputStatus};

    #[test]
    fn the_sending_rate_is_shown_beside_the_reservation() {
        let link = LinkStatus {
            name: "eth1".to_owned(),
            state: "up".to_owned(),
            rate_bits: 100_000_000,
            reserved_bits: 25_000_000,
            reservable_bits: 90_000_000,
            ..LinkStatus::default()
        };
        let output = OutputStatus {
            name: "up".to_owned(),
            link: "eth1".to_owned(),
            tap: Some("\u{1b}weir0".to_owned()),
            reserved_bits: 25_000_000,
            waiting: 128,
            queue: 256,
            drops: [("link-queue-fill".to_owned(), 9)].into(),
            ..OutputStatus::default()
        };
        let session =
            SessionStatus { name: "a".to_owned(), outputs: vec![output], ..SessionStatus::default() };
        let first =
            Snapshot { uptime_ns: 1, links: vec![link], sessions: vec![session], ..Snapshot::default() };
        let mut second = first.clone();
        second.uptime_ns += 1_000_000_000;
        (second.links[0].packets, second.links[0].bytes) = (2_000, 3_000_000);
        let sent = &mut second.sessions[0].outputs[0];
        (sent.packets, sent.wire_bytes) = (2_000, 3_125_000);
        sent.drops.insert("link-queue-fill".to_owned(), 59);
        let mut state = ScreenState::default();
        state.update(first);
        state.update(second.clone());
        let words = |lines: Vec<Line<'static>>| {
            let line = lines.get(1).map(ToString::to_string).unwrap_or_default();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(links(&state, &second, 80)), "eth1 up 100M 25M 90M 2k 24M 0");
        assert_eq!(
            words(outputs(&second.sessions[0], &state.rates.sessions[0], 80)),
            "up █████░░░░░ 25M 25M - 2k 50 59 link-queue-fill"
        );
        let wide = words(outputs(&second.sessions[0], &state.rates.sessions[0], 160));
        assert!(wide.contains("eth1 for ") && wide.chars().all(weir_units::is_plain), "{wide}");
        assert!(links(&state, &Snapshot::default(), 80).is_empty());
    }
}
