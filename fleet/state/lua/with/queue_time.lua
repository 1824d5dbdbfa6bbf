-- queue_time: a queue of our own has a time of its own, which goes forward with Redis's clock and never back.

-- The time now, and whether it has to be noted (`note_queue_time`). By Redis's clock alone, a message that is hidden
-- until a time would stay hidden longer by as much as the clock steps back.
local function queue_time(state, passed)
  local is = redis.call('HMGET', state, 'clock', 'ahead')
  local seen, ahead = tonumber(is[1] or 0), tonumber(is[2] or 0)
  local now = time_ms(passed) + ahead
  if now < seen then return seen, ahead + seen - now end
  return now, now - seen >= 1000 and ahead or nil
end

-- Where a script may write: how far the queue's time has come, to the second, and how far it is ahead of Redis's.
local function note_queue_time(state, now, ahead)
  if ahead then redis.call('HSET', state, 'clock', text(now), 'ahead', text(ahead)) end
end
