-- clock: times that a pool noted by a clock that has stepped back since (a correction, a failover to a server behind).

local STEP_MS = 1000 -- less is not a step: clocks are slewed by that much, and to note the time once a second is enough

-- The time by which a pool's scores count. A script that writes one after a step back, before the next exchange follows
-- it, must write it by the clock from before: that exchange moves it by the step, with all others.
local function pool_time(passed, seen)
  return math.max(time_ms(passed), tonumber(seen or 0))
end

-- For a script that writes a score by `now`: what no time was noted for does not move when the clock steps back.
local function note_pool_time(settings, now, seen)
  if seen and now - tonumber(seen) >= STEP_MS then redis.call('HSET', settings, 'clock', text(now)) end
end

-- `seen`: the latest time noted in this pool. What is due by it moves with the step, or it would wait for as long.
local function follow_clock(now, seen, settings, sorted_sets, permits)
  if seen and now - seen < STEP_MS and seen - now < STEP_MS then return end
  redis.call('HSET', settings, 'clock', text(now))
  if not seen or now > seen then return end
  local step = seen - now
  for _, key in ipairs(sorted_sets) do
    local moved = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for i = 1, #moved, 2 do moved[i], moved[i + 1] = text(tonumber(moved[i + 1]) - step), moved[i] end
    call_many('ZADD', key, moved, 2)
  end
  local taken = redis.call('LRANGE', permits, 0, -1)
  if #taken > 0 then
    for i = 1, #taken do taken[i] = text(tonumber(taken[i]) - step) end
    redis.call('DEL', permits)
    call_many('RPUSH', permits, taken)
  end
  local until_ms = redis.call('HGET', settings, 'promised_until')
  if until_ms then redis.call('HSET', settings, 'promised_until', text(tonumber(until_ms) - step)) end
end
