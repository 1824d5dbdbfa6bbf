-- acknowledge: somebody has seen a warning, or all of them; the next of its kind is a new one.
-- KEYS warnings warning_kinds
-- ARGV id
--   id: '' for all
-- Returns how many that was, 0 for one that was acknowledged before, -1 for one that is not there
local warnings, warning_kinds = unpack(KEYS)
local id = ARGV[1]
local ids = id == '' and redis.call('HVALS', warning_kinds) or { id }
local done = 0
for _, each in ipairs(ids) do
  local record = redis.call('HGET', warnings, each)
  if not record then return -1 end
  if string.sub(record, 1, 1) == '0' then
    local kind = string.match(record, '^%d+' .. SEP .. '%d+' .. SEP .. '(%x+)')
    redis.call('HSET', warnings, each, '1' .. string.sub(record, 2))
    redis.call('HDEL', warning_kinds, kind)
    done = done + 1
  end
end
return done
