-- trim_outbox: forget the calls of a worker whose outcomes have reached their queues' settled lists.
-- KEYS outboxes outbox
-- ARGV worker call …
-- Returns how many calls are left
local outboxes, outbox = unpack(KEYS)
local calls = {}
for i = 2, #ARGV do calls[#calls + 1] = ARGV[i] end
if #calls > 0 then call_many('HDEL', outbox, calls) end
local left = redis.call('HLEN', outbox)
if left == 0 then redis.call('SREM', outboxes, ARGV[1]) end
return left
