-- expect: messages that were tracked and never submitted come again before anything newer of their lanes.
-- WITH away clock
-- KEYS settings epochs away away_lane
-- ARGV now_ms queue owner_epoch message …, in the order in which they were taken; four fields a message: tier lane key policy
-- Returns 1, or 0 if a newer owner has been here
--   what is away already keeps its place, before those that are added, and gets a new due time
local settings, epochs, away, away_lane = unpack(KEYS)
if tonumber(redis.call('HGET', epochs, 'q:' .. ARGV[2]) or 0) > tonumber(ARGV[3]) then return 0 end
local FIELDS = 4
local count = (#ARGV - 3) / FIELDS
local config = redis.call('HMGET', settings, 'on_failure', 'clock')
-- In a pool that is unknown no due time is noted: it follows no clock (`submit`).
local due_ms = config[1] and pool_time(ARGV[1], config[2]) or 0

local more, names, there = {}, {}, {}
for i = 1, count do
  local base = 3 + (i - 1) * FIELDS
  local tier, lane, key, policy = unpack(ARGV, base + 1, base + FIELDS)
  if holds(policy, config[1] or 'hold') then
    local name = tier .. lane
    if not more[name] then
      more[name], there[name] = {}, {}
      names[#names + 1] = name
      local keys = redis.call('LRANGE', away_lane .. name, 0, -1)
      for at = 1, #keys do there[name][keys[at]] = true end
      there[name].count = #keys
    end
    local known = there[name]
    if not known[key] and known.count < AWAY_MOST then
      known[key], known.count = true, known.count + 1
      more[name][#more[name] + 1] = key
    end
  end
end
for _, name in ipairs(names) do
  -- First: Redis may be full, and a queue must find an owner even then. A script that has written may go on.
  end_chance(away, away_lane, name)
  if config[1] then note_pool_time(settings, due_ms, config[2]) end
  send_away(away, away_lane, name, 'RPUSH', more[name], due_ms)
end
return 1
