-- remove: take away a pool that is draining and holds nothing any more.
-- KEYS epochs away_lane settings ready entries leases owners later in_place high rate failed tries away outboxes
-- ARGV revision
-- Returns `gone`, `busy`, or `kept` where it is not draining (any more) as of that revision
local epochs, away_lane, settings, _, entries, leases, _, _, _, _, _, _, _, away, outboxes = unpack(KEYS)
local config = redis.call('HMGET', settings, 'draining', 'revision')
if redis.call('EXISTS', settings) == 1 and (not config[1] or tonumber(config[2]) > tonumber(ARGV[1])) then
  return 'kept'
end
-- Emptiness and removal are one step: a submit in between would be lost with the keys.
if redis.call('EXISTS', entries, leases, outboxes) > 0 then return 'busy' end
for _, name in ipairs(redis.call('ZRANGE', away, 0, -1)) do redis.call('DEL', away_lane .. name) end
redis.call('DEL', unpack(KEYS, 3))
-- A queue owner that was stopped meanwhile may still submit, to a pool made anew under this code.
redis.call('PEXPIRE', epochs, 3600000)
return 'gone'
