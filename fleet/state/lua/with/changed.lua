-- changed: who holds leases in a pool hears at once that it delivers by other rules.

-- `rated`: there was no rate limit before. What is under way was begun without a permit, and takes one now.
local function tell_holders(settings, leases, rate, rated, now)
  local held = redis.call('ZCARD', leases)
  if held == 0 then return end
  if rated then give_permits(rate, held, now) end
  redis.call('PUBLISH', 'fleet:changed', 'pool ' .. code_of(settings))
end
