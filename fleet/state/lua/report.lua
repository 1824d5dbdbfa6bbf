-- report: copy outcomes from an outbox to their queue's settled list; saying it twice changes nothing.
-- KEYS tracked apps settled
-- ARGV queue broker_id token verdict …
--   verdict: `a`, or `n` and the delay in ms
-- Returns how many were new
local tracked, apps, settled = unpack(KEYS)
redis.call('HDEL', apps, '') -- Redis may be full, and what follows ends in freeing: be past its check

local brokers = {}
for i = 2, #ARGV, 3 do brokers[#brokers + 1] = ARGV[i] end
local records = hmget_many(tracked, brokers)
local changed, appended, app_ids, app_brokers = {}, {}, {}, {}
local seen = {}
for i, broker in ipairs(brokers) do
  local token, verdict = ARGV[3 * i], ARGV[3 * i + 1]
  if records[i] and not seen[broker] then
    local known, rest = head_of(records[i])
    local state, tail = head_of(rest)
    -- Another token: the same message, taken from the source again since.
    if known == token and state == 't' then
      seen[broker] = true
      changed[#changed + 1] = broker
      changed[#changed + 1] = token .. SEP .. verdict .. SEP .. tail
      appended[#appended + 1] = broker .. SEP .. token .. SEP .. verdict
      if verdict == 'a' then
        local app = string.match(tail, '^[^' .. SEP .. ']*' .. SEP .. '([^' .. SEP .. ']*)')
        app_ids[#app_ids + 1], app_brokers[#app_brokers + 1] = app, broker
      end
    end
  end
end
if #appended == 0 then return 0 end
-- From here on a new message with the same app id is a new message.
local holders, over = hmget_many(apps, app_ids), {}
for i, app in ipairs(app_ids) do
  if holders[i] == app_brokers[i] then over[#over + 1] = app end
end
if #over > 0 then call_many('HDEL', apps, over) end
call_many('HSET', tracked, changed, 2)
if call_many('RPUSH', settled, appended) == #appended then redis.call('PUBLISH', 'fleet:settled', ARGV[1]) end
return #appended
