import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Server } from "../../../tests/adapters/npm/server.ts";
import { type Client, ioredis } from "../send-command.ts";
import { RedisRlStorage } from "./storage.ts";

let server: Server;
let client: Client;
let storage: RedisRlStorage;

before(async () => {
  server = await Server.start();
  client = await ioredis(server.url);
  storage = new RedisRlStorage(client.sendCommand);
});

after(async () => {
  client.close();
  await server.end();
});

test("a block starts with the first refused call, and no other prolongs it", async () => {
  const call = () => storage.increment("blocks", 5_000, 2, 60_000, "default");
  const admitted = { totalHits: 1, timeToExpire: 5, isBlocked: false, timeToBlockExpire: 0 };
  assert.deepEqual(await call(), admitted);
  assert.deepEqual(await call(), { ...admitted, totalHits: 2 });
  assert.deepEqual(await call(), { totalHits: 3, timeToExpire: 60, isBlocked: true, timeToBlockExpire: 60 });
  await server.admin.pexpire("rl:throttler:blocks:default", 30_000);
  assert.deepEqual(await call(), { totalHits: 4, timeToExpire: 30, isBlocked: true, timeToBlockExpire: 30 });
});

test("without a block a refused call waits for the end of the window", async () => {
  const call = () => storage.increment("waits", 5_000, 1, 0, "default");
  assert.equal((await call()).isBlocked, false);
  for (let n = 0; n < 3; n++) {
    assert.deepEqual(await call(), { totalHits: 2, timeToExpire: 5, isBlocked: true, timeToBlockExpire: 5 });
  }
});

test("each throttler counts for itself, and of 50 callers at once 3 are admitted", async () => {
  for (const name of ["short", "long"]) {
    for (const blockDuration of [0, 60_000]) {
      const calls = Array.from({ length: 50 }, () =>
        storage.increment(`many:${blockDuration}`, 60_000, 3, blockDuration, name),
      );
      assert.equal((await Promise.all(calls)).filter(({ isBlocked }) => !isBlocked).length, 3);
    }
  }
});
