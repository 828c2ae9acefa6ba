/** An answer of the API that is not a success, or no answer at all. */

import { text } from "../text";

export class ApiError extends Error {
  constructor(
    readonly status: number, // 0: there was no answer
    readonly code: string,
    message: string,
    readonly fields: Record<string, string> = {},
    readonly traceId: string = "",
    readonly retryAfterS: number = 0,
  ) {
    super(message);
    this.name = "ApiError";
  }

  /** Whether the same request may work later without a change; after an expired session it does. */
  get isPassing(): boolean {
    return this.status === 0 || this.status === 401 || this.status === 429 || this.status >= 500;
  }

  get isOffline(): boolean {
    return this.status === 0;
  }
}

interface Envelope {
  error?: { code?: string; message?: string; fields?: Record<string, string>; traceId?: string };
}

export async function errorOf(response: Response): Promise<ApiError> {
  const trace = response.headers.get("x-request-id") ?? "";
  const wait = Number(response.headers.get("retry-after") ?? 0) || 0;
  try {
    const { error } = (await response.json()) as Envelope;
    const message = error?.message ?? response.statusText;
    return new ApiError(response.status, error?.code ?? "internal", message, error?.fields, error?.traceId ?? trace, wait);
  } catch {
    return new ApiError(response.status, "internal", response.statusText || text.common.cutOff, {}, trace, wait);
  }
}

export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError(0, "offline", text.common.noAnswer, {});
}
