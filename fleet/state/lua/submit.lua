-- submit: append messages of one source queue to their lanes, in shares taken or refused whole.
-- WITH rest away clock wake
-- KEYS settings ready entries leases later in_place high failed epochs away away_lane regular_lane high_lane
-- ARGV now_ms queue owner_epoch call share full_ms grace_ms entry …, five fields an entry: key lane tier batch value
--   call: its number. If it is below the one that the owner fenced (`fence.lua`), the owner gave this call up
--   full_ms: after how long what does not fit comes again; grace_ms: how much later than expected what is away may come
-- Returns {tag, accepted, room, cascaded, behind}
--   tag: `ok`, or why nothing was taken: `unknown` pool, `draining`, `stale` owner or call
--   accepted: how many from the front were taken (or were queued already); the rest did not fit
--   cascaded: indices of those whose batch has failed in their lane meanwhile, not taken
--   behind: index ms …, of those not taken because older messages of their lane are away, or because their lane waits
--   in place and has its share of the pool; they may come again after that
local settings, ready, entries, leases, later, in_place, high, failed, epochs, away, away_lane, regular_lane,
  high_lane = unpack(KEYS)
local queue, owner_epoch, call, share = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local full_ms, grace_ms = tonumber(ARGV[6]), tonumber(ARGV[7])
local FIELDS = 5
local LEAST_MS = 1000 -- what comes too early comes again soon, but not over and over at once
local count = (#ARGV - 7) / FIELDS

local config = redis.call('HMGET', settings, 'concurrency', 'capacity', 'draining', 'paused', 'promised',
  'promised_until', 'on_failure', 'clock')
local now = pool_time(ARGV[1], config[8])
if config[1] and config[3] then return { 'draining', 0, 0, {}, {} } end

-- A queue's new owner raises this before it reconciles: whatever an older one still sends is refused.
local fence = redis.call('HMGET', epochs, 'q:' .. queue, 'n:' .. queue)
local known = tonumber(fence[1] or 0)
local given_up = owner_epoch == known and call < tonumber(fence[2] or 0)
if owner_epoch < known or given_up then return { 'stale', 0, 0, {}, {} } end

-- What is away ------------------------------------------------------------------------------------

-- For each lane and tier in this call: the keys that are away, from `at` on, and what this call adds to them.
local marks, names = {}, {}
local any_away = redis.call('EXISTS', away) == 1
local any_marks = any_away

local function mark_of(name)
  local mark = marks[name]
  if mark == nil then
    mark = { at = 1, keys = {}, due = now }
    local due = any_away and redis.call('ZSCORE', away, name)
    -- In a pool that is unknown no due time counts: see below.
    local late = config[1] and due and now > tonumber(due) + grace_ms
    local since = late and tonumber(redis.call('ZSCORE', away, second_chance(name)) or 0) or 0
    if due then
      mark.keys = redis.call('LRANGE', away_lane .. name, 0, -1)
      mark.late, mark.known = late, {}
      -- A second chance from before the due time was put off is over.
      mark.since = late and since > tonumber(due) + grace_ms
      if mark.since then
        for _, key in ipairs(redis.call('SMEMBERS', away_lane .. second_chance(name))) do mark.known[key] = true end
        mark.void = now > since + grace_ms
      end
      if mark.void then
        -- Its source lost or dropped it. The lane goes on with what came meanwhile, or comes now, in its order.
        for i = 1, count do mark.known[ARGV[7 + (i - 1) * FIELDS + 1]] = true end
        local kept = {}
        for _, key in ipairs(mark.keys) do
          if mark.known[key] then kept[#kept + 1] = key end
        end
        mark.keys = kept
      else
        mark.due = tonumber(due)
      end
    end
    mark.before = mark.void and 0 or #mark.keys
    mark.there, mark.came = {}, {}
    for i = 1, #mark.keys do mark.there[mark.keys[i]] = true end
    marks[name] = mark
    names[#names + 1] = name
  end
  return mark
end

-- It goes back to its source, and whatever comes after it waits for it.
local function note_away(name, key, due_ms)
  local mark = mark_of(name)
  any_marks = true
  if not mark.there[key] and #mark.keys < AWAY_MOST then
    mark.there[key] = true
    mark.keys[#mark.keys + 1] = key
  end
  if mark.late and mark.there[key] and not mark.known[key] then
    mark.known[key] = true
    mark.came[#mark.came + 1] = key
  end
  if due_ms > mark.due then mark.due, mark.changed = due_ms, true end
end

local function note_refused(from, on_failure, due_ms)
  for i = from, count do
    local base = 7 + (i - 1) * FIELDS
    if keeps_order(ARGV[base + 2], ARGV[base + 5], on_failure)
      and redis.call('HEXISTS', entries, ARGV[base + 1]) == 0 then
      local name, key = ARGV[base + 3] .. ARGV[base + 2], ARGV[base + 1]
      local mark = mark_of(name)
      -- What waits for the first that is away does not put off the end of that wait: the pool may be full for ever.
      local first = mark.keys[mark.at]
      note_away(name, key, (not first or first == key) and due_ms or 0)
    end
  end
end

local function write_marks()
  for _, name in ipairs(names) do
    local mark = marks[name]
    if mark.void then redis.call('DEL', away_lane .. name) end
    if mark.at > 1 and mark.before > 0 then redis.call('LTRIM', away_lane .. name, mark.at - 1, -1) end
    if mark.void or mark.at > 1 then
      end_chance(away, away_lane, name)
    elseif mark.late then
      if not mark.since then
        end_chance(away, away_lane, name)
        note_pool_time(settings, now, config[8])
        redis.call('ZADD', away, text(now), second_chance(name))
      end
      if #mark.came > 0 then
        call_many('SADD', away_lane .. second_chance(name), mark.came)
        redis.call('PEXPIRE', away_lane .. second_chance(name), AWAY_TTL_MS)
      end
    end
    if mark.at > #mark.keys then
      if mark.void or mark.before > 0 then redis.call('ZREM', away, name) end
    elseif #mark.keys > mark.before or mark.changed then
      local more = {}
      for i = math.max(mark.at, mark.before + 1), #mark.keys do more[#more + 1] = mark.keys[i] end
      note_pool_time(settings, now, config[1] and config[8])
      send_away(away, away_lane, name, 'RPUSH', more, mark.due)
    end
  end
end

if not config[1] then
  -- The pool that is configured next under this code gets them in their order. No due time is noted: a pool that is
  -- unknown follows no clock, and after a clock stepped back by an hour they would only be due in an hour.
  note_refused(1, 'hold', 0)
  for _, name in ipairs(names) do
    if marks[name].before == 0 then marks[name].due = 0 end
  end
  write_marks()
  return { 'unknown', 0, 0, {}, {} }
end
if owner_epoch > known then
  redis.call('HSET', epochs, 'q:' .. queue, ARGV[3])
  if fence[2] then redis.call('HDEL', epochs, 'n:' .. queue) end
end

-- What is taken -----------------------------------------------------------------------------------

local any_failed = redis.call('EXISTS', failed) == 1
local capacity = tonumber(config[2])
local most = tonumber(config[6] or 0) > now and math.max(capacity, tonumber(config[5])) or capacity
local queued = redis.call('HLEN', entries)

-- Lanes that rest, and what of this call would join them.
local at_rest, rests, resting_now = {}, redis.call('EXISTS', in_place) == 1, 0
if rests then resting_now = resting(in_place) end
-- A share that cannot fit would be refused for ever, as what rests may rest for long.
share = math.max(1, math.min(share, most - resting_now))
local function resting_lane(lane)
  local resting = at_rest[lane]
  if resting == nil then
    local messages = redis.call('HGET', in_place, lane)
    resting = messages and { messages = tonumber(messages), more = 0, until_ms = redis.call('ZSCORE', later, lane) }
    at_rest[lane] = resting
  end
  return resting
end

local cascaded, behind, fresh, pushes, order = {}, {}, {}, {}, {}
local accepted = 0
for first = 1, count, share do
  local last = math.min(first + share - 1, count)
  local keys = {}
  for i = first, last do keys[#keys + 1] = ARGV[7 + (i - 1) * FIELDS + 1] end
  local there = redis.call('HMGET', entries, unpack(keys))
  local share_fresh, share_cascaded, share_behind, seen, back, grown = {}, {}, {}, {}, {}, {}
  local share_away = {} -- noted once the share is taken: if it is refused, all of it is noted in its order
  local held_back = {} -- lanes of which something waits: what comes after it in this share waits as well
  for i = first, last do
    local key = keys[i - first + 1]
    if not there[i - first + 1] and not seen[key] then
      local base = 7 + (i - 1) * FIELDS
      local lane, tier = ARGV[base + 2], ARGV[base + 3]
      local name = tier .. lane
      seen[key] = true
      local until_ms = any_failed and redis.call('ZSCORE', failed, ARGV[base + 4] .. SEP .. lane)
      local mark = any_marks and mark_of(name)
      local next_away = mark and mark.keys[mark.at + (back[mark] or 0)]
      local resting = rests and resting_lane(lane)
      local full = resting and (resting.messages + resting.more >= part_of(capacity, LANE_SHARE)
        or resting_now >= part_of(capacity, REST_SHARE))
      if until_ms and tonumber(until_ms) > now then
        share_cascaded[#share_cascaded + 1] = i
      elseif full or next_away ~= key and (next_away or held_back[name]) then
        local due_ms = full and tonumber(resting.until_ms or now) or held_back[name] or mark.due
        share_behind[#share_behind + 1] = { i, math.max(LEAST_MS, due_ms - now), due_ms, name, key }
        if next_away or held_back[name] or keeps_order(lane, ARGV[base + 5], config[7]) then
          share_away[#share_away + 1] = { name, key, full and due_ms or 0 }
          held_back[name] = math.max(due_ms, held_back[name] or 0)
        end
      else
        if next_away then back[mark] = (back[mark] or 0) + 1 end
        if resting then
          resting.more, resting_now = resting.more + 1, resting_now + 1
          grown[#grown + 1] = resting
        end
        share_fresh[#share_fresh + 1] = base
      end
    end
  end
  -- What the pool holds already is accepted, even beyond a capacity that was lowered since.
  if #share_fresh > 0 and queued + #share_fresh > most then
    for _, resting in ipairs(grown) do resting.more = resting.more - 1 end
    note_refused(first, config[7], now + full_ms)
    break
  end
  queued = queued + #share_fresh
  accepted = last
  for mark, n in pairs(back) do
    mark.at, mark.due = mark.at + n, math.max(mark.due, now)
    mark.changed = true
  end
  for _, one in ipairs(share_away) do note_away(unpack(one)) end
  for _, i in ipairs(share_cascaded) do cascaded[#cascaded + 1] = i end
  for _, one in ipairs(share_behind) do behind[#behind + 1], behind[#behind + 2] = one[1], one[2] end
  for _, base in ipairs(share_fresh) do
    local key, lane, tier = ARGV[base + 1], ARGV[base + 2], ARGV[base + 3]
    fresh[#fresh + 1], fresh[#fresh + 2] = key, ARGV[base + 5]
    local list = (tier == 'h' and high_lane or regular_lane) .. lane
    if not pushes[list] then
      pushes[list] = { lane = lane, tier = tier }
      order[#order + 1] = list
    end
    local push = pushes[list]
    push[#push + 1] = key
  end
end

if #fresh > 0 then
  call_many('HSET', entries, fresh, 2)
  local begun, was_empty = {}, {}
  for _, list in ipairs(order) do
    local push = pushes[list]
    if call_many('RPUSH', list, push) == #push then
      if not was_empty[push.lane] then
        was_empty[push.lane] = true
        begun[#begun + 1] = push.lane
      end
      if push.tier == 'h' then redis.call('SADD', high, push.lane) end
    elseif was_empty[push.lane] == nil then
      was_empty[push.lane] = false
    end
  end
  -- A lane with messages is in exactly one of ready, leases and later. It enters ready here only if
  -- both its lists were empty and no worker leases it still.
  local idle = {}
  local any_high = redis.call('EXISTS', high) == 1
  for from = 1, #begun, 1000 do
    local part = { unpack(begun, from, math.min(from + 999, #begun)) }
    local leased = redis.call('ZMSCORE', leases, unpack(part))
    local delayed = redis.call('ZMSCORE', later, unpack(part))
    for i, lane in ipairs(part) do
      local other = false
      if any_high then
        for _, prefix in ipairs({ regular_lane, high_lane }) do
          local push = pushes[prefix .. lane]
          if redis.call('LLEN', prefix .. lane) > (push and #push or 0) then other = true end
        end
      end
      if not leased[i] and not delayed[i] and not other then idle[#idle + 1] = lane end
    end
  end
  for lane, resting in pairs(at_rest) do
    if resting and resting.more > 0 then
      redis.call('HINCRBY', in_place, lane, resting.more)
      redis.call('HINCRBY', in_place, SEP, resting.more)
    end
  end
  if #idle > 0 then
    local lanes = call_many('RPUSH', ready, idle)
    if not config[4] and redis.call('ZCARD', leases) < tonumber(config[1]) then wake(settings, lanes) end
  end
end
-- Only now: a script whose first write frees may go on writing when Redis is full, and this one must not.
write_marks()
if any_failed then redis.call('ZREMRANGEBYSCORE', failed, '-inf', now) end
return { 'ok', accepted, math.max(0, capacity - queued), cascaded, behind }
