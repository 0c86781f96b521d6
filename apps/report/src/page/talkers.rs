//! The tables of hosts, protocols and conversations.

use super::section;
use crate::TrafficTotals;
use crate::series::float;
use crate::table::{HtmlCell, cells, headings, scrolled, table_with_bars};
use crate::talkers::PacketBytes;
use maud::{Markup, html};
use std::net::Ipv6Addr;
use weir_rows::text::{duration, grouped, significant};
use weir_units::{AddressText, Bytes};

/// Rows of the tables of hosts and of conversations.
const ROWS: usize = 20;
/// Rows of a protocol in the table of protocols.
const PARTS: usize = 10;

/// Renders the three sections.
pub(super) fn talkers(traffic: &TrafficTotals) -> Markup {
    let protocols = traffic.protocols.rows(PARTS);
    let mut total = PacketBytes::default();
    protocols.iter().filter(|row| row.depth == 0).for_each(|row| total.add(row.amount));
    let talkers = traffic.talkers.settled();
    let start = traffic.over_time.span().map_or(0, |span| span.0);
    html! {
        (hosts(&talkers.hosts, total))
        (section("protocols", &html! { "Protocols" }, &protocol_table(&protocols, total)))
        (conversations(&talkers.conversations, total, start))
    }
}

/// States how exact a table is. `missed_max` is the most that a row can be too small; `None` if all rows were kept. `next` is
/// the weight of the first row that is not shown.
fn accuracy(
    things: &str,
    (kept, shown): (usize, usize),
    missed_max: Option<u64>,
    next: u64,
    total: PacketBytes,
) -> String {
    let all = grouped(kept as u64);
    let Some(missed_max) = missed_max else {
        return match kept > shown {
            true => format!("The {shown} of {all} {things} with most bytes. All numbers are exact."),
            false => format!("All {all} {things}. All numbers are exact."),
        };
    };
    let share = significant(float(missed_max) / float(total.bytes.max(1)) * 100.0);
    format!(
        "The {shown} {things} with most bytes, of more than {all}. Bytes of a row can be too small by at most {} \
         ({share} % of all bytes); packets can be too few, too. No other has more than {} in total.",
        Bytes(missed_max),
        Bytes(next.saturating_add(missed_max))
    )
}

fn amounts(amount: PacketBytes) -> [HtmlCell; 2] {
    [HtmlCell::right(&grouped(amount.packets)), HtmlCell::right(&Bytes(amount.bytes).to_string())]
}

fn address(address: Ipv6Addr) -> HtmlCell {
    HtmlCell::left(AddressText::new(address).as_str())
}

type Hosts = crate::top::TopKeys<Ipv6Addr, crate::talkers::HostTraffic>;

fn hosts(hosts: &Hosts, total: PacketBytes) -> Markup {
    let heaviest = hosts.heaviest(ROWS + 1);
    let shown = heaviest.get(..ROWS).unwrap_or(&heaviest);
    let next = heaviest.get(ROWS).map_or(0, |host| host.1);
    let most = heaviest.first().map_or(1, |host| host.1.max(1));
    let head = [
        HtmlCell::left("address"),
        HtmlCell::right("packets sent"),
        HtmlCell::right("bytes sent"),
        HtmlCell::right("packets received"),
        HtmlCell::right("bytes received"),
    ];
    let rows = shown.iter().map(|(host, bytes, traffic)| {
        let mut row = vec![address(*host)];
        row.extend(amounts(traffic.sent));
        row.extend(amounts(traffic.received));
        (row, float(*bytes) / float(most))
    });
    let missed_max = hosts.incomplete.then(|| hosts.missed_max());
    let accuracy = accuracy("addresses", (hosts.len(), shown.len()), missed_max, next, total);
    let content = html! {
        @if shown.is_empty() {
            p.note { "No packet has an IP header." }
        } @else {
            p.note { "By the outermost IP header; the bar is the bytes in both directions. " (accuracy) }
            (table_with_bars("Hosts with most bytes", &head, rows))
        }
    };
    section("talkers", &html! { "Talkers" }, &content)
}

type Conversations = crate::top::TopKeys<(Ipv6Addr, Ipv6Addr), crate::talkers::ConversationTraffic>;

fn conversations(conversations: &Conversations, total: PacketBytes, start: u64) -> Markup {
    let heaviest = conversations.heaviest(ROWS + 1);
    let shown = heaviest.get(..ROWS).unwrap_or(&heaviest);
    let next = heaviest.get(ROWS).map_or(0, |conversation| conversation.1);
    let most = heaviest.first().map_or(1, |conversation| conversation.1.max(1));
    let head = [
        HtmlCell::left("address A"),
        HtmlCell::left("address B"),
        HtmlCell::right("packets A to B"),
        HtmlCell::right("bytes A to B"),
        HtmlCell::right("packets B to A"),
        HtmlCell::right("bytes B to A"),
        HtmlCell::right("begins after"),
        HtmlCell::right("duration"),
    ];
    let since = |later: u64, earlier: u64| HtmlCell::right(&duration(float(later.saturating_sub(earlier))));
    let rows = shown.iter().map(|((a, b), bytes, traffic)| {
        let mut row = vec![address(*a), address(*b)];
        row.extend(amounts(traffic.forth));
        row.extend(amounts(traffic.back));
        row.extend([since(traffic.first, start), since(traffic.last, traffic.first)]);
        (row, float(*bytes) / float(most))
    });
    let missed_max = conversations.incomplete.then(|| conversations.missed_max());
    let accuracy =
        accuracy("pairs of addresses", (conversations.len(), shown.len()), missed_max, next, total);
    let content = html! {
        @if shown.is_empty() {
            p.note { "No packet has an IP header." }
        } @else {
            p.note { "All packets between two addresses, by the outermost IP header. " (accuracy) }
            (table_with_bars("Conversations with most bytes", &head, rows))
        }
    };
    section("conversations", &html! { "Conversations" }, &content)
}

fn protocol_table(rows: &[crate::protocols::ProtocolRow], total: PacketBytes) -> Markup {
    let head = [
        HtmlCell::left("protocol"),
        HtmlCell::right("packets"),
        HtmlCell::right("% of packets"),
        HtmlCell::right("bytes"),
        HtmlCell::right("% of bytes"),
    ];
    let percent =
        |part: u64, all: u64| HtmlCell::right(&significant(float(part) / float(all.max(1)) * 100.0));
    let body = html! {
        thead { tr { (headings(&head)) } }
        tbody {
            @for row in rows {
                tr {
                    th.tree scope="row" style={ "padding-left:" (row.depth * 20) "px" } { (row.name) }
                    @let [packets, bytes] = amounts(row.amount);
                    (cells(&[
                        packets,
                        percent(row.amount.packets, total.packets),
                        bytes,
                        percent(row.amount.bytes, total.bytes),
                    ]))
                }
            }
        }
    };
    html! {
        p.note {
            "By the outermost IP header, and of TCP and UDP by the lower of the two ports that is a service port: "
            "one below 1024, or one that has a name in filters. All numbers are exact."
        }
        (scrolled("Packets and bytes by protocol", &body))
    }
}
