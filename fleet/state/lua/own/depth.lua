-- own/depth: how much stands in a queue of our own.
-- WITH own_queue
-- KEYS state bodies hidden ready due delayed fresh out group_list
-- ARGV now_ms kind look
--   kind: see with/own_queue.lua; look: at most this many of those that wait are looked at
-- Returns {messages, hidden, delayed, moving, age_ms, all, bytes, out, out_bytes}
--   messages: all of them, without what is moving; hidden: shown or delayed; delayed: sent so, and not due yet
--   age_ms: of the oldest message that was looked at, 0 if there is none; all: 1 if all that wait were looked at
--   bytes, out, out_bytes: of a subscription, what it holds, and how much of it is out
local state, bodies, hidden, ready, due, delayed, fresh, out, group_list = unpack(KEYS)
local queue = open_queue(state, ARGV[1], '', '')
local kind, look = ARGV[2], tonumber(ARGV[3])
local now = queue.now
group_list = group_list .. queue.generation

local oldest = 0
local function older(seq)
  seq = tonumber(seq or 0)
  if seq and seq > 0 and (oldest == 0 or seq < oldest) then oldest = seq end
end
local waiting = kind == 's' and hidden or due
if kind == 's' then
  older(redis.call('LINDEX', fresh, 0))
  for _, seq in ipairs(redis.call('ZRANGE', hidden, 0, look - 1)) do older(seq) end
else
  -- Only of kind `o` does a lane not stand there by the number of its first message.
  for _, lane in ipairs(redis.call('ZRANGE', ready, 0, kind == 'o' and look - 1 or 0)) do
    older(head_of_lane(group_list, lane))
  end
  for _, lane in ipairs(redis.call('ZRANGE', due, 0, look - 1)) do older(head_of_lane(group_list, lane)) end
end
local is = redis.call('HMGET', state, 'moving', 'messages', 'bytes', 'out_bytes')
local from = '(' .. text(now)
return {
  kind == 't' and tonumber(is[2] or 0) or redis.call('HLEN', bodies),
  redis.call('ZCOUNT', hidden, from, '+inf'),
  redis.call('ZCOUNT', delayed, from, '+inf'),
  tonumber(is[1] or 0),
  text(oldest > 0 and math.max(0, now - math.floor(oldest / 1000)) or 0),
  redis.call('ZCARD', waiting) <= look and 1 or 0,
  tonumber(is[3] or 0),
  kind == 't' and redis.call('ZCOUNT', out, from, '+inf') or 0,
  tonumber(is[4] or 0),
}
