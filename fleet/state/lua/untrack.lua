-- untrack: forget messages, each known by its token.
-- KEYS owner tracked apps
-- ARGV owner_epoch only broker_id token …
--   only: '' or the state they must be in, `t` for those that no pool has settled
-- Returns {`stale`} for an older owner, else {`ok`, broker_id …}, those that were forgotten
local owner, tracked, apps = unpack(KEYS)
if redis.call('HGET', owner, 'epoch') ~= ARGV[1] then return { 'stale' } end
local only = ARGV[2]
local brokers = {}
for i = 3, #ARGV, 2 do brokers[#brokers + 1] = ARGV[i] end
local records = hmget_many(tracked, brokers)
local answer, over, free = { 'ok' }, {}, {}
for i, broker in ipairs(brokers) do
  if records[i] then
    local _, kept = head_of(records[i])
    local token, rest = head_of(kept)
    local state, tail = head_of(rest)
    if token == ARGV[2 + 2 * i] and (only == '' or only == state) then
      over[#over + 1] = broker
      answer[#answer + 1] = broker
      -- Settled as ack, its app id is free already, and may be another message's by now.
      if state ~= 'a' then free[#free + 1] = head_of(tail) end
    end
  end
end
if #over > 0 then call_many('HDEL', tracked, over) end
if #free > 0 then call_many('HDEL', apps, free) end
return answer
