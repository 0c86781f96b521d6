//! Services that do not answer, refuse, state errors, or have obsolete TLS.

use super::OverviewFacts;
use super::digest::ProblemRow;
use super::facts::{ByService, EventSpan, ServiceKey};
use super::servers::ServerFacts;
use super::services::ServiceLabels;
use weir_rows::text::{date, with_commas};
use weir_units::Timestamp;

/// The least number of failures that are a problem, and of all uses a quarter.
const FAILURES_MIN: u64 = 10;

/// A problem before it is a row.
struct ServiceProblem {
    key: ServiceKey,
    count: u64,
    span: EventSpan,
    text: String,
}

/// Returns the problems, by number of cases.
pub(super) fn problems(facts: &OverviewFacts, labels: &ServiceLabels) -> Vec<ProblemRow> {
    let mut found = Vec::new();
    unreachable(facts, &mut found);
    if let Some(dns) = &facts.dns {
        failing(&dns.servers, &mut found, |server| {
            let (unanswered, errors) = (with_commas(server.unanswered), with_commas(server.errors));
            let uses = with_commas(server.uses);
            format!(
                "of {uses} DNS queries, {unanswered} were not answered, and {errors} were refused or failed (SERVFAIL)"
            )
        });
    }
    if let Some(http) = &facts.http {
        failing(&http.servers, &mut found, |server| {
            let (errors, uses) = (with_commas(server.errors), with_commas(server.uses));
            format!("{errors} of {uses} HTTP responses have a status of 500 or above")
        });
    }
    if let Some(tls) = &facts.tls {
        failing(&tls.servers, &mut found, |server| {
            let (errors, uses) = (with_commas(server.errors), with_commas(server.uses));
            format!("{errors} of {uses} TLS handshakes ended in a fatal alert")
        });
        certificates(&tls.servers, &mut found);
    }
    found.sort_by(|a, b| b.count.cmp(&a.count).then(a.key.cmp(&b.key)).then_with(|| a.text.cmp(&b.text)));
    let row = |problem: ServiceProblem| ProblemRow {
        service: labels.full(problem.key),
        text: problem.text,
        count: problem.count,
        first: Timestamp(problem.span.first),
        last: Timestamp(problem.span.last),
    };
    found.into_iter().map(row).collect()
}

/// Adds the services of which nine of ten connections failed.
fn unreachable(facts: &OverviewFacts, found: &mut Vec<ServiceProblem>) {
    for (key, _, attempts) in facts.flows.iter().flat_map(|flows| flows.attempts.heaviest(usize::MAX)) {
        let is_flooded = facts.syn_flood.as_ref().is_some_and(|floods| floods.victims.contains(&key.address));
        if attempts.failed() < FAILURES_MIN || attempts.failed() < attempts.all / 10 * 9 || is_flooded {
            continue;
        }
        let (unanswered, refused) = (with_commas(attempts.unanswered), with_commas(attempts.refused));
        found.push(ServiceProblem {
            key,
            count: attempts.failed(),
            span: attempts.failures,
            text: format!(
                "{} of {} connections failed: {unanswered} without answer, {refused} refused",
                with_commas(attempts.failed()),
                with_commas(attempts.all)
            ),
        });
    }
}

/// Adds the servers that fail, each with a text.
fn failing(
    servers: &ByService<ServerFacts>,
    found: &mut Vec<ServiceProblem>,
    text: impl Fn(&ServerFacts) -> String,
) {
    for (key, _, server) in servers.heaviest(usize::MAX) {
        let count = server.unanswered + server.errors;
        if count >= FAILURES_MIN && count >= server.uses / 4 {
            found.push(ServiceProblem { key, count, span: server.failures, text: text(server) });
        }
    }
}

/// Adds the servers with wrong certificates or obsolete versions.
fn certificates(servers: &ByService<ServerFacts>, found: &mut Vec<ServiceProblem>) {
    for (key, _, server) in servers.heaviest(usize::MAX) {
        let facts = &server.certificate;
        let mut texts = Vec::new();
        let handshakes = |number: u64| {
            format!("{} TLS handshake{}", with_commas(number), if number == 1 { "" } else { "s" })
        };
        if facts.expired > 0 {
            let end = date(Timestamp(facts.not_after), 0);
            let end = end.get(..10).unwrap_or_default();
            texts.push(format!("certificate expired on {end} in {}", handshakes(facts.expired)));
        }
        if facts.not_yet_valid > 0 {
            texts.push(format!("certificate not yet valid in {}", handshakes(facts.not_yet_valid)));
        }
        if facts.obsolete > 0 {
            texts.push(format!("obsolete version {} in {}", facts.version, handshakes(facts.obsolete)));
        }
        if !texts.is_empty() {
            let count = facts.expired + facts.not_yet_valid + facts.obsolete;
            found.push(ServiceProblem { key, count, span: facts.times, text: texts.join("; ") });
        }
    }
}
