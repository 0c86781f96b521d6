// Decisions of the node in words.

import type { Decision } from "../api";
import { shortKey, shown } from "./text";

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
  show: ["to see the session", "to see the node's state"],
  watch: ["to watch the session", "to watch the node's state"],
  explain: ["for an explanation about the session", "for an explanation"],
  reload: ["to reload the configuration", "to reload the configuration"],
  connect: ["to connect for the session", "to connect"],
};

/** Returns the requester: `the operator`, or a shortened key. */
export function whoOf(decision: Decision): string {
  return decision.who === null ? "The operator" : shortKey(shown(decision.who));
}

/** Returns the request as the end of `… asked`; the session's name follows where one is concerned. */
export function askedFor(decision: Decision): string {
  const words = Object.hasOwn(REQUESTS, decision.request) ? REQUESTS[decision.request] : undefined;
  if (words) return decision.session === null ? words[1] : words[0];
  return `for “${shown(decision.request)}”${decision.session === null ? "" : " of the session"}`;
}

export type OutcomeFilter = "all" | "refused" | "failed" | "allowed" | "closed";

const OUTCOMES: Record<string, string> = {
  allowed: "allowed",
  refused: "refused: no right",
  failed: "failed",
  closed: "connection closed",
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
      (filter.outcome === "all" || decision.outcome === filter.outcome) &&
      has(decision.session, filter.session) &&
      has(decision.who ?? "operator", filter.who),
  );
}
