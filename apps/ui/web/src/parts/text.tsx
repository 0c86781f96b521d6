import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { cut, isPlain, shortKey, shown } from "../model/text";

/** Text of another party: escaped, and cut with a button that shows all of it. */
export function Foreign({ text, max = 80 }: { text: unknown; max?: number }) {
  const [isWhole, setWhole] = useState(false);
  const whole = shown(text);
  if (whole.length <= max) return <span class="foreign">{whole}</span>;
  return (
    <span class="foreign">
      {isWhole ? whole : cut(whole, max)}{" "}
      <button type="button" class="inline" aria-expanded={isWhole} onClick={() => setWhole(!isWhole)}>
        {isWhole ? "less" : "all"}
      </button>
    </span>
  );
}

/** A key or identifier: shortened, with its whole text on demand; `isOwn` marks that of this page's user. */
export function Key({ text, isOwn = false }: { text: string; isOwn?: boolean }) {
  const [isWhole, setWhole] = useState(false);
  const whole = shown(text);
  // A holder can put any text in the place of a key.
  const short = cut(shortKey(whole), 80);
  if (short === whole) return <code class="key">{whole}</code>;
  const button = (
    <button type="button" class="key" aria-expanded={isWhole} title={isWhole ? "Shorten" : "Show the whole key"} onClick={() => setWhole(!isWhole)}>
      <code>{isWhole ? whole : short}</code>
    </button>
  );
  return isOwn ? <>{button} <span class="soft">(you)</span></> : button;
}

/** A message about an error, which is announced. */
export function Problem({ text, children }: { text: string; children?: ComponentChildren }) {
  return <div class="problem" role="alert"><p><span class="sign" aria-hidden="true">▲</span> <Foreign text={text} max={600} /></p>{children}</div>;
}

/** A neutral message, announced without interruption. */
export function Note({ children }: { children: ComponentChildren }) {
  return <div class="noted" role="status">{children}</div>;
}

/** A command to copy. Its lines break between words, and not after the hyphens of an option. */
export function Command({ text }: { text: string }) {
  return (
    <div class="copyable">
      <code class="command">{shown(text).split(" ").map((word, at) => <>{at > 0 ? " " : ""}<span>{word}</span></>)}</code>
      <Copy text={text} label="Copy the command" />
    </div>
  );
}

/** A button that copies a text; the text itself can be selected too. */
export function Copy({ text, label }: { text: string; label: string }) {
  const [state, setState] = useState<"" | "copied" | "failed">("");
  const copy = () => {
    navigator.clipboard.writeText(text).then(() => setState("copied"), () => setState("failed"));
    setTimeout(() => setState(""), 2_500);
  };
  if (!isPlain(text)) return <span class="bad">▲ It has control characters, so it is not offered for copying.</span>;
  const word = state === "copied" ? "Copied" : state === "failed" ? "Select it" : "Copy";
  return <button type="button" class="small" aria-label={state === "" ? label : `${word}: ${label}`} onClick={copy}>{word}</button>;
}

/** The heading of a page, which gets the focus when the page opens. */
export function Title({ children, side }: { children: ComponentChildren; side?: ComponentChildren }) {
  return <div class="title"><h1 tabIndex={-1}>{children}</h1>{side && <div class="side">{side}</div>}</div>;
}

/** The word that marks a state, with a sign, so that the colour is not the only difference. */
export function State({ text, isGood }: { text: string; isGood: boolean }) {
  return <span class={isGood ? "state good" : "state bad"}><span aria-hidden="true">{isGood ? "●" : "▲"}</span> <Foreign text={text} max={60} /></span>;
}
