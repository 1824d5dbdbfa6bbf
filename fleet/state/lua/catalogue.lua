-- catalogue: change entries of the broker's catalogue, all of them or none: only if each is what the caller has seen.
-- KEYS topics subscriptions queues tasks leaving sqs_due
-- ARGV entry …, four fields an entry: table name seen record
--   table: 1 to 5, as KEYS has them; seen: what stood there, '' for nothing; record: what stands there now, '' for nothing
-- Returns 1, or 0 where something else stands there by now
local FIELDS = 4
local total = (#ARGV - 0) / FIELDS
for i = 1, total do
  local base = (i - 1) * FIELDS
  local is = redis.call('HGET', KEYS[tonumber(ARGV[base + 1])], ARGV[base + 2]) or ''
  if is ~= ARGV[base + 3] then return 0 end
end
local topics, subscriptions, queues, tasks, leaving, sqs_due = unpack(KEYS)
local tables = { topics, subscriptions, queues, tasks, leaving }
for i = 1, total do
  local base = (i - 1) * FIELDS
  local name, record = ARGV[base + 2], ARGV[base + 4]
  local entries = tables[tonumber(ARGV[base + 1])]
  if record == '' then
    redis.call('HDEL', entries, name)
  else
    redis.call('HSET', entries, name, record)
    -- Whoever does it looks at once, and finds out whether there is anything to do.
    if entries == tasks then redis.call('ZADD', sqs_due, 0, name) end
  end
end
return 1
