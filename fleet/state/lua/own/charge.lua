-- own/charge: take tokens from a bucket, by Redis's clock: whole or not at all, each asker for itself, in order.
-- KEYS bucket
-- ARGV now_ms incarnation capacity refill idle_ms n …
--   incarnation: of the queue; a bucket of an earlier one, or with other figures, begins full; refill: tokens a second
-- Returns {tokens, wait_ms …}
--   tokens: what is left, as text; wait_ms: 0 for who was served, or in how many ms there would be enough for it, as text
local bucket = KEYS[1]
local now = time_ms(ARGV[1])
local capacity, refill = tonumber(ARGV[3]), tonumber(ARGV[4])
local idle_ms = ARGV[5]
local figures = table.concat(ARGV, ' ', 2, 4)
local is = redis.call('HMGET', bucket, 'figures', 'tokens', 'at_ms')
local tokens = capacity
if is[1] == figures then
  -- A clock that has stepped back fills nothing; from here on it goes forward again.
  tokens = math.min(capacity, tonumber(is[2]) + math.max(0, now - tonumber(is[3])) / 1000 * refill)
end
local answer = { '' }
for i = 6, #ARGV do
  local n = tonumber(ARGV[i])
  if tokens >= n then
    tokens = tokens - n
    answer[#answer + 1] = '0'
  else
    answer[#answer + 1] = string.format('%.17g', (n - tokens) / refill * 1000)
  end
end
answer[1] = string.format('%.17g', tokens)
redis.call('HSET', bucket, 'figures', figures, 'tokens', answer[1], 'at_ms', text(now))
redis.call('PEXPIRE', bucket, idle_ms)
return answer
