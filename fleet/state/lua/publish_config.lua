-- publish_config: put a configuration in place for every process to follow; its publisher says so once pools are ready.
-- KEYS config
-- ARGV now_ms body
-- Returns {revision, 1 if it is new or 0 if this very configuration is in place}
local config = KEYS[1]
local now = time_ms(ARGV[1])
local is = redis.call('HMGET', config, 'revision', 'body')
local fresh = 0
local revision = is[1]
if is[2] ~= ARGV[2] then
  revision, fresh = text(next_epoch(tonumber(is[1] or 0), now)), 1
  redis.call('HSET', config, 'revision', revision, 'body', ARGV[2])
end
redis.call('HSET', config, 'checked_ms', text(now))
return { revision, fresh }
