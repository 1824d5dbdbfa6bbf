-- exchange: settle what a worker finished in a pool, then lease it more lanes; the hot path, one call for both.
-- WITH rest away clock rate wake holder
-- KEYS settings ready entries leases owners later in_place high rate failed epochs tries outboxes outbox away away_lane regular_lane high_lane
-- ARGV now_ms worker ttl_ms want chunk quiet place call trims settlements …
--   place: of the worker among those that hear of this pool (2: it is not a home); at 0 it looks again after `due_ms`
--   call: the number of this call of this worker, under which the outbox keeps what it settles
--   then the number of each earlier call to trim, then each settlement: lane epoch release items item…
--   release: `keep` the lease, `ready` to give it back, the ms after which the lane may be leased again, or
--   after a failure cascade_ms SEP batch SEP queue: give it back, and nack what it holds of that batch with that delay,
--   or, where a queue is named, all that it holds of it: a source that holds groups shows none of it before the head;
--   or `h` and ms: its head failed and is tried again after them, while the lane waits in place; or `f` and ms: likewise,
--   as its endpoint refused the epoch. Of what waits in place the pool keeps a share, the rest goes back to its source
--   item: key SEP token SEP verdict, the key being queue SEP broker id
-- Returns {tag, due_ms, refused, yields, cascaded, claims, policy, tries, waits}
--   tag: `ok`, `paused` or `unknown`; due_ms: when something falls due, '' if nothing will
--   refused: indices of settlements with a stale epoch; yields: of those whose lease should end with the message
--   under way, as a high-priority one came or the limit was lowered; cascaded: items made for siblings, and for what went back
--   claims: lane epoch tier n … for each lease, and after them key value … for the messages of all
--   policy: on_failure park_after draining rated; rated: '1' if each message needs a permit
--   tries: place count … for those messages that failed in place before
--   waits: how many lanes wait for a permit of the rate limit since this call
local settings, ready, entries, leases, owners, later, in_place, high, rate, failed, epochs, tries, outboxes, outbox,
  away, away_lane, regular_lane, high_lane = unpack(KEYS)
local worker, ttl_ms, want, chunk = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local quiet, place, call = ARGV[6] == '1', tonumber(ARGV[7]), ARGV[8]
local trims, settlements = tonumber(ARGV[9]), tonumber(ARGV[10])
local now = time_ms(ARGV[1])
local FAILED_BATCH_MS = 60000 -- a batch is submitted whole long before that
local SWEEP = 100
local FENCED_MOST = 10 -- refusals in a row: at this many the lane's messages go back to their source for a while
local FENCED_BACK_MS = 30000

local config = redis.call('HMGET', settings, 'concurrency', 'rate', 'paused', 'waiting', 'capacity', 'on_failure',
  'park_after', 'draining', 'limited', 'clock', 'look', 'unrated')
local policy = { config[6] or 'return', config[7] or '', config[8] and '1' or '', config[2] and '1' or '' }

-- Redis may be full, and settling frees memory: a script that has written may go on, so free first.
local at = 10
local trimmed = { '' }
for i = 1, trims do trimmed[i] = ARGV[at + i] end
call_many('HDEL', outbox, trimmed)
at = at + trims
if config[1] then follow_clock(now, tonumber(config[10]), settings, { leases, later, failed, away }, rate) end

-- Settle ------------------------------------------------------------------------------------------

local function batch_of(value)
  local _, rest = head_of(value)
  return (head_of(rest))
end

-- Takes the failed message's siblings out of one list of its lane; returns how many stay.
local function cascade(list, batch, queue, delay_ms, moved, gone)
  local prefix = queue .. SEP
  local keys = redis.call('LRANGE', list, 0, -1)
  local values = read_many('HMGET', entries, keys)
  local stay = {}
  for i = 1, #keys do
    local of_queue = queue ~= '' and string.sub(keys[i], 1, #prefix) == prefix
    if values[i] and (of_queue or batch_of(values[i]) == batch) then
      moved[#moved + 1] = keys[i] .. SEP .. head_of(values[i]) .. SEP .. 'n' .. delay_ms
      gone[#gone + 1] = keys[i]
    else
      stay[#stay + 1] = keys[i]
    end
  end
  if #stay < #keys then
    redis.call('DEL', list)
    call_many('RPUSH', list, stay)
  end
  return #stay
end

-- Takes the settled messages off the head of their list. False if they are not there: they were settled before.
local function take(list, items, gone)
  local keys = redis.call('LPOP', list, #items)
  if not keys then return false end
  for i = 1, #items do
    local key = keys[i]
    if not key or string.sub(items[i], 1, #key + 1) ~= key .. SEP then
      local back = {}
      for j = #keys, 1, -1 do back[#back + 1] = keys[j] end
      redis.call('LPUSH', list, unpack(back))
      return false
    end
  end
  for i = 1, #keys do gone[#gone + 1] = keys[i] end
  return true
end

-- What stands in a list after the first `stay` goes back to its source, in order.
local function send_back(lane, tier, stay, delay_ms, moved, gone)
  local list = (tier == 'h' and high_lane or regular_lane) .. lane
  local keys = redis.call('LRANGE', list, stay, -1)
  if #keys == 0 then return end
  local values = read_many('HMGET', entries, keys)
  local ordered = {}
  for i = #keys, 1, -1 do
    if keeps_order(lane, values[i], policy[1]) then ordered[#ordered + 1] = keys[i] end
  end
  for i = 1, #keys do
    moved[#moved + 1] = keys[i] .. SEP .. head_of(values[i]) .. SEP .. 'n' .. text(delay_ms)
    gone[#gone + 1] = keys[i]
  end
  if stay > 0 then redis.call('LTRIM', list, 0, stay - 1) else redis.call('DEL', list) end
  if stay == 0 and tier == 'h' then redis.call('SREM', high, lane) end
  if #ordered > 0 then send_away(away, away_lane, tier .. lane, 'LPUSH', ordered, now + delay_ms) end
end

local new_due = math.huge -- the soonest of what this call leaves to fall due

-- A lane waits for its head. It must not fill the pool, and neither must all lanes that wait.
local function rest_or_go_back(lane, delay_ms, back_ms, stays, moved, gone)
  local capacity = tonumber(config[5] or 0)
  local most = math.min(part_of(capacity, LANE_SHARE), part_of(capacity, REST_SHARE) - resting(in_place))
  if not stays or most < 1 then
    send_back(lane, 'h', 0, back_ms, moved, gone)
    send_back(lane, 'r', 0, back_ms, moved, gone)
    return
  end
  local highs = redis.call('LLEN', high_lane .. lane)
  send_back(lane, 'r', math.max(most - highs, highs > 0 and 0 or 1), delay_ms, moved, gone)
  rest_until(later, in_place, lane, now + delay_ms, highs + redis.call('LLEN', regular_lane .. lane))
  new_due = math.min(new_due, now + delay_ms)
end

local function is_empty(lane)
  return redis.call('EXISTS', regular_lane .. lane, high_lane .. lane) == 0
end

local any_high = redis.call('EXISTS', high) == 1
local any_tries = redis.call('EXISTS', tries) == 1
local refused, yields, cascaded, settled, gone, freed, again = {}, {}, {}, {}, {}, {}, {}
local row_ended = {} -- lanes in which something other than a refused epoch came last
local plans, lanes = {}, {}
for i = 1, settlements do
  local items = {}
  local n = tonumber(ARGV[at + 4])
  for j = 1, n do items[j] = ARGV[at + 4 + j] end
  lanes[i] = ARGV[at + 1]
  plans[i] = { epoch = ARGV[at + 2], release = ARGV[at + 3], items = items }
  at = at + 4 + n
end
local holders = read_many('HMGET', owners, lanes)
-- If the limit was lowered, leases above it end with the message that is under way, not with all they took.
local over = config[1] and redis.call('ZCARD', leases) - tonumber(config[1]) or 0
-- A repeated call: what stands at the heads now may be the same messages, taken from their source again.
local said_before = redis.call('HEXISTS', outbox, call) == 1
local released = {}
local unrated = config[2] and tonumber(config[12] or 0) or 0
local unpermitted = 0
for i = 1, settlements do
  local plan, lane, holder = plans[i], lanes[i], holders[i]
  local epoch, tier
  if holder then epoch, tier = held_under(holder, worker) end
  if epoch ~= plan.epoch or released[lane] then
    refused[#refused + 1] = i
  else
    local list = (tier == 'h' and high_lane or regular_lane) .. lane
    local release, cascade_ms, batch, queue = plan.release, nil, nil, nil
    if string.find(release, SEP, 1, true) then
      local what
      cascade_ms, what = head_of(release)
      batch, queue = head_of(what)
      release = 'ready'
    end
    if tonumber(epoch) <= unrated and not said_before then
      unpermitted = unpermitted + #plan.items + (release == 'keep' and 1 or 0) -- and the next, perhaps begun already
    end
    if #plan.items > 0 and not said_before and take(list, plan.items, gone) then
      for j = 1, #plan.items do settled[#settled + 1] = plan.items[j] end
      if any_tries then row_ended[lane] = true end
      if cascade_ms then
        redis.call('ZREMRANGEBYSCORE', failed, '-inf', now)
        redis.call('ZADD', failed, now + FAILED_BATCH_MS, batch .. SEP .. lane)
        redis.call('PEXPIRE', failed, FAILED_BATCH_MS)
        if cascade(high_lane .. lane, batch, queue, cascade_ms, cascaded, gone) == 0 then
          redis.call('SREM', high, lane)
        end
        cascade(regular_lane .. lane, batch, queue, cascade_ms, cascaded, gone)
      end
    end
    if tier == 'h' and redis.call('EXISTS', list) == 0 then redis.call('SREM', high, lane) end
    if release == 'keep' then
      if over > 0 then
        over = over - 1
        yields[#yields + 1] = i
      elseif any_high and tier == 'r' and redis.call('SISMEMBER', high, lane) == 1 then
        yields[#yields + 1] = i
      end
    else
      freed[#freed + 1] = lane
      released[lane] = true
      if not is_empty(lane) then
        if release == 'ready' then
          again[#again + 1] = lane
        else
          local kind, delay_ms = string.match(release, '^(%a?)(%d+)$')
          delay_ms = tonumber(delay_ms)
          local back_ms, stays = delay_ms, true
          if kind == 'h' then
            local head = redis.call('LINDEX', list, 0)
            if head then redis.call('HINCRBY', tries, head, 1) end
          elseif kind == 'f' then
            -- Counted under a name that no message has: for the lane, whatever is at its head.
            if row_ended[lane] then redis.call('HDEL', tries, SEP .. lane) end
            row_ended[lane] = nil
            stays = redis.call('HINCRBY', tries, SEP .. lane, 1) < FENCED_MOST
            back_ms = math.max(delay_ms, FENCED_BACK_MS)
          end
          any_tries = any_tries or kind ~= ''
          rest_or_go_back(lane, delay_ms, back_ms, stays, cascaded, gone)
          if kind == 'f' and is_empty(lane) then row_ended[lane] = true end
        end
      end
    end
  end
end
if unpermitted > 0 then give_permits(rate, unpermitted, now) end
for i = 1, #cascaded do settled[#settled + 1] = cascaded[i] end
if #gone > 0 then
  call_many('HDEL', entries, gone)
  if any_tries then call_many('HDEL', tries, gone) end
end
if any_tries then
  local counts = {}
  for lane in pairs(row_ended) do counts[#counts + 1] = SEP .. lane end
  call_many('HDEL', tries, counts)
end
if #freed > 0 then
  call_many('ZREM', leases, freed)
  call_many('HDEL', owners, freed)
end
if #again > 0 then call_many('RPUSH', ready, again) end
if #settled > 0 then
  redis.call('HSET', outbox, call, table.concat(settled, '\30'))
  redis.call('SADD', outboxes, worker)
elseif trims > 0 and redis.call('EXISTS', outbox) == 0 then
  redis.call('SREM', outboxes, worker)
end

-- Claim -------------------------------------------------------------------------------------------

local concurrency, per_minute = tonumber(config[1]), tonumber(config[2])
if not concurrency then return { 'unknown', '', refused, yields, cascaded, {}, policy, {}, 0 } end

-- A consumer that found the pool full is told when a quarter of it, or a share, has room again.
if config[4] and #gone > 0 then
  local room = tonumber(config[5]) - redis.call('HLEN', entries)
  if room >= tonumber(config[4]) then
    redis.call('HDEL', settings, 'waiting')
    redis.call('PUBLISH', 'fleet:room', code_of(settings))
  end
end

-- Leases whose holder did not renew them: their messages are still at the head of their lists.
local lapsed = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, SWEEP)
if #lapsed > 0 then
  redis.call('ZREM', leases, unpack(lapsed))
  redis.call('HDEL', owners, unpack(lapsed))
  for i = #lapsed, 1, -1 do
    if not is_empty(lapsed[i]) then redis.call('LPUSH', ready, lapsed[i]) end
  end
end
local due = redis.call('ZRANGEBYSCORE', later, '-inf', now, 'LIMIT', 0, SWEEP)
if #due > 0 then
  rise(later, in_place, due)
  redis.call('RPUSH', ready, unpack(due))
end
if config[3] then return { 'paused', '', refused, yields, cascaded, {}, policy, {}, 0 } end

local leased = redis.call('ZCARD', leases)
local take_lanes = math.min(want, concurrency - leased)
local rate_wait_ms, permits
if per_minute then
  chunk = 1
  while true do
    local oldest = redis.call('LINDEX', rate, -1)
    if not oldest or tonumber(oldest) > now - RATE_WINDOW_MS then break end
    redis.call('RPOP', rate)
  end
  local used = redis.call('LLEN', rate)
  permits = per_minute - used
  if permits <= 0 then
    -- After the limit was lowered more than one permit has to lapse before the next is given.
    rate_wait_ms = tonumber(redis.call('LINDEX', rate, permits - 1)) + RATE_WINDOW_MS - now
  end
  take_lanes = math.min(take_lanes, permits)
end

local claims, claimed, failed_before = {}, 0, {}
if take_lanes > 0 then
  local taken = redis.call('LPOP', ready, take_lanes)
  if taken then
    claimed = #taken
    -- No lane is left waiting for a slot: what is here may be taken in longer runs, with fewer calls.
    if claimed < take_lanes and not permits then chunk = chunk * 4 end
    local epoch = next_epoch(tonumber(redis.call('HGET', epochs, 'last') or 0), now) - 1
    local deadlines, holder, keys, tiers, counts = {}, {}, {}, {}, {}
    for i = 1, claimed do
      local lane = taken[i]
      local tier, listed = 'r', nil
      if any_high then
        listed = redis.call('LRANGE', high_lane .. lane, 0, chunk - 1)
        if #listed > 0 then tier = 'h' end
      end
      if tier == 'r' then listed = redis.call('LRANGE', regular_lane .. lane, 0, chunk - 1) end
      epoch = epoch + 1
      deadlines[2 * i - 1], deadlines[2 * i] = now + ttl_ms, lane
      holder[2 * i - 1], holder[2 * i] = lane, holder_of(epoch, tier, worker)
      tiers[i], counts[i] = tier, #listed
      for j = 1, #listed do keys[#keys + 1] = listed[j] end
    end
    local values = read_many('HMGET', entries, keys)
    local n, first = 0, epoch - claimed
    for i = 1, claimed do
      claims[n + 1], claims[n + 2], claims[n + 3], claims[n + 4] = taken[i], text(first + i), tiers[i], counts[i]
      n = n + 4
    end
    for i = 1, #keys do claims[n + 1], claims[n + 2] = keys[i], values[i]; n = n + 2 end
    if any_tries then
      for i, count in ipairs(read_many('HMGET', tries, keys)) do
        if count then
          failed_before[#failed_before + 1] = i
          failed_before[#failed_before + 1] = tonumber(count)
        end
      end
    end
    redis.call('HSET', epochs, 'last', text(epoch))
    call_many('ZADD', leases, deadlines, 2)
    new_due = math.min(new_due, now + ttl_ms)
    call_many('HSET', owners, holder, 2)
    if permits then give_permits(rate, claimed, now) end
  end
end

-- A lane that waits for a permit is counted once: those at the head of the list were counted before.
local limited, waits = tonumber(config[9] or 0), 0
local still_limited = 0
if permits then
  still_limited = math.max(0, limited - claimed)
  if permits <= claimed and leased + claimed < concurrency then
    local waiting = redis.call('LLEN', ready)
    waits = math.max(0, waiting - still_limited)
    still_limited = waiting
  end
end
if still_limited ~= limited then redis.call('HSET', settings, 'limited', still_limited) end

-- Work is left that this worker does not take: an idle one may.
if not quiet and claimed == want and leased + claimed < concurrency and (not permits or permits > claimed) then
  local left = redis.call('LLEN', ready)
  if left > 0 then
    if place > 0 then wake(settings, left) end
    wake_others(settings, math.max(1, 2 * place), left)
  end
end

-- When a worker has to look again: lanes wait for a permit, or for the end of a lease or of a delay.
if permits and claimed == permits then
  rate_wait_ms = tonumber(redis.call('LINDEX', rate, -1)) + RATE_WINDOW_MS - now
end
if rate_wait_ms and redis.call('EXISTS', ready) == 1 then new_due = math.min(new_due, now + rate_wait_ms) end
local look, due_ms = tonumber(config[11]), ''
if place == 0 then
  for _, set in ipairs({ leases, later }) do
    local next_one = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')
    if next_one[2] then new_due = math.min(new_due, tonumber(next_one[2]) + 1) end
  end
  -- A promise stands as long as it is soon enough: leases are renewed all the time.
  if new_due == math.huge then
    if look then redis.call('HDEL', settings, 'look') end
  else
    if not look or look <= now or look > new_due then
      look = math.max(now + 1, new_due)
      redis.call('HSET', settings, 'look', text(look))
    end
    due_ms = text(look - now)
  end
elseif new_due < math.huge then
  tell_due(settings, look, new_due, now)
end
return { 'ok', due_ms, refused, yields, cascaded, claims, policy, failed_before, waits }
