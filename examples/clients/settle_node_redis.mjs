// node-redis: take an estimate, do the work, settle. One request per line "KEY ESTIMATE USAGE".
//
//     printf 'tenant:42 50 30\n' | REDIS_URL=redis://127.0.0.1:6379 node settle_node_redis.mjs
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "redis";

const limiter = createClient({
  url: process.env.REDIS_URL,
  socket: { connectTimeout: 250 },
  disableOfflineQueue: true, // a call must not wait for a connection
});
limiter.on("error", () => {}); // each call reports it, and the client goes on connecting
limiter.connect().catch(() => {});
await once(limiter, "ready", { signal: AbortSignal.timeout(1000) }).catch(() => {});

const call = (key, ...charge) =>
  Promise.race([
    limiter.sendCommand(["RL.TOKEN", key, "100", "10", "1000", ...charge.map(String)]),
    sleep(250, undefined, { ref: false }).then(() => {
      throw new Error("no answer within 250 ms");
    }),
  ]);

/** After an admitted `COST estimate`, and only then. Says what was done. */
async function settle(key, estimate, usage) {
  try {
    if (usage < estimate) {
      await call(key, "REFUND", estimate - usage);
      return `refund ${estimate - usage}`;
    }
    if (usage > estimate) {
      await call(key, "COST", usage - estimate, "FORCE");
      return `force ${usage - estimate}`;
    }
    return "even";
  } catch (error) {
    return `unsettled: ${error.message}`; // the work is done: log it, and answer the caller all the same
  }
}

async function request(key, estimate, work) {
  let reply;
  try {
    reply = await call(key, "COST", estimate);
  } catch (error) {
    return `503 ${error.message}`; // or go on: let pass; then there is nothing to settle
  }
  const [allowed, , , retryAfterMs] = reply;
  // Not charged: nothing to settle.
  if (!allowed) return retryAfterMs < 0 ? "429" : `429 Retry-After: ${Math.ceil(retryAfterMs / 1000)}`;
  return `200 ${await settle(key, estimate, await work())}`;
}

for await (const line of createInterface({ input: process.stdin })) {
  const [key, estimate, usage] = line.split(" ");
  console.log(await request(key, Number(estimate), async () => Number(usage)));
}
limiter.destroy();
