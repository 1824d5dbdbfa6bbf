-- own_queue: a queue of our own: its time, who may call, which messages stand where, and how one leaves it.
--
-- Kinds: `f` for the fleet's router; `s` a standard queue of the SQS door, which has no lanes; `o` an ordered one (FIFO);
-- `t` a subscription of a topic, whose bodies its topic holds and others may hold too.
-- A lane is a group, or one message alone: '\30' and its number. Lanes stand in `ready` or `due`, by their first message.

-- What its state says. `stale`: the caller knows less of the queue than others did before it; `ahead`: it knows more.
--
-- The queue's time goes forward with Redis's clock and never back: by Redis's alone, a message that is hidden until a
-- time would stay hidden longer by as much as the clock steps back.
local function open_queue(state, passed, incarnation, version)
  local is = redis.call('HMGET', state, 'clock', 'ahead', 'generation', 'waits', 'incarnation', 'version')
  local queue = { state = state, generation = is[3] or '', waits = is[4] }
  local seen, ahead = tonumber(is[1] or 0), tonumber(is[2] or 0)
  queue.now = time_ms(passed) + ahead
  if queue.now < seen then
    queue.ahead, queue.now = ahead + seen - queue.now, seen
  elseif queue.now - seen >= 1000 then
    queue.ahead = ahead
  end
  if incarnation ~= '' then
    local one, other = tonumber(incarnation), tonumber(is[5] or 0)
    if one == other then one, other = tonumber(version), tonumber(is[6] or 0) end
    queue.verdict = one < other and 'stale' or one > other and 'ahead' or nil
  end
  return queue
end

-- Where a script may write: how far the queue's time has come, to the second, and how far it is ahead of Redis's.
local function note_queue_time(queue)
  if queue.ahead then
    redis.call('HSET', queue.state, 'clock', text(queue.now), 'ahead', text(queue.ahead))
  end
end

-- Whoever waits for something to show is told once, and waits anew.
local function wake_who_waits(queue)
  if not queue.waits then return end
  redis.call('HDEL', queue.state, 'waits')
  redis.call('PUBLISH', 'fleet:queue', string.sub(queue.state, 1, -6))
end

local function head_of_lane(group_list, lane)
  if string.sub(lane, 1, 1) == '\30' then return string.sub(lane, 2) end
  return redis.call('LINDEX', group_list .. lane, 0)
end

-- Where a lane stands among those that are ready. What comes back to an ordered queue of the SQS door ranks by when.
local function rank(kind, head, until_ms)
  if kind == 'o' and until_ms * 1000 > tonumber(head) then return text(until_ms * 1000) end
  return head
end

-- Drop bodies, or our part in those that other subscriptions hold as well.
local function drop_bodies(bodies, refs, gone)
  if redis.call('EXISTS', refs) == 1 then
    local ours, counts = {}, read_many('HMGET', refs, gone)
    for i, seq in ipairs(gone) do
      if not counts[i] then
        ours[#ours + 1] = seq
      elseif tonumber(counts[i]) <= 2 then
        redis.call('HDEL', refs, seq)
      else
        redis.call('HINCRBY', refs, seq, -1)
      end
    end
    gone = ours
  end
  if #gone > 0 then call_many('HDEL', bodies, gone) end
end

-- Of messages that leave a subscription, or go back to it: what they count for.
local function bytes_of(bodies, seqs)
  local bytes = 0
  for _, seq in ipairs(seqs) do bytes = bytes + redis.call('HSTRLEN', bodies, seq) end
  return bytes
end
