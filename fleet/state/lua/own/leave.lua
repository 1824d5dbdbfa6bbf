-- own/leave: forget what has arrived where an outbox of a queue of our own sends it.
-- KEYS state outboxes outbox
-- ARGV target place
--   place: the last one that has arrived
-- Returns how many are left in that outbox
local state, outboxes, outbox = unpack(KEYS)
local target, place = ARGV[1], tonumber(ARGV[2])
local list = outbox .. target
local gone = 0
while true do
  local page = redis.call('LRANGE', list, 0, 99)
  local here = 0
  while page[here + 1] and tonumber((head_of(page[here + 1]))) <= place do here = here + 1 end
  if here > 0 then redis.call('LPOP', list, here) end
  gone = gone + here
  if here == 0 or here < #page then break end
end
if gone > 0 then redis.call('HINCRBY', state, 'moving', -gone) end
local left = redis.call('LLEN', list)
if left == 0 then redis.call('SREM', outboxes, target) end
return left
