-- own/seek: throw away what was put into a subscription before a time, shown or not; what is left stands as it stood.
-- WITH own_queue
-- KEYS state bodies hidden ready due shown out refs group_list
-- ARGV now_ms incarnation version kind bound
--   bound: the first number that stays
-- Returns {tag, count}
--   tag: `ok`, `stale` or `ahead` (with/own_queue.lua)
--   count: how many are gone
local state, bodies, hidden, ready, due, shown, out, refs, group_list = unpack(KEYS)
local queue = open_queue(state, ARGV[1], ARGV[2], ARGV[3])
local kind, bound = ARGV[4], tonumber(ARGV[5])
if queue.verdict then return { queue.verdict } end
-- Redis may be full, and deleting is what helps: a script that has written may go on.
redis.call('HDEL', state, '')
group_list = group_list .. queue.generation

local gone, emptied, to_ready, to_due = {}, {}, {}, {}
for _, lanes in ipairs({ redis.call('ZRANGE', ready, 0, -1), redis.call('ZRANGE', due, 0, -1) }) do
  for _, lane in ipairs(lanes) do
    if string.sub(lane, 1, 1) == '\30' then
      if tonumber(string.sub(lane, 2)) < bound then
        gone[#gone + 1], emptied[#emptied + 1] = string.sub(lane, 2), lane
      end
    else
      local listed, cut = redis.call('LRANGE', group_list .. lane, 0, -1), 0
      -- Numbers rise within a group.
      while listed[cut + 1] and tonumber(listed[cut + 1]) < bound do
        cut = cut + 1
        gone[#gone + 1] = listed[cut]
      end
      if cut > 0 then
        redis.call('LTRIM', group_list .. lane, cut, -1)
        emptied[#emptied + 1] = lane
        local head = listed[cut + 1]
        local until_ms = head and tonumber(redis.call('ZSCORE', hidden, head) or 0)
        if head and until_ms > queue.now then
          to_due[#to_due + 1], to_due[#to_due + 2] = text(until_ms), lane
        elseif head then
          to_ready[#to_ready + 1], to_ready[#to_ready + 2] = rank(kind, head, until_ms), lane
        end
      end
    end
  end
end
if #gone == 0 then return { 'ok', 0 } end
call_many('ZREM', ready, emptied)
call_many('ZREM', due, emptied)
if #to_ready > 0 then call_many('ZADD', ready, to_ready, 2) end
if #to_due > 0 then call_many('ZADD', due, to_due, 2) end
local were_out = {}
for i, deadline in ipairs(read_many('ZMSCORE', out, gone)) do
  if deadline then were_out[#were_out + 1] = gone[i] end
end
if #were_out > 0 then
  redis.call('HINCRBY', state, 'out_bytes', -bytes_of(bodies, were_out))
  call_many('ZREM', out, were_out)
end
redis.call('HINCRBY', state, 'messages', -#gone)
redis.call('HINCRBY', state, 'bytes', -bytes_of(bodies, gone))
drop_bodies(bodies, refs, gone)
call_many('HDEL', shown, gone)
call_many('ZREM', hidden, gone)
wake_who_waits(queue)
return { 'ok', #gone }
