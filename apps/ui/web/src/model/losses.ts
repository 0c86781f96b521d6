// Losses of sessions by cause, and their rates.

import type { Counts, SessionStatus, Snapshot } from "../snapshot";
import { causeOf, isLoss } from "./causes";

export interface Loss {
  cause: string;
  count: number;
  /** Per second since the last snapshot; `null` if it is unknown. */
  rate: number | null;
}

/** Returns the losses of a session by cause: those in its usage, and newer ones that only a channel or output shows. */
export function lossCounts(session: SessionStatus): Counts {
  // Names of causes come from the node: they must meet no name of an object's own.
  const parts = Object.create(null) as Counts;
  for (const part of [...session.channels, ...(session.outputs ?? [])]) {
    for (const [cause, count] of Object.entries(part.drops)) parts[cause] = (parts[cause] ?? 0) + count;
  }
  for (const [cause, count] of Object.entries(session.used?.drops ?? {})) parts[cause] = Math.max(parts[cause] ?? 0, count);
  return parts;
}

/** Remembers the losses of the last snapshot and returns their rates. */
export class LossMeter {
  private before = new Map<string, Counts>();
  private uptime = 0;

  /** Returns the losses of each session by name, the fastest first. */
  update(snapshot: Snapshot): Map<string, Loss[]> {
    const seconds = (snapshot.uptime_ns - this.uptime) / 1e9;
    const isComparable = this.before.size > 0 && seconds > 0;
    const losses = new Map<string, Loss[]>();
    const now = new Map<string, Counts>();
    for (const session of snapshot.sessions) {
      const counts = lossCounts(session);
      const earlier = this.before.get(session.name);
      now.set(session.name, counts);
      const list = Object.entries(counts).filter(([, count]) => count > 0).map(([cause, count]) => {
        const grown = count - (earlier?.[cause] ?? 0);
        // A counter that has decreased was restarted at zero.
        return { cause, count, rate: isComparable && earlier ? (grown < 0 ? count : grown) / seconds : null };
      });
      losses.set(session.name, list.sort((a, b) => (b.rate ?? 0) - (a.rate ?? 0) || b.count - a.count));
    }
    this.before = now;
    this.uptime = snapshot.uptime_ns;
    return losses;
  }
}

/** Returns the packets per second that are lost, without verdicts. */
export function lossRate(losses: readonly Loss[]): number {
  const counted = losses.filter((loss) => isLoss(loss.cause) && causeOf(loss.cause).unit === "packets");
  return counted.reduce((sum, loss) => sum + (loss.rate ?? 0), 0);
}

/** Returns the causes of present losses in a few words, the largest first; empty without losses. */
export function lossWords(losses: readonly Loss[]): string {
  const present = losses.filter((loss) => isLoss(loss.cause) && (loss.rate ?? 0) > 0);
  return present.slice(0, 2).map((loss) => causeOf(loss.cause).short).join(", ") + (present.length > 2 ? ", …" : "");
}
