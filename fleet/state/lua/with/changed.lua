-- changed: workers that hold leases in a pool hear at once that it delivers by other rules.

-- `rated`: there was no rate limit before. What is under way was begun without a permit, and takes one now. Its holder
-- may hear of that late, and have begun the next: `exchange.lua` gives that one a permit as it is settled. Their epochs
-- say which these are: `unrated` is the last epoch that was granted without a limit.
local function tell_holders(settings, leases, rate, rated, now, epochs)
  local held = redis.call('ZCARD', leases)
  if held == 0 then return end
  if rated then
    give_permits(rate, held, now)
    redis.call('HSET', settings, 'unrated', redis.call('HGET', epochs, 'last'))
  end
  redis.call('PUBLISH', 'fleet:changed', 'pool ' .. code_of(settings))
end
