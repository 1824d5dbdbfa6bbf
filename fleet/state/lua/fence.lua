-- fence: a queue's new owner makes a pool refuse whatever an older owner still submits.
-- KEYS epochs
-- ARGV queue owner_epoch
-- Returns 1 if it stands, 0 if a newer owner has been here
local field = 'q:' .. ARGV[1]
if tonumber(redis.call('HGET', KEYS[1], field) or 0) > tonumber(ARGV[2]) then return 0 end
-- Redis may be full, and then a queue must find an owner all the same: a script that has written may go on.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], field, ARGV[2])
return 1
