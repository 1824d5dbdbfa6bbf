-- warn: keep a warning, or count it with the one of its kind that nobody has acknowledged yet.
-- KEYS warnings warning_times warning_kinds
-- ARGV now_ms id kind text times keep_ms most
--   kind: what makes two of them the same; text: what people read; most: how many are kept, the newest
-- Returns {id, how often it was raised}
local warnings, warning_times, warning_kinds = unpack(KEYS)
local now, kind, times, keep_ms = time_ms(ARGV[1]), ARGV[3], tonumber(ARGV[5]), tonumber(ARGV[6])
-- Redis may be full, and then it matters most that people hear of it: a script that has written may go on.
redis.call('ZREM', warning_times, '')

local function forget(ids)
  for _, id in ipairs(ids) do
    local record = redis.call('HGET', warnings, id) or ''
    local of_kind = string.match(record, '^%d+' .. SEP .. '%d+' .. SEP .. '(%x+)')
    if of_kind and redis.call('HGET', warning_kinds, of_kind) == id then redis.call('HDEL', warning_kinds, of_kind) end
    redis.call('HDEL', warnings, id)
    redis.call('ZREM', warning_times, id)
  end
end

forget(redis.call('ZRANGEBYSCORE', warning_times, '-inf', now - keep_ms, 'LIMIT', 0, 100))
local id, count, first_ms = redis.call('HGET', warning_kinds, kind), 0, text(now)
if id then
  count, first_ms = string.match(redis.call('HGET', warnings, id), '^0(%d+)' .. SEP .. '(%d+)')
else
  id = ARGV[2]
  redis.call('HSET', warning_kinds, kind, id)
end
count = text(count + times)
redis.call('HSET', warnings, id, '0' .. table.concat({ count, first_ms, kind, ARGV[4] }, SEP))
redis.call('ZADD', warning_times, now, id)
local above = redis.call('ZCARD', warning_times) - tonumber(ARGV[7])
if above > 0 then forget(redis.call('ZRANGE', warning_times, 0, above - 1)) end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[6]) end
return { id, count }
