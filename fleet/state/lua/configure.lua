-- configure: give a pool its settings; an older revision changes nothing.
-- KEYS settings leases ready epochs later
-- ARGV revision concurrency capacity rate on_failure draining park_after secret secret_file
--   rate, draining, secret and secret_file: '' for none
-- Returns 1 if they were applied, 0 if a newer revision is there
local settings, leases, ready, epochs, later = unpack(KEYS)
local revision = tonumber(ARGV[1])
if tonumber(redis.call('HGET', settings, 'revision') or 0) > revision then return 0 end
redis.call('HSET', settings, 'revision', ARGV[1], 'concurrency', ARGV[2], 'capacity', ARGV[3], 'on_failure', ARGV[5],
  'park_after', ARGV[7])
local optionals = { { 'rate', ARGV[4] }, { 'draining', ARGV[6] }, { 'secret', ARGV[8] }, { 'secret_file', ARGV[9] } }
for _, optional in ipairs(optionals) do
  if optional[2] == '' then
    redis.call('HDEL', settings, optional[1])
  else
    redis.call('HSET', settings, optional[1], optional[2])
  end
end
redis.call('PERSIST', epochs)
-- Somebody may wait for room that a raised capacity gives.
if redis.call('HDEL', settings, 'waiting') == 1 then
  redis.call('PUBLISH', 'fleet:room', string.match(settings, '^{p:(.*)}:settings$'))
end
-- What waits for another try gets it at once: a pool that is going away returns what fails to its source.
if ARGV[6] ~= '' then
  local waiting = redis.call('ZRANGE', later, 0, -1)
  redis.call('DEL', later)
  if #waiting > 0 then call_many('RPUSH', ready, waiting) end
end
-- A raised limit or a lifted rate lets waiting groups go at once.
if redis.call('EXISTS', ready) == 1 and redis.call('ZCARD', leases) < tonumber(ARGV[2]) then
  redis.call('PUBLISH', 'fleet:wake', string.match(settings, '^{p:(.*)}:settings$'))
end
return 1
