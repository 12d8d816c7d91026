import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { RateLimiterRes, RateLimiterUnion, RLWrapperTimeouts } from "rate-limiter-flexible";
import { Server } from "../../../tests/adapters/npm/server.ts";
import { type Client, ioredis } from "../send-command.ts";
import { RedisRlLimiter } from "./limiter.ts";

let server: Server;
let client: Client;

before(async () => {
  server = await Server.start();
  client = await ioredis(server.url);
});

after(async () => {
  client.close();
  await server.end();
});

let prefixes = 0;
const newLimiter = (points: number, duration = 60) =>
  new RedisRlLimiter({ sendCommand: client.sendCommand, points, duration, keyPrefix: `rl:${prefixes++}` });

const refused = (error: unknown) => error instanceof RateLimiterRes;

test("consume admits up to the points, and counts no refused call", async () => {
  const limiter = newLimiter(3);
  const first = await limiter.consume("k");
  assert.deepEqual([first.consumedPoints, first.remainingPoints, first.isFirstInDuration], [1, 2, true]);
  assert.ok(first.msBeforeNext > 59_000 && first.msBeforeNext <= 60_000);
  await assert.rejects(limiter.consume("k", 3), refused);
  assert.equal((await limiter.consume("k", 2)).remainingPoints, 0);
  await assert.rejects(limiter.consume("k"), refused);
  assert.equal((await limiter.get("k"))?.consumedPoints, 3);
});

test("of 50 callers at once 3 are admitted", async () => {
  const limiter = newLimiter(3);
  const calls = await Promise.allSettled(Array.from({ length: 50 }, () => limiter.consume("k")));
  assert.equal(calls.filter(({ status }) => status === "fulfilled").length, 3);
  assert.ok(calls.every((call) => call.status === "fulfilled" || refused(call.reason)));
});

test("more than all points never fit, and tell a whole window as the wait", async () => {
  const limiter = newLimiter(3);
  for (let n = 0; n < 2; n++) {
    const refusal = await limiter.consume("k", 4).catch((result: RateLimiterRes) => result);
    assert.deepEqual([refusal.msBeforeNext, refusal.remainingPoints, refusal.consumedPoints], [60_000, 3 - n, n]);
    await limiter.consume("k");
  }
});

test("seconds may have a fraction", async () => {
  const limiter = newLimiter(3, 1.005); // 1.005 * 1000 is below 1005
  assert.equal((await limiter.consume("k")).msBeforeNext, 1005);
  assert.equal((await limiter.set("k", 3, 1.005)).msBeforeNext, 1005);
});

test("no points at all are an error of the server", async () => {
  await assert.rejects(newLimiter(0).consume("k"), /ERR invalid rate limit policy/);
});

test("penalty may exceed the points, and reward gives back", async () => {
  const limiter = newLimiter(3);
  assert.equal((await limiter.penalty("k", 5)).consumedPoints, 5);
  await assert.rejects(limiter.consume("k"), refused);
  assert.equal((await limiter.reward("k", 4)).consumedPoints, 1);
  assert.equal((await limiter.reward("k", 4)).consumedPoints, 0);
  assert.equal(await limiter.get("k"), null);
});

test("set, block and delete", async () => {
  const limiter = newLimiter(3);
  await limiter.set("k", 2, 30);
  assert.equal((await limiter.consume("k")).remainingPoints, 0);
  await limiter.set("k", 0, 30);
  assert.equal((await limiter.consume("k")).remainingPoints, 2);
  await limiter.block("k", 30);
  const { msBeforeNext } = await limiter.consume("k").catch((result: RateLimiterRes) => result);
  assert.ok(msBeforeNext > 29_000 && msBeforeNext <= 30_000);
  assert.equal(await limiter.delete("k"), true);
  assert.equal(await limiter.delete("k"), false);
  assert.equal((await limiter.consume("k")).remainingPoints, 2);
});

test("their wrappers take it", async () => {
  const union = new RateLimiterUnion(newLimiter(1), newLimiter(2));
  await union.consume("k");
  await assert.rejects(union.consume("k"));
  const timed = new RLWrapperTimeouts({ limiter: newLimiter(1), timeoutMs: 1000 });
  await timed.consume("k");
  await assert.rejects(timed.consume("k"), refused);
});
