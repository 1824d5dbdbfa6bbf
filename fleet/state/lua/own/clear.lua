-- own/clear: clear what emptying a queue of our own has left behind, some of it.
-- WITH own_queue
-- KEYS bodies refs junk group_list
-- ARGV kind most
--   kind: see with/own_queue.lua; most: so many lanes in one call
-- Returns 1 if there is more
local bodies, refs, junk, group_list = unpack(KEYS)
local kind, most = ARGV[1], tonumber(ARGV[2])
local name = redis.call('SRANDMEMBER', junk)
if not name then return 0 end
local lanes = redis.call('ZRANGE', junk .. name, 0, most - 1)
local generation = string.match(name, '^(.*\31)') or ''
for _, lane in ipairs(lanes) do
  local alone = string.sub(lane, 1, 1) == '\30'
  local list = group_list .. generation .. lane
  -- The bodies of a subscription are its topic's; all others went at once.
  if kind == 't' then
    drop_bodies(bodies, refs, alone and { string.sub(lane, 2) } or redis.call('LRANGE', list, 0, -1))
  end
  if not alone then redis.call('UNLINK', list) end
end
if #lanes > 0 then redis.call('ZREMRANGEBYRANK', junk .. name, 0, #lanes - 1) end
if redis.call('EXISTS', junk .. name) == 0 then redis.call('SREM', junk, name) end
return redis.call('EXISTS', junk)
