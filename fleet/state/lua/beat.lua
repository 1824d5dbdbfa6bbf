-- beat: a process says that it lives, and hears who else does.
-- KEYS processes beats
-- ARGV now_ms name ttl_ms record
--   record: '' to leave
-- Returns the names of the living of all roles
local processes, beats = unpack(KEYS)
local now, name, ttl_ms = time_ms(ARGV[1]), ARGV[2], tonumber(ARGV[3])
-- Redis may be full, but no process has died of that: a script that has written may go on.
redis.call('ZREM', beats, '')
if ARGV[4] == '' then
  redis.call('HDEL', processes, name)
  redis.call('ZREM', beats, name)
else
  redis.call('HSET', processes, name, ARGV[4])
  redis.call('ZADD', beats, now + ttl_ms, name)
end
-- Further away than any process beats ahead: the clock stepped back, and the dead would live for as long.
if ttl_ms > 0 then
  for _, ahead in ipairs(redis.call('ZRANGEBYSCORE', beats, '(' .. text(now + ttl_ms), '+inf', 'LIMIT', 0, 100)) do
    redis.call('ZADD', beats, now + ttl_ms, ahead)
  end
end
-- Long dead ones would otherwise stay for ever.
local gone = redis.call('ZRANGEBYSCORE', beats, '-inf', now - 60000, 'LIMIT', 0, 100)
if #gone > 0 then
  redis.call('ZREM', beats, unpack(gone))
  redis.call('HDEL', processes, unpack(gone))
end
return redis.call('ZRANGEBYSCORE', beats, text(now + 1), '+inf')
