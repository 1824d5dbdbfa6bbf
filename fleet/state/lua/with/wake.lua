-- wake: who is told that a pool has work, or will have some.
-- Two workers hear of each pool, its homes (workers/homes.py), and the first of them looks when something falls due.
-- More are asked if more is ready than two can take at once.

local LANES_EACH = 64 -- what a worker claims with one call

-- Asks the workers from this place on in the pool's order: as many as were asked before, or more if there is work for
-- more in so many lanes.
local function wake_others(settings, from, lanes)
  local to = math.max(2 * from, from + math.ceil(lanes / LANES_EACH))
  redis.call('PUBLISH', 'fleet:wake', table.concat({ code_of(settings), text(from), text(to) }, SEP))
end

-- Only the first home comes for a single lane that is ready: a second one would ask in vain.
local function wake(settings, lanes)
  redis.call('PUBLISH', 'fleet:wake:' .. code_of(settings), '+' .. text(lanes))
  if lanes > 2 * LANES_EACH then wake_others(settings, 2, lanes - 2 * LANES_EACH) end
end

-- Something falls due: the first home promised to look at `look`, or none did. A promise that was not kept is void.
local function tell_due(settings, look, due_ms, now)
  if look and look > now and look <= due_ms then return end
  redis.call('HSET', settings, 'look', text(due_ms))
  redis.call('PUBLISH', 'fleet:wake:' .. code_of(settings), text(math.max(1, due_ms - now)))
end
