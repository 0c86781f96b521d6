// Findings of modules, and refusals of the node.

import { api } from "../api";
import { askedFor, eventOf, grouped, timesOf, whoOf } from "../model/decisions";
import { clock } from "../model/time";
import { shown } from "../model/text";
import type { FindingStatus } from "../snapshot";
import { sessionHref } from "../routes";
import { snapshot } from "../store";
import { useLoaded } from "./load";
import { Foreign, Problem } from "./text";

const SEVERITIES = ["", "informational", "low", "medium", "high", "critical"];
const SHOWN_MAX = 12;
const EVERY_MS = 15_000;

/** Findings of one session, or with `session` absent of all sessions, the newest first. */
export function Findings() {
  const all: (FindingStatus & { session: string })[] = [];
  for (const session of snapshot.value?.sessions ?? []) {
    for (const finding of session.findings?.latest ?? []) all.push({ ...finding, session: session.name });
  }
  const list = all.sort((a, b) => b.time_ns - a.time_ns).slice(0, SHOWN_MAX);
  return (
    <section aria-labelledby="findings">
      <h2 id="findings">Findings</h2>
      {list.length === 0 ? <p class="soft">No module has reported a finding.</p> : <FindingList list={list} />}
    </section>
  );
}

export function FindingList({ list }: { list: (FindingStatus & { session?: string })[] }) {
  return (
    <ul class="news">{list.map((finding) => {
      const severity = SEVERITIES[finding.severity] ?? "unknown severity";
      return (
        <li class={finding.severity >= 4 ? "severe" : finding.severity === 3 ? "medium" : ""}>
          <p><strong>{severity}</strong> <Foreign text={finding.text} max={160} /></p>
          <p class="soft">{clock(finding.time_ns / 1e6)} {finding.session !== undefined && <><a href={sessionHref(finding.session)}>{shown(finding.session)}</a> / </>}
            <Foreign text={finding.module} max={48} />
            {finding.filter && <> · filter <code><Foreign text={finding.filter} max={80} /></code></>}
          </p>
        </li>
      );
    })}</ul>
  );
}

export function Refusals() {
  const { value, problem } = useLoaded(() => api.decisions(3600), [], EVERY_MS);
  const refused = grouped((value?.decisions ?? []).filter((decision) => decision.outcome === "refused" || decision.outcome === "failed"));
  return (
    <section aria-labelledby="refusals">
      <div class="title"><h2 id="refusals">Refused in the last hour</h2>{refused.length > 0 && <div class="side"><a href="#/decisions">All decisions and what to grant</a></div>}</div>
      {problem !== null && <Problem text={problem} />}
      {value !== null && problem === null && refused.length === 0 && <p class="soft">No request was refused.</p>}
      <ul class="news">{refused.slice(0, SHOWN_MAX).map((decision) => (
        <li class="medium">
          <p>{eventOf(decision) ?? <>{whoOf(decision)} asked {askedFor(decision)}</>}{decision.session !== null && <> <strong><Foreign text={decision.session} max={48} /></strong></>}{timesOf(decision)}</p>
          <p class="soft">{clock(decision.end_ms)} · <Foreign text={decision.reason ?? "no reason was noted"} max={200} /></p>
        </li>
      ))}</ul>
    </section>
  );
}
