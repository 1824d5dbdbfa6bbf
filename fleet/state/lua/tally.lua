-- tally: add to the fleet's totals the next piece of what a process counted.
-- KEYS totals tallied
-- ARGV ttl_ms piece record …
--   piece: its number; the first of a process is 1. One that was taken already, or is not the next, adds nothing
--   record: kind SEP of SEP name SEP more SEP name SEP more …
-- Returns the number of the last piece of this process that is in the totals, 0 where none is known
local totals, tallied = unpack(KEYS)
local ttl_ms, piece = ARGV[1], tonumber(ARGV[2])
-- Redis may be full: a script that has written may go on.
redis.call('PEXPIRE', tallied, ttl_ms)
local last = tonumber(redis.call('GET', tallied) or '0')
if piece ~= last + 1 then return last end

-- name SEP count SEP name SEP count … as a list of names and a table of counts
local function counts_of(packed)
  local names, counts, name = {}, {}, nil
  for word in string.gmatch(packed, '[^\31]+') do
    if name then
      names[#names + 1] = name
      counts[name] = tonumber(word)
      name = nil
    else
      name = word
    end
  end
  return names, counts
end

for i = 3, #ARGV do
  local kind, rest = head_of(ARGV[i])
  local of, more = head_of(rest)
  local names, sums = counts_of(redis.call('HGET', totals .. kind, of) or '')
  local new, increments = counts_of(more)
  for _, name in ipairs(new) do
    if not sums[name] then names[#names + 1] = name end
    sums[name] = (sums[name] or 0) + increments[name]
  end
  local words = {}
  for _, name in ipairs(names) do words[#words + 1], words[#words + 2] = name, text(sums[name]) end
  redis.call('HSET', totals .. kind, of, table.concat(words, SEP))
end
redis.call('SET', tallied, text(piece), 'PX', ttl_ms)
return piece
