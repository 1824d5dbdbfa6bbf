-- own/send: append messages to a queue of our own, in order, all or nothing.
-- WITH own_queue
-- KEYS state bodies hidden ready due shown seen delayed fresh group_list
-- ARGV now_ms incarnation version kind dedup_ms producer epoch message …, four fields a message: group dedup_id delay_ms body
--   incarnation, version: '' or what the caller knows of the queue; kind: see with/own_queue.lua
--   producer, epoch: '' or a name, refused once it has sent with a higher epoch; group, dedup_id: '' for none
-- Returns {tag, number …}
--   tag: `ok`; or nothing was taken: `stale` or `ahead` (with/own_queue.lua), `fenced`: a newer epoch of this producer has sent
--   number: of each message; behind a minus the number of the one that has brought its dedup id before
local state, bodies, hidden, ready, due, shown, seen, delayed, fresh, group_list = unpack(KEYS)
local queue = open_queue(state, ARGV[1], ARGV[2], ARGV[3])
local kind, dedup_ms, producer, epoch = ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7]
local FIELDS, SWEEP = 4, 1000
local count = (#ARGV - 7) / FIELDS
local now = queue.now
if queue.verdict then return { queue.verdict } end

if producer ~= '' then
  local newest = tonumber(redis.call('HGET', state, 'f:' .. producer) or 0)
  if tonumber(epoch) < newest then return { 'fenced' } end
  if tonumber(epoch) > newest then redis.call('HSET', state, 'f:' .. producer, epoch) end
end

note_queue_time(queue)

local asked = {}
for i = 1, count do asked[i] = ARGV[7 + (i - 1) * FIELDS + 2] end
local known = read_many('ZMSCORE', seen, asked)
-- A number says when it was given, in us: a dedup id is remembered for its time after that.
local forgotten = (now - dedup_ms) * 1000 + 999

local last = next_epoch(tonumber(redis.call('HGET', state, 'last') or 0), now) - 1
local answer, written, remembered, counted, unshown = { 'ok' }, {}, {}, {}, {}
local later, new, to_ready, to_due, lists, order, here = {}, {}, {}, {}, {}, {}, {}
for i = 1, count do
  local base = 7 + (i - 1) * FIELDS
  local group, dedup_id, delay_ms = ARGV[base + 1], ARGV[base + 2], tonumber(ARGV[base + 3])
  local before = dedup_id ~= '' and (here[dedup_id] or (known[i] and tonumber(known[i]) > forgotten and known[i]))
  if before then
    answer[i + 1] = '-' .. text(tonumber(before))
  else
    last = last + 1
    local seq = text(last)
    answer[i + 1] = seq
    written[#written + 1], written[#written + 2] = seq, ARGV[base + 4]
    if dedup_id ~= '' then
      here[dedup_id] = seq
      remembered[#remembered + 1], remembered[#remembered + 2] = seq, dedup_id
    end
    if delay_ms > 0 then
      if kind ~= 'f' then counted[#counted + 1], counted[#counted + 2] = now + delay_ms, seq end
      -- An ordered queue of the SQS door asks for its delay with each receive: that may change meanwhile.
      if kind ~= 'o' then
        later[#later + 1], later[#later + 2] = now + delay_ms, seq
        unshown[#unshown + 1], unshown[#unshown + 2] = seq, 0
      end
    end
    if kind == 's' then
      if delay_ms == 0 then new[#new + 1] = seq end
    elseif group == '' then
      -- It holds back nothing, and nothing holds it back: a lane of its own, without a list.
      local to = delay_ms > 0 and to_due or to_ready
      to[#to + 1], to[#to + 2] = delay_ms > 0 and now + delay_ms or seq, '\30' .. seq
    else
      if not lists[group] then
        lists[group] = { delay_ms = delay_ms }
        order[#order + 1] = group
      end
      table.insert(lists[group], seq)
    end
  end
end

if #written > 0 then
  redis.call('HSET', state, 'last', text(last))
  call_many('HSET', bodies, written, 2)
  for _, group in ipairs(order) do
    local list = lists[group]
    if call_many('RPUSH', group_list .. queue.generation .. group, list) == #list then
      local to = list.delay_ms > 0 and to_due or to_ready
      to[#to + 1], to[#to + 2] = list.delay_ms > 0 and now + list.delay_ms or list[1], group
    end
  end
  if #new > 0 then call_many('RPUSH', fresh, new) end
  if #later > 0 then
    call_many('ZADD', hidden, later, 2)
    call_many('HSET', shown, unshown, 2)
  end
  if #counted > 0 then call_many('ZADD', delayed, counted, 2) end
  if #to_due > 0 then call_many('ZADD', due, to_due, 2) end
  if #to_ready > 0 then call_many('ZADD', ready, to_ready, 2) end
  if #remembered > 0 then call_many('ZADD', seen, remembered, 2) end
  if #new + #later + #to_ready + #to_due > 0 then wake_who_waits(queue) end
end
-- Only now: a script whose first write frees may go on writing when Redis is full, and this one must not.
local old = redis.call('ZRANGEBYSCORE', seen, '-inf', text(forgotten), 'LIMIT', 0, SWEEP)
if #old > 0 then redis.call('ZREM', seen, unpack(old)) end
return answer
