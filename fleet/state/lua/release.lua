-- release: let a lane that waits for a time be claimed at once, before all others.
-- WITH rest wake
-- KEYS settings ready leases later in_place regular_lane high_lane
-- ARGV lane
-- Returns `released`, or why there was nothing to do: `leased`, `ready`, or `none` where it has no messages
local settings, ready, leases, later, in_place, regular_lane, high_lane = unpack(KEYS)
local lane = ARGV[1]
if redis.call('ZSCORE', later, lane) then
  rise(later, in_place, { lane })
  redis.call('LPUSH', ready, lane)
  wake(settings, 1)
  return 'released'
end
if redis.call('ZSCORE', leases, lane) then return 'leased' end
return redis.call('EXISTS', regular_lane .. lane, high_lane .. lane) > 0 and 'ready' or 'none'
