-- own/establish: let a queue of our own know what has become of it: callers that know less are refused from here on.
-- WITH own_queue own_empty
-- KEYS state bodies hidden ready due shown seen delayed fresh out origins junk
-- ARGV now_ms incarnation version kind keep_ms
--   a higher incarnation is another queue of that name: what is there of the one before is thrown away
--   keep_ms: '' for as long as it is there, or for how long a queue that was deleted is remembered
-- Returns `ok`, or `stale` if it knew of something newer
local state, bodies, hidden, ready, due, shown, seen, delayed, fresh, out, origins, junk = unpack(KEYS)
local queue = open_queue(state, ARGV[1], ARGV[2], ARGV[3])
local kind, keep_ms = ARGV[4], ARGV[5]
if queue.verdict == 'stale' then return 'stale' end
redis.call('HDEL', state, '')
local before = redis.call('HGET', state, 'incarnation')
if before and tonumber(before) < tonumber(ARGV[2]) then
  empty(queue, kind, bodies, hidden, ready, due, shown, seen, delayed, fresh, out, origins, junk)
end
redis.call('HSET', state, 'incarnation', ARGV[2], 'version', ARGV[3])
redis.call('PERSIST', state)
if keep_ms ~= '' then redis.call('PEXPIRE', state, keep_ms) end
wake_who_waits(queue)
return 'ok'
