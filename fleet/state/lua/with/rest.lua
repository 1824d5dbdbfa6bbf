-- rest: lanes that wait in place for a time, and how many messages they keep in the pool meanwhile.

local LANE_SHARE = 4 -- a lane that rests keeps at most this part of the pool's capacity
local REST_SHARE = 2 -- and all that rest together this part: the others need room too

-- How many messages rest. Their sum stands beside the lanes, under a name that no lane can have.
local function resting(in_place)
  return tonumber(redis.call('HGET', in_place, SEP) or 0)
end

local function part_of(capacity, share)
  return math.max(1, math.floor(capacity / share))
end

local function rest_until(later, in_place, lane, until_ms, messages)
  redis.call('ZADD', later, text(until_ms), lane)
  redis.call('HSET', in_place, lane, messages)
  redis.call('HINCRBY', in_place, SEP, messages)
end

-- These rest no longer.
local function rise(later, in_place, lanes)
  if #lanes == 0 then return end
  call_many('ZREM', later, lanes)
  local sum = 0
  for _, messages in ipairs(read_many('HMGET', in_place, lanes)) do sum = sum + tonumber(messages or 0) end
  call_many('HDEL', in_place, lanes)
  if redis.call('HINCRBY', in_place, SEP, -sum) <= 0 then redis.call('DEL', in_place) end
end
