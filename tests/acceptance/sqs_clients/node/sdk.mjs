// What AWS's SDK for JavaScript finds at a door: node sdk.mjs ENDPOINT QUEUE SCENARIO. What it throws ends the program.
import assert from "node:assert/strict";

import * as sqs from "@aws-sdk/client-sqs";

const [endpoint, name, scenario] = process.argv.slice(2);
const credentials = { accessKeyId: "any", secretAccessKey: "any" };
const make = (options = {}) => new sqs.SQSClient({ endpoint, region: "us-east-1", credentials, maxAttempts: 1, ...options });
const client = make();
const call = (Command, parameters, options) => client.send(new sqs[`${Command}Command`](parameters), options);
const create = async (Attributes, QueueName = name) => (await call("CreateQueue", { QueueName, Attributes })).QueueUrl;
const receive = async (QueueUrl, more = {}) => {
  const asked = { QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 5, MessageSystemAttributeNames: ["All"] };
  return (await call("ReceiveMessage", { ...asked, MessageAttributeNames: ["All"], ...more })).Messages ?? [];
};
const refused = async (promise, Kind) => assert.rejects(promise, (error) => error instanceof Kind && error.$fault === "client");

const scenarios = {
  // The SDK itself compares the MD5 of bodies and attributes, of what it sends and of what it receives.
  async messages() {
    const QueueUrl = await create();
    const raw = Uint8Array.from({ length: 256 }, (_, i) => i);
    const MessageAttributes = {
      raw: { DataType: "Binary.png", BinaryValue: raw },
      text: { DataType: "String", StringValue: "größe ✓" },
      number: { DataType: "Number", StringValue: "-1.5e3" },
    };
    const sent = await call("SendMessage", { QueueUrl, MessageBody: "größe ✓ 🚀", MessageAttributes });
    const entries = Array.from({ length: 9 }, (_, i) => ({ Id: `${i}`, MessageBody: `body ${i}`, MessageAttributes }));
    assert.equal((await call("SendMessageBatch", { QueueUrl, Entries: entries })).Successful.length, 9);
    const found = await receive(QueueUrl);
    assert.equal(found.length, 10);
    assert.equal(found[0].MessageId, sent.MessageId);
    assert.equal(found[0].Body, "größe ✓ 🚀");
    assert.deepEqual(Uint8Array.from(found[9].MessageAttributes.raw.BinaryValue), raw);
    assert.equal(found[9].MessageAttributes.raw.DataType, "Binary.png");
    assert.equal(found[0].Attributes.ApproximateReceiveCount, "1");
    const Entries = found.map(({ ReceiptHandle }, i) => ({ Id: `${i}`, ReceiptHandle }));
    assert.equal((await call("DeleteMessageBatch", { QueueUrl, Entries })).Successful.length, 10);
    assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 0 }), []);
  },

  async pages() {
    for (let i = 0; i < 12; i++) await create({}, `${name}-${i}`);
    const sizes = [];
    const names = new Set();
    for await (const page of sqs.paginateListQueues({ client, pageSize: 5 }, { QueueNamePrefix: name })) {
      sizes.push(page.QueueUrls.length);
      page.QueueUrls.forEach((url) => names.add(url));
    }
    assert.deepEqual(sizes, [5, 5, 2]);
    assert.equal(names.size, 12);
  },

  async fifo() {
    const QueueUrl = await create({ FifoQueue: "true" }, `${name}.fifo`);
    const first = { QueueUrl, MessageBody: "0", MessageGroupId: "g", MessageDeduplicationId: "d0" };
    const sent = await call("SendMessage", first);
    const again = await call("SendMessage", first);
    assert.deepEqual([again.MessageId, again.SequenceNumber], [sent.MessageId, sent.SequenceNumber]);
    for (let i = 1; i < 5; i++) {
      await call("SendMessage", { ...first, MessageBody: `${i}`, MessageDeduplicationId: `d${i}` });
    }
    const found = await receive(QueueUrl, { MaxNumberOfMessages: 3 });
    assert.deepEqual(found.map(({ Body }) => Body), ["0", "1", "2"]);
    assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 0 }), []);
    for (const { ReceiptHandle } of found) await call("DeleteMessage", { QueueUrl, ReceiptHandle });
    assert.deepEqual((await receive(QueueUrl)).map(({ Body }) => Body), ["3", "4"]);
  },

  async throttling() {
    const QueueUrl = await create({ ThrottleSendCapacity: "10", ThrottleSendRefillPerSecond: "10" });
    const patient = make({ maxAttempts: 12 });
    let attempts = 0;
    for (let i = 0; i < 20; i++) {
      const sent = await patient.send(new sqs.SendMessageCommand({ QueueUrl, MessageBody: `${i}` }));
      attempts += sent.$metadata.attempts;
    }
    assert.ok(attempts > 20, "nothing was tried again");
    const { Attributes } = await call("GetQueueAttributes", { QueueUrl, AttributeNames: ["ApproximateNumberOfMessages"] });
    assert.equal(Attributes.ApproximateNumberOfMessages, "20");
    patient.destroy();
  },

  async errors() {
    await refused(call("GetQueueUrl", { QueueName: name }), sqs.QueueDoesNotExist);
    const QueueUrl = await create();
    await refused(create({ DelaySeconds: "7" }), sqs.QueueNameExists);
    await refused(call("DeleteMessage", { QueueUrl, ReceiptHandle: "nonsense" }), sqs.ReceiptHandleIsInvalid);
    await refused(call("SendMessageBatch", { QueueUrl, Entries: [] }), sqs.EmptyBatchRequest);
    await refused(call("GetQueueAttributes", { QueueUrl, AttributeNames: ["Nonsense"] }), sqs.InvalidAttributeName);
    await refused(call("SendMessage", { QueueUrl, MessageBody: "\u0000" }), sqs.InvalidMessageContents);
    await call("PurgeQueue", { QueueUrl });
    await refused(call("PurgeQueue", { QueueUrl }), sqs.PurgeQueueInProgress);
  },

  // A receive whose client has gone takes nothing with it.
  async abort() {
    const QueueUrl = await create({ VisibilityTimeout: "600" });
    const leaving = new AbortController();
    const asked = call("ReceiveMessage", { QueueUrl, WaitTimeSeconds: 20 }, { abortSignal: leaving.signal });
    setTimeout(() => leaving.abort(), 300);
    await assert.rejects(asked, { name: "AbortError" });
    await call("SendMessage", { QueueUrl, MessageBody: "for who stays" });
    const [message] = await receive(QueueUrl);
    assert.equal(message.Body, "for who stays");
    assert.equal(message.Attributes.ApproximateReceiveCount, "1");
  },
};

await scenarios[scenario]();
client.destroy();
console.log("ok");
