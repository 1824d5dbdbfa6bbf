-- publish_config: put a configuration in place for every process to follow; it is announced once pools are ready.
-- KEYS config syncer
-- ARGV now_ms epoch body
--   epoch: of the syncers' lead, '' if no other process publishes
-- Returns {`stale`, 0} under another epoch than the lead's, else {revision, 1 if it is new or 0 if this very
--   configuration is in place}
local config, syncer = KEYS[1], KEYS[2]
local now, epoch = time_ms(ARGV[1]), ARGV[2]
if epoch ~= '' and redis.call('HGET', syncer, 'epoch') ~= epoch then return { 'stale', 0 } end
local is = redis.call('HMGET', config, 'revision', 'body')
local fresh = 0
local revision = is[1]
if is[2] ~= ARGV[3] then
  revision, fresh = text(next_epoch(tonumber(is[1] or 0), now)), 1
  redis.call('HSET', config, 'revision', revision, 'body', ARGV[3])
end
redis.call('HSET', config, 'checked_ms', text(now))
return { revision, fresh }
