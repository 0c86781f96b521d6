import { limitsOf } from "../model/limits";
import type { SessionStatus } from "../snapshot";
import { Table } from "./table";

/** The other limits of a session, and what exceeded them. */
export function Limits({ session }: { session: SessionStatus }) {
  const limits = limitsOf(session.limits ?? {});
  if (limits.length === 0) return null;
  return (
    <section aria-labelledby="limits">
      <h2 id="limits">Limits</h2>
      <Table label="Limits">
        <thead><tr><th scope="col">Resource</th><th scope="col" class="n">Limit</th><th scope="col" class="n">Now</th><th scope="col">Beyond the limit</th></tr></thead>
        <tbody>{limits.map((it) => (
          <tr key={it.title}><th scope="row">{it.title}</th><td class="n">{it.limit}</td><td class="n">{it.use}</td><td class={it.excess === "" ? "" : "bad"}>{it.excess === "" ? "nothing" : `▲ ${it.excess}`}</td></tr>
        ))}</tbody>
      </Table>
    </section>
  );
}
