-- own/purge: throw away all messages of a queue of our own at once, shown or not; what is sent later stays.
-- WITH own_queue own_empty
-- KEYS state bodies hidden ready due shown seen delayed fresh out origins junk
-- ARGV now_ms incarnation version kind purge
--   purge: '', or which one it is: what is done of it already is not done again
-- Returns {tag, count}
--   tag: `ok`, `stale` or `ahead` (with/own_queue.lua)
--   count: how many are gone
local state, bodies, hidden, ready, due, shown, seen, delayed, fresh, out, origins, junk = unpack(KEYS)
local queue = open_queue(state, ARGV[1], ARGV[2], ARGV[3])
local kind, purge = ARGV[4], ARGV[5]
if queue.verdict then return { queue.verdict } end
-- Redis may be full, and deleting is what helps: a script that has written may go on.
redis.call('HDEL', state, '')
if purge ~= '' then
  if redis.call('HGET', state, 'purged') == purge then return { 'ok', 0 } end
  redis.call('HSET', state, 'purged', purge)
end
return { 'ok', empty(queue, kind, bodies, hidden, ready, due, shown, seen, delayed, fresh, out, origins, junk) }
