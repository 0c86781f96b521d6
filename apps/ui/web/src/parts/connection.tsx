import { span } from "../model/time";
import { lost, now, snapshot, unknown } from "../store";
import { Command, Foreign } from "./text";

/** The bar that says that a connection is lost, and since when. */
export function Connection() {
  const loss = lost.value;
  if (loss === null || unknown.value !== null) return null;
  const since = span((now.value - loss.sinceMs) / 1000);
  const part = loss.part === "node" ? "the node" : "weir ui";
  const end = endOf(loss.why);
  const shownState = snapshot.value === null ? "" : "Shown is the last known state. ";
  // The reason can contain the time. Within the alert, it would be announced again each second.
  return (
    <aside class="connection" aria-label="Connection">
      <span role="alert"><span class="sign" aria-hidden="true">▲</span> <strong>{end ?? `The connection to ${part} is lost.`}</strong></span>{" "}
      {end === null
        ? <><Foreign text={loss.why} max={160} />. {shownState}Lost for {since}; the page tries again by itself.</>
        : <>The node answers no requests any more. {shownState}Ask for a new credential, and start <code>weir ui</code> with it. Runs over a capture still work. <span class="soft"><Foreign text={loss.why} max={160} /></span></>}
    </aside>
  );
}

/** Returns the end of the user's credential in words, if a refusal of the node states it; null for another reason. */
function endOf(why: string): string | null {
  if (why.startsWith("expired: ")) return "Your credential has expired.";
  return why.startsWith("revoked: ") ? "Your credential was revoked." : null;
}

/** The advice for a tab that the server does not know. */
export function Unknown({ why }: { why: string }) {
  return (
    <section class="narrow">
      <h1 tabIndex={-1}>Open a new address</h1>
      <p role="alert"><Foreign text={why} max={300} />.</p>
      <p>An address works once, in one browser, as long as <code>weir ui</code> runs. Run this on the machine of <code>weir ui</code>, and open the address that it prints:</p>
      <Command text="weir ui --address" />
      <p class="soft">Is the page still open in another tab of this browser? Then reload this one.</p>
    </section>
  );
}
