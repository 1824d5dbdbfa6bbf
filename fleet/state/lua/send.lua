-- send: append messages to a queue of our own, in order.
-- WITH queue_time
-- KEYS state bodies hidden ready due counts seen group_list
-- ARGV now_ms dedup_ms producer epoch message …, four fields a message: group dedup_id delay_ms body
--   producer, epoch: '' or a name, refused once it has sent with a higher epoch; group, dedup_id: '' for none
-- Returns {tag, accepted …}
--   tag: `ok`, or `stale`: a newer epoch of this producer has sent, nothing was taken
--   accepted: for each message its number, 0 if its dedup id was seen before
local state, bodies, hidden, ready, due, counts, seen, group_list = unpack(KEYS)
local now, ahead = queue_time(state, ARGV[1])
local dedup_ms, producer, epoch = tonumber(ARGV[2]), ARGV[3], ARGV[4]
local FIELDS, SWEEP = 4, 1000
local count = (#ARGV - 4) / FIELDS

if producer ~= '' then
  local newest = tonumber(redis.call('HGET', state, 'f:' .. producer) or 0)
  if tonumber(epoch) < newest then return { 'stale' } end
  if tonumber(epoch) > newest then redis.call('HSET', state, 'f:' .. producer, epoch) end
end

note_queue_time(state, now, ahead)

local asked = {}
for i = 1, count do asked[i] = ARGV[4 + (i - 1) * FIELDS + 2] end
local until_ms = read_many('ZMSCORE', seen, asked)

local last = next_epoch(tonumber(redis.call('HGET', state, 'last') or 0), now) - 1
local answer, written, remembered, delayed, unshown, shown, waiting = { 'ok' }, {}, {}, {}, {}, {}, {}
local lists, order, here = {}, {}, {}
for i = 1, count do
  local base = 4 + (i - 1) * FIELDS
  local group, dedup_id, delay_ms = ARGV[base + 1], ARGV[base + 2], tonumber(ARGV[base + 3])
  if dedup_id ~= '' and (here[dedup_id] or (until_ms[i] and tonumber(until_ms[i]) > now)) then
    answer[i + 1] = '0'
  else
    last = last + 1
    local seq = text(last)
    answer[i + 1] = seq
    written[#written + 1], written[#written + 2] = seq, ARGV[base + 4]
    if dedup_id ~= '' then
      here[dedup_id] = true
      remembered[#remembered + 1], remembered[#remembered + 2] = now + dedup_ms, dedup_id
    end
    if delay_ms > 0 then
      delayed[#delayed + 1], delayed[#delayed + 2] = now + delay_ms, seq
      unshown[#unshown + 1], unshown[#unshown + 2] = seq, 0
    end
    if group == '' then
      -- It holds back nothing, and nothing holds it back: a lane of its own, without a list.
      local to = delay_ms > 0 and waiting or shown
      to[#to + 1], to[#to + 2] = delay_ms > 0 and now + delay_ms or seq, '\30' .. seq
    else
      if not lists[group] then
        lists[group] = { delay_ms = delay_ms }
        order[#order + 1] = group
      end
      local list = lists[group]
      list[#list + 1] = seq
    end
  end
end

if #written > 0 then
  redis.call('HSET', state, 'last', text(last))
  call_many('HSET', bodies, written, 2)
  for _, group in ipairs(order) do
    local list = lists[group]
    if call_many('RPUSH', group_list .. group, list) == #list then
      local to = list.delay_ms > 0 and waiting or shown
      to[#to + 1], to[#to + 2] = list.delay_ms > 0 and now + list.delay_ms or list[1], group
    end
  end
  if #delayed > 0 then
    call_many('ZADD', hidden, delayed, 2)
    call_many('HSET', counts, unshown, 2)
  end
  if #waiting > 0 then call_many('ZADD', due, waiting, 2) end
  if #shown > 0 then call_many('ZADD', ready, shown, 2) end
  if #remembered > 0 then call_many('ZADD', seen, remembered, 2) end
  if #shown > 0 or #waiting > 0 then
    redis.call('PUBLISH', 'fleet:queue', string.match(state, '^{b:(.*):%d+}:state$'))
  end
end
-- Only now: a script whose first write frees may go on writing when Redis is full, and this one must not.
local old = redis.call('ZRANGEBYSCORE', seen, '-inf', now, 'LIMIT', 0, SWEEP)
if #old > 0 then redis.call('ZREM', seen, unpack(old)) end
return answer
