-- own/receive: show the oldest messages of a queue of our own, and hide them for a while.
-- WITH own_queue own_moving
-- KEYS state bodies hidden ready due shown delayed fresh out origins refs outboxes outbox group_list
-- ARGV now_ms incarnation version kind most visibility_ms per_lane retention_ms max_count target delay_ms max_out max_bytes backoff_ms most_backoff_ms place known …
--   incarnation, version: '' or what the caller knows of the queue; kind: see with/own_queue.lua
--   per_lane: no more than this of one group; of kind `f` its part of what is asked for, if that is more
--   retention_ms: what is older is dropped; max_count, target: what was shown so often moves there; 0: none of
--   it; -1: all of it does, and if target is '' to where each came from
--   delay_ms: of kind `o`, for how long after its sending a message is not shown
--   max_out, max_bytes: 0, or how many messages and bytes may be out at once
--   backoff_ms, most_backoff_ms: of kind `t`, how much longer what is not acked stays hidden, doubled with each showing
--   place: '', or nothing is shown: what has to leave is looked for from there on among those that may be shown
--   known: with max_count -1, the queues that it may go to; what would go to others stays
-- Returns {tag, due_ms, moved, dropped, message …}, four fields a message: number group showing body
--   tag: `ok`, `over` (as many are out as may be), `end` (with `place`: there is nothing behind), `stale` or `ahead`
--   (with/own_queue.lua)
--   with max_count -1 there are no messages, but the queues that are not known, each once
--   due_ms: when something may be shown, '' if nothing will; with `place`, how far it has looked from there
--   message: a group gives its messages up to its first hidden one
--   showing: how often it was shown; of kinds other than `f` also when first, and which queue it was moved from
local state, bodies, hidden, ready, due, shown, delayed, fresh, out, origins, refs, outboxes,
  outbox, group_list = unpack(KEYS)
local queue = open_queue(state, ARGV[1], ARGV[2], ARGV[3])
local kind, most, visibility_ms, per_lane = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local retention_ms, max_count, target, delay_ms = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10], tonumber(ARGV[11])
local max_out, max_bytes = tonumber(ARGV[12]), tonumber(ARGV[13])
local backoff_ms, most_backoff_ms = tonumber(ARGV[14]), tonumber(ARGV[15])
local place = tonumber(ARGV[16])
local known = {}
for i = 17, #ARGV do known[ARGV[i]] = true end
local tidies = place ~= nil
local SWEEP, ALONE = 1000, '\30'
local now = queue.now
if queue.verdict then return { queue.verdict } end
group_list = group_list .. queue.generation

-- Redis may be full, and taking messages out is what helps: a script that has written may go on.
redis.call('HDEL', state, '')
note_queue_time(queue)

-- How much room there is for more to be out.
local bytes_left = math.huge
if kind == 't' then
  local lapsed = redis.call('ZRANGEBYSCORE', out, '-inf', now, 'LIMIT', 0, SWEEP)
  if #lapsed > 0 then
    redis.call('HINCRBY', state, 'out_bytes', -bytes_of(bodies, lapsed))
    redis.call('ZREM', out, unpack(lapsed))
  end
  if not tidies then
    if max_out > 0 then most = math.min(most, max_out - redis.call('ZCARD', out)) end
    if max_bytes > 0 then bytes_left = max_bytes - tonumber(redis.call('HGET', state, 'out_bytes') or 0) end
    if most <= 0 or bytes_left <= 0 then
      if not queue.waits then redis.call('HSET', state, 'waits', 1) end
      local lapses_ms = tonumber(redis.call('ZRANGE', out, 0, 0, 'WITHSCORES')[2] or '')
      return { 'over', lapses_ms and text(math.max(1, lapses_ms - now)) or '', 0, 0 }
    end
  end
elseif max_out > 0 and not tidies and redis.call('ZCARD', hidden) >= max_out then
  local after = '(' .. text(now)
  local are_out = redis.call('ZCOUNT', hidden, after, '+inf')
  if kind == 's' then are_out = are_out - redis.call('ZCOUNT', delayed, after, '+inf') end
  if are_out >= max_out then return { 'over', '', 0, 0 } end
end

-- Lanes whose first message is hidden no longer.
local back = kind ~= 's' and redis.call('ZRANGEBYSCORE', due, '-inf', now, 'WITHSCORES', 'LIMIT', 0, SWEEP) or {}
if #back > 0 then
  local to_ready, off_due = {}, {}
  for i = 1, #back, 2 do
    local head = head_of_lane(group_list, back[i])
    off_due[#off_due + 1] = back[i]
    if head then
      to_ready[#to_ready + 1], to_ready[#to_ready + 2] = rank(kind, head, tonumber(back[i + 1])), back[i]
    end
  end
  redis.call('ZREM', due, unpack(off_due))
  if #to_ready > 0 then redis.call('ZADD', ready, unpack(to_ready)) end
end

-- The candidates, in order: their numbers, their lanes, and which of them may have been shown before.
local seqs, lanes, again = {}, {}, {}
local not_yet = {}
local looked_at, is_end = 0
local function is_old(seq)
  return retention_ms > 0 and tonumber(seq) / 1000 + retention_ms <= now
end
if kind == 's' then
  local shown_before = redis.call('ZRANGEBYSCORE', hidden, '-inf', now, 'WITHSCORES', 'LIMIT', place or 0, most)
  local never = redis.call('LRANGE', fresh, 0, most - 1)
  looked_at = #shown_before / 2
  is_end = looked_at < most
  -- Of what was never shown only the oldest can be too old, and only a task that names a queue has a place for it.
  while tidies and not known[target] and #never > 0 and not is_old(never[#never]) do never[#never] = nil end
  local i, j = 1, 1
  while #seqs < most and (shown_before[i] or never[j]) do
    if not never[j] or (shown_before[i] and tonumber(shown_before[i + 1]) * 1000 <= tonumber(never[j])) then
      seqs[#seqs + 1] = shown_before[i]
      again[#again + 1] = shown_before[i]
      i = i + 2
    else
      seqs[#seqs + 1] = never[j]
      j = j + 1
    end
  end
  if j > 1 then redis.call('LTRIM', fresh, j - 1, -1) end
else
  local asked = most > 0 and redis.call('ZRANGE', ready, place or 0, (place or 0) + most - 1) or {}
  is_end = #asked < most
  if #asked > 0 and kind == 'f' then per_lane = math.max(per_lane, math.ceil(most / #asked)) end
  local alone = {}
  for i = 1, #asked do
    if #seqs >= most then
      is_end = false
      break
    end
    local lane = asked[i]
    local stays = true
    if string.sub(lane, 1, 1) == ALONE then
      seqs[#seqs + 1], lanes[#lanes + 1] = string.sub(lane, 2), lane
      alone[#alone + 1] = seqs[#seqs]
    else
      local listed = redis.call('LRANGE', group_list .. lane, 0, math.min(per_lane, most - #seqs) - 1)
      local until_ms = #listed > 0 and redis.call('ZMSCORE', hidden, unpack(listed))
      if #listed == 0 then
        redis.call('ZREM', ready, lane)
        stays = false
      end
      for j = 1, #listed do
        local ripe_ms = tonumber(until_ms[j] or delay_ms > 0 and math.floor(tonumber(listed[j]) / 1000) + delay_ms or 0)
        if ripe_ms > now then
          if j == 1 then
            not_yet[#not_yet + 1], not_yet[#not_yet + 2] = text(ripe_ms), lane
            stays = false
          end
          break
        end
        if until_ms[j] then again[#again + 1] = listed[j] end
        seqs[#seqs + 1], lanes[#lanes + 1] = listed[j], lane
      end
    end
    if stays then looked_at = looked_at + 1 end
  end
  for from = 1, #alone, 2000 do
    local part = { unpack(alone, from, math.min(from + 1999, #alone)) }
    local until_ms = redis.call('ZMSCORE', hidden, unpack(part))
    for j = 1, #part do
      if until_ms[j] then again[#again + 1] = part[j] end
    end
  end
  if #not_yet > 0 then
    call_many('ZADD', due, not_yet, 2)
    for i = 2, #not_yet, 2 do redis.call('ZREM', ready, not_yet[i]) end
  end
end

-- How often and since when each was shown. Of kind `f` what was hidden was shown once, if nothing else is noted.
local times, firsts = {}, {}
for i, before in ipairs(read_many('HMGET', shown, again)) do
  local often, first = string.match(before or '', '^([%d.]+)\31?(%d*)$')
  times[again[i]], firsts[again[i]] = math.floor(tonumber(often or (kind == 'f' and 1 or 0))), first
end

-- All that is looked at may be hundreds of MiB: where nothing is shown, only what moves is read.
local values = tidies and {} or read_many('HMGET', bodies, seqs)
local sources = kind ~= 'f' and redis.call('EXISTS', origins) == 1 and read_many('HMGET', origins, seqs) or {}
local answer = { 'ok', '', 0, 0 }
local hide, noted, are_out, out_bytes, taken, wait = {}, {}, {}, 0, {}, {}
local dropped, moving, ended, cut = {}, {}, {}, {}
local showing, ended_before = {}, nil
for i = 1, #seqs do
  local seq, lane, before = seqs[i], lanes[i], times[seqs[i]] or 0
  local to = target ~= '' and target or sources[i]
  local over = max_count > 0 and before >= max_count or (max_count < 0 and to and known[to])
  if max_count < 0 and to and known[to] == nil then
    known[to] = false
    answer[#answer + 1] = to
  end
  local old = is_old(seq)
  if bytes_left <= 0 then break end
  if not values[i] and not (tidies and redis.call('HEXISTS', bodies, seq) == 1) then
    -- Its body is gone, and so is the message: what a wipe by hand left behind.
    old = true
  end
  if old or over then
    -- What stands behind a message that is shown now goes when its turn comes.
    if not lane or not showing[lane] then
      if old then dropped[#dropped + 1] = seq else moving[#moving + 1] = i end
      if lane and not cut[lane] then ended[#ended + 1] = lane end
      if lane then cut[lane] = (cut[lane] or 0) + 1 end
    else
      ended_before = lane
    end
  elseif tidies then
    if lane then showing[lane] = true end
  elseif ended_before == nil or ended_before ~= lane then
    local count = before + 1
    local until_ms = now + visibility_ms
    if kind == 't' then
      are_out[#are_out + 1], are_out[#are_out + 2] = text(until_ms), seq
      out_bytes, bytes_left = out_bytes + #values[i], bytes_left - #values[i]
      if backoff_ms > 0 then until_ms = until_ms + math.min(backoff_ms * 2 ^ (count - 1), most_backoff_ms) end
    end
    hide[#hide + 1], hide[#hide + 2] = text(until_ms), seq
    local said = tostring(count)
    if kind ~= 'f' then
      local first = firsts[seq] and firsts[seq] ~= '' and firsts[seq] or text(now)
      said = said .. '\31' .. first
      noted[#noted + 1], noted[#noted + 2] = seq, said
      if sources[i] then said = said .. '\31' .. sources[i] end
    elseif count > 1 or times[seq] then
      noted[#noted + 1], noted[#noted + 2] = seq, said
    end
    local group = lane and string.sub(lane, 1, 1) ~= ALONE and lane or ''
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = seq, group, said, values[i]
    if lane and not showing[lane] then
      showing[lane] = true
      taken[#taken + 1] = lane
      wait[#wait + 1], wait[#wait + 2] = text(until_ms), lane
    end
  end
end

-- What leaves goes first: from its lane, then from everywhere else.
for _, lane in ipairs(ended) do
  if string.sub(lane, 1, 1) ~= ALONE then redis.call('LPOP', group_list .. lane, cut[lane]) end
  if not showing[lane] then
    local head = string.sub(lane, 1, 1) ~= ALONE and redis.call('LINDEX', group_list .. lane, 0)
    local until_ms = head and tonumber(redis.call('ZSCORE', hidden, head) or 0)
    if head and until_ms <= now then
      redis.call('ZADD', ready, rank(kind, head, until_ms), lane)
    else
      redis.call('ZREM', ready, lane)
      if head then redis.call('ZADD', due, text(until_ms), lane) end
    end
  end
end
if #dropped + #moving > 0 then
  local gone = {}
  for i = 1, #dropped do gone[i] = dropped[i] end
  for _, i in ipairs(moving) do
    gone[#gone + 1] = seqs[i]
    local lane = lanes[i]
    local group = lane and string.sub(lane, 1, 1) ~= ALONE and lane or ''
    local to = target ~= '' and target or sources[i]
    local often = max_count < 0 and -1 or times[seqs[i]] or 0
    local body = values[i] or redis.call('HGET', bodies, seqs[i])
    move(queue, outboxes, outbox, to, seqs[i], often, firsts[seqs[i]] or '', group, body)
  end
  if kind == 't' then
    redis.call('HINCRBY', state, 'messages', -#gone)
    redis.call('HINCRBY', state, 'bytes', -bytes_of(bodies, gone))
  end
  drop_bodies(bodies, refs, gone)
  call_many('HDEL', shown, gone)
  call_many('ZREM', hidden, gone)
  call_many('ZREM', delayed, gone)
  if #sources > 0 then call_many('HDEL', origins, gone) end
  answer[3], answer[4] = #moving, #dropped
end
if #hide > 0 then
  call_many('ZADD', hidden, hide, 2)
  if #noted > 0 then call_many('HSET', shown, noted, 2) end
  if kind ~= 'f' and redis.call('EXISTS', delayed) == 1 then
    for i = 2, #hide, 2 do redis.call('ZREM', delayed, hide[i]) end
  end
  if #are_out > 0 then
    call_many('ZADD', out, are_out, 2)
    redis.call('HINCRBY', state, 'out_bytes', out_bytes)
  end
  if #wait > 0 then
    call_many('ZADD', due, wait, 2)
    call_many('ZREM', ready, taken)
  end
else
  local next_one = redis.call('ZRANGE', kind == 's' and hidden or due, 0, 0, 'WITHSCORES')
  local next_ms = next_one[2] and tonumber(next_one[2]) or nil
  -- There may be more at once, behind what has just left.
  if #dropped + #moving > 0 or (#not_yet > 0 and redis.call('EXISTS', ready) == 1) then next_ms = now end
  if next_ms then answer[2] = text(math.max(1, next_ms - now)) end
  if tidies then
    answer[2] = text(looked_at)
    if is_end then answer[1] = 'end' end
  elseif not queue.waits then redis.call('HSET', state, 'waits', 1) end
end
return answer
