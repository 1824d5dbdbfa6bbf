-- release: let a group that waits for a time be claimed at once, before all others.
-- WITH rest wake
-- KEYS settings ready leases later in_place regular_group high_group
-- ARGV group
-- Returns `released`, or why there was nothing to do: `leased`, `ready`, or `none` where it has no messages
local settings, ready, leases, later, in_place, regular_group, high_group = unpack(KEYS)
local group = ARGV[1]
if redis.call('ZSCORE', later, group) then
  rise(later, in_place, { group })
  redis.call('LPUSH', ready, group)
  wake(settings, 1)
  return 'released'
end
if redis.call('ZSCORE', leases, group) then return 'leased' end
return redis.call('EXISTS', regular_group .. group, high_group .. group) > 0 and 'ready' or 'none'
