// node-redis: one decision per line "KEY COST" of standard input.
//
//     printf 'tenant:42 1\n' | REDIS_URL=redis://127.0.0.1:6379 node node_redis.mjs
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "redis";

const limiter = createClient({
  url: process.env.REDIS_URL,
  socket: { connectTimeout: 250 },
  // A call must not wait for a connection and be charged when nobody wants the answer any more.
  disableOfflineQueue: true,
});
limiter.on("error", () => {}); // each call reports it, and the client goes on connecting
limiter.connect().catch(() => {});
await once(limiter, "ready", { signal: AbortSignal.timeout(1000) }).catch(() => {});

// The client's own command time-out ends where the command is written: this one is for the answer.
const answer = (promise) =>
  Promise.race([
    promise,
    sleep(250, undefined, { ref: false }).then(() => {
      throw new Error("no answer within 250 ms");
    }),
  ]);

/** HTTP status, headers, and why there was no judgement. */
async function check(key, cost = 1) {
  try {
    const [allowed, , , retryAfterMs] = await answer(
      limiter.sendCommand(["RL.TOKEN", key, "100", "10", "1000", "COST", String(cost)]),
    );
    if (allowed) return { status: 200, headers: {} };
    // -1: costs more than the bucket holds, no wait helps
    const headers = retryAfterMs < 0 ? {} : { "Retry-After": Math.ceil(retryAfterMs / 1000) };
    return { status: 429, headers };
  } catch (error) {
    return { status: 503, headers: {}, reason: error.message }; // or 200: let pass
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const [key, cost] = line.split(" ");
  const { status, headers, reason = "" } = await check(key, cost);
  console.log(status, ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`), reason);
}
limiter.destroy();
