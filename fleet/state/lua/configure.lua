-- configure: give a pool its settings; an older revision changes nothing.
-- WITH rate changed clock wake
-- KEYS settings leases ready epochs later in_place rate
-- ARGV now_ms revision concurrency capacity rate on_failure draining park_after secret secret_file
--   rate, draining, secret and secret_file: '' for none
-- Returns 1 if they were applied, 0 if a newer revision is there
local settings, leases, ready, epochs, later, in_place, rate = unpack(KEYS)
local revision, capacity = tonumber(ARGV[2]), tonumber(ARGV[4])
local PROMISE_MS = 30000 -- longer than any poll waits

local was = redis.call('HMGET', settings, 'revision', 'capacity', 'promised', 'promised_until', 'rate', 'clock')
if tonumber(was[1] or 0) > revision then return 0 end
local now = pool_time(ARGV[1], was[6])
note_pool_time(settings, now, was[6])
redis.call('HSET', settings, 'revision', ARGV[2], 'concurrency', ARGV[3], 'capacity', ARGV[4], 'on_failure', ARGV[6],
  'park_after', ARGV[8])
-- A poll under way was told of more room than a lowered capacity leaves. What it brings is taken: sent back, a message
-- would be gone for half a minute, and with it all that comes after it in its group.
local promised = tonumber(was[4] or 0) > now and tonumber(was[3]) or 0
if tonumber(was[2] or 0) > capacity then
  promised = math.max(promised, tonumber(was[2]))
  redis.call('HSET', settings, 'promised', text(promised), 'promised_until', text(now + PROMISE_MS))
elseif promised <= capacity then
  redis.call('HDEL', settings, 'promised', 'promised_until')
end
local optionals = { { 'rate', ARGV[5] }, { 'draining', ARGV[7] }, { 'secret', ARGV[9] }, { 'secret_file', ARGV[10] } }
for _, optional in ipairs(optionals) do
  if optional[2] == '' then
    redis.call('HDEL', settings, optional[1])
  else
    redis.call('HSET', settings, optional[1], optional[2])
  end
end
redis.call('PERSIST', epochs)
tell_holders(settings, leases, rate, ARGV[5] ~= '' and not was[5], now, epochs)
-- A consumer may wait for room that a raised capacity gives.
if redis.call('HDEL', settings, 'waiting') == 1 then
  redis.call('PUBLISH', 'fleet:room', code_of(settings))
end
-- What waits for another try gets it at once: a pool that is going away returns what fails to its source.
if ARGV[7] ~= '' then
  local waiting = redis.call('ZRANGE', later, 0, -1)
  redis.call('DEL', later, in_place)
  if #waiting > 0 then call_many('RPUSH', ready, waiting) end
end
-- A raised limit or a lifted rate lets waiting groups go at once.
local lanes = redis.call('LLEN', ready)
if lanes > 0 and redis.call('ZCARD', leases) < tonumber(ARGV[3]) then wake(settings, lanes) end
return 1
