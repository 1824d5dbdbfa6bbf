-- own/purge: throw away all messages of a queue of our own at once, shown or not; what is sent later stays.
-- WITH own_queue own_empty
-- KEYS state bodies hidden ready due shown seen delayed fresh out origins junk
-- ARGV now_ms incarnation version kind
-- Returns {tag, count}
--   tag: `ok`, `stale` or `ahead` (with/own_queue.lua)
--   count: how many are gone
local state, bodies, hidden, ready, due, shown, seen, delayed, fresh, out, origins, junk = unpack(KEYS)
local queue = open_queue(state, ARGV[1], ARGV[2], ARGV[3])
local kind = ARGV[4]
if queue.verdict then return { queue.verdict } end
-- Redis may be full, and deleting is what helps: a script that has written may go on.
redis.call('HDEL', state, '')
return { 'ok', empty(queue, kind, bodies, hidden, ready, due, shown, seen, delayed, fresh, out, origins, junk) }
