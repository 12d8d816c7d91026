// A store for @fastify/rate-limit: counts with redis-rl.
//
// Copy this file. It imports nothing: it sends its commands through a function of yours.

export interface StoreOptions {
  /**
   * Sends one command and resolves to its reply, as `(...words) => client.sendCommand(words)` does.
   * In each command the second word is the key.
   */
  sendCommand: (...words: string[]) => Promise<unknown>;
  /** Comes before each key. Default "rl:fastify:". */
  prefix?: string;
  /** How long to wait for an answer. Default 250 ms. */
  timeoutMs?: number;
}

interface Hits {
  current: number;
  ttl: number;
}

type Callback = (error: Error | null, hits?: Hits) => void;

/** What the store reads of the plugin's options, and of a route's. */
interface LimiterOptions {
  ban?: number; // -1: none
  continueExceeding?: boolean;
  exponentialBackoff?: boolean;
  routeInfo?: { method?: string | string[]; url?: string };
}

const NO_LIMIT = 9_000_000_000_000_000; // some clients misread integers closer to 2^53
const LONGEST_MS = 3_153_600_000_000; // 100 years

/** The class to give to the plugin as its `store`. */
export function redisRlStore({ sendCommand, prefix = "rl:fastify:", timeoutMs = 250 }: StoreOptions) {
  /** Sends once, and waits no longer than `timeoutMs`: a limiter that hangs is worse than none. */
  async function send(...words: (string | number)[]): Promise<unknown> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const timeout = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
    });
    try {
      return await Promise.race([sendCommand(...words.map(String)), timeout]);
    } finally {
      clearTimeout(timer);
    }
  }

  return class RedisRlStore {
    readonly #options: LimiterOptions;
    readonly #prefix: string;

    constructor(options: LimiterOptions, parent = prefix) {
      this.#options = options;
      this.#prefix = parent;
    }

    /** A route with limits of its own counts under its method and path. */
    child(options: object): RedisRlStore {
      const { method = "", url = "" } = (options as LimiterOptions).routeInfo ?? {};
      return new RedisRlStore(options, `${this.#prefix}${method}${url}-`);
    }

    incr(key: string | number, callback: Callback, timeWindow: number, max: number): void {
      answer(this.#incr(this.#prefix + key, timeWindow, max), callback);
    }

    /** For `{ increment: false }`: what is used, with nothing taken. */
    read(key: string | number, callback: Callback, timeWindow: number): void {
      answer(this.#read(this.#prefix + key, timeWindow), callback);
    }

    async #incr(key: string, timeWindow: number, max: number): Promise<Hits> {
      const { ban = -1, continueExceeding, exponentialBackoff } = this.#options;
      // A ban and the back-off count refused calls too. Otherwise the server decides, and a refused
      // call costs nothing.
      const counts = ban !== -1 || exponentialBackoff || !Number.isInteger(max) || max < 1 || max > NO_LIMIT;
      const limit = counts ? NO_LIMIT : max;
      const [allowed, , remaining, , ttl] = (await send("RL.FIXED", key, limit, timeWindow)) as Reply;
      const current = allowed ? limit - remaining : max + 1;
      if (current <= max || !(continueExceeding || exponentialBackoff)) return { current, ttl };

      const backoff = continueExceeding ? 1 : 2 ** (current - max - 1);
      const longer = Math.min(timeWindow * backoff, LONGEST_MS);
      // The call is refused even if this fails; then the wait that is told is too long.
      await send("PEXPIRE", key, longer).catch(() => {});
      return { current, ttl: longer };
    }

    async #read(key: string, timeWindow: number): Promise<Hits> {
      const reply = await send("RL.PEEK", key, "FIXED", NO_LIMIT, timeWindow);
      const [, , remaining, , ttl] = reply as Reply;
      return { current: NO_LIMIT - remaining, ttl };
    }
  };
}

type Reply = [allowed: number, limit: number, remaining: number, retryAfterMs: number, resetAfterMs: number];

function answer(hits: Promise<Hits>, callback: Callback): void {
  hits.then((found) => callback(null, found), callback);
}
