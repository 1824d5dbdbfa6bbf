-- adjust: change by hand how a pool delivers; it holds until a new revision of the configuration.
-- WITH rate changed clock wake
-- KEYS settings leases ready later in_place rate epochs
-- ARGV now_ms concurrency rate draining per_slot least
--   concurrency: '' to leave it; rate: '' to leave it, 0 for none; draining: '' to leave it, '1' or '0'
--   per_slot, least: the capacity that a concurrency implies, if no other was given
-- Returns {tag, concurrency, capacity, rate, 1 if anything changed}
--   tag: `ok`, `unknown`, or `gone`: it drains because it is not configured any more, and cannot be opened
local settings, leases, ready, later, in_place, rate, epochs = unpack(KEYS)
local is = redis.call('HMGET', settings, 'concurrency', 'capacity', 'rate', 'draining', 'revision', 'clock')
local now = pool_time(ARGV[1], is[6])
if not is[1] then return { 'unknown', '', '', '', 0 } end
local adjusted = string.find(is[5], '.', 1, true)
local given_up = is[4] and not adjusted
if given_up and ARGV[4] == '0' then return { 'gone', is[1], is[2], is[3] or '', 0 } end

local function implied(concurrency)
  return text(math.max(tonumber(ARGV[5]) * tonumber(concurrency), tonumber(ARGV[6])))
end

local had_rate = is[3]
local before = table.concat({ is[1], is[2], is[3] or '', is[4] or '' }, SEP)
if ARGV[2] ~= '' then
  -- The capacity never shrinks: what is on its way here would go back to its queue for a while.
  if is[2] == implied(is[1]) and tonumber(ARGV[2]) > tonumber(is[1]) then is[2] = implied(ARGV[2]) end
  is[1] = ARGV[2]
end
if ARGV[3] ~= '' then is[3] = ARGV[3] ~= '0' and ARGV[3] end
if ARGV[4] ~= '' then is[4] = ARGV[4] == '1' and '1' end
local changed = before ~= table.concat({ is[1], is[2], is[3] or '', is[4] or '' }, SEP)
if not changed then return { 'ok', is[1], is[2], is[3] or '', 0 } end

redis.call('HSET', settings, 'concurrency', is[1], 'capacity', is[2])
note_pool_time(settings, now, is[6])
for _, optional in ipairs({ { 'rate', is[3] }, { 'draining', is[4] } }) do
  if optional[2] then
    redis.call('HSET', settings, optional[1], optional[2])
  else
    redis.call('HDEL', settings, optional[1])
  end
end
-- Half a revision above its own: to publish that one again changes nothing here, the next one does. A pool that is no
-- longer configured needs no such mark: a syncer keeps what it has, and with the mark it would never be removed.
if not adjusted and not given_up then redis.call('HSET', settings, 'revision', is[5] .. '.5') end
if redis.call('HDEL', settings, 'waiting') == 1 then redis.call('PUBLISH', 'fleet:room', code_of(settings)) end
tell_holders(settings, leases, rate, is[3] and not had_rate, now, epochs)
-- As when the configuration drops it: no lane waits in a pool that is to become empty.
if ARGV[4] == '1' then
  local waiting = redis.call('ZRANGE', later, 0, -1)
  redis.call('DEL', later, in_place)
  if #waiting > 0 then call_many('RPUSH', ready, waiting) end
end
local lanes = redis.call('LLEN', ready)
if lanes > 0 and redis.call('ZCARD', leases) < tonumber(is[1]) then wake(settings, lanes) end
return { 'ok', is[1], is[2], is[3] or '', 1 }
