import type { Signal } from "@preact/signals";
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { bytes } from "../model/units";
import { shown } from "../model/text";
import { Foreign } from "./text";

export type RunSource = { kind: "file"; file: File | null } | { kind: "interface"; name: string; seconds: string };

/**
 * The packets of a run: a capture that is dropped or chosen, or an interface for a while. `interfaces` is `null` if the page may
 * not run on the node, and empty if their names are not known.
 */
export function Source({ source, interfaces }: { source: Signal<RunSource>; interfaces: string[] | null }) {
  const it = source.value;
  return (
    <section aria-labelledby="packets">
      <div class="title"><h2 id="packets">Packets</h2>
        {interfaces !== null && (
          <div class="segments" role="group" aria-label="Source of packets">
            <button type="button" aria-pressed={it.kind === "file"} onClick={() => { source.value = { kind: "file", file: null }; }}>Capture</button>
            <button type="button" aria-pressed={it.kind === "interface"} onClick={() => { source.value = { kind: "interface", name: interfaces[0] ?? "", seconds: "30" }; }}>Interface</button>
          </div>
        )}
      </div>
      {it.kind === "file" ? <Drop file={it.file} onFile={(file) => { source.value = { kind: "file", file }; }} /> : (
        <div class="row">
          <label class="field"><span>Interface</span>{interfaces !== null && interfaces.length > 0
            ? <select value={it.name} onChange={(event) => { source.value = { ...it, name: event.currentTarget.value }; }}>{interfaces.map((name) => <option value={name}>{shown(name)}</option>)}</select>
            : <input type="text" autocomplete="off" spellcheck={false} value={it.name} onInput={(event) => { source.value = { ...it, name: event.currentTarget.value.trim() }; }} />}</label>
          <label class="field"><span>Seconds</span><input type="number" min={1} max={86_400} value={it.seconds} onInput={(event) => { source.value = { ...it, seconds: event.currentTarget.value }; }} /></label>
        </div>
      )}
    </section>
  );
}

function Drop({ file, onFile }: { file: File | null; onFile: (file: File) => void }) {
  const isOver = useSignal(false);
  const input = useRef<HTMLInputElement>(null);
  const take = (files: FileList | null | undefined) => {
    const first = files?.[0];
    if (first) onFile(first);
  };
  return (
    <div class={isOver.value ? "drop over" : "drop"}
      onDragOver={(event) => { event.preventDefault(); isOver.value = true; }}
      onDragLeave={() => { isOver.value = false; }}
      onDrop={(event) => { event.preventDefault(); isOver.value = false; take(event.dataTransfer?.files); }}>
      <input ref={input} type="file" id="capture" class="hidden" tabIndex={-1} aria-hidden="true" accept=".pcap,.pcapng,.cap,.gz,.zst" onChange={(event) => take(event.currentTarget.files)} />
      {file === null ? <p><strong>Drop a capture here</strong></p> : <p><strong><Foreign text={file.name} max={80} /></strong> <span class="soft">{bytes(file.size)}</span></p>}
      <button type="button" onClick={() => input.current?.click()}>{file === null ? "Choose a file" : "Choose another file"}</button>
      <p class="soft">pcap or pcapng, plain, gzip or zstd</p>
    </div>
  );
}
