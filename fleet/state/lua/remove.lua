-- remove: take away a pool that is draining and holds nothing any more.
-- KEYS epochs settings ready entries leases owners later high rate failed tries outboxes
-- ARGV revision
-- Returns `gone`, `busy`, or `kept` where it is not draining (any more) as of that revision
local epochs, settings, _, entries, leases, _, _, _, _, _, _, outboxes = unpack(KEYS)
local config = redis.call('HMGET', settings, 'draining', 'revision')
if redis.call('EXISTS', settings) == 1 and (not config[1] or tonumber(config[2]) > tonumber(ARGV[1])) then
  return 'kept'
end
-- Emptiness and removal are one step: a submit in between would be lost with the keys.
if redis.call('EXISTS', entries, leases, outboxes) > 0 then return 'busy' end
redis.call('DEL', unpack(KEYS, 2))
-- A queue owner that was stopped meanwhile may still submit, to a pool made anew under this code.
redis.call('PEXPIRE', epochs, 3600000)
return 'gone'
