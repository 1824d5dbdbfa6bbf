-- away: what went back of a lane to a source that holds no groups, in its order. Nothing newer goes before it.

local AWAY_TTL_MS = 86400000 -- of what is never asked for again
local AWAY_MOST = 10000 -- of one lane; beyond that newer ones wait all the same, and are not told apart

-- `policy`: what a message itself asks for after a failure, '' for what its pool does.
local function holds(policy, on_failure)
  if policy == '' then policy = on_failure end
  return policy == 'hold' or policy == 'park'
end

-- Whether a message that goes back must come again before any newer one, as its source does not see to that itself.
local function keeps_order(lane, value, on_failure)
  if string.sub(lane, 1, 1) == '\30' then return false end -- it asks for no order
  if string.match(value, '^[^\31]*\31[^\31]*\31[^\31]*\31([^\31]*)') ~= '0' then return false end
  return holds(string.match(value, '([^\31]*)$'), on_failure)
end

-- The name beside that of a lane in `away`: since when its late messages have a second chance to come. A clock that
-- stepped forward would make everything late at once. A set with that name holds what came meanwhile.
local function second_chance(name)
  return 'x' .. name
end

local function end_chance(away, away_lane, name)
  redis.call('ZREM', away, second_chance(name))
  redis.call('DEL', away_lane .. second_chance(name))
end

-- `push`: LPUSH for what stood before all that is away already (then the last comes first), RPUSH for what comes after.
local function send_away(away, away_lane, name, push, keys, due_ms)
  call_many(push, away_lane .. name, keys)
  redis.call('PEXPIRE', away_lane .. name, AWAY_TTL_MS)
  redis.call('ZADD', away, 'GT', text(due_ms), name)
  redis.call('ZREMRANGEBYSCORE', away, '(0', text(due_ms - 2 * AWAY_TTL_MS)) -- their lists are gone
  redis.call('PEXPIRE', away, AWAY_TTL_MS)
end
