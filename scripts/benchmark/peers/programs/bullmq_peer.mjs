// BullMQ: `fill REDIS TARGET TOKEN COUNT GROUPS` or `work REDIS CONCURRENCY`. Its free edition has no groups.
import { Queue, Worker } from "bullmq";
import Redis from "ioredis";
import { chunks, messages } from "./messages.mjs";
import { allow, deliver } from "./post.mjs";

const [, , command, redisUrl, ...rest] = process.argv;
const connection = new Redis(redisUrl, { maxRetriesPerRequest: null });

if (command === "fill") {
  const [target, token, count, groups] = rest;
  const queue = new Queue("bench", { connection });
  const opts = { removeOnComplete: true };
  for (const chunk of chunks(messages(target, token, Number(count), Number(groups)), 500)) {
    await queue.addBulk(chunk.map((data) => ({ name: "deliver", data, opts })));
  }
  await queue.close();
  connection.disconnect();
} else {
  const concurrency = Number(rest[0]);
  allow(concurrency);
  const worker = new Worker("bench", (job) => deliver(job.data), { connection, concurrency });
  worker.on("error", (error) => console.error(error.message));
  worker.on("failed", (_job, error) => console.error(error.message));
  process.on("SIGTERM", () => worker.close().then(() => process.exit(0)));
}
