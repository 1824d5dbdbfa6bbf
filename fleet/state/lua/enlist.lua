-- enlist: note which pools exist and the marks of their secrets, so that their followers read only what changed.
-- KEYS pools pool_marks config
-- ARGV now_ms code mark …
--   mark: differs for a different secret, '' if it is not known; `gone` to forget the pool
-- Returns 1 if anything changed, else 0
local pools, pool_marks, config = KEYS[1], KEYS[2], KEYS[3]
local now, changed = time_ms(ARGV[1]), 0
for i = 2, #ARGV, 2 do
  local code, mark = ARGV[i], ARGV[i + 1]
  if mark == 'gone' then
    changed = changed + redis.call('SREM', pools, code) + redis.call('HDEL', pool_marks, code)
  else
    changed = changed + redis.call('SADD', pools, code)
    if mark ~= '' and redis.call('HGET', pool_marks, code) ~= mark then
      redis.call('HSET', pool_marks, code, mark)
      changed = changed + 1
    end
  end
end
if changed == 0 then return 0 end
-- From the time, too: after a wipe of Redis the number differs from any before.
redis.call('HSET', config, 'pools', text(next_epoch(tonumber(redis.call('HGET', config, 'pools') or 0), now)))
return 1
