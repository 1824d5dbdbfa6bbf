-- rate: the permits of a pool that has a rate limit, the newest first, each by the time at which it was given.

local RATE_WINDOW_MS = 61000 -- over 60 s: one delivery may begin a second after its permit, the next one at once

local function give_permits(rate, count, now)
  local given = {}
  for i = 1, count do given[i] = text(now) end
  call_many('LPUSH', rate, given)
  redis.call('PEXPIRE', rate, RATE_WINDOW_MS)
end
