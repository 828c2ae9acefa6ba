/**
 * Writes: buttons and forms use them.
 *
 *   const deploy = useAction(() => api.post("/v1/projects/{name}/deploy", { path: { name } }), {
 *     done: text.projects.deployStarted,
 *     refreshes: ["/v1/projects"],
 *   });
 *   <Button onClick={deploy.run} isBusy={deploy.isBusy}>Deploy</Button>
 */

import { useCallback, useRef, useState } from "preact/hooks";
import { showToast } from "../ui/toast";
import { ApiError, toApiError } from "./errors";
import { changed, refresh } from "./resource";

export interface Action<A extends unknown[], T> {
  run: (...given: A) => Promise<T | undefined>;
  isBusy: boolean;
  error: ApiError | undefined;
  clear: () => void;
}

export interface ActionOptions<T> {
  done?: string | ((result: T) => string) | undefined; // toast after a success
  refreshes?: string[] | undefined; // paths whose data has changed
  onDone?: ((result: T) => void) | undefined;
  isQuiet?: boolean | undefined; // no toast for an error: the form shows it
}

export function useAction<A extends unknown[], T>(
  write: (...given: A) => Promise<T>,
  { done, refreshes, onDone, isQuiet = false }: ActionOptions<T> = {},
): Action<A, T> {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const busy = useRef(false);
  const run = useCallback(
    async (...given: A): Promise<T | undefined> => {
      if (busy.current) return undefined;
      busy.current = true;
      setBusy(true);
      setError(undefined);
      try {
        const result = await write(...given);
        if (done) showToast({ kind: "ok", title: typeof done === "function" ? done(result) : done });
        if (refreshes) changed(...refreshes);
        onDone?.(result);
        return result;
      } catch (failure) {
        const known = toApiError(failure);
        setError(known);
        if (known.status === 403) refresh("/v1/whoami", "/v1/me"); // The role may have been changed.
        if (!isQuiet) showToast({ kind: "bad", title: known.message, traceId: known.traceId });
        return undefined;
      } finally {
        busy.current = false;
        setBusy(false);
      }
    },
    [write, done, onDone, isQuiet],
  );
  return { run, isBusy, error, clear: () => setError(undefined) };
}
