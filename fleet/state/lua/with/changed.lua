-- changed: who holds leases in a pool hears at once that it delivers by other rules.

-- `rated`: there was no rate limit before. What is under way was begun without a permit, and takes one now.
local function tell_holders(settings, leases, rate, rated, now)
  local held = redis.call('ZCARD', leases)
  if held == 0 then return end
  if rated then
    local taken = {}
    for i = 1, held do taken[i] = text(now) end
    call_many('LPUSH', rate, taken)
    redis.call('PEXPIRE', rate, 61000)
  end
  redis.call('PUBLISH', 'fleet:changed', 'pool ' .. code_of(settings))
end
