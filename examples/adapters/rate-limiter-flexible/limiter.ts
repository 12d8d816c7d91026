// The methods of a rate-limiter-flexible limiter, so also for its wrappers and unions.
import { RateLimiterCompatibleAbstract, RateLimiterRes } from "rate-limiter-flexible";

type SendCommand = (...words: string[]) => Promise<unknown>;
type Reply = [allowed: number, limit: number, remaining: number, retryAfterMs: number, resetAfterMs: number];

const NO_LIMIT = 9_000_000_000_000_000; // some clients misread integers closer to 2^53

export interface LimiterOptions {
  sendCommand: SendCommand; // the time-out for an answer is its own
  points: number;
  duration: number; // seconds, rounded to a millisecond
  keyPrefix?: string;
}

export class RedisRlLimiter extends RateLimiterCompatibleAbstract {
  override readonly keyPrefix: string;
  readonly points: number;
  readonly #sendCommand: SendCommand;
  readonly #windowMs: number;
  // What else wrappers look for; a block is a call of `block` here.
  override blockDuration = 0;
  override execEvenly = false;

  constructor({ sendCommand, points, duration, keyPrefix = "rl:flexible" }: LimiterOptions) {
    super();
    this.#sendCommand = sendCommand;
    this.points = points;
    this.#windowMs = toMs(duration);
    this.keyPrefix = keyPrefix;
  }

  getKey(key: string | number): string {
    return `${this.keyPrefix}:${key}`;
  }

  /** Rejects with what a refused call may tell: it has not been counted. */
  override async consume(key: string | number, points = 1): Promise<RateLimiterRes> {
    const reply = await this.#fixed(key, this.points, "COST", points);
    const [allowed, limit, remaining, retryAfterMs, resetAfterMs] = reply;
    const used = limit - remaining;
    if (allowed) return new RateLimiterRes(remaining, resetAfterMs, used, used === points);
    // -1: more than all points never fit. A wait of 0 would have the caller try again at once.
    throw new RateLimiterRes(remaining, retryAfterMs < 0 ? this.#windowMs : retryAfterMs, used, false);
  }

  override async penalty(key: string | number, points = 1): Promise<RateLimiterRes> {
    return this.#result(await this.#fixed(key, NO_LIMIT, "COST", points, "FORCE"));
  }

  /** Never gives back more than is counted. Not for a refused call. */
  override async reward(key: string | number, points = 1): Promise<RateLimiterRes> {
    return this.#result(await this.#fixed(key, NO_LIMIT, "REFUND", points));
  }

  override async get(key: string | number): Promise<RateLimiterRes | null> {
    const reply = await this.#send("RL.PEEK", this.getKey(key), "FIXED", NO_LIMIT, this.#windowMs);
    return reply[4] === 0 ? null : this.#result(reply);
  }

  override async set(key: string | number, points: number, seconds: number): Promise<RateLimiterRes> {
    const windowMs = toMs(seconds);
    // A window with nothing used in it is one that is not there.
    if (points === 0) await this.delete(key);
    else await this.#sendCommand("SET", this.getKey(key), `${points}`, "PX", `${windowMs}`);
    return new RateLimiterRes(Math.max(this.points - points, 0), windowMs, points);
  }

  override async block(key: string | number, seconds: number): Promise<RateLimiterRes> {
    return this.set(key, NO_LIMIT, seconds);
  }

  override async delete(key: string | number): Promise<boolean> {
    return (await this.#sendCommand("DEL", this.getKey(key))) === 1;
  }

  #fixed(key: string | number, limit: number, ...charge: (string | number)[]): Promise<Reply> {
    return this.#send("RL.FIXED", this.getKey(key), limit, this.#windowMs, ...charge);
  }

  async #send(...words: (string | number)[]): Promise<Reply> {
    return (await this.#sendCommand(...words.map(String))) as Reply;
  }

  /** What is used, from a reply under NO_LIMIT. */
  #result([, , remaining, , resetAfterMs]: Reply): RateLimiterRes {
    const consumed = NO_LIMIT - remaining;
    return new RateLimiterRes(Math.max(this.points - consumed, 0), resetAfterMs, consumed);
  }
}

const toMs = (seconds: number): number => Math.round(seconds * 1000);
