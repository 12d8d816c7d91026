// A server with the module for the tests of the adapters, and a cluster of three.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";

const { REDIS_SERVER = "redis-server", MODULE = "" } = process.env;

/** Ports of 127.0.0.1 that nobody listens on. */
export async function freePorts(count: number): Promise<number[]> {
  const listeners = Array.from({ length: count }, () => createServer().listen(0, "127.0.0.1"));
  const ports = listeners.map(async (listener) => {
    if (!listener.listening) await once(listener, "listening");
    return (listener.address() as AddressInfo).port;
  });
  const found = await Promise.all(ports);
  for (const listener of listeners) listener.close();
  return found;
}

/** Waits until the check passes, and at the end says why it does not. */
export async function eventually<T>(check: () => Promise<T>, withinMs = 20_000): Promise<T> {
  for (const until = Date.now() + withinMs; ;) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > until) throw error;
      await sleep(20);
    }
  }
}

export class Server {
  static readonly running = new Set<Server>();
  readonly port: number;
  readonly options: string[];
  readonly admin: Redis;
  readonly folder = mkdtempSync(join(tmpdir(), "redis-rl-"));
  #process: ChildProcess | undefined;

  constructor(port: number, options: string[]) {
    this.port = port;
    this.options = options;
    this.admin = new Redis({ port, lazyConnect: true, maxRetriesPerRequest: 0, retryStrategy: () => 20 });
    this.admin.on("error", () => {});
  }

  static async start(...options: string[]): Promise<Server> {
    const [port] = await freePorts(1);
    const server = new Server(port!, options);
    await server.start();
    return server;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  async start(): Promise<void> {
    const [binary, ...words] = REDIS_SERVER.split(" ");
    const options = ["--port", `${this.port}`, "--bind", "127.0.0.1", "--loadmodule", MODULE];
    options.push("--save", "", "--appendonly", "no", "--dir", this.folder, "--logfile", "log", ...this.options);
    this.#process = spawn(binary!, [...words, ...options], { stdio: ["ignore", "ignore", "inherit"] });
    Server.running.add(this);
    const ended = once(this.#process, "exit").then(() => {
      throw new Error(`the server ended:\n${readFileSync(join(this.folder, "log"))}`);
    });
    await Promise.race([eventually(() => this.admin.ping()), ended]);
  }

  freeze(): void {
    this.#process?.kill("SIGSTOP");
  }

  thaw(): void {
    this.#process?.kill("SIGCONT");
  }

  async kill(): Promise<void> {
    const ended = once(this.#process!, "exit");
    this.#process!.kill("SIGKILL");
    await ended;
    Server.running.delete(this);
  }

  async end(): Promise<void> {
    this.admin.disconnect();
    await this.kill();
    rmSync(this.folder, { recursive: true });
  }

  /** A figure of INFO, 0 where there is none. */
  async figure(section: string, pattern: RegExp): Promise<number> {
    return Number(pattern.exec(await this.admin.info(section))?.[1] ?? 0);
  }

  /** Does not wait: for a process that ends. */
  killNow(): void {
    this.#process?.kill("SIGKILL");
    rmSync(this.folder, { recursive: true, force: true });
  }
}

process.on("exit", () => Server.running.forEach((server) => server.killNow()));

/** Three nodes that share the slots. */
export async function startCluster(): Promise<Server[]> {
  const nodes = await Promise.all(
    // The usual bus port, 10000 above the other, may be taken.
    (await freePorts(3)).map((bus) => Server.start("--cluster-enabled", "yes", "--cluster-port", `${bus}`)),
  );
  const slots = [0, 5462, 10923, 16384];
  for (const [number, node] of nodes.entries()) {
    await node.admin.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1);
    await node.admin.call("CLUSTER", "ADDSLOTSRANGE", slots[number]!, slots[number + 1]! - 1);
    for (const other of nodes.slice(0, number)) {
      await node.admin.call("CLUSTER", "MEET", "127.0.0.1", other.port, other.options.at(-1)!);
    }
  }
  for (const node of nodes) {
    await eventually(async () => {
      const info = (await node.admin.call("CLUSTER", "INFO")) as string;
      if (!/cluster_state:ok[^]*cluster_known_nodes:3/.test(info)) throw new Error(info);
    });
  }
  return nodes;
}
