-- changed: who holds leases in a pool hears at once that it delivers by other rules.

-- `rated`: there was no rate limit before. What is under way was begun without a permit, and takes one now. Its holder may
-- hear of that late, and have begun the next: `exchange.lua` gives that one a permit as it is settled. Which they are
-- their epochs say: `unrated` is the last that was granted without one.
local function tell_holders(settings, leases, rate, rated, now, epochs)
  local held = redis.call('ZCARD', leases)
  if held == 0 then return end
  if rated then
    give_permits(rate, held, now)
    redis.call('HSET', settings, 'unrated', redis.call('HGET', epochs, 'last'))
  end
  redis.call('PUBLISH', 'fleet:changed', 'pool ' .. code_of(settings))
end
