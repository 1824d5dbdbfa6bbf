-- submit: append messages of one source queue to their groups' queues, in shares taken or refused whole.
-- KEYS settings ready entries leases later high failed epochs regular_group high_group
-- ARGV now_ms queue owner_epoch share entry …, five fields an entry: key group tier batch value
-- Returns {tag, accepted, room, cascaded}
--   tag: `ok`, or why nothing was taken: `unknown` pool, `draining`, `stale` owner
--   accepted: how many from the front were taken (or were held already); the rest did not fit
--   cascaded: indices of those whose batch and group has failed meanwhile, not taken
local settings, ready, entries, leases, later, high, failed, epochs, regular_group, high_group = unpack(KEYS)
local now, queue, owner_epoch, share = time_ms(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local FIELDS = 5
local count = (#ARGV - 4) / FIELDS

local config = redis.call('HMGET', settings, 'concurrency', 'capacity', 'draining', 'paused', 'promised',
  'promised_until')
if not config[1] then return { 'unknown', 0, 0, {} } end
if config[3] then return { 'draining', 0, 0, {} } end

-- A queue's new owner raises this before it reconciles: whatever an older one still sends is refused.
local known = tonumber(redis.call('HGET', epochs, 'q:' .. queue) or 0)
if owner_epoch < known then return { 'stale', 0, 0, {} } end
if owner_epoch > known then redis.call('HSET', epochs, 'q:' .. queue, ARGV[3]) end

local any_failed = redis.call('EXISTS', failed) == 1
local capacity = tonumber(config[2])
local most = tonumber(config[6] or 0) > now and math.max(capacity, tonumber(config[5])) or capacity
share = math.max(1, math.min(share, most)) -- a share that could never fit would be refused for ever
local held = redis.call('HLEN', entries)

local cascaded, fresh, pushes, order = {}, {}, {}, {}
local accepted = 0
for first = 1, count, share do
  local last = math.min(first + share - 1, count)
  local keys = {}
  for i = first, last do keys[#keys + 1] = ARGV[4 + (i - 1) * FIELDS + 1] end
  local there = redis.call('HMGET', entries, unpack(keys))
  local share_fresh, share_cascaded, seen = {}, {}, {}
  for i = first, last do
    local key = keys[i - first + 1]
    if not there[i - first + 1] and not seen[key] then
      local base = 4 + (i - 1) * FIELDS
      seen[key] = true
      local until_ms = any_failed and redis.call('ZSCORE', failed, ARGV[base + 4] .. SEP .. ARGV[base + 2])
      if until_ms and tonumber(until_ms) > now then
        share_cascaded[#share_cascaded + 1] = i
      else
        share_fresh[#share_fresh + 1] = base
      end
    end
  end
  -- What the pool holds already is accepted, also beyond a capacity that was lowered since.
  if #share_fresh > 0 and held + #share_fresh > most then break end
  held = held + #share_fresh
  accepted = last
  for _, i in ipairs(share_cascaded) do cascaded[#cascaded + 1] = i end
  for _, base in ipairs(share_fresh) do
    local key, group, tier = ARGV[base + 1], ARGV[base + 2], ARGV[base + 3]
    fresh[#fresh + 1], fresh[#fresh + 2] = key, ARGV[base + 5]
    local list = (tier == 'h' and high_group or regular_group) .. group
    if not pushes[list] then
      pushes[list] = { group = group, tier = tier }
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
      if not was_empty[push.group] then
        was_empty[push.group] = true
        begun[#begun + 1] = push.group
      end
      if push.tier == 'h' then redis.call('SADD', high, push.group) end
    elseif was_empty[push.group] == nil then
      was_empty[push.group] = false
    end
  end
  -- A group with messages is in exactly one of ready, leases and later. It enters ready here only if
  -- both its lists were empty and nobody leases it still.
  local wake = {}
  local any_high = redis.call('EXISTS', high) == 1
  for from = 1, #begun, 1000 do
    local part = { unpack(begun, from, math.min(from + 999, #begun)) }
    local leased = redis.call('ZMSCORE', leases, unpack(part))
    local delayed = redis.call('ZMSCORE', later, unpack(part))
    for i, group in ipairs(part) do
      local other = false
      if any_high then
        for _, prefix in ipairs({ regular_group, high_group }) do
          local push = pushes[prefix .. group]
          if redis.call('LLEN', prefix .. group) > (push and #push or 0) then other = true end
        end
      end
      if not leased[i] and not delayed[i] and not other then wake[#wake + 1] = group end
    end
  end
  if #wake > 0 then
    call_many('RPUSH', ready, wake)
    if not config[4] and redis.call('ZCARD', leases) < tonumber(config[1]) then
      redis.call('PUBLISH', 'fleet:wake', string.match(settings, '^{p:(.*)}:settings$'))
    end
  end
end
-- Only now: a script whose first write frees may go on writing when Redis is full, and this one must not.
if any_failed then redis.call('ZREMRANGEBYSCORE', failed, '-inf', now) end
return { 'ok', accepted, math.max(0, capacity - held), cascaded }
