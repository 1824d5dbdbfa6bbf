-- renew: keep a worker's leases on lanes of a pool, each known by its epoch.
-- WITH clock holder
-- KEYS leases owners settings
-- ARGV now_ms worker ttl_ms lane epoch …
-- Returns the lanes that are not held any more under that epoch
local leases, owners, settings = unpack(KEYS)
local worker, ttl_ms = ARGV[2], tonumber(ARGV[3])
local seen = redis.call('HGET', settings, 'clock')
local now = pool_time(ARGV[1], seen)
-- Redis may be full, and then leases must not lapse: a script that has written may go on.
redis.call('HDEL', owners, '')
note_pool_time(settings, now, seen)
local lanes = {}
for i = 4, #ARGV, 2 do lanes[#lanes + 1] = ARGV[i] end
local holders = read_many('HMGET', owners, lanes)
local kept, lost = {}, {}
for i, lane in ipairs(lanes) do
  local deadline = holders[i] and redis.call('ZSCORE', leases, lane)
  -- A lapsed lease stays lapsed: its holder has let go of it by its own clock.
  if deadline and held_under(holders[i], worker) == ARGV[3 + 2 * i] and tonumber(deadline) > now then
    kept[#kept + 1], kept[#kept + 2] = now + ttl_ms, lane
  else
    lost[#lost + 1] = lane
  end
end
if #kept > 0 then call_many('ZADD', leases, kept, 2) end
return lost
