import type { Loss } from "../model/losses";
import { causeOf, isLoss } from "../model/causes";
import { shown } from "../model/text";
import { perSecond, whole } from "../model/units";
import { Table } from "./table";

/** The losses of a session by cause, in words, with what helps. */
export function Losses({ losses }: { losses: readonly Loss[] }) {
  return (
    <section aria-labelledby="losses">
      <h2 id="losses">Losses by cause</h2>
      {losses.length === 0 ? <p class="good"><span aria-hidden="true">●</span> Nothing was lost.</p> : (
        <Table label="Losses by cause" class="wrap">
          <thead><tr><th scope="col">Cause</th><th scope="col" class="n">Now</th><th scope="col" class="n">In all</th></tr></thead>
          <tbody>{losses.map((loss) => <LossRow key={loss.cause} loss={loss} />)}</tbody>
        </Table>
      )}
    </section>
  );
}

function LossRow({ loss }: { loss: Loss }) {
  const { short, text, help, unit } = causeOf(loss.cause);
  const isNow = isLoss(loss.cause) && (loss.rate ?? 0) > 0;
  return (
    <tr class={isNow ? "losing" : ""}>
      <th scope="row">
        {shown(short)} <code>{shown(loss.cause)}</code>
        {text !== "" && <p class="meaning">{text}</p>}
        {help !== "" && isNow && <p class="meaning help">→ {help}</p>}
      </th>
      <td class={isNow ? "n bad" : "n"}>{isNow ? "▲ " : ""}{(loss.rate ?? 0) > 0 ? perSecond(loss.rate) : "0"}</td>
      <td class="n">{whole(loss.count)}<span class="soft"> {unit}</span></td>
    </tr>
  );
}
