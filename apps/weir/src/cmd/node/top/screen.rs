//! Builds the lines of `weir top`: a screen for a terminal, or plain text for scripts.

use super::grid::{self, Cell, bar, bytes, count, cut, from_width, number, percent, plain, short, word};
use super::outputs;
use super::state::{ScreenState, Sort};
use super::views;
use crate::cmd::node::{findings, show};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use weir_abi::finding::Severity;
use weir_node::client::rates::{Rate, SessionRates};
use weir_node::control::protocol::{SessionStatus, Snapshot};
use weir_units::{Bytes, Nanos};

pub(super) const PLAIN: Style = Style::new();
pub(super) const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const TITLE: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
pub(super) const GOOD: Style = Style::new().fg(Color::Green);
const WARM: Style = Style::new().fg(Color::Yellow);
pub(super) const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// The smallest screen width, in columns, on which all columns are shown.
pub(super) const WIDE: usize = 110;
/// Minimum width of the layout, in columns. A narrower screen cuts the lines off.
const NARROW: usize = 40;

/// Returns the screen: at most `height` lines of `width` columns.
pub fn screen(state: &ScreenState, width: usize, height: usize) -> Vec<Line<'static>> {
    let width = width.max(NARROW);
    let mut lines = vec![header(state, width)];
    let footer = footer(state);
    let lines_max = height.saturating_sub(2);
    let body = match &state.now {
        _ if state.shows_help => help(),
        None => vec![Line::raw(""), Line::styled(" waiting for the node …", FAINT)],
        Some(now) if state.is_single => single_session(state, now, width, lines_max),
        Some(now) => overview(state, now, width, lines_max),
    };
    lines.extend(clipped(body, lines_max));
    lines.resize(height.saturating_sub(1), Line::raw(""));
    lines.push(footer);
    lines.truncate(height);
    lines
}

/// Returns everything as plain text for scripts: every session with its parts, without a limit on lines.
pub fn plain_text(state: &ScreenState, width: usize) -> String {
    let Some(now) = &state.now else { return String::new() };
    let mut lines = vec![header(state, width)];
    lines.extend(cores(state, now, width));
    lines.extend(interfaces(state, now, width));
    lines.extend(outputs::links(state, now, width));
    lines.extend(views::views(state, now, width));
    lines.push(Line::raw(""));
    lines.extend(sessions(state, width, usize::MAX, false));
    for (session, rates) in state.order() {
        lines.push(Line::raw(""));
        lines.push(Line::styled(format!(" {}", plain(&session.name)), STRONG));
        lines.extend(session_parts(session, rates, width));
    }
    lines.iter().map(|line| line.to_string().trim_end().to_owned() + "\n").collect()
}

/// Returns at most `lines_max` of the lines. If lines are hidden, the last returned line states their number.
fn clipped(mut lines: Vec<Line<'static>>, lines_max: usize) -> Vec<Line<'static>> {
    if lines.len() > lines_max && lines_max > 0 {
        let more = lines.len() + 1 - lines_max;
        lines.truncate(lines_max - 1);
        lines.push(Line::styled(format!(" … {more} more lines"), FAINT));
    }
    lines
}

fn header(state: &ScreenState, width: usize) -> Line<'static> {
    let Some(now) = &state.now else {
        return Line::from(vec![Span::styled(" weir top", STRONG)]);
    };
    let memory = format!("memory {}/{}", bytes(now.memory.reserved), bytes(now.memory.reservable));
    let mut spans = vec![
        Span::styled(format!(" {}", cut(&plain(&now.node), 24)), STRONG),
        Span::raw(format!("  weir {}  up {}  ", cut(&plain(&now.version), 16), uptime(now.uptime_ns))),
    ];
    // A node sends the state of its cores to operators only, because their load reveals the activity of other sessions.
    if !now.cores.is_empty() {
        spans.push(Span::raw(format!("load {} of {}  ", load(state), core_count(now.cores.len()))));
    }
    spans.push(Span::raw(memory));
    if state.is_paused {
        spans.push(Span::styled("  paused", WARM));
    }
    if width >= WIDE {
        let sessions = now.sessions.len();
        spans.push(Span::styled(format!("  {sessions} sessions, {} modules", module_count(now)), FAINT));
    }
    Line::from(spans)
}

fn module_count(now: &Snapshot) -> usize {
    now.sessions.iter().map(|session| session.modules.len()).sum()
}

fn core_count(cores: usize) -> String {
    if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") }
}

/// Formats the load, as a number of busy cores; a dash if a rate is unknown.
fn load(state: &ScreenState) -> String {
    let busy: Option<f64> = state.rates.cores.iter().map(|core| Some(core.busy? + core.overhead?)).sum();
    busy.filter(|_| !state.rates.cores.is_empty()).map_or("-".to_owned(), |busy| format!("{busy:.2}"))
}

fn uptime(nanos: u64) -> String {
    let seconds = nanos / 1_000_000_000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours:02}h"),
    }
}

/// Returns the last line of the screen: the keys, or the last error.
fn footer(state: &ScreenState) -> Line<'static> {
    if let Some(error) = &state.error {
        let text = cut(&plain(error), 160);
        return Line::styled(format!(" {text}"), BAD);
    }
    let enter_effect = if state.is_single { "all sessions" } else { "one session" };
    let keys = [
        ("q", "quit"),
        ("p", "pause"),
        ("s", "sort"),
        ("↑↓", "choose"),
        ("enter", enter_effect),
        ("?", "help"),
    ];
    let mut spans = Vec::new();
    for (key, effect) in keys {
        spans.push(Span::styled(format!(" {key} "), STRONG));
        spans.push(Span::styled(format!("{effect} "), FAINT));
    }
    Line::from(spans)
}

fn help() -> Vec<Line<'static>> {
    let keys = [
        ("q, Ctrl-C", "quit"),
        ("p, space", "pause the display, and resume it"),
        ("s", "sort sessions by CPU, packets, drops, memory, records, name"),
        ("up, down, j, k", "choose a session; its parts are shown below"),
        ("enter", "show only the selected session, or all again"),
        ("escape", "back"),
    ];
    let column_help = [
        ("CPU%", "processor time in % of a core; RSV% is the reservation"),
        ("SPARE%", "the part of CPU% beyond the reservation"),
        ("STOLEN%", "time taken by other programs or the hypervisor; not charged"),
        ("MISSED", "periods with work in which a session got less than its slice"),
        ("DROP/S", "packets that a session's channels lost, for any cause"),
        ("OVERRUNS", "calls that ran past their slice; the next slice is shortened"),
    ];
    let line = |(key, meaning): (&str, &str)| {
        Line::from(vec![Span::styled(format!("   {key:<16}"), STRONG), Span::raw(meaning.to_owned())])
    };
    let mut lines = vec![Line::raw(""), Line::styled(" Keys", TITLE)];
    lines.extend(keys.map(line));
    lines.extend([Line::raw(""), Line::styled(" Columns", TITLE)]);
    lines.extend(column_help.map(line));
    lines
}

/// Returns the overview: cores, interfaces, links, views, sessions, and the parts of the selected session.
fn overview(state: &ScreenState, now: &Snapshot, width: usize, lines_max: usize) -> Vec<Line<'static>> {
    let section_lines = (lines_max / 6).max(2);
    let mut lines = clipped(cores(state, now, width), section_lines + 1);
    lines.extend(clipped(interfaces(state, now, width), section_lines + 1));
    lines.extend(clipped(outputs::links(state, now, width), section_lines + 1));
    lines.extend(clipped(views::views(state, now, width), section_lines + 1));
    let lines_left = lines_max.saturating_sub(lines.len() + 1);
    let selected = state.selected_index().and_then(|index| state.order().get(index).copied());
    let parts = selected.map(|(session, rates)| session_parts(session, rates, width)).unwrap_or_default();
    // The list of sessions gets at least half of the remaining lines, and more if the parts of the selected session
    // need fewer.
    let rows = now.sessions.len().min(lines_left.saturating_sub(parts.len() + 2).max(lines_left / 2)).max(1);
    lines.push(Line::raw(""));
    lines.extend(sessions(state, width, rows, true));
    if !parts.is_empty() {
        lines.push(Line::raw(""));
        lines.extend(parts);
    }
    lines
}

/// Returns the screen of the selected session alone.
fn single_session(state: &ScreenState, now: &Snapshot, width: usize, lines_max: usize) -> Vec<Line<'static>> {
    let mut lines = clipped(cores(state, now, width), (lines_max / 6).max(2) + 1);
    lines.push(Line::raw(""));
    if let Some((session, rates)) = state.selected_index().and_then(|index| state.order().get(index).copied())
    {
        let index = state.selected_index().unwrap_or(0);
        lines.extend(session_rows(state, width, index..index + 1, false));
        lines.push(Line::raw(""));
        lines.extend(session_parts(session, rates, width));
    }
    lines
}

fn cores(state: &ScreenState, now: &Snapshot, width: usize) -> Vec<Line<'static>> {
    if now.cores.is_empty() {
        return Vec::new();
    }
    let columns = [
        number("CORE", 4),
        word("RESERVED", if width >= WIDE { 48 } else { 24 }),
        number("", 12),
        number("BUSY%", 6),
        number("OVERHEAD%", 9),
        number("STOLEN%", 7),
    ];
    let mut lines = vec![grid::titles(&columns, width, TITLE)];
    for (core, rates) in now.cores.iter().zip(&state.rates.cores) {
        let (reserved, reservable) = (share(core.reserved_ppm), share(core.reservable_ppm));
        let reservation = format!("{:.0} of {:.0} %", reserved * 100.0, reservable * 100.0);
        let fill = if reservable > 0.0 { reserved / reservable } else { 0.0 };
        let bar = bar(fill, columns.get(1).map_or(0, |column| column.width));
        lines.push(grid::line(
            &columns,
            vec![
                (core.core.to_string(), PLAIN),
                (bar, GOOD),
                (reservation, PLAIN),
                (percent(rates.busy), PLAIN),
                (percent(rates.overhead), PLAIN),
                (percent(rates.stolen), highlight_above(rates.stolen, 0.05, WARM)),
            ],
            width,
        ));
    }
    lines
}

/// Converts parts per million to a share.
fn share(ppm: u32) -> f64 {
    f64::from(ppm) / 1e6
}

/// Returns `style` for a rate above `threshold`, otherwise the plain style.
pub(super) fn highlight_above(rate: Rate, threshold: f64, style: Style) -> Style {
    if rate.is_some_and(|rate| rate > threshold) { style } else { PLAIN }
}

fn interfaces(state: &ScreenState, now: &Snapshot, width: usize) -> Vec<Line<'static>> {
    if now.interfaces.is_empty() {
        return Vec::new();
    }
    let columns = [
        word("INTERFACE", 15),
        word("STATE", 14),
        number("PKT/S", 7),
        number("BIT/S", 7),
        number("MISSED/S", 8),
        number("UNMATCHED/S", 11),
        from_width(WIDE, number("PACKETS", 10)),
        from_width(WIDE, number("MISSED", 8)),
    ];
    let mut lines = vec![grid::titles(&columns, width, TITLE)];
    for (interface, rates) in now.interfaces.iter().zip(&state.rates.interfaces) {
        let style = if interface.state == "up" { GOOD } else { BAD };
        lines.push(grid::line(
            &columns,
            vec![
                (plain(&interface.name), PLAIN),
                (plain(&interface.state), style),
                (short(rates.packets), PLAIN),
                (short(rates.bits), PLAIN),
                (short(rates.missed), highlight_above(rates.missed, 0.0, BAD)),
                (short(rates.unmatched), FAINT),
                (count(interface.packets), FAINT),
                (count(interface.missed), FAINT),
            ],
            width,
        ));
    }
    lines
}

/// Returns the titles and the lines of `rows` sessions around the selected session. If `marks_selected` is true, the
/// line of the selected session is highlighted.
fn sessions(state: &ScreenState, width: usize, rows: usize, marks_selected: bool) -> Vec<Line<'static>> {
    let count = state.order().len();
    let rows = rows.min(count);
    let selected = state.selected_index().unwrap_or(0);
    let first = selected.saturating_sub(rows / 2).min(count - rows);
    session_rows(state, width, first..first + rows, marks_selected)
}

/// Returns the titles and the lines of the sessions with these indices in the sort order.
fn session_rows(
    state: &ScreenState,
    width: usize,
    rows: std::ops::Range<usize>,
    marks_selected: bool,
) -> Vec<Line<'static>> {
    let (order, index) = (state.order(), state.selected_index());
    let mark = |sort: Sort, plain: &'static str, sorted: &'static str| {
        if state.sort == sort { sorted } else { plain }
    };
    let columns = [
        word(mark(Sort::Name, "SESSION", "SESSION▾"), if width >= WIDE { 24 } else { 14 }),
        number(mark(Sort::Cpu, "CPU%", "CPU%▾"), 6),
        from_width(WIDE, word("", 20)),
        number("RSV%", 6),
        number("SPARE%", 6),
        number(mark(Sort::Packets, "PKT/S", "PKT/S▾"), 6),
        number(mark(Sort::Drops, "DROP/S", "DROP/S▾"), 7),
        number(mark(Sort::Memory, "MEMORY", "MEMORY▾"), 10),
        number(mark(Sort::Records, "REC/S", "REC/S▾"), 6),
        word("STATE", if width >= WIDE { 24 } else { width.saturating_sub(70).max(7) }),
    ];
    let mut title = grid::titles(&columns, width, TITLE);
    if order.len() > rows.len() && marks_selected {
        title.push_span(Span::styled(format!(" {}-{} of {}", rows.start + 1, rows.end, order.len()), FAINT));
    }
    let mut lines = vec![title];
    for (at, (session, rates)) in order.iter().enumerate().skip(rows.start).take(rows.len()) {
        let line = grid::line(&columns, session_cells(session, rates), width);
        let is_marked = marks_selected && index == Some(at);
        lines.push(if is_marked {
            line.patch_style(Style::new().add_modifier(Modifier::REVERSED))
        } else {
            line
        });
    }
    lines
}

fn session_cells(session: &SessionStatus, rates: &SessionRates) -> Vec<Cell> {
    let ppm = session.cpu.iter().map(show::reserved_ppm).fold(0, u64::saturating_add);
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    let reserved = (ppm > 0).then_some(ppm as f64 / 1e6);
    let state = show::state(session);
    let style = if state == "running" || session.modules.is_empty() && session.ended.is_empty() {
        PLAIN
    } else {
        BAD
    };
    vec![
        (plain(&session.name), STRONG),
        (percent(rates.cpu), PLAIN),
        (bar(rates.cpu.unwrap_or(0.0), 20), GOOD),
        (percent(reserved), PLAIN),
        (percent(rates.spare), FAINT),
        (short(rates.packets), PLAIN),
        (short(rates.drops), highlight_above(rates.drops, 0.0, BAD)),
        (format!("{}/{}", bytes(session.memory_used), bytes(session.memory_reserved)), PLAIN),
        (short(rates.records), PLAIN),
        (state, style),
    ]
}

/// Returns lines for the parts of a session: its credential, processors, channels, output channels and modules.
fn session_parts(session: &SessionStatus, rates: &SessionRates, width: usize) -> Vec<Line<'static>> {
    let credential = session.credential.as_deref().map(|id| Line::raw(format!(" credential {}", plain(id))));
    let mut lines: Vec<_> = credential.into_iter().collect();
    lines.extend(processors(session, rates, width));
    lines.extend(channels(session, rates, width));
    lines.extend(outputs::outputs(session, rates, width));
    lines.extend(modules_of(session, rates, width));
    lines.extend(findings_of(session, width));
    lines
}

fn processors(session: &SessionStatus, rates: &SessionRates, width: usize) -> Vec<Line<'static>> {
    let columns = [
        word("PROCESSOR", if width >= WIDE { 24 } else { 14 }),
        number("CORE", 4),
        number("USED%", 6),
        number("SPARE%", 6),
        number("MISSED", 7),
        number("MISS/S", 6),
        number("OVERRUNS", 8),
        word("RESERVED", if width >= WIDE { 40 } else { 21 }),
    ];
    let mut lines = vec![grid::titles(&columns, width, TITLE)];
    for (cpu, rates) in session.cpu.iter().zip(&rates.processors) {
        let reserved = match (cpu.period_ns, cpu.borrow) {
            (0, _) => "best effort".to_owned(),
            (period, borrow) => {
                let more = if borrow { " + spare" } else { "" };
                format!("{} / {}{more}", Nanos(cpu.slice_ns), Nanos(period))
            }
        };
        lines.push(grid::line(
            &columns,
            vec![
                (plain(&cpu.name), PLAIN),
                (cpu.core.to_string(), PLAIN),
                (percent(rates.used), PLAIN),
                (percent(rates.spare), FAINT),
                (count(cpu.periods_missed), PLAIN),
                (short(rates.missed), highlight_above(rates.missed, 0.0, BAD)),
                (count(cpu.overruns), FAINT),
                (reserved, PLAIN),
            ],
            width,
        ));
    }
    lines
}

fn channels(session: &SessionStatus, rates: &SessionRates, width: usize) -> Vec<Line<'static>> {
    if session.channels.is_empty() {
        return Vec::new();
    }
    let columns = [
        word("CHANNEL", if width >= WIDE { 24 } else { 14 }),
        word("WAITING", 10),
        number("", 11),
        number("PKT/S", 6),
        from_width(WIDE, number("BIT/S", 6)),
        number("DROP/S", 6),
        from_width(WIDE, word("FROM", 30)),
        word("LOST", width.saturating_sub(if width >= WIDE { 107 } else { 54 }).max(10)),
    ];
    let mut lines = vec![grid::titles(&columns, width, TITLE)];
    for (channel, rates) in session.channels.iter().zip(&rates.channels) {
        #[expect(clippy::cast_precision_loss, reason = "for people to read")]
        let fill = channel.waiting as f64 / channel.queue.max(1) as f64;
        let style = if fill > 0.9 { BAD } else { GOOD };
        lines.push(grid::line(
            &columns,
            vec![
                (plain(&channel.name), PLAIN),
                (bar(fill, 10), style),
                (format!("{}/{}", count(channel.waiting), count(channel.queue)), PLAIN),
                (short(rates.packets), PLAIN),
                (short(rates.bits), PLAIN),
                (short(rates.drops), highlight_above(rates.drops, 0.0, BAD)),
                (show::channel_source(channel), FAINT),
                (losses_by_cause(&channel.drops), FAINT),
            ],
            width,
        ));
    }
    lines
}

/// Formats the losses of a channel by cause, largest first.
pub(super) fn losses_by_cause(drops: &std::collections::BTreeMap<String, u64>) -> String {
    let mut causes: Vec<_> = drops.iter().filter(|(_, lost)| **lost > 0).collect();
    causes.sort_by_key(|(_, lost)| std::cmp::Reverse(**lost));
    let causes: Vec<String> =
        causes.into_iter().map(|(cause, lost)| format!("{} {}", count(*lost), plain(cause))).collect();
    if causes.is_empty() { "nothing".to_owned() } else { causes.join(", ") }
}

fn modules_of(session: &SessionStatus, rates: &SessionRates, width: usize) -> Vec<Line<'static>> {
    if session.modules.is_empty() && session.ended.is_empty() {
        return Vec::new();
    }
    let columns = [
        word("MODULE", if width >= WIDE { 24 } else { 14 }),
        word("TIER", 10),
        number("PKT/S", 6),
        number("NS/PKT", 6),
        number("REC/S", 6),
        number("FAULTS", 6),
        number("STRIKES", 7),
        from_width(WIDE, number("CPU%", 6)),
        from_width(WIDE, number("MEMORY", 7)),
        from_width(WIDE, number("LOST REC", 8)),
        word("STATE", width.saturating_sub(if width >= WIDE { 105 } else { 63 }).max(8)),
    ];
    let mut lines = vec![grid::titles(&columns, width, TITLE)];
    for (module, rates) in session.modules.iter().zip(&rates.modules) {
        let style = if module.state == "running" { GOOD } else { BAD };
        let warm_if_any = |count: u64| if count > 0 { WARM } else { PLAIN };
        lines.push(grid::line(
            &columns,
            vec![
                (plain(&module.name), PLAIN),
                (plain(&module.tier), PLAIN),
                (short(rates.packets), PLAIN),
                (short(rates.per_packet), PLAIN),
                (short(rates.records), PLAIN),
                (count(module.faults), warm_if_any(module.faults)),
                (count(module.strikes), warm_if_any(module.strikes)),
                (percent(rates.used), PLAIN),
                (Bytes(module.memory).to_string(), PLAIN),
                (count(module.records_lost), warm_if_any(module.records_lost)),
                (plain(&module.state), style),
            ],
            width,
        ));
    }
    for module in &session.modules {
        let facts: Vec<String> =
            module.facts().map(|(fact, value)| format!("{fact}: {}", plain(&value))).collect();
        if facts.is_empty() {
            continue;
        }
        let text = format!(" {}: {}", plain(&module.name), facts.join("; "));
        lines.push(Line::styled(cut(&text, width), PLAIN));
    }
    for module in &session.ended {
        let (name, state) = (plain(&module.name), plain(&module.state));
        lines.push(Line::styled(format!(" {name} {state}"), BAD));
    }
    for module in session.modules.iter().chain(&session.ended) {
        if let Some(fault) = &module.last_fault {
            let text = format!(" {}: last fault: {}", plain(&module.name), plain(fault));
            lines.push(Line::styled(cut(&text, width), WARM));
        }
    }
    lines
}

/// Returns the numbers of the session's findings, and the latest of them.
fn findings_of(session: &SessionStatus, width: usize) -> Vec<Line<'static>> {
    let counts = findings::counts(&session.findings).map(|counts| Line::styled(format!(" {counts}"), PLAIN));
    let latest = findings::latest(&session.findings).map(|(severity, line)| {
        let style = if severity >= Severity::High { BAD } else { WARM };
        Line::styled(cut(&format!("   {line}"), width), style)
    });
    counts.into_iter().chain(latest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::node::top::state::KeyPress;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn state() -> ScreenState {
        let first: Snapshot =
            serde_json::from_str(include_str!("../../../../../node/tests/snapshot.json")).unwrap();
        let mut second = first.clone();
        second.uptime_ns += 1_000_000_000;
        let core = &mut second.cores[0];
        (core.busy_ns, core.overhead_ns, core.stolen_ns) =
            (core.busy_ns + 970_000_000, core.overhead_ns + 4_000_000, core.stolen_ns + 60_000_000);
        second.interfaces[0].packets += 126_000;
        second.interfaces[0].bytes += 88_200_000;
        second.interfaces[0].missed += 3;
        let [greedy, modest] = &mut second.sessions[..] else { panic!("two sessions") };
        greedy.cpu[0].used_ns += 770_000_000;
        greedy.cpu[0].spare_ns += 770_000_000;
        greedy.used.cpu.0 += 770_000_000;
        greedy.channels[0].packets += 120_000;
        *greedy.channels[0].drops.get_mut("queue-full").unwrap() += 70_000;
        greedy.modules[0].packets += 50_000;
        greedy.modules[0].used_ns += 765_000_000;
        modest.cpu[0].used_ns += 199_000_000;
        modest.used.cpu.0 += 199_000_000;
        modest.cpu[0].periods_missed += 1;
        modest.channels[0].packets += 6_000;
        modest.channels[0].bytes += 4_200_000;
        modest.modules[0].packets += 6_000;
        modest.modules[0].used_ns += 180_000_000;
        modest.modules[0].records += 250;
        "LLVM".clone_into(&mut modest.modules[0].back_end);
        let mut state = ScreenState::default();
        state.update(first);
        state.update(second);
        state
    }

    /// The text that a terminal of this size would show.
    fn shown(state: &ScreenState, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| super::super::draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line =
            |row: &[ratatui::buffer::Cell]| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
        let lines: Vec<String> = buffer.content().chunks(usize::from(width)).map(line).collect();
        lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect()
    }

    #[test]
    fn a_small_terminal_shows_the_main_columns() {
        let mut state = state();
        state.press(KeyPress::Down);
        assert_eq!(shown(&state, 80, 24), include_str!("../golden/top-80x24.txt"));
    }

    #[test]
    fn a_wide_terminal_shows_more() {
        assert_eq!(shown(&state(), 160, 30), include_str!("../golden/top-160x30.txt"));
    }

    #[test]
    fn a_single_session_and_the_key_help_can_be_shown() {
        let mut state = state();
        state.press(KeyPress::Down);
        state.press(KeyPress::Enter);
        assert_eq!(shown(&state, 80, 24), include_str!("../golden/top-alone.txt"));
        state.press(KeyPress::Char('?'));
        assert_eq!(shown(&state, 80, 24), include_str!("../golden/top-help.txt"));
    }

    #[test]
    fn plain_text_for_scripts_shows_all_sessions_with_their_parts() {
        assert_eq!(plain_text(&state(), 100), include_str!("../golden/top-once.txt"));
        assert_eq!(plain_text(&ScreenState::default(), 100), "");
    }

    #[test]
    fn rates_of_the_first_snapshot_are_dashes() {
        let mut first = ScreenState::default();
        first.update(state().now.unwrap());
        let screen = shown(&first, 80, 24);
        let greedy = screen.lines().find(|line| line.starts_with(" greedy")).unwrap();
        assert_eq!(
            greedy.split_whitespace().collect::<Vec<_>>(),
            ["greedy", "-", "-", "-", "-", "-", "2M/64M", "-", "running"]
        );
    }

    #[test]
    fn cores_and_interfaces_that_a_client_may_not_see_are_left_out() {
        let mut state = state();
        let mut now = state.now.clone().unwrap();
        now.cores.clear();
        now.interfaces.clear();
        state.update(now);
        for screen in [shown(&state, 80, 24), plain_text(&state, 160)] {
            assert!(screen.contains("greedy") && screen.contains("memory"), "{screen}");
            assert!(
                ["load", "0 cores", "BUSY%", "INTERFACE"].iter().all(|no| !screen.contains(no)),
                "{screen}"
            );
        }
    }

    #[test]
    fn errors_and_pause_are_shown() {
        let mut state = state();
        state.set_error("the node went away; trying again".to_owned());
        assert!(shown(&state, 80, 24).lines().last().unwrap().contains("went away; trying again"));
        let mut none = ScreenState::default();
        none.set_error("no node listens at /run/weir/node.sock".to_owned());
        assert!(shown(&none, 80, 24).contains("waiting for the node"));
        state.error = None;
        state.press(KeyPress::Char('p'));
        assert!(shown(&state, 80, 24).lines().next().unwrap().contains("paused"));
    }

    #[test]
    fn the_selected_session_of_many_is_visible_on_terminals_of_any_size() {
        let mut many = state();
        let mut now = many.now.clone().unwrap();
        let one = now.sessions[1].clone();
        now.sessions = (0..300).map(|n| SessionStatus { name: format!("s{n:03}"), ..one.clone() }).collect();
        now.cores = vec![now.cores[0].clone(); 64];
        many.update(now);
        many.press(KeyPress::Last);
        for (width, height) in [(80, 24), (200, 60), (40, 10)] {
            let screen = shown(&many, width, height);
            assert!(height < 24 || screen.contains(" s299"), "{screen}");
        }
        for (width, height) in [(1, 1), (2, 2), (20, 3), (500, 200), (80, 1)] {
            shown(&many, width, height);
            shown(&ScreenState::default(), width, height);
        }
    }

    #[test]
    fn control_characters_in_names_are_escaped() {
        let mut state = state();
        let mut now = state.now.clone().unwrap();
        for text in [&mut now.node, &mut now.version, &mut now.interfaces[0].state] {
            *text = "\u{1b}[2J\u{202e}\n".to_owned();
        }
        let session = &mut now.sessions[0];
        session.name = "\u{7}\u{1b}".to_owned();
        session.channels[0].filter = "\r\n".to_owned();
        session.channels[0].drops.insert("\u{1b}c".to_owned(), 1);
        session.modules[0].state = "\u{1b}]0;x\u{7}".to_owned();
        session.modules[0].last_fault = Some("\u{1b}[2J".to_owned());
        state.update(now);
        let text = plain_text(&state, 200);
        assert!(text.chars().all(|c| c == '\n' || weir_units::is_plain(c)), "{text:?}");
    }
}
