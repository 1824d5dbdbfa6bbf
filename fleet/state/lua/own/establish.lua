-- own/establish: let a queue of our own know what has become of it: callers that know less are refused from here on.
-- WITH own_queue own_empty
-- KEYS state bodies hidden ready due shown seen delayed fresh out origins junk group_list
-- ARGV now_ms incarnation version kind keep_ms delay_ms
--   a higher incarnation is another queue of that name: what is there of the one before is thrown away
--   keep_ms: '' for as long as it is there, or for how long a queue that was deleted is remembered
--   delay_ms: of kind `o`, for how long after its sending a message is not shown; '' if nothing is said of it
-- Returns `ok`, or `stale` if it knew of something newer
local state, bodies, hidden, ready, due, shown, seen, delayed, fresh, out, origins, junk, group_list = unpack(KEYS)
local queue = open_queue(state, ARGV[1], ARGV[2], ARGV[3])
local kind, keep_ms, delay_ms = ARGV[4], ARGV[5], ARGV[6]
local AT_ONCE = 1000
if queue.verdict == 'stale' then return 'stale' end
redis.call('HDEL', state, '')
local before = redis.call('HGET', state, 'incarnation')
if before and tonumber(before) < tonumber(ARGV[2]) then
  empty(queue, kind, bodies, hidden, ready, due, shown, seen, delayed, fresh, out, origins, junk)
end
redis.call('HSET', state, 'incarnation', ARGV[2], 'version', ARGV[3])
redis.call('PERSIST', state)
if keep_ms ~= '' then redis.call('PEXPIRE', state, keep_ms) end

-- A change of the delay of an ordered queue counts for what is there: lanes stand in `due` by what it was before.
if kind == 'o' and delay_ms ~= '' and delay_ms ~= redis.call('HGET', state, 'delay') then
  local function ripe(seq) return text(math.floor(tonumber(seq) / 1000) + tonumber(delay_ms)) end
  redis.call('HSET', state, 'delay', delay_ms)
  group_list = group_list .. (redis.call('HGET', state, 'generation') or '')
  -- By name, as what is looked at changes its place.
  local lanes = redis.call('ZRANGE', due, 0, -1)
  for from = 1, #lanes, AT_ONCE do
    local heads, of, moved = {}, {}, {}
    for i = from, math.min(from + AT_ONCE - 1, #lanes) do
      local head = head_of_lane(group_list, lanes[i])
      if head then heads[#heads + 1], of[#of + 1] = head, lanes[i] end
    end
    for i, until_ms in ipairs(read_many('ZMSCORE', hidden, heads)) do
      if not until_ms then moved[#moved + 1], moved[#moved + 2] = ripe(heads[i]), of[i] end
    end
    call_many('ZADD', due, moved, 2)
  end
  local counted = redis.call('ZRANGE', delayed, 0, -1)
  for from = 1, #counted, AT_ONCE do
    local moved = {}
    for i = from, math.min(from + AT_ONCE - 1, #counted) do
      moved[#moved + 1], moved[#moved + 2] = ripe(counted[i]), counted[i]
    end
    call_many('ZADD', delayed, moved, 2)
  end
end
wake_who_waits(queue)
return 'ok'
