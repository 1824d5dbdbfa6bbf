// Works off a queue with sqs-consumer: node consumer.mjs ENDPOINT QUEUE_URL COUNT HOW. Prints what it saw, as JSON.
import { SQSClient } from "@aws-sdk/client-sqs";
import { Consumer } from "sqs-consumer";

const [endpoint, queueUrl, count, how] = process.argv.slice(2);
const sqs = new SQSClient({
  endpoint,
  region: "us-east-1",
  credentials: { accessKeyId: "any", secretAccessKey: "any" },
});
const done = [];
const failed = [];
const errors = [];
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function handle(message) {
  const { body, fails, takes_ms } = JSON.parse(message.Body);
  const times = Number(message.Attributes.ApproximateReceiveCount);
  if (fails && times === 1) {
    failed.push(body);
    throw new Error("as it was told");
  }
  if (takes_ms) await pause(takes_ms);
  done.push({ body, times, group: message.Attributes.MessageGroupId });
  if (done.length >= Number(count)) setImmediate(() => consumer.stop());
  return message;
}

async function handleAll(messages) {
  return Promise.all(messages.map(handle));
}

const consumer = Consumer.create({
  sqs,
  queueUrl,
  suppressFifoWarning: true,
  batchSize: 10,
  waitTimeSeconds: 5,
  messageSystemAttributeNames: ["All"],
  terminateVisibilityTimeout: true,
  visibilityTimeout: 2,
  heartbeatInterval: 1,
  ...(how === "batch" ? { handleMessageBatch: handleAll } : { handleMessage: handle }),
});
consumer.on("error", (error) => errors.push(`${error.name}: ${error.message}`));
consumer.on("timeout_error", (error) => errors.push(`${error.name}: ${error.message}`));
consumer.on("processing_error", () => {});
consumer.on("stopped", () => {
  console.log(JSON.stringify({ done, failed, errors }));
  sqs.destroy();
});
consumer.start();
