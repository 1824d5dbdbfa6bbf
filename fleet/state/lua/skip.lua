-- skip: put the message at the head of a lane aside, unless a worker delivers it now.
-- WITH rest wake clock
-- KEYS settings ready entries leases owners later in_place high tries outboxes outbox regular_lane high_lane
-- ARGV now_ms operator lane key value letter
--   operator: in whose outbox it stands until it has reached its queue; key and value: of the entry that is meant
-- Returns {tag, until_ms}
--   tag: `skipped`; `leased` until then, if not renewed; `changed`: that message is not at the head (any more)
local settings, ready, entries, leases, owners, later, in_place, high, tries, outboxes, outbox, regular_lane,
  high_lane = unpack(KEYS)
local operator, lane, key, value = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local now = pool_time(ARGV[1], redis.call('HGET', settings, 'clock'))

local deadline = redis.call('ZSCORE', leases, lane)
if deadline and tonumber(deadline) > now then
  return { 'leased', text(time_ms(ARGV[1]) + tonumber(deadline) - now) }
end
local is_high = redis.call('EXISTS', high_lane .. lane) == 1
local list = (is_high and high_lane or regular_lane) .. lane
if redis.call('LINDEX', list, 0) ~= key or redis.call('HGET', entries, key) ~= value then return { 'changed', '' } end

-- Redis may be full, and this frees: free first, and the rest is allowed.
redis.call('LPOP', list)
redis.call('HDEL', entries, key)
redis.call('HDEL', tries, key, SEP .. lane)
if is_high and redis.call('EXISTS', list) == 0 then redis.call('SREM', high, lane) end
-- The holder of a lease that lapsed is refused from here on, as if the lane had been claimed.
if deadline then
  redis.call('ZREM', leases, lane)
  redis.call('HDEL', owners, lane)
end
local waited = redis.call('ZSCORE', later, lane)
if waited then rise(later, in_place, { lane }) end
if redis.call('EXISTS', regular_lane .. lane, high_lane .. lane) == 0 then
  redis.call('LREM', ready, 0, lane)
elseif waited or deadline then
  redis.call('LPUSH', ready, lane)
  wake(settings, 1)
end
redis.call('HSET', outbox, '1', key .. SEP .. head_of(value) .. SEP .. 'p' .. ARGV[6])
redis.call('SADD', outboxes, operator)

local config = redis.call('HMGET', settings, 'waiting', 'capacity')
if config[1] and tonumber(config[2]) - redis.call('HLEN', entries) >= tonumber(config[1]) then
  redis.call('HDEL', settings, 'waiting')
  redis.call('PUBLISH', 'fleet:room', code_of(settings))
end
return { 'skipped', '' }
