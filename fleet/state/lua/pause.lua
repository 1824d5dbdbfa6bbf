-- pause: stop or resume claims from a pool; what is leased goes on.
-- WITH changed wake
-- KEYS settings leases ready
-- ARGV paused
--   paused: '1' or ''
-- Returns 1, or 0 where there is no such pool
local settings, leases, ready = unpack(KEYS)
if redis.call('HEXISTS', settings, 'concurrency') == 0 then return 0 end
if ARGV[1] == '' then
  redis.call('HDEL', settings, 'paused')
  wake(settings, redis.call('LLEN', ready))
else
  redis.call('HSET', settings, 'paused', '1')
  tell_holders(settings, leases)
end
return 1
