-- queued: which of these entries a pool holds, queued or settled into an outbox that is not copied yet.
-- KEYS entries outboxes outbox
-- ARGV key …
--   outbox is the prefix of the workers' outboxes
-- Returns {1 or 0 for each key, what the outboxes hold, a record for each call of a worker}
local entries, outboxes, outbox = unpack(KEYS)
local there = read_many('HMGET', entries, ARGV)
local flags = {}
for i = 1, #ARGV do flags[i] = there[i] and 1 or 0 end
local records = {}
for _, worker in ipairs(redis.call('SMEMBERS', outboxes)) do
  for _, record in ipairs(redis.call('HVALS', outbox .. worker)) do records[#records + 1] = record end
end
return { flags, records }
