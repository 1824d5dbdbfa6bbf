-- pause: stop or resume claims from a pool; what is leased goes on.
-- WITH changed
-- KEYS settings leases
-- ARGV paused
--   paused: '1' or ''
-- Returns 1, or 0 where there is no such pool
local settings, leases = unpack(KEYS)
if redis.call('HEXISTS', settings, 'concurrency') == 0 then return 0 end
if ARGV[1] == '' then
  redis.call('HDEL', settings, 'paused')
  redis.call('PUBLISH', 'fleet:wake', string.match(settings, '^{p:(.*)}:settings$'))
else
  redis.call('HSET', settings, 'paused', '1')
  tell_holders(settings, leases)
end
return 1
