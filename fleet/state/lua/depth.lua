-- depth: how much stands in a queue of our own.
-- WITH queue_time
-- KEYS state bodies hidden ready due group_list
-- ARGV now_ms look
--   look: at most this many of the lanes that wait are looked at
-- Returns {messages, hidden, age_ms, all}
--   age_ms: of the oldest message that was looked at, 0 if there is none
--   all: 1 if all lanes were looked at
local state, bodies, hidden, ready, due, group_list = unpack(KEYS)
local now = queue_time(state, ARGV[1])
local look = tonumber(ARGV[2])
local oldest = tonumber(redis.call('ZRANGE', ready, 0, 0, 'WITHSCORES')[2] or 0)
for _, lane in ipairs(redis.call('ZRANGE', due, 0, look - 1)) do
  local head
  if string.sub(lane, 1, 1) == '\30' then
    head = tonumber(string.sub(lane, 2))
  else
    head = tonumber(redis.call('LINDEX', group_list .. lane, 0) or 0)
  end
  if head > 0 and (oldest == 0 or head < oldest) then oldest = head end
end
local age_ms = oldest > 0 and math.max(0, now - math.floor(oldest / 1000)) or 0
return { redis.call('HLEN', bodies), redis.call('ZCOUNT', hidden, '(' .. text(now), '+inf'), text(age_ms),
  redis.call('ZCARD', due) <= look and 1 or 0 }
