// Addresses of pages. A further page, such as a query of record files, is one more entry of `PAGES`.

import { signal } from "@preact/signals";

/** The pages of the navigation, in their order. */
export const PAGES = [
  { path: "node", title: "Node" },
  { path: "credentials", title: "Credentials" },
  { path: "decisions", title: "Decisions" },
  { path: "ledger", title: "Ledger" },
  { path: "run", title: "Run" },
] as const;

export interface Route {
  page: string;
  /** The rest of the address, such as the name of a session. */
  name: string;
}

export const route = signal<Route>(parsed(location.hash));

/** Reads a fragment such as `#/session/alice`. */
export function parsed(hash: string): Route {
  const [, page = "", ...rest] = hash.split("/");
  try {
    return { page: page === "" ? "node" : page, name: decodeURIComponent(rest.join("/")) };
  } catch {
    return { page: "unknown", name: "" };
  }
}

/** Returns the address of a session's page. */
export function sessionHref(name: string): string {
  return `#/session/${encodeURIComponent(name)}`;
}

/** Returns the address of the ledger with the rows of one holder. */
export function holderHref(key: string): string {
  return `#/ledger/${encodeURIComponent(key)}`;
}

/** Follows the address bar. */
export function startRouting(): void {
  window.addEventListener("hashchange", () => {
    route.value = parsed(location.hash);
    window.scrollTo(0, 0);
    // A new page is announced by its heading, as a browser does for a new document.
    requestAnimationFrame(() => document.querySelector<HTMLElement>("main h1")?.focus());
  });
}
