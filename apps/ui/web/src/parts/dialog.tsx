import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Problem } from "./text";

interface Question {
  title: string;
  body: ComponentChildren;
  /** The word on the button that does it. */
  verb: string;
  /** A text that has to be typed first, for what cannot be undone. */
  typed?: { label: string; text: string };
  /** Does it; returns the reason if it was refused. */
  act: () => Promise<string | null>;
}

const question = signal<Question | null>(null);

/** Asks for confirmation in a dialog. */
export function ask(next: Question): void {
  question.value = next;
}

export function DialogHost() {
  const asked = question.value;
  return asked === null ? null : <Confirm asked={asked} />;
}

function Confirm({ asked }: { asked: Question }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    // The browser keeps the focus inside, and gives it back to the button that has asked.
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const close = () => {
    question.value = null;
  };
  const act = async () => {
    setBusy(true);
    const why = await asked.act();
    if (why === null) close();
    else {
      setProblem(why);
      setBusy(false);
    }
  };
  const isAllowed = asked.typed === undefined || typed.trim() === asked.typed.text;
  return (
    <dialog ref={dialog} aria-labelledby="question" onClose={close}>
      <form method="dialog" onSubmit={(event) => {
        event.preventDefault();
        if (isAllowed && !isBusy) void act();
      }}>
        <h2 id="question">{asked.title}</h2>
        <div class="body">{asked.body}</div>
        {asked.typed && (
          <label class="field"><span>{asked.typed.label}</span>
            <input type="text" autocomplete="off" spellcheck={false} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
          </label>
        )}
        {problem !== null && <Problem text={problem} />}
        <div class="buttons">
          <button type="button" autofocus={asked.typed === undefined} onClick={close}>Cancel</button>
          <button type="submit" class="danger" disabled={!isAllowed || isBusy}>{isBusy ? "…" : asked.verb}</button>
        </div>
      </form>
    </dialog>
  );
}
