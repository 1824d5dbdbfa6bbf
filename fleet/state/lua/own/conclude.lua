-- own/conclude: delete messages that a queue of our own has shown, show them again, hide them longer, or have them moved.
-- WITH own_queue own_moving
-- KEYS state bodies hidden ready due shown delayed out origins refs outboxes outbox group_list
-- ARGV now_ms incarnation version kind message …, four fields a message: number count group what
--   incarnation, version: '' or what the caller knows of the queue; kind: see with/own_queue.lua
--   count: at which showing it was taken. Of kind `s` any showing counts, of the others the newest, of `o` and `t` in time
--   what: `d` to delete it; `u` as if it had not been shown, if nobody has got it; `h` and ms to hide it for as long from now, and of kind `t` behind a `+` how much longer it is
--   hidden if that passes; `s` and ms to show it again after that, which ends the handle; `m` and the queue it moves to
-- Returns {tag, result …}
--   tag: `ok`, `stale` or `ahead` (with/own_queue.lua)
--   result: 1 done, 0 shown again since, -1 gone, -2 the showing's time is over
local state, bodies, hidden, ready, due, shown, delayed, out, origins, refs, outboxes, outbox, group_list = unpack(KEYS)
local queue = open_queue(state, ARGV[1], ARGV[2], ARGV[3])
local kind = ARGV[4]
local FIELDS = 4
local total = (#ARGV - 4) / FIELDS
local now = queue.now
if queue.verdict then return { queue.verdict } end
group_list = group_list .. queue.generation

-- Redis may be full, and deleting is what helps: a script that has written may go on.
redis.call('HDEL', state, '')
note_queue_time(queue)

local seqs = {}
for i = 1, total do seqs[i] = ARGV[4 + (i - 1) * FIELDS + 1] end
local until_ms = read_many('ZMSCORE', hidden, seqs)
local deadlines = kind == 't' and read_many('ZMSCORE', out, seqs) or until_ms
local any_noted = redis.call('EXISTS', shown) == 1
local noted = any_noted and read_many('HMGET', shown, seqs) or {}

local answer, gone, hide, note, touched, lanes, done, heads = { 'ok' }, {}, {}, {}, {}, {}, {}, {}
local not_out, deadline, ended = {}, {}, {}

-- Takes it out of its group; nil if it does not stand there: a handle with another group than its message's is not valid.
local function leave_group(group, seq)
  -- Messages taken from a group mostly end in its order: its head is read once and cut off as a whole.
  local head = heads[group]
  if not head then
    head = redis.call('LRANGE', group_list .. group, 0, 63)
    head.at = 0
    heads[group] = head
  end
  if head[head.at + 1] == seq then
    head.at = head.at + 1
    return true
  end
  if head.at > 0 then redis.call('LPOP', group_list .. group, head.at) end
  heads[group] = nil
  return redis.call('LREM', group_list .. group, 1, seq) == 1
end

-- What is to be answered of a showing that is not the newest or whose time is over; nil if it may be concluded.
local function refusal(i, seq, count)
  if done[seq] then return -1 end
  -- Bodies of a subscription are its topic's: one may be there for others.
  if not until_ms[i] then return kind ~= 't' and redis.call('HEXISTS', bodies, seq) == 1 and 0 or -1 end
  if kind == 's' then return nil end
  -- What was read of it is from before this call, which may have ended the showing already.
  if ended[seq] or (string.match(noted[i] or '', '^[%d.]+') or '1') ~= count then return 0 end
  if kind ~= 'f' and tonumber(deadlines[i] or 0) <= now then return -2 end
  return nil
end

for i = 1, total do
  local base = 4 + (i - 1) * FIELDS
  local seq, count, group, what = ARGV[base + 1], ARGV[base + 2], ARGV[base + 3], ARGV[base + 4]
  local verb = string.sub(what, 1, 1)
  local refused = refusal(i, seq, count)
  if not refused and kind == 's' and verb == 'h' and tonumber(until_ms[i]) <= now then refused = -2 end
  if not refused and (verb == 'd' or verb == 'm') and group ~= '' and kind ~= 's' and not leave_group(group, seq) then
    refused = 0
  end
  answer[i + 1] = refused or 1
  if not refused then
    if verb == 'd' or verb == 'm' then
      gone[#gone + 1] = seq
      done[seq] = true
      if verb == 'm' then
        local _, first = string.match(noted[i] or '', '^([%d.]+)\31?(%d*)$')
        local body = redis.call('HGET', bodies, seq)
        move(queue, outboxes, outbox, string.sub(what, 2), seq, count, first or '', group, body)
      end
    else
      local ms, more = string.match(what, '^.(%d*)%+?(%d*)$')
      local hidden_until = text(now + tonumber(ms ~= '' and ms or 0) + tonumber(more ~= '' and more or 0))
      hide[#hide + 1], hide[#hide + 2] = hidden_until, seq
      until_ms[i] = hidden_until
      ended[seq] = verb ~= 'h' or nil
      if verb == 'h' then
        deadline[#deadline + 1], deadline[#deadline + 2] = text(now + tonumber(ms)), seq
        deadlines[i] = deadline[#deadline - 1]
      elseif verb == 'u' then
        local first = string.match(noted[i] or '', '\31.*$') or ''
        noted[i] = text(tonumber(count) - 1) .. first
        note[#note + 1], note[#note + 2] = seq, noted[i]
        not_out[#not_out + 1] = seq
      else
        -- Half a showing more, which no handle has.
        noted[i] = count .. '.5' .. (string.match(noted[i] or '', '\31.*$') or '')
        note[#note + 1], note[#note + 2] = seq, noted[i]
        not_out[#not_out + 1] = seq
        deadlines[i] = nil
      end
    end
    local lane = group == '' and '\30' .. seq or group
    if kind ~= 's' and not touched[lane] then
      touched[lane] = true
      lanes[#lanes + 1] = lane
    end
  end
end
for group, head in pairs(heads) do
  if head.at > 0 then redis.call('LPOP', group_list .. group, head.at) end
end

-- First: one asker may hide what another, behind him in the same call, deletes.
if #hide > 0 then call_many('ZADD', hidden, hide, 2) end
if #note > 0 then call_many('HSET', shown, note, 2) end
if kind == 't' then
  if #deadline > 0 then call_many('ZADD', out, deadline, 2) end
  for i = 1, #gone do not_out[#not_out + 1] = gone[i] end
  if #not_out > 0 then
    redis.call('HINCRBY', state, 'out_bytes', -bytes_of(bodies, not_out))
    call_many('ZREM', out, not_out)
  end
  if #gone > 0 then
    redis.call('HINCRBY', state, 'messages', -#gone)
    redis.call('HINCRBY', state, 'bytes', -bytes_of(bodies, gone))
  end
end
if #gone > 0 then
  drop_bodies(bodies, refs, gone)
  if any_noted then call_many('HDEL', shown, gone) end
  call_many('ZREM', hidden, gone)
  if kind ~= 'f' and redis.call('EXISTS', origins) == 1 then call_many('HDEL', origins, gone) end
  if kind == 's' and redis.call('EXISTS', delayed) == 1 then call_many('ZREM', delayed, gone) end
end

-- A lane with messages is in exactly one of ready and due, by its head alone.
local to_ready, to_due, off_ready, off_due = {}, {}, {}, {}
for i = 1, #lanes do
  local lane = lanes[i]
  local head
  if string.sub(lane, 1, 1) == '\30' then
    head = not done[string.sub(lane, 2)] and string.sub(lane, 2)
  else
    head = redis.call('LINDEX', group_list .. lane, 0)
  end
  local head_until = head and tonumber(redis.call('ZSCORE', hidden, head) or 0)
  if not head then
    off_ready[#off_ready + 1], off_due[#off_due + 1] = lane, lane
  elseif head_until > now then
    to_due[#to_due + 1], to_due[#to_due + 2] = text(head_until), lane
    off_ready[#off_ready + 1] = lane
  else
    to_ready[#to_ready + 1], to_ready[#to_ready + 2] = rank(kind, head, head_until), lane
    off_due[#off_due + 1] = lane
  end
end
if #off_ready > 0 then call_many('ZREM', ready, off_ready) end
if #off_due > 0 then call_many('ZREM', due, off_due) end
if #to_due > 0 then call_many('ZADD', due, to_due, 2) end
if #to_ready > 0 then call_many('ZADD', ready, to_ready, 2) end
if #to_ready + #to_due + #hide > 0 or (kind == 't' and #gone > 0) then wake_who_waits(queue) end
return answer
