// Storage for @nestjs/throttler: ThrottlerModule.forRoot({ throttlers, storage: new RedisRlStorage(sendCommand) }).
import type { ThrottlerStorage } from "@nestjs/throttler";

type SendCommand = (...words: string[]) => Promise<unknown>;
type Reply = [allowed: number, limit: number, remaining: number, retryAfterMs: number, resetAfterMs: number];

const NO_LIMIT = 9_000_000_000_000_000; // some clients misread integers closer to 2^53

export class RedisRlStorage implements ThrottlerStorage {
  readonly #sendCommand: SendCommand;
  readonly #prefix: string;

  /** The time-out for an answer is `sendCommand`'s. */
  constructor(sendCommand: SendCommand, prefix = "rl:throttler:") {
    this.#sendCommand = sendCommand;
    this.#prefix = prefix;
  }

  async increment(key: string, ttl: number, limit: number, blockDuration: number, throttlerName: string) {
    const name = `${this.#prefix}${key}:${throttlerName}`;
    // Only the call that is refused first starts the block, so refused calls are counted too.
    const blocks = blockDuration > 0;
    const counted = blocks ? NO_LIMIT : limit;
    const reply = await this.#sendCommand("RL.FIXED", name, `${counted}`, `${ttl}`);
    const [allowed, , remaining, , resetAfterMs] = reply as Reply;
    const totalHits = allowed ? counted - remaining : limit + 1;
    const isBlocked = totalHits > limit;
    let endsInMs = resetAfterMs;
    if (blocks && totalHits === limit + 1) {
      endsInMs = blockDuration; // the window now ends with the block
      await this.#sendCommand("PEXPIRE", name, `${blockDuration}`);
    }
    const seconds = Math.ceil(endsInMs / 1000);
    return { totalHits, timeToExpire: seconds, isBlocked, timeToBlockExpire: isBlocked ? seconds : 0 };
  }
}
