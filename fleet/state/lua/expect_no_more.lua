-- expect_no_more: copies that were away came, and are acked: nothing newer waits for them.
-- WITH away
-- KEYS away away_lane
-- ARGV tier lane key instead …
--   instead: the key of the original, if it came with its copy and is new: it takes the copy's place; else ''
-- Returns 1
local away, away_lane = unpack(KEYS)
local lanes, names = {}, {}
for i = 1, #ARGV, 4 do
  local tier, lane, key, instead = unpack(ARGV, i, i + 3)
  local name = tier .. lane
  if not lanes[name] then
    lanes[name] = { copies = {}, changed = false }
    names[#names + 1] = name
  end
  lanes[name].copies[key] = instead
end
for _, name in ipairs(names) do
  local lane, left, placed = lanes[name], {}, {}
  local keys = redis.call('LRANGE', away_lane .. name, 0, -1)
  for _, key in ipairs(keys) do
    local is_copy = lane.copies[key] ~= nil
    local stays = is_copy and lane.copies[key] or key
    if stays ~= '' and not placed[stays] then
      left[#left + 1], placed[stays] = stays, true
    end
    lane.changed = lane.changed or is_copy
  end
  if lane.changed then
    -- First: Redis may be full. A script that has written may go on.
    redis.call('DEL', away_lane .. name)
    if left[1] ~= keys[1] then end_chance(away, away_lane, name) end -- what the others wait for came
    if #left > 0 then
      call_many('RPUSH', away_lane .. name, left)
      redis.call('PEXPIRE', away_lane .. name, AWAY_TTL_MS)
      redis.call('PEXPIRE', away, AWAY_TTL_MS)
    else
      redis.call('ZREM', away, name)
    end
  end
end
return 1
