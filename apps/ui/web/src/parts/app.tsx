import { useEffect } from "preact/hooks";
import { cut, shown } from "../model/text";
import { CredentialsPage } from "../pages/credentials";
import { DecisionsPage } from "../pages/decisions";
import { LedgerPage } from "../pages/ledger";
import { NodePage } from "../pages/node";
import { RunPage } from "../pages/run";
import { SessionPage } from "../pages/session";
import { PAGES, route } from "../routes";
import { isStale, snapshot, unknown } from "../store";
import { Boundary } from "./boundary";
import { Connection, Unknown } from "./connection";
import { DialogHost } from "./dialog";
import { Footer, Header } from "./frame";

function Page() {
  const { page, name } = route.value;
  switch (page) {
    case "node": return <NodePage />;
    case "session": return <SessionPage key={name} name={name} />;
    case "credentials": return <CredentialsPage />;
    case "decisions": return <DecisionsPage />;
    case "ledger": return <LedgerPage key={name} holder={name} />;
    case "run": return <RunPage />;
    default: return <section><h1 tabIndex={-1}>There is no such page</h1><p><a href="#/node">Go to the node</a></p></section>;
  }
}

/** The pages that show the snapshot wait for the first one. */
const LIVE = new Set(["node", "session"]);

function Main() {
  if (unknown.value !== null) return <Unknown why={unknown.value} />;
  if (LIVE.has(route.value.page) && snapshot.value === null) {
    return <section><h1 tabIndex={-1}>Connecting …</h1><p class="soft">The page appears with the first state of the node.</p></section>;
  }
  return <Boundary key={`${route.value.page}/${route.value.name}`}><Page /></Boundary>;
}

export function App() {
  const node = snapshot.value?.node;
  const { page, name } = route.value;
  useEffect(() => {
    const title = page === "session" ? shown(name) : (PAGES.find((entry) => entry.path === page)?.title ?? "weir");
    document.title = node === undefined ? "weir" : `${cut(title, 60)} · ${cut(shown(node), 60)} · weir`;
  }, [node, page, name]);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => {
        // The fragment belongs to the routes, so the link moves the focus itself.
        event.preventDefault();
        document.getElementById("main")?.focus();
      }}>Skip to the content</a>
      <Header />
      <Connection />
      <main id="main" tabIndex={-1} class={isStale.value && unknown.value === null ? "stale" : ""}><Main /></main>
      <Footer />
      <DialogHost />
    </>
  );
}
