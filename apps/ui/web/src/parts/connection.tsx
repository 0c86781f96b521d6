import { span } from "../model/time";
import { lost, now, snapshot, unknown } from "../store";
import { Foreign } from "./text";

/** The bar that says that a connection is lost, and since when. */
export function Connection() {
  const loss = lost.value;
  if (loss === null || unknown.value !== null) return null;
  const since = span((now.value - loss.sinceMs) / 1000);
  const part = loss.part === "node" ? "the node" : "weir ui";
  return (
    <aside class="connection" aria-label="Connection">
      <span role="alert"><span class="sign" aria-hidden="true">▲</span> <strong>The connection to {part} is lost.</strong>{" "}
        <Foreign text={loss.why} max={160} />.</span>{" "}
      <span>{snapshot.value === null ? "" : "Shown is the last known state. "}Lost for {since}; the page tries again by itself.</span>
    </aside>
  );
}

/** The advice for a tab that the server does not know. */
export function Unknown({ why }: { why: string }) {
  return (
    <section class="narrow">
      <h1 tabIndex={-1}>Open a new address</h1>
      <p role="alert"><Foreign text={why} max={300} />.</p>
      <p>An address works once, in one browser, as long as <code>weir ui</code> runs. Run this, and open the address that it prints:</p>
      <p><code class="command">weir ui --address</code></p>
    </section>
  );
}
