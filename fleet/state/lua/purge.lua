-- purge: throw away messages of some lanes of a queue of our own, up to a number, shown or not, so many in one call.
-- WITH queue_time
-- KEYS state bodies hidden ready due counts group_list
-- ARGV now_ms bound most lane …
--   bound: the last number that goes; what was sent after it stays
-- Returns how many are gone; as many as `most` if there may be more
local state, bodies, hidden, ready, due, counts, group_list = unpack(KEYS)
local now = queue_time(state, ARGV[1])
local bound, most = tonumber(ARGV[2]), tonumber(ARGV[3])

-- Redis may be full, and deleting is what helps: a script that has written may go on.
redis.call('HDEL', state, '')

local gone, emptied, to_ready, to_due = {}, {}, {}, {}
for i = 4, #ARGV do
  local lane, room = ARGV[i], most - #gone
  if room <= 0 then break end
  if string.sub(lane, 1, 1) == '\30' then
    local seq = string.sub(lane, 2)
    if tonumber(seq) <= bound and redis.call('HEXISTS', bodies, seq) == 1 then
      gone[#gone + 1] = seq
      emptied[#emptied + 1] = lane
    end
  else
    local listed = redis.call('LRANGE', group_list .. lane, 0, room)
    local cut = 0
    -- Numbers rise within a group.
    while cut < math.min(#listed, room) and tonumber(listed[cut + 1]) <= bound do
      cut = cut + 1
      gone[#gone + 1] = listed[cut]
    end
    if cut > 0 then
      redis.call('LTRIM', group_list .. lane, cut, -1)
      emptied[#emptied + 1] = lane
      local head = listed[cut + 1]
      local until_ms = head and tonumber(redis.call('ZSCORE', hidden, head) or 0)
      if head then
        local to = until_ms > now and to_due or to_ready
        to[#to + 1], to[#to + 2] = until_ms > now and text(until_ms) or head, lane
      end
    end
  end
end
if #gone > 0 then
  call_many('HDEL', bodies, gone)
  call_many('HDEL', counts, gone)
  call_many('ZREM', hidden, gone)
  call_many('ZREM', ready, emptied)
  call_many('ZREM', due, emptied)
  redis.call('HINCRBY', state, 'purges', 1)
end
if #to_due > 0 then call_many('ZADD', due, to_due, 2) end
if #to_ready > 0 then call_many('ZADD', ready, to_ready, 2) end
if #to_ready > 0 or #to_due > 0 then
  redis.call('PUBLISH', 'fleet:queue', string.match(state, '^{b:(.*):%d+}:state$'))
end
return #gone
