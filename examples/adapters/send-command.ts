// `sendCommand` for the stores beside this file: paste the one for your client.
//
// Two settings matter in each: a call is not queued while there is no connection, and not sent a second
// time. It may have been charged, and nobody waits for its answer any more. The time-out is the store's.
import { Cluster, Command, Redis } from "ioredis";
import { createClient, createCluster } from "redis";

export interface Client {
  sendCommand: (...words: string[]) => Promise<unknown>;
  close: () => void;
}

export async function ioredis(url: string): Promise<Client> {
  const redis = new Redis(url, { connectTimeout: 250, enableOfflineQueue: false, maxRetriesPerRequest: 0 });
  redis.on("error", () => {}); // each call reports it, and the client goes on connecting
  await new Promise((ready) => redis.once("ready", ready));
  return {
    sendCommand: (command: string, ...args: string[]) => redis.call(command, ...args),
    close: () => redis.disconnect(),
  };
}

/** In a cluster ioredis knows the key of built-in commands only, and sends others to any node. */
class KeyFirst extends Command {
  override getKeys() {
    return [this.args[0] as string];
  }
}

export async function ioredisCluster(url: string): Promise<Client> {
  const redisOptions = { connectTimeout: 250, maxRetriesPerRequest: 0 };
  const cluster = new Cluster([url], { enableOfflineQueue: false, retryDelayOnFailover: 0, redisOptions });
  cluster.on("error", () => {});
  await new Promise((ready) => cluster.once("ready", ready));
  return {
    sendCommand: (command: string, ...args: string[]) =>
      cluster.sendCommand(new KeyFirst(command, args)) as Promise<unknown>,
    close: () => cluster.disconnect(),
  };
}

export async function nodeRedis(url: string): Promise<Client> {
  const client = createClient({ url, socket: { connectTimeout: 250 }, disableOfflineQueue: true });
  client.on("error", () => {});
  await client.connect();
  return { sendCommand: (...words) => client.sendCommand(words), close: () => client.destroy() };
}

export async function nodeRedisCluster(url: string): Promise<Client> {
  const defaults = { socket: { connectTimeout: 250 }, disableOfflineQueue: true };
  const cluster = createCluster({ rootNodes: [{ url }], defaults });
  cluster.on("error", () => {});
  await cluster.connect();
  return {
    // The key once more in front, as the client can't tell where it is; false: the call writes.
    sendCommand: (...words) => cluster.sendCommand(words[1], false, words),
    close: () => cluster.destroy(),
  };
}
