-- recall: take back what a pool holds of one queue, except in lanes that are leased; a page of lanes in one call.
-- WITH rest away
-- KEYS ready later in_place entries high tries away away_lane regular_lane high_lane
-- ARGV queue most at
--   most: lanes to look at; at: '' for those that are ready, from the head of the list (those that stay go to its end);
--   else from which place on among those that wait for a time
-- Returns {lanes looked at, how many of them stay, broker_id token …}, the messages in the order of each lane
local ready, later, in_place, entries, high, tries, away, away_lane, regular_lane, high_lane = unpack(KEYS)
local queue, most, at = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local prefix = queue .. SEP
local MESSAGES = 2000 -- after so many no further lane is looked at: others wait for this script
local answer, gone = { 0, 0 }, {}
-- Redis may be full, and this frees: a script that has written may go on.
redis.call('HDEL', entries, '')

-- Takes this queue's messages out of one list. If later ones of the lane are away, these are now too, before them.
local function take_out(list, name)
  local keys = redis.call('LRANGE', list, 0, -1)
  local values = read_many('HMGET', entries, keys)
  local stay = {}
  for i, key in ipairs(keys) do
    if string.sub(key, 1, #prefix) == prefix then
      answer[#answer + 1] = string.sub(key, #prefix + 1)
      answer[#answer + 1] = head_of(values[i])
      gone[#gone + 1] = key
    else
      stay[#stay + 1] = key
    end
  end
  if #stay < #keys then
    local due_ms = redis.call('ZSCORE', away, name)
    if due_ms then
      local back = {}
      for i = #gone, #gone - (#keys - #stay) + 1, -1 do back[#back + 1] = gone[i] end
      send_away(away, away_lane, name, 'LPUSH', back, tonumber(due_ms))
    end
    redis.call('DEL', list)
    if #stay > 0 then call_many('RPUSH', list, stay) end
  end
end

-- True if the lane has messages of other queues left.
local function visit(lane)
  take_out(high_lane .. lane, 'h' .. lane)
  if redis.call('EXISTS', high_lane .. lane) == 0 then redis.call('SREM', high, lane) end
  take_out(regular_lane .. lane, 'r' .. lane)
  return redis.call('EXISTS', regular_lane .. lane, high_lane .. lane) > 0
end

local lanes
if at == '' then
  lanes = redis.call('LRANGE', ready, 0, most - 1)
else
  lanes = redis.call('ZRANGE', later, at, tonumber(at) + most - 1)
end
local looked, stayed, over, counted = 0, {}, {}, {}
for _, lane in ipairs(lanes) do
  if #gone >= MESSAGES then break end
  looked = looked + 1
  if visit(lane) then
    stayed[#stayed + 1] = lane
  else
    over[#over + 1] = lane
    counted[#counted + 1] = SEP .. lane
  end
end
if at == '' then
  if looked > 0 then redis.call('LTRIM', ready, looked, -1) end
  if #stayed > 0 then call_many('RPUSH', ready, stayed) end
else
  rise(later, in_place, over)
end
if #gone > 0 then
  call_many('HDEL', entries, gone)
  call_many('HDEL', tries, gone)
end
-- How often a lane was fenced is counted under a name of its own (exchange.lua), and ends with the lane.
if #counted > 0 then call_many('HDEL', tries, counted) end
answer[1], answer[2] = looked, #stayed
return answer
