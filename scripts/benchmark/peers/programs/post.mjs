// The node peers' delivery: undici with a kept-alive pool per endpoint, the fastest client node has.
import { Pool } from "undici";

const pools = new Map();
let connections = 1;

// As many connections as jobs at once, so that no job waits for one.
export function allow(count) {
  connections = count;
}

export async function deliver(message) {
  const target = new URL(message.mediationTarget);
  let pool = pools.get(target.origin);
  if (!pool) {
    pool = new Pool(target.origin, { connections, pipelining: 1 });
    pools.set(target.origin, pool);
  }
  const { statusCode, body } = await pool.request({
    path: target.pathname + target.search,
    method: "POST",
    headers: {
      authorization: `Bearer ${message.authToken}`,
      "content-type": "application/json",
      accept: "application/json",
    },
    body: JSON.stringify({ messageId: message.id }),
  });
  const answer = await body.json();
  // Anything but 200 and `ack: true` throws, so that the peer counts it as failed.
  if (statusCode !== 200 || !answer.ack) throw new Error(`answered ${statusCode}`);
}
