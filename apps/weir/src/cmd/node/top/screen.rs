//! The screen of `weir top`, as lines: the same for a terminal and for a script.

use super::grid::{self, Cell, bar, bytes, count, cut, from, number, percent, plain, short, word};
use super::model::{Model, Sort};
use super::outputs;
use super::rates::{Rate, SessionRates};
use super::views;
use crate::cmd::node::show;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use weir_node::control::protocol::{SessionStatus, Snapshot};
use weir_units::{Bytes, Nanos};

pub(super) const PLAIN: Style = Style::new();
pub(super) const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const TITLE: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
pub(super) const GOOD: Style = Style::new().fg(Color::Green);
const WARM: Style = Style::new().fg(Color::Yellow);
pub(super) const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// From this width of the screen on there is more to see.
pub(super) const WIDE: usize = 110;
/// What a narrower screen cannot show is cut off.
const NARROW: usize = 40;

/// The screen, at most so many lines of so many columns.
pub fn screen(model: &Model, width: usize, height: usize) -> Vec<Line<'static>> {
    let width = width.max(NARROW);
    let mut lines = vec![header(model, width)];
    let footer = footer(model);
    let room = height.saturating_sub(2);
    let body = match &model.now {
        _ if model.help => help(),
        None => vec![Line::raw(""), Line::styled(" waiting for the node …", FAINT)],
        Some(now) if model.alone => alone(model, now, width, room),
        Some(now) => all(model, now, width, room),
    };
    lines.extend(clipped(body, room));
    lines.resize(height.saturating_sub(1), Line::raw(""));
    lines.push(footer);
    lines.truncate(height);
    lines
}

/// All there is, for a script: every session with its parts, whatever lines that takes.
pub fn plain_text(model: &Model, width: usize) -> String {
    let Some(now) = &model.now else { return String::new() };
    let mut lines = vec![header(model, width)];
    lines.extend(cores(model, now, width));
    lines.extend(interfaces(model, now, width));
    lines.extend(outputs::links(model, now, width));
    lines.extend(views::views(model, now, width));
    lines.push(Line::raw(""));
    lines.extend(sessions(model, width, usize::MAX, false));
    for (session, rates) in model.order() {
        lines.push(Line::raw(""));
        lines.extend(detail(session, rates, width));
    }
    lines.iter().map(|line| line.to_string().trim_end().to_owned() + "\n").collect()
}

/// Lines in the room there is, and how many have none.
fn clipped(mut lines: Vec<Line<'static>>, room: usize) -> Vec<Line<'static>> {
    if lines.len() > room && room > 0 {
        let more = lines.len() + 1 - room;
        lines.truncate(room - 1);
        lines.push(Line::styled(format!(" … {more} more lines"), FAINT));
    }
    lines
}

fn header(model: &Model, width: usize) -> Line<'static> {
    let Some(now) = &model.now else {
        return Line::from(vec![Span::styled(" weir top", STRONG)]);
    };
    let taken = format!("memory {}/{}", bytes(now.memory.reserved), bytes(now.memory.of));
    let mut spans = vec![
        Span::styled(format!(" {}", cut(&plain(&now.node), 24)), STRONG),
        Span::raw(format!("  weir {}  up {}  ", cut(&plain(&now.version), 16), uptime(now.uptime_ns))),
    ];
    // Who comes with a credential is shown none: how busy they are is others' business.
    if !now.cores.is_empty() {
        spans.push(Span::raw(format!("load {} of {}  ", load(model), cores_of(now.cores.len()))));
    }
    spans.push(Span::raw(taken));
    if model.paused {
        spans.push(Span::styled("  paused", WARM));
    }
    if width >= WIDE {
        let sessions = now.sessions.len();
        spans.push(Span::styled(format!("  {sessions} sessions, {} modules", modules(now)), FAINT));
    }
    Line::from(spans)
}

fn modules(now: &Snapshot) -> usize {
    now.sessions.iter().map(|session| session.modules.len()).sum()
}

fn cores_of(cores: usize) -> String {
    if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") }
}

/// How many cores are busy.
fn load(model: &Model) -> String {
    let busy: Option<f64> = model.rates.cores.iter().map(|core| Some(core.busy? + core.overhead?)).sum();
    busy.filter(|_| !model.rates.cores.is_empty()).map_or("-".to_owned(), |busy| format!("{busy:.2}"))
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

/// What keys there are, or what is the matter.
fn footer(model: &Model) -> Line<'static> {
    if let Some(trouble) = &model.trouble {
        let text = cut(&plain(trouble), 160);
        return Line::styled(format!(" {text}"), BAD);
    }
    let back = if model.alone { "all sessions" } else { "one session" };
    let keys =
        [("q", "quit"), ("p", "pause"), ("s", "sort"), ("↑↓", "choose"), ("enter", back), ("?", "help")];
    let mut spans = Vec::new();
    for (key, does) in keys {
        spans.push(Span::styled(format!(" {key} "), STRONG));
        spans.push(Span::styled(format!("{does} "), FAINT));
    }
    Line::from(spans)
}

fn help() -> Vec<Line<'static>> {
    let keys = [
        ("q, Ctrl-C", "end"),
        ("p, space", "hold what is shown, and go on"),
        ("s", "sort sessions by CPU, packets, drops, memory, records, name"),
        ("up, down, j, k", "choose a session; its parts are shown below"),
        ("enter", "show that session alone, and all again"),
        ("escape", "back"),
    ];
    let words = [
        ("CPU%", "of a core, now; RSV% is what the session has reserved"),
        ("SPARE%", "of that, what was beyond its reservation"),
        ("STOLEN%", "of a core, what others took of the machine; not billed"),
        ("MISSED", "periods with work in which it did not get its whole slice"),
        ("DROP/S", "packets that a session's channels lost, by whatever cause"),
        ("OVERRUNS", "calls that went on after their slice; the next one pays"),
    ];
    let line = |(key, does): (&str, &str)| {
        Line::from(vec![Span::styled(format!("   {key:<16}"), STRONG), Span::raw(does.to_owned())])
    };
    let mut lines = vec![Line::raw(""), Line::styled(" Keys", TITLE)];
    lines.extend(keys.map(line));
    lines.extend([Line::raw(""), Line::styled(" Words", TITLE)]);
    lines.extend(words.map(line));
    lines
}

/// Everything: cores, interfaces, sessions, and the parts of the one that is chosen.
fn all(model: &Model, now: &Snapshot, width: usize, room: usize) -> Vec<Line<'static>> {
    let few = (room / 6).max(2);
    let mut lines = clipped(cores(model, now, width), few + 1);
    lines.extend(clipped(interfaces(model, now, width), few + 1));
    lines.extend(clipped(outputs::links(model, now, width), few + 1));
    lines.extend(clipped(views::views(model, now, width), few + 1));
    let left = room.saturating_sub(lines.len() + 1);
    let chosen = model.place().and_then(|place| model.order().get(place).copied());
    let parts = chosen.map(|(session, rates)| detail(session, rates, width)).unwrap_or_default();
    // The sessions get what the parts of one leave, and at least half.
    let rows = now.sessions.len().min(left.saturating_sub(parts.len() + 2).max(left / 2)).max(1);
    lines.push(Line::raw(""));
    lines.extend(sessions(model, width, rows, true));
    if !parts.is_empty() {
        lines.push(Line::raw(""));
        lines.extend(parts);
    }
    lines
}

/// One session.
fn alone(model: &Model, now: &Snapshot, width: usize, room: usize) -> Vec<Line<'static>> {
    let mut lines = clipped(cores(model, now, width), (room / 6).max(2) + 1);
    lines.push(Line::raw(""));
    if let Some((session, rates)) = model.place().and_then(|place| model.order().get(place).copied()) {
        let only = model.place().unwrap_or(0);
        lines.extend(session_rows(model, width, only..only + 1, false));
        lines.push(Line::raw(""));
        lines.extend(detail(session, rates, width));
    }
    lines
}

fn cores(model: &Model, now: &Snapshot, width: usize) -> Vec<Line<'static>> {
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
    for (core, rates) in now.cores.iter().zip(&model.rates.cores) {
        let (reserved, reservable) = (share(core.reserved_ppm), share(core.reservable_ppm));
        let of = format!("{:.0} of {:.0} %", reserved * 100.0, reservable * 100.0);
        let fill = if reservable > 0.0 { reserved / reservable } else { 0.0 };
        let bar = bar(fill, columns.get(1).map_or(0, |column| column.width));
        lines.push(grid::line(
            &columns,
            vec![
                (core.core.to_string(), PLAIN),
                (bar, GOOD),
                (of, PLAIN),
                (percent(rates.busy), PLAIN),
                (percent(rates.overhead), PLAIN),
                (percent(rates.stolen), over(rates.stolen, 0.05, WARM)),
            ],
            width,
        ));
    }
    lines
}

fn share(ppm: u32) -> f64 {
    f64::from(ppm) / 1e6
}

/// A look for what is more than it should be.
pub(super) fn over(rate: Rate, most: f64, look: Style) -> Style {
    if rate.is_some_and(|rate| rate > most) { look } else { PLAIN }
}

fn interfaces(model: &Model, now: &Snapshot, width: usize) -> Vec<Line<'static>> {
    if now.interfaces.is_empty() {
        return Vec::new();
    }
    let columns = [
        word("INTERFACE", 15),
        word("STATE", 14),
        number("PKT/S", 7),
        number("BIT/S", 7),
        number("MISSED/S", 8),
        number("UNWANTED/S", 10),
        from(WIDE, number("PACKETS", 10)),
        from(WIDE, number("MISSED", 8)),
    ];
    let mut lines = vec![grid::titles(&columns, width, TITLE)];
    for (interface, rates) in now.interfaces.iter().zip(&model.rates.interfaces) {
        let state = if interface.state == "up" { GOOD } else { BAD };
        lines.push(grid::line(
            &columns,
            vec![
                (plain(&interface.name), PLAIN),
                (plain(&interface.state), state),
                (short(rates.packets), PLAIN),
                (short(rates.bits), PLAIN),
                (short(rates.missed), over(rates.missed, 0.0, BAD)),
                (short(rates.unwanted), FAINT),
                (count(interface.packets), FAINT),
                (count(interface.missed), FAINT),
            ],
            width,
        ));
    }
    lines
}

/// The sessions around the one that is chosen, in so many lines below their titles.
fn sessions(model: &Model, width: usize, rows: usize, is_chosen: bool) -> Vec<Line<'static>> {
    let all = model.order().len();
    let rows = rows.min(all);
    let place = model.place().unwrap_or(0);
    let first = place.saturating_sub(rows / 2).min(all - rows);
    session_rows(model, width, first..first + rows, is_chosen)
}

fn session_rows(
    model: &Model,
    width: usize,
    rows: std::ops::Range<usize>,
    is_chosen: bool,
) -> Vec<Line<'static>> {
    let (order, place) = (model.order(), model.place());
    let mark = |sort: Sort, plain: &'static str, sorted: &'static str| {
        if model.sort == sort { sorted } else { plain }
    };
    let columns = [
        word(mark(Sort::Name, "SESSION", "SESSION▾"), if width >= WIDE { 24 } else { 14 }),
        number(mark(Sort::Cpu, "CPU%", "CPU%▾"), 6),
        from(WIDE, word("", 20)),
        number("RSV%", 6),
        number("SPARE%", 6),
        number(mark(Sort::Packets, "PKT/S", "PKT/S▾"), 6),
        number(mark(Sort::Drops, "DROP/S", "DROP/S▾"), 7),
        number(mark(Sort::Memory, "MEMORY", "MEMORY▾"), 10),
        number(mark(Sort::Records, "REC/S", "REC/S▾"), 6),
        word("STATE", if width >= WIDE { 24 } else { width.saturating_sub(70).max(7) }),
    ];
    let mut title = grid::titles(&columns, width, TITLE);
    if order.len() > rows.len() && is_chosen {
        title.push_span(Span::styled(format!(" {}-{} of {}", rows.start + 1, rows.end, order.len()), FAINT));
    }
    let mut lines = vec![title];
    for (at, (session, rates)) in order.iter().enumerate().skip(rows.start).take(rows.len()) {
        let line = grid::line(&columns, session_cells(session, rates), width);
        let is_chosen = is_chosen && place == Some(at);
        lines.push(if is_chosen {
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
    let look = if state == "running" || session.modules.is_empty() && session.ended.is_empty() {
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
        (short(rates.drops), over(rates.drops, 0.0, BAD)),
        (format!("{}/{}", bytes(session.memory_used), bytes(session.memory_reserved)), PLAIN),
        (short(rates.records), PLAIN),
        (state, look),
    ]
}

/// The parts of a session.
fn detail(session: &SessionStatus, rates: &SessionRates, width: usize) -> Vec<Line<'static>> {
    let credential = session.credential.as_deref().map(|id| Line::raw(format!(" credential {}", plain(id))));
    let mut lines: Vec<_> = credential.into_iter().collect();
    lines.extend(processors(session, rates, width));
    lines.extend(channels(session, rates, width));
    lines.extend(outputs::outputs(session, rates, width));
    lines.extend(modules_of(session, rates, width));
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
        let reserved = match (cpu.period_ns, cpu.spare) {
            (0, _) => "best effort".to_owned(),
            (period, spare) => {
                let more = if spare { " + spare" } else { "" };
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
                (short(rates.missed), over(rates.missed, 0.0, BAD)),
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
        from(WIDE, number("BIT/S", 6)),
        number("DROP/S", 6),
        from(WIDE, word("FROM", 30)),
        word("LOST", width.saturating_sub(if width >= WIDE { 107 } else { 54 }).max(10)),
    ];
    let mut lines = vec![grid::titles(&columns, width, TITLE)];
    for (channel, rates) in session.channels.iter().zip(&rates.channels) {
        #[expect(clippy::cast_precision_loss, reason = "for people to read")]
        let full = channel.waiting as f64 / channel.queue.max(1) as f64;
        let look = if full > 0.9 { BAD } else { GOOD };
        lines.push(grid::line(
            &columns,
            vec![
                (plain(&channel.name), PLAIN),
                (bar(full, 10), look),
                (format!("{}/{}", count(channel.waiting), count(channel.queue)), PLAIN),
                (short(rates.packets), PLAIN),
                (short(rates.bits), PLAIN),
                (short(rates.drops), over(rates.drops, 0.0, BAD)),
                (show::from(channel), FAINT),
                (lost(&channel.drops), FAINT),
            ],
            width,
        ));
    }
    lines
}

/// What a channel lost, the most first.
pub(super) fn lost(drops: &std::collections::BTreeMap<String, u64>) -> String {
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
        from(WIDE, number("CPU%", 6)),
        from(WIDE, number("MEMORY", 7)),
        from(WIDE, number("LOST REC", 8)),
        word("STATE", width.saturating_sub(if width >= WIDE { 105 } else { 63 }).max(8)),
    ];
    let mut lines = vec![grid::titles(&columns, width, TITLE)];
    for (module, rates) in session.modules.iter().zip(&rates.modules) {
        let state = if module.state == "running" { GOOD } else { BAD };
        let some = |count: u64| if count > 0 { WARM } else { PLAIN };
        lines.push(grid::line(
            &columns,
            vec![
                (plain(&module.name), PLAIN),
                (plain(&module.tier), PLAIN),
                (short(rates.packets), PLAIN),
                (short(rates.per_packet), PLAIN),
                (short(rates.records), PLAIN),
                (count(module.faults), some(module.faults)),
                (count(module.strikes), some(module.strikes)),
                (percent(rates.used), PLAIN),
                (Bytes(module.memory).to_string(), PLAIN),
                (count(module.records_lost), some(module.records_lost)),
                (plain(&module.state), state),
            ],
            width,
        ));
    }
    for module in session.modules.iter().filter(|module| !module.isolation.is_empty()) {
        let text = format!(" {}: isolation: {}", plain(&module.name), plain(&module.isolation));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::node::top::model::KeyPress;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn model() -> Model {
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
        let mut model = Model::default();
        model.take(first);
        model.take(second);
        model
    }

    /// What a terminal of this size would show.
    fn shown(model: &Model, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| super::super::draw(frame, model)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line =
            |row: &[ratatui::buffer::Cell]| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
        let lines: Vec<String> = buffer.content().chunks(usize::from(width)).map(line).collect();
        lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect()
    }

    #[test]
    fn a_small_terminal_shows_all_that_matters() {
        let mut model = model();
        model.press(KeyPress::Down);
        assert_eq!(shown(&model, 80, 24), include_str!("../golden/top-80x24.txt"));
    }

    #[test]
    fn a_wide_terminal_shows_more() {
        assert_eq!(shown(&model(), 160, 30), include_str!("../golden/top-160x30.txt"));
    }

    #[test]
    fn one_session_can_be_looked_at_alone_and_keys_are_explained() {
        let mut model = model();
        model.press(KeyPress::Down);
        model.press(KeyPress::Enter);
        assert_eq!(shown(&model, 80, 24), include_str!("../golden/top-alone.txt"));
        model.press(KeyPress::Char('?'));
        assert_eq!(shown(&model, 80, 24), include_str!("../golden/top-help.txt"));
    }

    #[test]
    fn scripts_get_everything() {
        assert_eq!(plain_text(&model(), 100), include_str!("../golden/top-once.txt"));
        assert_eq!(plain_text(&Model::default(), 100), "");
    }

    #[test]
    fn a_first_look_has_dashes_for_rates() {
        let mut first = Model::default();
        first.take(model().now.unwrap());
        let screen = shown(&first, 80, 24);
        let greedy = screen.lines().find(|line| line.starts_with(" greedy")).unwrap();
        assert_eq!(
            greedy.split_whitespace().collect::<Vec<_>>(),
            ["greedy", "-", "-", "-", "-", "-", "2M/64M", "-", "running"]
        );
    }

    #[test]
    fn what_is_not_for_whoever_asks_has_no_place_on_the_screen() {
        let mut model = model();
        let mut now = model.now.clone().unwrap();
        now.cores.clear();
        now.interfaces.clear();
        model.take(now);
        for screen in [shown(&model, 80, 24), plain_text(&model, 160)] {
            assert!(screen.contains("greedy") && screen.contains("memory"), "{screen}");
            assert!(
                ["load", "0 cores", "BUSY%", "INTERFACE"].iter().all(|no| !screen.contains(no)),
                "{screen}"
            );
        }
    }

    #[test]
    fn what_is_the_matter_is_in_sight() {
        let mut model = model();
        model.lose("the node went away; trying again".to_owned());
        assert!(shown(&model, 80, 24).lines().last().unwrap().contains("went away; trying again"));
        let mut none = Model::default();
        none.lose("no node listens at /run/weir/node.sock".to_owned());
        assert!(shown(&none, 80, 24).contains("waiting for the node"));
        model.trouble = None;
        model.press(KeyPress::Char('p'));
        assert!(shown(&model, 80, 24).lines().next().unwrap().contains("paused"));
    }

    #[test]
    fn the_chosen_session_of_many_is_in_sight_on_a_terminal_of_any_size() {
        let mut many = model();
        let mut now = many.now.clone().unwrap();
        let one = now.sessions[1].clone();
        now.sessions = (0..300).map(|n| SessionStatus { name: format!("s{n:03}"), ..one.clone() }).collect();
        now.cores = vec![now.cores[0].clone(); 64];
        many.take(now);
        many.press(KeyPress::Last);
        for (width, height) in [(80, 24), (200, 60), (40, 10)] {
            let screen = shown(&many, width, height);
            assert!(height < 24 || screen.contains(" s299"), "{screen}");
        }
        for (width, height) in [(1, 1), (2, 2), (20, 3), (500, 200), (80, 1)] {
            shown(&many, width, height);
            shown(&Model::default(), width, height);
        }
    }

    #[test]
    fn what_strangers_wrote_commands_no_terminal() {
        let mut model = model();
        let mut now = model.now.clone().unwrap();
        for text in [&mut now.node, &mut now.version, &mut now.interfaces[0].state] {
            *text = "\u{1b}[2J\u{202e}\n".to_owned();
        }
        let session = &mut now.sessions[0];
        session.name = "\u{7}\u{1b}".to_owned();
        session.channels[0].filter = "\r\n".to_owned();
        session.channels[0].drops.insert("\u{1b}c".to_owned(), 1);
        session.modules[0].state = "\u{1b}]0;x\u{7}".to_owned();
        session.modules[0].last_fault = Some("\u{1b}[2J".to_owned());
        model.take(now);
        let text = plain_text(&model, 200);
        assert!(text.chars().all(|c| c == '\n' || weir_units::is_plain(c)), "{text:?}");
    }
}
