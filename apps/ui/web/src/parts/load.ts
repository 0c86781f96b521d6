// Data that a page asks for, with its error and the question again.

import { useEffect, useState } from "preact/hooks";
import { unknown } from "../store";

export interface Loaded<T> {
  value: T | null;
  problem: string | null;
  isLoading: boolean;
  reload: () => void;
}

/** Asks when the page opens, when `inputs` change, and every `everyMs` while the page is visible; never twice at a time. */
export function useLoaded<T>(ask: () => Promise<T>, inputs: unknown[], everyMs?: number): Loaded<T> {
  const [value, setValue] = useState<T | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [isLoading, setLoading] = useState(true);
  const [round, setRound] = useState(0);
  useEffect(() => {
    let isGone = false;
    let timer = 0;
    const load = async () => {
      if (document.hidden && everyMs !== undefined) {
        timer = window.setTimeout(load, everyMs);
        return;
      }
      setLoading(true);
      try {
        const answer = await ask();
        if (isGone) return;
        setValue(answer);
        setProblem(null);
      } catch (error) {
        if (isGone) return;
        setProblem(error instanceof Error ? error.message : String(error));
      }
      setLoading(false);
      if (everyMs !== undefined && unknown.value === null) timer = window.setTimeout(load, everyMs);
    };
    void load();
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, [...inputs, round]);
  return { value, problem, isLoading, reload: () => setRound((n) => n + 1) };
}
