// Requests that change something, with the reason if they were refused.

import type { Outcome } from "../api";

/** Returns the reason for which a request was not executed; `null` if it was. */
export async function refusal(request: Promise<Outcome>): Promise<string | null> {
  try {
    const outcome = await request;
    return "refused" in outcome ? outcome.refused.why : null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
