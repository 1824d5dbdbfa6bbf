-- expect: messages that were tracked and never submitted come again before anything newer of their lanes.
-- WITH away clock
-- KEYS settings away away_lane
-- ARGV now_ms message …, in the order in which they were taken; four fields a message: tier lane key policy
-- Returns how many were noted: those that are away already stand before them, and keep their places
local settings, away, away_lane = unpack(KEYS)
local FIELDS = 4
local count = (#ARGV - 1) / FIELDS
local config = redis.call('HMGET', settings, 'on_failure', 'clock')
-- When they are due in a pool that is unknown is not said: it follows no clock (`submit`).
local due_ms = config[1] and pool_time(ARGV[1], config[2]) or 0

local more, names, there = {}, {}, {}
for i = 1, count do
  local base = 1 + (i - 1) * FIELDS
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
local noted = 0
for _, name in ipairs(names) do
  if #more[name] > 0 then send_away(away, away_lane, name, 'RPUSH', more[name], due_ms) end
  noted = noted + #more[name]
end
return noted
