-- report: copy outcomes from an outbox to their queue's settled list; idempotent.
-- KEYS tracked apps settled dead
-- ARGV queue broker_id token verdict …
--   verdict: `a`, or `n` and the delay in ms, or `p` and a letter: acked, and put aside with the dead
-- Returns how many were new
local tracked, apps, settled, dead = unpack(KEYS)
local DEAD_KEPT = 10000
redis.call('HDEL', apps, '') -- Redis may be full, and what follows ends in freeing: get past its check

local brokers = {}
for i = 2, #ARGV, 3 do brokers[#brokers + 1] = ARGV[i] end
local records = read_many('HMGET', tracked, brokers)
local changed, appended, free, whose = {}, {}, {}, {}
local seen = {}
for i, broker in ipairs(brokers) do
  local token, verdict = ARGV[3 * i], ARGV[3 * i + 1]
  if records[i] and not seen[broker] then
    local handle, kept = head_of(records[i])
    local mark = token .. SEP .. 't' .. SEP
    -- Another token: the same message, taken from the source again since. Another state: copied before.
    if string.sub(kept, 1, #mark) == mark then
      local tail = string.sub(kept, #mark + 1)
      seen[broker] = true
      if string.sub(verdict, 1, 1) == 'p' then
        redis.call('LPUSH', dead, string.sub(verdict, 2))
        redis.call('LTRIM', dead, 0, DEAD_KEPT - 1)
        verdict = 'a'
      end
      changed[#changed + 1] = broker
      changed[#changed + 1] = handle .. SEP .. token .. SEP .. verdict .. SEP .. tail
      appended[#appended + 1] = broker .. SEP .. token .. SEP .. verdict
      -- From here on one with the same id is a new message.
      if verdict == 'a' then free[#free + 1], whose[#whose + 1] = head_of(tail), broker end
    end
  end
end
if #appended == 0 then return 0 end
free_apps(apps, free, whose)
call_many('HSET', tracked, changed, 2)
if call_many('RPUSH', settled, appended) == #appended then redis.call('PUBLISH', 'fleet:settled', ARGV[1]) end
return #appended
