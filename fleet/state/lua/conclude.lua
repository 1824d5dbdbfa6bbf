-- conclude: delete messages that a queue of our own has shown, or change until when they are hidden.
-- KEYS state bodies hidden ready due counts group_list
-- ARGV now_ms message …, four fields a message: number count group hide_ms
--   count: at which showing it was taken; hide_ms: `d` to delete it, else for how long it is hidden from now, 0 to show it
-- Returns a list, for each message 1, or 0 if it was shown again since; what is gone already counts as deleted
local state, bodies, hidden, ready, due, counts, group_list = unpack(KEYS)
local now = time_ms(ARGV[1])
local FIELDS = 4
local total = (#ARGV - 1) / FIELDS

-- Redis may be full, and deleting is what helps: a script that has written may go on.
redis.call('HDEL', state, '')

local seqs = {}
for i = 1, total do seqs[i] = ARGV[1 + (i - 1) * FIELDS + 1] end
local current = hmget_many(counts, seqs)

local answer, gone, show, hide, touched, lanes, done = {}, {}, {}, {}, {}, {}, {}
for i = 1, total do
  local base = 1 + (i - 1) * FIELDS
  local seq, count, group, hide_ms = ARGV[base + 1], ARGV[base + 2], ARGV[base + 3], ARGV[base + 4]
  answer[i] = 0
  if done[seq] or not current[i] then
    -- Said twice in one call, or gone; one that nobody was shown yet has a body.
    if hide_ms == 'd' and (done[seq] == 'd' or redis.call('HEXISTS', bodies, seq) == 0) then answer[i] = 1 end
  elseif current[i] == count then
    local lane = group == '' and '\30' .. seq or group
    local known = true
    if hide_ms == 'd' then
      -- Near the head, where all that is taken stands. A handle with another group than its message's is none.
      known = group == '' or redis.call('LREM', group_list .. group, 1, seq) == 1
      if known then
        gone[#gone + 1] = seq
        done[seq] = 'd'
      end
    elseif tonumber(hide_ms) > 0 then
      hide[#hide + 1], hide[#hide + 2] = text(now + tonumber(hide_ms)), seq
    else
      show[#show + 1] = seq
    end
    if known then
      answer[i] = 1
      if not touched[lane] then
        touched[lane] = true
        lanes[#lanes + 1] = lane
      end
    end
  end
end
if #gone > 0 then
  call_many('HDEL', bodies, gone)
  call_many('HDEL', counts, gone)
  call_many('ZREM', hidden, gone)
end
if #show > 0 then call_many('ZREM', hidden, show) end
if #hide > 0 then call_many('ZADD', hidden, hide, 2) end

-- A lane with messages is in exactly one of ready and due, by its head alone.
local to_ready, to_due, off_ready, off_due = {}, {}, {}, {}
for i = 1, #lanes do
  local lane = lanes[i]
  local head
  if string.sub(lane, 1, 1) == '\30' then
    head = done[string.sub(lane, 2)] ~= 'd' and string.sub(lane, 2)
  else
    head = redis.call('LINDEX', group_list .. lane, 0)
  end
  local until_ms = head and tonumber(redis.call('ZSCORE', hidden, head) or 0)
  if not head then
    off_ready[#off_ready + 1], off_due[#off_due + 1] = lane, lane
  elseif until_ms > now then
    to_due[#to_due + 1], to_due[#to_due + 2] = text(until_ms), lane
    off_ready[#off_ready + 1] = lane
  else
    to_ready[#to_ready + 1], to_ready[#to_ready + 2] = head, lane
    off_due[#off_due + 1] = lane
  end
end
if #off_ready > 0 then call_many('ZREM', ready, off_ready) end
if #off_due > 0 then call_many('ZREM', due, off_due) end
if #to_due > 0 then call_many('ZADD', due, to_due, 2) end
if #to_ready > 0 then call_many('ZADD', ready, to_ready, 2) end
if #to_ready > 0 or #to_due > 0 then
  redis.call('PUBLISH', 'fleet:queue', string.match(state, '^{b:(.*):%d+}:state$'))
end
return answer
