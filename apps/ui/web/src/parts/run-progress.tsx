import { bytes, whole } from "../model/units";
import { endRun, run } from "../run";
import { Foreign, Problem } from "./text";

const STAGES = { starting: "Starting", uploading: "Sending the capture", running: "Running", done: "Done", failed: "Failed" };

/** A run in progress, and its report. */
export function Progress() {
  const it = run.value;
  if (it === null) return null;
  const share = it.readTotal > 0 ? Math.min(1, it.read / it.readTotal) : null;
  const amount = it.isCapture ? bytes : (ms: number) => `${Math.floor(ms / 1000)} s`;
  const isOver = it.stage === "done" || it.stage === "failed";
  return (
    <>
      <section aria-label="Progress">
        <div class="title">
          <h2><span role="status">{STAGES[it.stage]}</span></h2>
          <div class="side"><button type="button" class={isOver ? "" : "danger"} onClick={() => void endRun()}>{isOver ? "Close, and delete the report" : "Cancel"}</button></div>
        </div>
        <p><Foreign text={it.what} max={80} /> <span class="soft">{amount(it.read)} of {amount(it.readTotal)} read{it.packets === null ? "" : `, ${whole(it.packets)} packets`}</span></p>
        {!isOver && (share === null ? <progress aria-label="Progress of the run" /> : <progress aria-label="Progress of the run" value={share} max={1} />)}
        {it.why !== null && <Problem text={it.why} />}
      </section>
      {it.stage === "done" && it.report !== null && <iframe class="report" title="Report of the run" src={it.report} sandbox="allow-downloads" referrerpolicy="no-referrer" />}
      {it.stage === "done" && it.report === null && <p class="soft">The run has no report.</p>}
    </>
  );
}
