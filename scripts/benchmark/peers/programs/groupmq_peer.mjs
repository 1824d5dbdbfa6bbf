// GroupMQ: `fill REDIS TARGET TOKEN COUNT GROUPS` or `work REDIS CONCURRENCY`. First in, first out within a group.
import { Queue, Worker } from "groupmq";
import Redis from "ioredis";
import { chunks, messages } from "./messages.mjs";
import { allow, deliver } from "./post.mjs";

const [, , command, redisUrl, ...rest] = process.argv;
const redis = new Redis(redisUrl, { maxRetriesPerRequest: null });
const queue = new Queue({ redis, namespace: "bench", keepCompleted: 0 });

if (command === "fill") {
  const [target, token, count, groups] = rest;
  for (const chunk of chunks(messages(target, token, Number(count), Number(groups)), 500)) {
    await Promise.all(chunk.map((data) => queue.add({ groupId: data.messageGroupId, data, jobId: data.id })));
  }
  process.exit(0);
} else {
  const concurrency = Number(rest[0]);
  allow(concurrency);
  const worker = new Worker({ queue, concurrency, handler: (job) => deliver(job.data) });
  worker.on("error", (error) => console.error(error.message));
  worker.on("failed", (job) => console.error(`failed: ${job?.failedReason}`));
  process.on("SIGTERM", () => worker.close().then(() => process.exit(0)));
  worker.run();
}
