-- recall: take back what a pool holds of one queue, but for groups that are leased: those are being delivered.
-- KEYS ready later entries high tries regular_group high_group
-- ARGV queue most
-- Returns broker_id token …, in the order of each group, of at least `most` messages if there are as many
local ready, later, entries, high, tries, regular_group, high_group = unpack(KEYS)
local queue, most = ARGV[1], tonumber(ARGV[2])
local prefix = queue .. SEP
local answer, gone = {}, {}

-- Takes this queue's messages out of one list.
local function take_out(list)
  local keys = redis.call('LRANGE', list, 0, -1)
  local values = hmget_many(entries, keys)
  local stay = {}
  for i, key in ipairs(keys) do
    if string.sub(key, 1, #prefix) == prefix then
      answer[#answer + 1] = string.sub(key, #prefix + 1)
      answer[#answer + 1] = head_of(values[i])
      gone[#gone + 1] = key
    else
      stay[#stay + 1] = key
    end
  end
  if #stay < #keys then
    redis.call('DEL', list)
    if #stay > 0 then call_many('RPUSH', list, stay) end
  end
end

-- True where the group has messages of other queues left.
local function visit(group)
  take_out(high_group .. group)
  if redis.call('EXISTS', high_group .. group) == 0 then redis.call('SREM', high, group) end
  take_out(regular_group .. group)
  return redis.call('EXISTS', regular_group .. group, high_group .. group) > 0
end

local waiting = redis.call('LRANGE', ready, 0, -1)
for _, group in ipairs(waiting) do
  if #answer >= 2 * most then break end
  if not visit(group) then redis.call('LREM', ready, 1, group) end
end
for _, group in ipairs(redis.call('ZRANGE', later, 0, -1)) do
  if #answer >= 2 * most then break end
  if not visit(group) then redis.call('ZREM', later, group) end
end
if #gone > 0 then
  call_many('HDEL', entries, gone)
  call_many('HDEL', tries, gone)
end
return answer
