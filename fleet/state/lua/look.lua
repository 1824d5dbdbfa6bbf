-- look: how pools are set and what they hold, read only.
-- KEYS settings entries leases ready later
-- ARGV pools
--   the KEYS of that many pools, one after the other: of one pool in a Cluster, of many on a single server
-- Returns for each pool in order {settings, queued, leased, ready, later}
--   settings: field value …; then numbers: its messages, and its lanes that are leased, ready, or wait
local found = {}
for i = 1, tonumber(ARGV[1]) do
  local at = 5 * i - 4
  local settings, entries, leases, ready, later = unpack(KEYS, at, at + 4)
  local lanes = { 0, 0, 0 }
  local queued = redis.call('HLEN', entries)
  -- A lane always has messages.
  if queued > 0 then
    lanes = { redis.call('ZCARD', leases), redis.call('LLEN', ready), redis.call('ZCARD', later) }
  end
  found[i] = { redis.call('HGETALL', settings), queued, lanes[1], lanes[2], lanes[3] }
end
return found
