-- tally: add to the fleet's totals what a process counted since it said so last.
-- KEYS totals tallied
-- ARGV ttl_ms counter value …
--   value: all that the process ever counted, so that saying it twice adds nothing
-- Returns 1 if something of the process was in the totals, else 0
local totals, tallied = unpack(KEYS)
local counters = {}
for i = 2, #ARGV, 2 do counters[#counters + 1] = ARGV[i] end
-- Redis may be full: a script that has written may go on.
redis.call('HDEL', totals, '')
local known = redis.call('EXISTS', tallied)
local before, sums = hmget_many(tallied, counters), hmget_many(totals, counters)
local now, then_sums = {}, {}
for i, counter in ipairs(counters) do
  local value = tonumber(ARGV[2 * i + 1])
  local more = value - tonumber(before[i] or 0)
  if more > 0 then
    now[#now + 1], now[#now + 2] = counter, text(value)
    then_sums[#then_sums + 1], then_sums[#then_sums + 2] = counter, text(tonumber(sums[i] or 0) + more)
  end
end
call_many('HSET', totals, then_sums, 2)
call_many('HSET', tallied, now, 2)
redis.call('PEXPIRE', tallied, ARGV[1])
return known
