-- conclude: delete messages that a queue of our own has shown, show them again, or hide them longer.
-- WITH queue_time
-- KEYS state bodies hidden ready due counts group_list
-- ARGV now_ms message …, four fields a message: number count group what
--   count: at which showing it was taken; what: `d` to delete it, `h` and ms to hide it for as long from now, or `s` and ms
--   to show it again: it is shown again after that, and the handle under which it was taken is void
-- Returns a list, for each message 1, or 0 if it was shown again since; what is gone already counts as deleted
local state, bodies, hidden, ready, due, counts, group_list = unpack(KEYS)
local now, ahead = queue_time(state, ARGV[1])
local FIELDS = 4
local total = (#ARGV - 1) / FIELDS

-- Redis may be full, and deleting is what helps: a script that has written may go on.
redis.call('HDEL', state, '')
note_queue_time(state, now, ahead)

local seqs = {}
for i = 1, total do seqs[i] = ARGV[1 + (i - 1) * FIELDS + 1] end
local current = read_many('ZMSCORE', hidden, seqs)
-- Shown once, if nothing else is noted.
local any_more = redis.call('EXISTS', counts) == 1
local more = any_more and read_many('HMGET', counts, seqs) or {}

local answer, gone, hide, given, touched, lanes, done, heads = {}, {}, {}, {}, {}, {}, {}, {}
for i = 1, total do
  local base = 1 + (i - 1) * FIELDS
  local seq, count, group, what = ARGV[base + 1], ARGV[base + 2], ARGV[base + 3], ARGV[base + 4]
  answer[i] = 0
  if done[seq] or not current[i] then
    -- Named twice in one call, or gone. A message that was never shown still has its body.
    if what == 'd' and (done[seq] or redis.call('HEXISTS', bodies, seq) == 0) then answer[i] = 1 end
  elseif (more[i] or '1') == count then
    local lane = group == '' and '\30' .. seq or group
    local known = true
    if what == 'd' then
      if group ~= '' then
        -- Messages taken from a group mostly end in its order: its head is read once and cut off as a whole.
        local head = heads[group]
        if not head then
          head = redis.call('LRANGE', group_list .. group, 0, 63)
          head.at = 0
          heads[group] = head
        end
        if head[head.at + 1] == seq then
          head.at = head.at + 1
        else
          -- A handle with another group than its message's is not valid.
          if head.at > 0 then redis.call('LPOP', group_list .. group, head.at) end
          known = redis.call('LREM', group_list .. group, 1, seq) == 1
          heads[group] = nil
        end
      end
      if known then
        gone[#gone + 1] = seq
        done[seq] = true
      end
    else
      hide[#hide + 1], hide[#hide + 2] = text(now + tonumber(string.sub(what, 2))), seq
      if string.sub(what, 1, 1) == 's' then
        -- Half a showing more, which no handle has.
        given[#given + 1], given[#given + 2] = seq, count .. '.5'
        more[i] = given[#given]
      end
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
for group, head in pairs(heads) do
  if head.at > 0 then redis.call('LPOP', group_list .. group, head.at) end
end
if #gone > 0 then
  call_many('HDEL', bodies, gone)
  if any_more then call_many('HDEL', counts, gone) end
  call_many('ZREM', hidden, gone)
end
if #hide > 0 then call_many('ZADD', hidden, hide, 2) end
if #given > 0 then call_many('HSET', counts, given, 2) end

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
