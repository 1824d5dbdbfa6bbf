-- own_moving: a message that has to go to another queue leaves its own at once, and waits in an outbox of it.

-- A courier takes it from there (lua/own/arrive.lua). Places rise, and tell what has arrived. They are times, as numbers
-- are: a target remembers them, and a Redis that comes back without its last writes must not give one again.
-- A count of -1: it was asked for, whatever the count is.
local function move(queue, outboxes, outbox, target, seq, count, first, group, body)
  local place = text(next_epoch(tonumber(redis.call('HGET', queue.state, 'place') or 0), queue.now))
  redis.call('HSET', queue.state, 'place', place)
  redis.call('RPUSH', outbox .. target, table.concat({ place, seq, count, first, group, body }, SEP))
  redis.call('SADD', outboxes, target)
  redis.call('HINCRBY', queue.state, 'moving', 1)
  -- Whoever asked for this may die before he brings it.
  if not queue.told then redis.call('PUBLISH', 'fleet:moved', string.sub(queue.state, 1, -6)) end
  queue.told = true
end
