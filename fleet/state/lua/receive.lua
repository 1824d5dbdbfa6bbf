-- receive: show the oldest messages of a queue of our own, and hide them for a while.
-- WITH queue_time
-- KEYS state bodies hidden ready due counts group_list
-- ARGV now_ms most visibility_ms per_lane
--   per_lane: no more than this of one group, or than its part of what is asked for if that is more
-- Returns {due_ms, message …}, four fields a message: number group count body
--   due_ms: when something is shown again, '' if nothing will; a group gives its messages up to its first hidden one
local state, bodies, hidden, ready, due, counts, group_list = unpack(KEYS)
local now, ahead = queue_time(state, ARGV[1])
local most, visibility_ms, per_lane = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local SWEEP = 1000

-- Redis may be full, and taking messages out is what helps: a script that has written may go on.
redis.call('HDEL', state, '')
note_queue_time(state, now, ahead)
local function head_of_lane(lane)
  if string.sub(lane, 1, 1) == '\30' then return string.sub(lane, 2) end
  return redis.call('LINDEX', group_list .. lane, 0)
end

local shown = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, SWEEP)
if #shown > 0 then
  local back = {}
  for i = 1, #shown do
    local head = head_of_lane(shown[i])
    if head then back[#back + 1], back[#back + 2] = head, shown[i] end
  end
  redis.call('ZREM', due, unpack(shown))
  if #back > 0 then redis.call('ZADD', ready, unpack(back)) end
end

local lanes = most > 0 and redis.call('ZRANGE', ready, 0, most - 1) or {}
if #lanes > 0 then per_lane = math.max(per_lane, math.ceil(most / #lanes)) end
local seqs, groups, taken, again, alone = {}, {}, {}, {}, {}
for i = 1, #lanes do
  if #seqs >= most then break end
  local lane = lanes[i]
  taken[#taken + 1] = lane
  if string.sub(lane, 1, 1) == '\30' then
    seqs[#seqs + 1], groups[#groups + 1] = string.sub(lane, 2), ''
    alone[#alone + 1] = seqs[#seqs]
  else
    local listed = redis.call('LRANGE', group_list .. lane, 0, math.min(per_lane, most - #seqs) - 1)
    local until_ms = #listed > 0 and redis.call('ZMSCORE', hidden, unpack(listed))
    for j = 1, #listed do
      if until_ms[j] then
        if tonumber(until_ms[j]) > now then break end
        again[#again + 1] = listed[j]
      end
      seqs[#seqs + 1], groups[#groups + 1] = listed[j], lane
    end
  end
end

local answer = { '' }
if #seqs > 0 then
  -- What was hidden before was shown before, once if nothing else is noted; most messages are shown only once.
  for from = 1, #alone, 2000 do
    local part = { unpack(alone, from, math.min(from + 1999, #alone)) }
    local until_ms = redis.call('ZMSCORE', hidden, unpack(part))
    for j = 1, #part do
      if until_ms[j] then again[#again + 1] = part[j] end
    end
  end
  local times, counted = {}, {}
  for i, before in ipairs(read_many('HMGET', counts, again)) do
    times[again[i]] = math.floor(tonumber(before or 1)) + 1
    counted[2 * i - 1], counted[2 * i] = again[i], times[again[i]]
  end
  if #counted > 0 then call_many('HSET', counts, counted, 2) end
  local values = read_many('HMGET', bodies, seqs)
  local hide, wait = {}, {}
  for i = 1, #seqs do
    hide[2 * i - 1], hide[2 * i] = now + visibility_ms, seqs[i]
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = seqs[i], groups[i], times[seqs[i]] or 1, values[i]
  end
  for i = 1, #taken do wait[2 * i - 1], wait[2 * i] = now + visibility_ms, taken[i] end
  call_many('ZADD', hidden, hide, 2)
  call_many('ZADD', due, wait, 2)
  call_many('ZREM', ready, taken)
else
  local next_one = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
  if next_one[2] then answer[1] = text(math.max(1, tonumber(next_one[2]) - now)) end
end
return answer
