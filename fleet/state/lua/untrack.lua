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
local answer, over, app_ids, app_brokers = { 'ok' }, {}, {}, {}
for i, broker in ipairs(brokers) do
  if records[i] then
    local token, rest = head_of(records[i])
    local state, tail = head_of(rest)
    if token == ARGV[2 + 2 * i] and (only == '' or only == state) then
      over[#over + 1] = broker
      answer[#answer + 1] = broker
      if state ~= 'a' then -- settled as ack, its app id is free already
        local app = string.match(tail, '^[^' .. SEP .. ']*' .. SEP .. '([^' .. SEP .. ']*)')
        app_ids[#app_ids + 1], app_brokers[#app_brokers + 1] = app, broker
      end
    end
  end
end
if #over == 0 then return answer end
call_many('HDEL', tracked, over)
local holders, done = hmget_many(apps, app_ids), {}
for i, app in ipairs(app_ids) do
  if holders[i] == app_brokers[i] then done[#done + 1] = app end
end
if #done > 0 then call_many('HDEL', apps, done) end
return answer
