-- expect_no_more: copies that were away came, and are acked: nothing newer waits for them.
-- WITH away
-- KEYS away away_lane
-- ARGV tier lane key …
-- Returns 1
local away, away_lane = unpack(KEYS)
for i = 1, #ARGV, 3 do
  local tier, lane, key = unpack(ARGV, i, i + 2)
  local name = tier .. lane
  if redis.call('LREM', away_lane .. name, 1, key) == 1 and redis.call('EXISTS', away_lane .. name) == 0 then
    redis.call('ZREM', away, name, second_chance(name))
  end
end
return 1
