-- fence: a queue's owner makes a pool refuse what an older owner, or an earlier call of its own, still submits.
-- KEYS epochs
-- ARGV queue owner_epoch call
--   call: number of this owner's next; one of a lower number is refused. 0 for an owner that has not submitted yet
-- Returns 1 if it stands, 0 if a newer owner has been here
local epoch_of, call_of = 'q:' .. ARGV[1], 'n:' .. ARGV[1]
local known = redis.call('HMGET', KEYS[1], epoch_of, call_of)
local epoch, call = tonumber(known[1] or 0), tonumber(known[2] or 0)
if epoch > tonumber(ARGV[2]) then return 0 end
-- Redis may be full, and a queue must find an owner even then: a script that has written may go on.
redis.call('HDEL', KEYS[1], '')
if epoch < tonumber(ARGV[2]) then
  call = 0
  redis.call('HDEL', KEYS[1], call_of)
end
redis.call('HSET', KEYS[1], epoch_of, ARGV[2])
if tonumber(ARGV[3]) > call then redis.call('HSET', KEYS[1], call_of, ARGV[3]) end
return 1
