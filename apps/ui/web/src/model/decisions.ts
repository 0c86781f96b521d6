// Decisions of the node in words.

import type { Decision } from "../api";
import { plural, shortKey, shown } from "./text";

const REQUESTS: Record<string, [string, string]> = {
  create: ["to create the session", "to create a session"],
  change: ["to change the session", "to change a session"],
  close: ["to close the session", "to close a session"],
  load: ["to load a module into the session", "to load a module"],
  unload: ["to unload a module of the session", "to unload a module"],
  upload: ["to upload a module for the session", "to upload a module"],
  follow: ["to follow the rows of the session", "to follow rows"],
  records: ["to list stored records of the session", "to list stored records"],
  "fetch-records": ["to fetch stored records of the session", "to fetch stored records"],
  ledger: ["to read the ledger of the session", "to read the ledger"],
  "put-table": ["to publish a table for the session", "to publish a table"],
  "remove-table": ["to remove a table of the session", "to remove a table"],
  "change-link": ["to change a link of the session", "to change the rate of a link"],
  revoke: ["to revoke a credential of the session", "to revoke credentials"],
  revocations: ["to read the revocations for the session", "to read the revocations"],
  "(not read)": ["something that the node did not read, about the session", "something that the node did not read"],
  show: ["to see the session", "to see the node's state"],
  watch: ["to watch the session", "to watch the node's state"],
  explain: ["for an explanation about the session", "for an explanation"],
  credentials: ["to list credentials of the session", "to list credentials"],
  reload: ["to reload the configuration", "to reload the configuration"],
  connect: ["to connect for the session", "to connect"],
};

/** Returns the requester: `the operator`, or a shortened key. */
export function whoOf(decision: Decision): string {
  return decision.who === null ? "The operator" : shortKey(shown(decision.who));
}

/** The entry for all requests that the node's ledger only counts. */
const UNLISTED = "(not listed singly)";

/** Entries of the ledger that tell of no single request, as sentences. */
const EVENTS: Record<string, (decision: Decision) => string> = {
  "(end)": () => "The node ended the session",
  "(revocation)": () => "A root delivered a list of revocations",
  [UNLISTED]: ({ count }) => `The node did not list ${plural(count, "request")} one by one`,
};

/** Returns the number of equal requests as `, 3 times`; empty for one, and for an entry whose sentence has the number. */
export function timesOf(decision: Decision): string {
  return decision.count > 1 && decision.request !== UNLISTED ? `, ${plural(decision.count, "time")}` : "";
}

/** Returns the sentence of an entry that tells of no single request; null for a request. */
export function eventOf(decision: Decision): string | null {
  return Object.hasOwn(EVENTS, decision.request) ? EVENTS[decision.request]?.(decision) ?? null : null;
}

/** Returns the request as the end of `… asked`; the session's name follows where one is concerned. */
export function askedFor(decision: Decision): string {
  const words = Object.hasOwn(REQUESTS, decision.request) ? REQUESTS[decision.request] : undefined;
  if (words) return decision.session === null ? words[1] : words[0];
  return `for “${shown(decision.request)}”${decision.session === null ? "" : " of the session"}`;
}

export type OutcomeFilter = "all" | "bad" | "refused" | "failed" | "allowed" | "closed";

const OUTCOMES: Record<string, string> = {
  allowed: "allowed",
  refused: "refused: no right",
  failed: "failed",
  closed: "session ended",
};

/** Returns an outcome in words. */
export function outcomeOf(outcome: string): string {
  return Object.hasOwn(OUTCOMES, outcome) ? (OUTCOMES[outcome] as string) : shown(outcome);
}

/** Returns true if a request was not executed. */
export function isBad(outcome: string): boolean {
  return outcome !== "allowed";
}

/** Returns the decisions that pass all filters. */
export function filtered(
  decisions: readonly Decision[],
  filter: { outcome: OutcomeFilter; session: string; who: string },
): Decision[] {
  const has = (text: string | null, wanted: string) => (text ?? "").toLowerCase().includes(wanted.trim().toLowerCase());
  return decisions.filter(
    (decision) =>
      (filter.outcome === "all" || (filter.outcome === "bad" && isBad(decision.outcome)) || decision.outcome === filter.outcome) &&
      has(decision.session, filter.session) &&
      // An entry that tells of no single request has no requester.
      has(decision.who ?? (eventOf(decision) === null ? "operator" : ""), filter.who),
  );
}

/** Times in a reason, which differ in each entry of the same refusal. */
const TIME = /\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?Z/g;

/**
 * Returns the decisions, the latest first, with equal refusals as one. A program that tries again each second would fill the
 * list otherwise.
 */
export function grouped(decisions: readonly Decision[]): Decision[] {
  const groups = new Map<string, Decision>();
  const list: Decision[] = [];
  for (const decision of decisions) {
    const { request, session, outcome, who, credentials, reason } = decision;
    const key = JSON.stringify([request, session, outcome, who, credentials, reason?.replace(TIME, "")]);
    const group = isBad(outcome) && eventOf(decision) === null ? groups.get(key) : undefined;
    if (group) {
      group.count += decision.count;
      group.begin_ms = Math.min(group.begin_ms, decision.begin_ms);
      group.end_ms = Math.max(group.end_ms, decision.end_ms);
    } else {
      const copy = { ...decision };
      groups.set(key, copy);
      list.push(copy);
    }
  }
  return list;
}

/**
 * Returns what a user has to know before an advised command is run: the places to fill in, and which rights of the present
 * credential the command states. Empty for a command that is complete.
 */
export function hintOf(command: string, statesRights: boolean): string {
  const words = command.split(" ");
  const isDelegation = command.startsWith("weir delegate ");
  if (!isDelegation && !command.startsWith("weir grant ")) return "";
  const places = ["KEY", "CREDENTIAL", "MODULE"].filter((place) => words.includes(place));
  const filled = places.length === 0 ? "" : `Fill in ${places.join(" and ")}. `;
  if (statesRights) return `${filled}${isDelegation ? "The holder who has delegated" : "The root"} runs this, with --out FILE. It keeps the other rights of the present credential.`;
  return isDelegation
    ? `${filled}The holder who has delegated runs this, with the other limits of the present credential and --out FILE.`
    : `${filled}The root runs this, with the other options of the present credential and --out FILE: an option that is left out gives little.`;
}
