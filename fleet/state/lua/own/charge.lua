-- own/charge: take tokens from a bucket, by the queue's time: whole or not at all, each asker for itself, in order.
-- WITH own_queue
-- KEYS state bucket
-- ARGV now_ms incarnation version capacity refill idle_ms n …
--   incarnation, version: what the caller knows of the queue; refill: tokens a second
--   a bucket of an earlier incarnation, or with other figures, begins full
-- Returns {tag, tokens, wait_ms …}
--   tag: `ok`, `stale` or `ahead` (with/own_queue.lua): figures of before neither reject nor fill
--   tokens: what is left, as text; wait_ms: 0 for who was served, or in how many ms there would be enough for it, as text
local state, bucket = unpack(KEYS)
local queue = open_queue(state, ARGV[1], ARGV[2], ARGV[3])
local now = queue.now
local capacity, refill = tonumber(ARGV[4]), tonumber(ARGV[5])
local idle_ms = ARGV[6]
local figures = table.concat({ ARGV[2], ARGV[4], ARGV[5] }, ' ')
if queue.verdict then return { queue.verdict } end
local is = redis.call('HMGET', bucket, 'figures', 'tokens', 'at_ms')
local tokens = capacity
if is[1] == figures then
  -- A clock that has stepped back fills nothing; from here on it goes forward again.
  tokens = math.min(capacity, tonumber(is[2]) + math.max(0, now - tonumber(is[3])) / 1000 * refill)
end
local answer = { 'ok', '' }
for i = 7, #ARGV do
  local n = tonumber(ARGV[i])
  if tokens >= n then
    tokens = tokens - n
    answer[#answer + 1] = '0'
  else
    answer[#answer + 1] = string.format('%.17g', (n - tokens) / refill * 1000)
  end
end
answer[2] = string.format('%.17g', tokens)
redis.call('HSET', bucket, 'figures', figures, 'tokens', answer[2], 'at_ms', text(now))
redis.call('PEXPIRE', bucket, idle_ms)
return answer
