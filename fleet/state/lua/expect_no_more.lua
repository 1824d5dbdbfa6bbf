-- expect_no_more: copies that were away came, and are acked: nothing newer waits for them.
-- WITH away
-- KEYS away away_lane
-- ARGV tier lane key instead …
--   instead: the key of the original, where it came with its copy and is new: it takes that one's place; else ''
-- Returns 1
local away, away_lane = unpack(KEYS)
for i = 1, #ARGV, 4 do
  local tier, lane, key, instead = unpack(ARGV, i, i + 3)
  local name = tier .. lane
  local list, at = away_lane .. name, {}
  for n, is in ipairs(redis.call('LRANGE', list, 0, -1)) do at[is] = at[is] or n end
  if not at[key] or instead == '' or (at[instead] or math.huge) < at[key] then
    redis.call('LREM', list, 1, key)
  else
    redis.call('LREM', list, 1, instead) -- stands behind it
    redis.call('LSET', list, at[key] - 1, instead)
  end
  if at[key] and redis.call('EXISTS', list) == 0 then
    redis.call('ZREM', away, name)
    end_chance(away, away_lane, name)
  end
end
return 1
