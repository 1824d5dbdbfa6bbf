// The messages of a run, the same for every peer.
export function* messages(url, token, count, groups) {
  for (let number = 0; number < count; number++) {
    yield {
      id: `m${String(number).padStart(8, "0")}`,
      poolCode: "BENCH",
      authToken: token,
      mediationType: "HTTP",
      mediationTarget: url,
      messageGroupId: `g${number % groups}`,
    };
  }
}

export function* chunks(items, size) {
  let chunk = [];
  for (const item of items) {
    chunk.push(item);
    if (chunk.length === size) {
      yield chunk;
      chunk = [];
    }
  }
  if (chunk.length) yield chunk;
}
