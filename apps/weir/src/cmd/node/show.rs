//! Prints the sessions and shared tables of a node, for `weir session list`, `weir session show` and `weir table list`.
//! Other commands use its functions for columns and amounts.

use super::findings;
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
use weir_units::{BitsPerSecond, Bytes, Nanos, escaped};

/// Prints a line for each session.
pub fn print_sessions(out: &mut impl Write, snapshot: &Snapshot) -> io::Result<()> {
    let heading =
        ["SESSION", "CPU", "MEMORY", "PRIORITY", "CHANNELS", "MODULES", "PACKETS", "DROPPED", "STATE"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(snapshot.sessions.iter().map(|session| {
        vec![
            escaped(&session.name),
            reserved_share(session),
            Bytes(session.memory_reserved).to_string(),
            session.priority.to_string(),
            session.channels.len().to_string(),
            session.modules.len().to_string(),
            packets(session).to_string(),
            dropped(session).to_string(),
            state(session),
        ]
    }));
    print_columns(out, &rows, &[0, 8])
}

/// Prints a line for each shared table, and the reasons why a reader sees an empty table.
pub fn print_shared_tables(out: &mut impl Write, snapshot: &Snapshot) -> io::Result<()> {
    let heading = ["TABLE", "PUBLISHER", "VERSION", "BYTES", "READERS"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let none = || "-".to_owned();
    rows.extend(snapshot.tables.iter().map(|table| {
        vec![
            escaped(&table.name),
            table.publisher.as_deref().map_or_else(none, escaped),
            if table.version == 0 { none() } else { table.version.to_string() },
            table.bytes.map_or_else(none, |bytes| Bytes(bytes).to_string()),
            if table.readers.is_empty() { none() } else { escaped(&table.readers.join(", ")) },
        ]
    }));
    print_columns(out, &rows, &[0, 1, 4])?;
    for table in &snapshot.tables {
        for problem in &table.problems {
            writeln!(out, "{}: shown as empty to {}", escaped(&table.name), escaped(problem))?;
        }
    }
    Ok(())
}

/// Prints all details of one session.
pub fn print_session(
    out: &mut impl Write,
    session: &SessionStatus,
    interfaces: &[InterfaceStatus],
) -> io::Result<()> {
    writeln!(
        out,
        "{}: {}, {} of memory reserved{}, {} used{}, priority {}",
        escaped(&session.name),
        state(session),
        Bytes(session.memory_reserved),
        memory_ceiling(session),
        Bytes(session.memory_used),
        memory_refused(session),
        session.priority
    )?;
    if let Some(credential) = &session.credential {
        writeln!(out, "credential: {}", escaped(credential))?;
    }
    print_usage(out, session)?;
    print_limits(out, session)?;
    print_services(out, session)?;
    print_table_grants(out, session)?;
    if !session.share.is_empty() {
        writeln!(out, "shared: {}", escaped(&session.share.join(", ")))?;
    }
    if session.sums_only {
        writeln!(out, "totals only: the session's owner has not shared more with you")?;
    }
    writeln!(out)?;
    let heading = ["CPU", "CORE", "RESERVED", "BORROW", "USED", "OF IT SPARE", "MISSED", "OVERRUNS"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(session.cpu.iter().map(|cpu| {
        vec![
            escaped(&cpu.name),
            cpu.core.to_string(),
            reservation(cpu),
            if cpu.borrow { "yes" } else { "no" }.to_owned(),
            Nanos(cpu.used_ns).to_string(),
            Nanos(cpu.spare_ns).to_string(),
            cpu.periods_missed.to_string(),
            cpu.overruns.to_string(),
        ]
    }));
    print_columns(out, &rows, &[0, 2])?;
    if !session.channels.is_empty() {
        writeln!(out)?;
        let heading = ["CHANNEL", "FROM", "PACKETS", "BYTES", "WAITING", "DROPPED"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(session.channels.iter().map(|channel| {
            vec![
                escaped(&channel.name),
                channel_source(channel),
                channel.packets.to_string(),
                Bytes(channel.bytes).to_string(),
                format!("{}/{}", channel.waiting, channel.queue),
                counted(&channel.drops),
            ]
        }));
        print_columns(out, &rows, &[0, 1, 5])?;
        print_channel_findings(out, session, interfaces)?;
    }
    if !session.outputs.is_empty() {
        writeln!(out)?;
        let mut heading = output_heading(["OUTPUT", "LINK"]);
        heading.push("TAP".to_owned());
        let mut rows = vec![heading];
        rows.extend(session.outputs.iter().map(session_output_row));
        print_columns(out, &rows, &[0, 1, 8, 9])?;
    }
    let all_modules = || session.modules.iter().chain(&session.ended);
    if all_modules().next().is_some() {
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
        rows.extend(all_modules().map(|module| {
            vec![
                escaped(&module.name),
                escaped(&module.module),
                escaped(&module.tier),
                escaped(&module.state),
                module.packets.to_string(),
                per_packet(module),
                module.records.to_string(),
                module.records_lost.to_string(),
                module.faults.to_string(),
                module.strikes.to_string(),
                Bytes(module.memory).to_string(),
                escaped(&module.streams.join(",")),
            ]
        }));
        print_columns(out, &rows, &[0, 1, 2, 3, 11])?;
        for module in all_modules() {
            for (fact, value) in module.facts() {
                writeln!(out, "{}: {fact}: {}", escaped(&module.name), escaped(&value))?;
            }
        }
        for module in all_modules() {
            if let Some(fault) = &module.last_fault {
                writeln!(out, "{}: last fault: {}", escaped(&module.name), escaped(fault))?;
            }
        }
    }
    if let Some(counts) = findings::counts(&session.findings) {
        writeln!(out, "\n{counts}")?;
        findings::latest(&session.findings).try_for_each(|(_, line)| writeln!(out, "  {line}"))?;
    }
    Ok(())
}

/// Prints the session's total usage, by the counters of the ledger.
fn print_usage(out: &mut impl Write, session: &SessionStatus) -> io::Result<()> {
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

/// Prints the session's limits other than CPU and memory, with the present use and the number of refusals.
fn print_limits(out: &mut impl Write, session: &SessionStatus) -> io::Result<()> {
    let usage = &session.limits;
    let mut parts = Vec::new();
    for (resource, limit) in Resource::limits() {
        let LimitUsage { limit: amount, in_use, refused } = usage.of(resource);
        let Some(amount) = amount else { continue };
        let unit = resource.definition().unit;
        let use_text = limit.present_use.map(|level| format!(", {} {}", level.show(in_use), level.suffix));
        let refused = match refused {
            0 => String::new(),
            refused => format!(" ({} {})", limit.excess.show(refused), limit.excess.suffix),
        };
        parts.push(format!(
            "{} {}{}{refused}",
            unit.show(amount, &[]),
            limit.suffix,
            use_text.unwrap_or_default()
        ));
    }
    if let Some(fields) = usage.writes {
        parts.push(format!("writes {fields}{}", count_in_brackets(usage.writes_refused, "refused")));
    }
    if parts.is_empty() { Ok(()) } else { writeln!(out, "limits: {}", parts.join("; ")) }
}

/// Returns a count and a word in brackets; empty for a count of 0.
fn count_in_brackets(count: u64, word: &str) -> String {
    if count == 0 { String::new() } else { format!(" ({count} {word})") }
}

/// Prints the tables that the session may publish and read, if any.
fn print_table_grants(out: &mut impl Write, session: &SessionStatus) -> io::Result<()> {
    let granted = [("publishes", &session.publish), ("reads", &session.read)];
    let granted = granted.into_iter().filter(|(_, tables)| !tables.is_empty());
    let granted: Vec<String> =
        granted.map(|(verb, tables)| format!("{verb} {}", escaped(&tables.join(", ")))).collect();
    if granted.is_empty() { Ok(()) } else { writeln!(out, "tables: {}", granted.join("; ")) }
}

/// Prints the view of each channel of the session, the results of its preprocessing, and the fragments on its
/// interface.
fn print_channel_findings(
    out: &mut impl Write,
    session: &SessionStatus,
    interfaces: &[InterfaceStatus],
) -> io::Result<()> {
    for channel in session.channels.iter().filter(|channel| !channel.view.is_empty()) {
        writeln!(out, "{}: shown by the view {}", escaped(&channel.name), escaped(&channel.view))?;
    }
    for channel in session.channels.iter().filter(|channel| !channel.findings.is_empty()) {
        writeln!(out, "{}: found {}", escaped(&channel.name), counted(&channel.findings))?;
    }
    let is_used = |interface: &&InterfaceStatus| {
        session.channels.iter().any(|channel| channel.interface == interface.name)
    };
    for interface in interfaces.iter().filter(is_used).filter(|used| !used.fragments.is_empty()) {
        writeln!(out, "{}: fragments: {}", escaped(&interface.name), counted(&interface.fragments))?;
    }
    Ok(())
}

/// Prints the services that the session offers and uses, with their call counts.
fn print_services(out: &mut impl Write, session: &SessionStatus) -> io::Result<()> {
    let usage = &session.services;
    for offer in &session.offers {
        let callers: Vec<&str> = offer.callers.iter().map(Name::as_str).collect();
        let pays = if offer.payer == CallPayer::Caller { "the caller pays" } else { "this session pays" };
        let (service, queue) = (&offer.service, offer.queue);
        writeln!(
            out,
            "offers {service} to {}, at most {queue} waiting calls for each; {pays}",
            callers.join(", ")
        )?;
    }
    for used in &session.uses {
        let pays = used
            .cost_max
            .map_or_else(String::new, |cost_max| format!(", pays at most {cost_max} for a call"));
        writeln!(out, "uses {} of {}{pays}", used.service, used.session)?;
    }
    if usage.calls + usage.refused > 0 {
        let (calls, answered, timed_out, failed, refused) =
            (usage.calls, usage.answered, usage.timed_out, usage.failed, usage.refused);
        let debit = Nanos(usage.debit_ns);
        writeln!(
            out,
            "services: {calls} calls, {answered} answered, {timed_out} timed out, {failed} failed, {refused} refused; pays {debit} for them"
        )?;
    }
    if usage.served + usage.waiting > 0 {
        let (served, waiting, discarded) = (usage.served, usage.waiting, usage.discarded);
        let credit = Nanos(usage.credit_ns);
        writeln!(
            out,
            "services: {served} calls of other sessions served, {waiting} wait, {discarded} answers discarded; other sessions pay {credit}"
        )?;
    }
    Ok(())
}

/// Describes the amount up to which the reservation of memory grows when modules need more; empty if the reservation
/// cannot grow.
fn memory_ceiling(session: &SessionStatus) -> String {
    if session.memory_max <= session.memory_reserved {
        return String::new();
    }
    format!(" (can grow to {})", Bytes(session.memory_max))
}

/// Describes the number of times that a module was refused more memory; empty if there are none.
fn memory_refused(session: &SessionStatus) -> String {
    match session.memory_refused {
        0 => String::new(),
        1 => " (1 request for more refused)".to_owned(),
        count => format!(" ({count} requests for more refused)"),
    }
}

/// Returns the cells of an output channel for `weir session show`: its name, its link, the amounts and its TAP device.
fn session_output_row(output: &OutputStatus) -> Vec<String> {
    let tap = output.tap.as_ref().map_or_else(
        || "-".to_owned(),
        |tap| format!("{} ({} in, {} lost)", escaped(tap), output.tap_packets, output.tap_lost),
    );
    let mut row = output_row([&output.name, &output.link], output);
    row.push(tap);
    row
}

/// Returns the headings for output channels: the two headings in `identity`, and the headings of the amounts.
pub fn output_heading(identity: [&str; 2]) -> Vec<String> {
    let cells = ["RESERVED", "CAP", "WEIGHT", "PACKETS", "BYTES", "WAITING", "DROPPED"];
    identity.into_iter().chain(cells).map(str::to_owned).collect()
}

/// Returns the cells of an output channel: the two cells in `identity`, and the amounts.
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
    identity.map(escaped).into_iter().chain(cells).collect()
}

/// Prints rows of text with columns as wide as their widest cell. The columns with an index in `left` are aligned left,
/// the others right.
pub fn print_columns(out: &mut impl Write, rows: &[Vec<String>], left: &[usize]) -> io::Result<()> {
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

/// Formats the share of a core that is reserved for all virtual CPUs of a session together.
pub fn reserved_share(session: &SessionStatus) -> String {
    let ppm = session.cpu.iter().map(reserved_ppm).fold(0, u64::saturating_add);
    if ppm == 0 { "-".to_owned() } else { percent(ppm) }
}

/// Returns the share of a core that is reserved for a virtual CPU, in parts per million.
pub fn reserved_ppm(cpu: &VirtualCpuStatus) -> u64 {
    let ppm = u128::from(cpu.slice_ns) * 1_000_000 / u128::from(cpu.period_ns.max(1));
    if cpu.period_ns == 0 { 0 } else { u64::try_from(ppm).unwrap_or(u64::MAX) }
}

/// Formats parts per million as a percentage with one decimal.
pub fn percent(ppm: u64) -> String {
    let tenths = ppm.saturating_add(500) / 1_000;
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// Formats the reservation of a virtual CPU: slice, period and share.
pub fn reservation(cpu: &VirtualCpuStatus) -> String {
    match cpu.period_ns {
        0 => "none".to_owned(),
        period => format!("{} in {} ({})", Nanos(cpu.slice_ns), Nanos(period), percent(reserved_ppm(cpu))),
    }
}

/// Returns the number of packets that a session's channels received.
pub fn packets(session: &SessionStatus) -> u64 {
    session.channels.iter().map(|channel| channel.packets).fold(0, u64::saturating_add)
}

/// Returns the number of packets that a session's channels lost.
pub fn dropped(session: &SessionStatus) -> u64 {
    session.channels.iter().map(drops).fold(0, u64::saturating_add)
}

/// Returns the number of packets that a channel lost, for any cause.
pub fn drops(channel: &ChannelStatus) -> u64 {
    channel.drops.values().copied().fold(0, u64::saturating_add)
}

/// Returns the state of a session: `no module` without modules, `running` if all modules run, or else the name and
/// state of the first module that does not run.
pub fn state(session: &SessionStatus) -> String {
    let all_modules = || session.modules.iter().chain(&session.ended);
    match all_modules().find(|module| module.state != "running") {
        _ if all_modules().next().is_none() => "no module".to_owned(),
        None => "running".to_owned(),
        Some(module) => format!("{}: {}", escaped(&module.name), escaped(&module.state)),
    }
}

/// Formats a module's processor time per packet in ns; a dash without packets.
pub fn per_packet(module: &ModuleStatus) -> String {
    module.used_ns.checked_div(module.packets).map_or("-".to_owned(), |nanos| nanos.to_string())
}

/// Formats the interface and filter of a channel.
pub fn channel_source(channel: &ChannelStatus) -> String {
    let interface = escaped(&channel.interface);
    if channel.filter.is_empty() { interface } else { format!("{interface}: {}", escaped(&channel.filter)) }
}

/// Formats counts by cause, without the counts of 0; a dash if there are no others.
fn counted(counts: &BTreeMap<String, u64>) -> String {
    let causes: Vec<String> = counts
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(cause, count)| format!("{count} {}", escaped(cause)))
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
        print_sessions(&mut out, &snapshot()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), include_str!("golden/list.txt"));
    }

    #[test]
    fn a_session_is_shown_with_all_details() {
        let mut out = Vec::new();
        print_session(&mut out, &snapshot().sessions[1], &snapshot().interfaces).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), include_str!("golden/session.txt"));
    }

    #[test]
    fn a_channels_view_is_shown_if_it_hides_anything() {
        let mut snapshot = snapshot();
        snapshot.sessions[1].channels[0].view = "payload=none".to_owned();
        let mut out = Vec::new();
        print_session(&mut out, &snapshot.sessions[1], &snapshot.interfaces).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("\nweb: shown by the view payload=none\n"));
    }

    #[test]
    fn control_characters_from_modules_are_escaped() {
        let mut snapshot = snapshot();
        let module = &mut snapshot.sessions[1].modules[0];
        module.state = "ended\u{1b}[2J".to_owned();
        module.last_fault = Some("\u{7}".to_owned());
        module.streams = vec!["\u{202e}".to_owned()];
        let finding = &mut snapshot.sessions[1].findings.latest[0];
        (finding.module, finding.filter) = ("\u{9b}2J".to_owned(), "tcp\r\n".to_owned());
        let mut out = Vec::new();
        print_sessions(&mut out, &snapshot).unwrap();
        print_session(&mut out, &snapshot.sessions[1], &snapshot.interfaces).unwrap();
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
