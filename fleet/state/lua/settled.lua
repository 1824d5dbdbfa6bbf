-- settled: the owner drops what it applied from the settled list, and reads what comes next.
-- KEYS owner tracked settled
-- ARGV owner_epoch applied want
-- Returns {`stale`} for an older owner, else {`ok`, broker_id token verdict handle …}
--   handle: '' where the message is not tracked under that token any more
local owner, tracked, settled = unpack(KEYS)
if redis.call('HGET', owner, 'epoch') ~= ARGV[1] then return { 'stale' } end
if tonumber(ARGV[2]) > 0 then redis.call('LTRIM', settled, ARGV[2], -1) end
local items = redis.call('LRANGE', settled, 0, tonumber(ARGV[3]) - 1)
local brokers, rests = {}, {}
for i, item in ipairs(items) do brokers[i], rests[i] = head_of(item) end
local records = hmget_many(tracked, brokers)
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
