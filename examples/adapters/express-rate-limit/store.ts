// A store for express-rate-limit, express-slow-down and hono-rate-limiter: counts with redis-rl.
//
// Copy this file. It imports nothing: it sends its commands through a function of yours.

export interface StoreOptions {
  /**
   * Sends one command and resolves to its reply, as `(...words) => client.sendCommand(words)` does.
   * In each command the second word is the key.
   */
  sendCommand: (...words: string[]) => Promise<unknown>;
  /** Default "FIXED". "TOKEN" and "SLIDE" need a limit that the server can decide on: see `init`. */
  algorithm?: "FIXED" | "TOKEN" | "SLIDE";
  /** Comes before each key. Default "rl:fixed:", "rl:token:" or "rl:slide:". */
  prefix?: string;
  /** How long to wait for an answer. Default 250 ms. */
  timeoutMs?: number;
}

/** What the store reads of the middleware's options. */
export interface LimiterOptions {
  windowMs: number;
  limit: unknown; // a number, or a function of the middleware's own types
  skipFailedRequests?: boolean;
  skipSuccessfulRequests?: boolean;
}

export interface Hits {
  totalHits: number;
  resetTime: Date;
}

const NO_LIMIT = 9_000_000_000_000_000; // some clients misread integers closer to 2^53

export class RedisRlStore {
  readonly prefix: string;
  readonly localKeys = false;
  readonly #options: StoreOptions;
  readonly #algorithm: "FIXED" | "TOKEN" | "SLIDE";
  #limit = 0;
  #policy: number[] | undefined;

  constructor(options: StoreOptions) {
    this.#options = options;
    this.#algorithm = options.algorithm ?? "FIXED";
    this.prefix = options.prefix ?? `rl:${this.#algorithm.toLowerCase()}:`;
  }

  /**
   * The server decides if it can know the limit, and if each admitted call stays charged: a refused
   * call then costs nothing. Otherwise it counts every call, and the middleware decides.
   */
  init({ windowMs, limit, skipFailedRequests, skipSuccessfulRequests }: LimiterOptions): void {
    const known = typeof limit === "number" && Number.isInteger(limit) && limit >= 1 && limit <= NO_LIMIT;
    const decides = known && !skipFailedRequests && !skipSuccessfulRequests;
    if (!decides && this.#algorithm !== "FIXED") {
      throw new Error(`${this.#algorithm} needs a whole number of at least 1 as limit, and neither skip option`);
    }
    this.#limit = decides ? limit : NO_LIMIT;
    this.#policy = this.#algorithm === "TOKEN" ? [this.#limit, this.#limit, windowMs] : [this.#limit, windowMs];
  }

  async increment(key: string): Promise<Hits> {
    const [allowed, , remaining, retryAfterMs, resetAfterMs] = await this.#call(key);
    return allowed
      ? { totalHits: this.#limit - remaining, resetTime: after(resetAfterMs) }
      : { totalHits: this.#limit + 1, resetTime: after(retryAfterMs) };
  }

  /**
   * Gives one hit back. The middleware does so only with a skip option, where each call was charged.
   * Don't call it for a call that the server refused: that one was not charged.
   */
  async decrement(key: string): Promise<void> {
    await this.#call(key, "REFUND", 1);
  }

  async get(key: string): Promise<Hits | undefined> {
    const [, , remaining, , resetAfterMs] = await this.#call(key, "PEEK");
    if (resetAfterMs === 0) return undefined; // nothing is used
    return { totalHits: this.#limit - remaining, resetTime: after(resetAfterMs) };
  }

  async resetKey(key: string): Promise<void> {
    await this.#send("DEL", this.prefix + key);
  }

  async #call(key: string, ...settle: ["REFUND", number] | ["PEEK"] | []) {
    // The middleware logs an error of `init`, and goes on.
    if (!this.#policy) throw new Error("the store was not initialized, or its options were refused");
    const name = this.prefix + key;
    const reply =
      settle[0] === "PEEK"
        ? this.#send("RL.PEEK", name, this.#algorithm, ...this.#policy)
        : this.#send(`RL.${this.#algorithm}`, name, ...this.#policy, ...settle);
    return (await reply) as [number, number, number, number, number];
  }

  /** Sends once, and waits no longer than `timeoutMs`: a limiter that hangs is worse than none. */
  async #send(...words: (string | number)[]): Promise<unknown> {
    const { sendCommand, timeoutMs = 250 } = this.#options;
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
}

const after = (ms: number): Date => new Date(Date.now() + ms);
