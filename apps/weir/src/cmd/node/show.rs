//! Prints sessions, tables and channels for people and scripts.

use std::collections::BTreeMap;
use std::io::{self, Write};
use weir_admission::Name;
use weir_ledger::{LedgerColumn, UsageCounter};
use weir_node::control::protocol::{
    ChannelStatus, InterfaceStatus, LimitUsage, ModuleStatus, OutputStatus, SessionStatus, Snapshot,
    VirtualCpuStatus,
};
use weir_node::control::services::CallPayer;
use weir_trust::grant::Resource;
use weir_units::{BitsPerSecond, Bytes, Nanos, shown};

/// Prints a line for each session.
pub fn list(out: &mut impl Write, snapshot: &Snapshot) -> io::Result<()> {
    let heading =
        ["SESSION", "CPU", "MEMORY", "PRIORITY", "CHANNELS", "MODULES", "PACKETS", "DROPPED", "STATE"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(snapshot.sessions.iter().map(|session| {
        vec![
            shown(&session.name),
            reserved(session),
            Bytes(session.memory_reserved).to_string(),
            session.priority.to_string(),
            session.channels.len().to_string(),
            session.modules.len().to_string(),
            packets(session).to_string(),
            dropped(session).to_string(),
            state(session),
        ]
    }));
    table(out, &rows, &[0, 8])
}

/// Prints a line for each table.
pub fn tables(out: &mut impl Write, snapshot: &Snapshot) -> io::Result<()> {
    let heading = ["TABLE", "PUBLISHER", "VERSION", "BYTES", "READERS"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let none = || "-".to_owned();
    rows.extend(snapshot.tables.iter().map(|table| {
        vec![
            shown(&table.name),
            table.publisher.as_deref().map_or_else(none, shown),
            if table.version == 0 { none() } else { table.version.to_string() },
            table.bytes.map_or_else(none, |bytes| Bytes(bytes).to_string()),
            if table.readers.is_empty() { none() } else { shown(&table.readers.join(", ")) },
        ]
    }));
    self::table(out, &rows, &[0, 1, 4])?;
    for table in &snapshot.tables {
        for problem in &table.problems {
            writeln!(out, "{}: shown as empty to {}", shown(&table.name), shown(problem))?;
        }
    }
    Ok(())
}

/// Prints all details of one session.
pub fn session(
    out: &mut impl Write,
    session: &SessionStatus,
    interfaces: &[InterfaceStatus],
) -> io::Result<()> {
    writeln!(
        out,
        "{}: {}, {} of memory reserved{}, {} used{}, priority {}",
        shown(&session.name),
        state(session),
        Bytes(session.memory_reserved),
        memory_ceiling(session),
        Bytes(session.memory_used),
        memory_refused(session),
        session.priority
    )?;
    if let Some(credential) = &session.credential {
        writeln!(out, "credential: {}", shown(credential))?;
    }
    used(out, session)?;
    limits(out, session)?;
    services(out, session)?;
    table_grants(out, session)?;
    if !session.share.is_empty() {
        writeln!(out, "shared: {}", shown(&session.share.join(", ")))?;
    }
    if session.sums_only {
        writeln!(out, "totals only: the session's owner has not shared more with you")?;
    }
    writeln!(out)?;
    let heading = ["CPU", "CORE", "RESERVED", "BORROW", "USED", "OF IT SPARE", "MISSED", "OVERRUNS"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(session.cpu.iter().map(|cpu| {
        vec![
            shown(&cpu.name),
            cpu.core.to_string(),
            reservation(cpu),
            if cpu.borrow { "yes" } else { "no" }.to_owned(),
            Nanos(cpu.used_ns).to_string(),
            Nanos(cpu.spare_ns).to_string(),
            cpu.periods_missed.to_string(),
            cpu.overruns.to_string(),
        ]
    }));
    table(out, &rows, &[0, 2])?;
    if !session.channels.is_empty() {
        writeln!(out)?;
        let heading = ["CHANNEL", "FROM", "PACKETS", "BYTES", "WAITING", "DROPPED"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(session.channels.iter().map(|channel| {
            vec![
                shown(&channel.name),
                from(channel),
                channel.packets.to_string(),
                Bytes(channel.bytes).to_string(),
                format!("{}/{}", channel.waiting, channel.queue),
                causes(channel),
            ]
        }));
        table(out, &rows, &[0, 1, 5])?;
        channel_findings(out, session, interfaces)?;
    }
    if !session.outputs.is_empty() {
        writeln!(out)?;
        let mut heading = output_heading(["OUTPUT", "LINK"]);
        heading.push("TAP".to_owned());
        let mut rows = vec![heading];
        rows.extend(session.outputs.iter().map(output_line));
        table(out, &rows, &[0, 1, 8, 9])?;
    }
    let all = || session.modules.iter().chain(&session.ended);
    if all().next().is_some() {
        writeln!(out)?;
        let heading = [
            "MODULE",
            "IS",
            "TIER",
            "STATE",
            "PACKETS",
            "NS/PACKET",
            "RECORDS",
            "LOST",
            "FAULTS",
            "STRIKES",
            "MEMORY",
            "STREAMS",
        ];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(all().map(|module| {
            vec![
                shown(&module.name),
                shown(&module.module),
                shown(&module.tier),
                shown(&module.state),
                module.packets.to_string(),
                per_packet(module),
                module.records.to_string(),
                module.records_lost.to_string(),
                module.faults.to_string(),
                module.strikes.to_string(),
                Bytes(module.memory).to_string(),
                shown(&module.streams.join(",")),
            ]
        }));
        table(out, &rows, &[0, 1, 2, 3, 11])?;
        for module in all().filter(|module| !module.isolation.is_empty()) {
            writeln!(out, "{}: isolation: {}", shown(&module.name), shown(&module.isolation))?;
        }
        for module in all() {
            if let Some(fault) = &module.last_fault {
                writeln!(out, "{}: last fault: {}", shown(&module.name), shown(fault))?;
            }
        }
    }
    Ok(())
}

/// Prints the session's total usage, by the counters of the ledger.
fn used(out: &mut impl Write, session: &SessionStatus) -> io::Result<()> {
    let amount = |(counter, value): (&UsageCounter, u64)| {
        let LedgerColumn { title, unit, .. } = counter.column;
        match unit {
            "s" => format!("{title} {}", Nanos(value)),
            "B" => format!("{} {title}", Bytes(value)),
            "" => format!("{value} {title}"),
            unit => format!("{value} {unit} {title}"),
        }
    };
    let used: Vec<String> = session.used.counts().filter(|(_, value)| *value > 0).map(amount).collect();
    if used.is_empty() { Ok(()) } else { writeln!(out, "used: {}", used.join(", ")) }
}

/// Prints the session's limits other than CPU and memory, with the number of times each was hit.
fn limits(out: &mut impl Write, session: &SessionStatus) -> io::Result<()> {
    let it = &session.limits;
    let mut parts = Vec::new();
    for (resource, limit) in Resource::limits() {
        let LimitUsage { most, taken, beyond } = it.of(resource);
        let Some(most) = most else { continue };
        let unit = resource.definition().unit;
        let taken_text = limit.present_use.map(|level| format!(", {} {}", level.show(taken), level.word));
        let beyond = match beyond {
            0 => String::new(),
            beyond => format!(" ({} {})", limit.excess.show(beyond), limit.excess.word),
        };
        parts.push(format!(
            "{} {}{}{beyond}",
            unit.show(most, &[]),
            limit.words,
            taken_text.unwrap_or_default()
        ));
    }
    if let Some(fields) = it.writes {
        parts.push(format!("writes {fields}{}", times(it.writes_refused, "refused")));
    }
    if parts.is_empty() { Ok(()) } else { writeln!(out, "limits: {}", parts.join("; ")) }
}

/// Returns a count with a word in brackets; empty for a count of 0.
fn times(count: u64, what: &str) -> String {
    if count == 0 { String::new() } else { format!(" ({count} {what})") }
}

/// Prints the tables that the session may publish and read, if any.
fn table_grants(out: &mut impl Write, session: &SessionStatus) -> io::Result<()> {
    let granted = [("publishes", &session.publish), ("reads", &session.read)];
    let granted = granted.into_iter().filter(|(_, tables)| !tables.is_empty());
    let granted: Vec<String> =
        granted.map(|(does, tables)| format!("{does} {}", shown(&tables.join(", ")))).collect();
    if granted.is_empty() { Ok(()) } else { writeln!(out, "tables: {}", granted.join("; ")) }
}

/// Prints the views and findings of the session's channels, and the fragments on their interfaces.
fn channel_findings(
    out: &mut impl Write,
    session: &SessionStatus,
    interfaces: &[InterfaceStatus],
) -> io::Result<()> {
    for channel in session.channels.iter().filter(|channel| !channel.view.is_empty()) {
        writeln!(out, "{}: shown by the view {}", shown(&channel.name), shown(&channel.view))?;
    }
    for channel in session.channels.iter().filter(|channel| !channel.findings.is_empty()) {
        writeln!(out, "{}: found {}", shown(&channel.name), counted(&channel.findings))?;
    }
    let is_used = |it: &&InterfaceStatus| session.channels.iter().any(|channel| channel.interface == it.name);
    for interface in interfaces.iter().filter(is_used).filter(|it| !it.fragments.is_empty()) {
        writeln!(out, "{}: fragments: {}", shown(&interface.name), counted(&interface.fragments))?;
    }
    Ok(())
}

/// Prints the services that the session offers and uses, with their call counts.
fn services(out: &mut impl Write, session: &SessionStatus) -> io::Result<()> {
    let it = &session.services;
    for offer in &session.offers {
        let callers: Vec<&str> = offer.callers.iter().map(Name::as_str).collect();
        let pays = if offer.payer == CallPayer::Caller { "the caller pays" } else { "this session pays" };
        let (service, queue) = (&offer.service, offer.queue);
        writeln!(
            out,
            "offers {service} to {}, of each {queue} calls wait at most; {pays}",
            callers.join(", ")
        )?;
    }
    for used in &session.uses {
        let pays = used.cost_max.map_or_else(String::new, |most| format!(", pays at most {most} for a call"));
        writeln!(out, "uses {} of {}{pays}", used.service, used.session)?;
    }
    if it.calls + it.refused > 0 {
        let (calls, answered, timed_out, failed, refused) =
            (it.calls, it.answered, it.timed_out, it.failed, it.refused);
        let debit = Nanos(it.debit_ns);
        writeln!(
            out,
            "services: {calls} calls, {answered} answered, {timed_out} timed out, {failed} failed, {refused} refused; pays {debit} for them"
        )?;
    }
    if it.served + it.waiting > 0 {
        let (served, waiting, discarded, credit) = (it.served, it.waiting, it.discarded, Nanos(it.credit_ns));
        writeln!(
            out,
            "services: {served} calls of others served, {waiting} wait, {discarded} answers discarded; others pay {credit}"
        )?;
    }
    Ok(())
}

/// Describes the memory that the session may reserve without a request; empty if the session has reserved all of it.
fn memory_ceiling(session: &SessionStatus) -> String {
    if session.memory_max <= session.memory_reserved {
        return String::new();
    }
    format!(" (up to {} by itself)", Bytes(session.memory_max))
}

/// Describes the number of refused memory requests of the session; empty if there are none.
fn memory_refused(session: &SessionStatus) -> String {
    match session.memory_refused {
        0 => String::new(),
        1 => " (more was wanted once)".to_owned(),
        times => format!(" (more was wanted {times} times)"),
    }
}

/// Returns the line of an output channel.
fn output_line(output: &OutputStatus) -> Vec<String> {
    let tap = output.tap.as_ref().map_or_else(
        || "-".to_owned(),
        |tap| format!("{} ({} in, {} lost)", shown(tap), output.tap_packets, output.tap_lost),
    );
    let mut row = output_row([&output.name, &output.link], output);
    row.push(tap);
    row
}

/// Returns the headings for output channels, after the two that identify a channel.
pub fn output_heading(identity: [&str; 2]) -> Vec<String> {
    let cells = ["RESERVED", "CAP", "WEIGHT", "PACKETS", "BYTES", "WAITING", "DROPPED"];
    identity.into_iter().chain(cells).map(str::to_owned).collect()
}

/// Returns the cells of an output channel, after the two that identify it.
pub fn output_row(identity: [&str; 2], output: &OutputStatus) -> Vec<String> {
    let rate = |bits: u64| if bits == 0 { "-".to_owned() } else { BitsPerSecond(bits).to_string() };
    let cells = [
        rate(output.reserved_bits),
        rate(output.cap_bits),
        output.weight.to_string(),
        output.packets.to_string(),
        Bytes(output.bytes).to_string(),
        format!("{}/{}", output.waiting, output.queue),
        counted(&output.drops),
    ];
    identity.map(shown).into_iter().chain(cells).collect()
}

/// Prints rows with columns as wide as their widest cell. The columns in `left` are aligned left, the others right.
pub fn table(out: &mut impl Write, rows: &[Vec<String>], left: &[usize]) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let padding = " ".repeat(width - cell.chars().count());
            line.push_str(if at == 0 { "" } else { "  " });
            let (before, after) =
                if left.contains(&at) { ("", padding.as_str()) } else { (padding.as_str(), "") };
            line.extend([before, cell, after]);
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// The share of a core reserved for all virtual CPUs of a session.
pub fn reserved(session: &SessionStatus) -> String {
    let ppm = session.cpu.iter().map(reserved_ppm).fold(0, u64::saturating_add);
    if ppm == 0 { "-".to_owned() } else { percent(ppm) }
}

/// The reserved share of a core in parts per million.
pub fn reserved_ppm(cpu: &VirtualCpuStatus) -> u64 {
    let ppm = u128::from(cpu.slice_ns) * 1_000_000 / u128::from(cpu.period_ns.max(1));
    if cpu.period_ns == 0 { 0 } else { u64::try_from(ppm).unwrap_or(u64::MAX) }
}

/// Parts per million as a percentage with one decimal.
pub fn percent(ppm: u64) -> String {
    let tenths = ppm.saturating_add(500) / 1_000;
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// The reservation of a virtual CPU.
pub fn reservation(cpu: &VirtualCpuStatus) -> String {
    match cpu.period_ns {
        0 => "none".to_owned(),
        period => format!("{} in {} ({})", Nanos(cpu.slice_ns), Nanos(period), percent(reserved_ppm(cpu))),
    }
}

/// Packets received by a session.
pub fn packets(session: &SessionStatus) -> u64 {
    session.channels.iter().map(|channel| channel.packets).fold(0, u64::saturating_add)
}

/// Packets lost by a session.
pub fn dropped(session: &SessionStatus) -> u64 {
    session.channels.iter().map(drops).fold(0, u64::saturating_add)
}

/// Packets lost by a channel.
pub fn drops(channel: &ChannelStatus) -> u64 {
    channel.drops.values().copied().fold(0, u64::saturating_add)
}

/// `running` if all modules of the session run; otherwise the state of the first that does not.
pub fn state(session: &SessionStatus) -> String {
    let all = || session.modules.iter().chain(&session.ended);
    match all().find(|module| module.state != "running") {
        _ if all().next().is_none() => "no module".to_owned(),
        None => "running".to_owned(),
        Some(module) => format!("{}: {}", shown(&module.name), shown(&module.state)),
    }
}

/// Processor time per packet in ns.
pub fn per_packet(module: &ModuleStatus) -> String {
    module.used_ns.checked_div(module.packets).map_or("-".to_owned(), |nanos| nanos.to_string())
}

/// The interface and filter of a channel.
pub fn from(channel: &ChannelStatus) -> String {
    let interface = shown(&channel.interface);
    if channel.filter.is_empty() { interface } else { format!("{interface}: {}", shown(&channel.filter)) }
}

/// The losses of a channel by cause.
pub fn causes(channel: &ChannelStatus) -> String {
    counted(&channel.drops)
}

/// Packet counts by cause.
fn counted(drops: &BTreeMap<String, u64>) -> String {
    let causes: Vec<String> = drops
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(cause, count)| format!("{count} {}", shown(cause)))
        .collect();
    if causes.is_empty() { "-".to_owned() } else { causes.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        serde_json::from_str(include_str!("../../../../node/tests/snapshot.json")).unwrap()
    }

    #[test]
    fn sessions_are_listed() {
        let mut out = Vec::new();
        list(&mut out, &snapshot()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), include_str!("golden/list.txt"));
    }

    #[test]
    fn a_session_is_shown_with_all_details() {
        let mut out = Vec::new();
        session(&mut out, &snapshot().sessions[1], &snapshot().interfaces).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), include_str!("golden/session.txt"));
    }

    #[test]
    fn a_channels_view_is_shown_if_it_hides_anything() {
        let mut snapshot = snapshot();
        snapshot.sessions[1].channels[0].view = "payload=none".to_owned();
        let mut out = Vec::new();
        session(&mut out, &snapshot.sessions[1], &snapshot.interfaces).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("\nweb: shown by the view payload=none\n"));
    }

    #[test]
    fn control_characters_from_modules_are_escaped() {
        let mut snapshot = snapshot();
        let module = &mut snapshot.sessions[1].modules[0];
        module.state = "ended\u{1b}[2J".to_owned();
        module.last_fault = Some("\u{7}".to_owned());
        module.streams = vec!["\u{202e}".to_owned()];
        let mut out = Vec::new();
        list(&mut out, &snapshot).unwrap();
        session(&mut out, &snapshot.sessions[1], &snapshot.interfaces).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.chars().all(|c| c == '\n' || weir_units::is_plain(c)), "{text:?}");
        assert!(text.contains("rtt: ended"));
    }

    #[test]
    fn reservations_of_any_size_are_shares() {
        let cpu =
            |period_ns, slice_ns| VirtualCpuStatus { period_ns, slice_ns, ..VirtualCpuStatus::default() };
        assert_eq!(reserved_ppm(&cpu(3, 1)), 333_333);
        assert_eq!(reserved_ppm(&cpu(0, 1)), 0);
        assert_eq!(reserved_ppm(&cpu(1, u64::MAX)), u64::MAX);
        assert_eq!([0, 333_333, 1_000_000].map(percent), ["0.0 %", "33.3 %", "100.0 %"]);
        percent(u64::MAX);
    }
}
