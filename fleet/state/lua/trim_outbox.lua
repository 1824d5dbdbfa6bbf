-- trim_outbox: forget outbox items that have reached their queues' settled lists.
-- KEYS outboxes outbox
-- ARGV worker item …
-- Returns how many items are left
local outboxes, outbox = unpack(KEYS)
local items = {}
for i = 2, #ARGV do items[#items + 1] = ARGV[i] end
if #items > 0 then call_many('SREM', outbox, items) end
local left = redis.call('SCARD', outbox)
if left == 0 then redis.call('SREM', outboxes, ARGV[1]) end
return left
