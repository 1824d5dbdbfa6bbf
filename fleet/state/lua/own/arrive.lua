-- own/arrive: take in what a courier brings from the outbox of another queue: never lost, never twice, in its order.
-- WITH own_queue
-- KEYS state bodies hidden ready origins group_list
-- ARGV now_ms incarnation version kind source origin message …, four fields a message: place number group body
--   source: whose outbox, with its incarnation; places rise in it, and what has come already is not taken again
--   origin: the queue that they came from, as people call it; '' is not noted
--   number: of kind `s` it stays, if it is free, as the message keeps its age; 0: it is a new message here
-- Returns {tag, taken}
--   tag: `ok`, `stale` or `ahead` (with/own_queue.lua)
local state, bodies, hidden, ready, origins, group_list = unpack(KEYS)
local queue = open_queue(state, ARGV[1], ARGV[2], ARGV[3])
local kind, source, origin = ARGV[4], ARGV[5], ARGV[6]
local FIELDS = 4
local total = (#ARGV - 6) / FIELDS
if queue.verdict then return { queue.verdict } end
note_queue_time(queue)
group_list = group_list .. queue.generation

local highest = tonumber(redis.call('HGET', state, 'from:' .. source) or 0)
local last = next_epoch(tonumber(redis.call('HGET', state, 'last') or 0), queue.now) - 1
local taken, place = 0, highest
for i = 1, total do
  local base = 6 + (i - 1) * FIELDS
  local group, body = ARGV[base + 3], ARGV[base + 4]
  if tonumber(ARGV[base + 1]) > place then
    place = tonumber(ARGV[base + 1])
    local number
    if kind == 's' and tonumber(ARGV[base + 2]) > 0 then
      number = tonumber(ARGV[base + 2])
      while redis.call('HEXISTS', bodies, text(number)) == 1 do number = number + 1 end
      last = math.max(last, number)
    else
      last = last + 1
      number = last
    end
    local seq = text(number)
    redis.call('HSET', bodies, seq, body)
    if origin ~= '' then redis.call('HSET', origins, seq, origin) end
    if kind == 's' then
      -- Among what was shown and came back: `fresh` is in the order of numbers.
      redis.call('ZADD', hidden, text(queue.now), seq)
    elseif group == '' then
      redis.call('ZADD', ready, seq, '\30' .. seq)
    elseif redis.call('RPUSH', group_list .. group, seq) == 1 then
      redis.call('ZADD', ready, seq, group)
    end
    taken = taken + 1
  end
end
if taken > 0 then
  redis.call('HSET', state, 'last', text(last), 'from:' .. source, text(place))
  wake_who_waits(queue)
end
return { 'ok', taken }
