-- purge: throw away messages of a queue of our own, shown or not, up to a number; asked again until none is left.
-- KEYS state bodies hidden ready due counts group_list
-- ARGV most
-- Returns how many are left
local state, bodies, hidden, ready, due, counts, group_list = unpack(KEYS)
local most = tonumber(ARGV[1])
local gone, emptied = {}, {}
for _, set in ipairs({ ready, due }) do
  for _, lane in ipairs(redis.call('ZRANGE', set, 0, most - 1)) do
    if #gone >= most then break end
    if string.sub(lane, 1, 1) == '\30' then
      gone[#gone + 1] = string.sub(lane, 2)
      emptied[#emptied + 1] = lane
    else
      local room = most - #gone
      local listed = redis.call('LRANGE', group_list .. lane, 0, room - 1)
      for i = 1, #listed do gone[#gone + 1] = listed[i] end
      redis.call('LTRIM', group_list .. lane, #listed, -1)
      if #listed < room or redis.call('EXISTS', group_list .. lane) == 0 then emptied[#emptied + 1] = lane end
    end
  end
end
if #gone > 0 then
  call_many('HDEL', bodies, gone)
  call_many('HDEL', counts, gone)
  call_many('ZREM', hidden, gone)
end
if #emptied > 0 then
  call_many('ZREM', ready, emptied)
  call_many('ZREM', due, emptied)
end
redis.call('HINCRBY', state, 'purges', 1)
return redis.call('HLEN', bodies)
