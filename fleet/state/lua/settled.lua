-- settled: the owner drops what it applied from the settled list, and reads what comes next.
-- WITH owner
-- KEYS owner tracked settled
-- ARGV owner_epoch known applied want
--   known: the last token that `track` gave this owner
-- Returns {`stale`} for an older owner, {`forgot`} where that token is not known here, else
-- {`ok`, broker_id token verdict handle …}
--   handle: '' if the message is not tracked under that token any more
local owner, tracked, settled = unpack(KEYS)
local refused = refusal(owner, ARGV[1], ARGV[2])
if refused then return { refused } end
if tonumber(ARGV[3]) > 0 then redis.call('LTRIM', settled, ARGV[3], -1) end
local items = redis.call('LRANGE', settled, 0, tonumber(ARGV[4]) - 1)
local brokers, rests = {}, {}
for i, item in ipairs(items) do brokers[i], rests[i] = head_of(item) end
local records = read_many('HMGET', tracked, brokers)
local answer = { 'ok' }
for i, broker in ipairs(brokers) do
  local token, verdict = head_of(rests[i])
  local handle = ''
  if records[i] then
    local newest, kept = head_of(records[i])
    if head_of(kept) == token then handle = newest end
  end
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = broker, token, verdict, handle
end
return answer
