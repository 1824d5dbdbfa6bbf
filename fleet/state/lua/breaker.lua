-- breaker: open, probe, judge or reset the circuit breaker of one origin, for the whole fleet.
-- KEYS breakers breakers_seen
-- ARGV now_ms verb origin worker epoch open_ms permit_ms successes idle_ms most
--   verb: `open`, `ask` (for the permit to probe), `renew`, `success`, `failure`, `release` (the permit) or `reset`
--   origin: '' with `reset` is all of them; epoch: of the permit, else ''; successes: so many close it
--   idle_ms, most: a breaker that nobody has asked about for so long is forgotten, and so are those beyond so many
-- Returns {tag, now_ms, left_ms, successes, epoch}
--   tag: `closed` | `open` (for left_ms) | `half` (may be probed) | `taken` (is being probed)
--        | `granted` (the permit, under this epoch) | `kept` (the permit was renewed)
local breakers, breakers_seen = KEYS[1], KEYS[2]
local now, verb, origin, worker, epoch = time_ms(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local open_ms, permit_ms, successes = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])

local function say(tag, left_ms, count)
  redis.call('PUBLISH', 'fleet:breaker', table.concat({ origin, tag, text(now), text(left_ms), text(count) }, SEP))
end

local function answer(tag, left_ms, count, granted)
  return { tag, text(now), text(left_ms or 0), text(count or 0), granted or '' }
end

if verb == 'reset' then
  if origin == '' then
    redis.call('DEL', breakers, breakers_seen)
  else
    redis.call('HDEL', breakers, origin)
    redis.call('ZREM', breakers_seen, origin)
  end
  say('closed', 0, 0)
  return answer('closed')
end

-- Only breakers that are not closed are kept: until, successes, prober, epoch, its deadline, since, openings.
local is
local record = redis.call('HGET', breakers, origin)
if record then
  is = {}
  for field in string.gmatch(record .. SEP, '([^\31]*)\31') do is[#is + 1] = field end
end

local function keep()
  redis.call('HSET', breakers, origin, table.concat(is, SEP))
  redis.call('ZADD', breakers_seen, text(now), origin)
end

-- Further away than it can be: the clock stepped back.
if is then
  local is_ahead, is_lent = tonumber(is[1]) > now + math.max(open_ms, 60000), tonumber(is[5]) > now + permit_ms
  if is_ahead then is[1] = text(now + open_ms) end
  if is_lent then is[5] = text(now + permit_ms) end
  if is_ahead or is_lent then keep() end
end

local function forget(origins)
  for i = 1, #origins do
    redis.call('HDEL', breakers, origins[i])
    redis.call('ZREM', breakers_seen, origins[i])
  end
end

local function free_permit()
  is[3], is[5] = '', '0'
end

local function open()
  is[1], is[2], is[7] = text(now + open_ms), '0', text(tonumber(is[7]) + 1)
  free_permit()
  keep()
  say('open', open_ms, 0)
  return answer('open', open_ms)
end

local function present()
  if not is then return answer('closed') end
  local until_ms, deadline = tonumber(is[1]), tonumber(is[5])
  if until_ms > now then return answer('open', until_ms - now) end
  if is[3] ~= '' and deadline > now then return answer('taken', deadline - now, tonumber(is[2])) end
  return answer('half', 0, tonumber(is[2]))
end

if verb == 'open' then
  -- Another worker was quicker. But a failure once it is half-open opens it again.
  if is and tonumber(is[1]) > now then return present() end
  if not is then
    is = { '0', '0', '', '0', '0', text(now), '0' }
    forget(redis.call('ZRANGEBYSCORE', breakers_seen, '-inf', text(now - tonumber(ARGV[9])), 'LIMIT', 0, 100))
    local beyond = redis.call('HLEN', breakers) - tonumber(ARGV[10])
    if beyond >= 0 then forget(redis.call('ZRANGE', breakers_seen, 0, beyond)) end
  end
  return open()
end

if verb == 'ask' then
  local found = present()
  -- If its holder asks again, the reply to the earlier grant was lost: that grant is void.
  if found[1] ~= 'half' and not (found[1] == 'taken' and is[3] == worker) then return found end
  is[3], is[4], is[5] = worker, text(next_epoch(tonumber(is[4]), now)), text(now + permit_ms)
  keep()
  return answer('granted', permit_ms, tonumber(is[2]), is[4])
end

-- All other verbs are for the holder of the permit. One whose permit lapsed is heard until another worker has it: it
-- did probe.
if not is or is[3] ~= worker or is[4] ~= epoch then return present() end
if verb == 'renew' then
  if tonumber(is[5]) <= now then return present() end
  is[5] = text(now + permit_ms)
  keep()
  return answer('kept', permit_ms, tonumber(is[2]), epoch)
end
if verb == 'failure' then return open() end
free_permit()
if verb == 'success' then
  is[2] = text(tonumber(is[2]) + 1)
  if tonumber(is[2]) >= successes then
    forget({ origin })
    say('closed', 0, 0)
    return answer('closed')
  end
end
keep()
return present()
