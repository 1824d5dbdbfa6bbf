-- room: how many messages a pool can take; when too few, ask to be told.
-- KEYS settings entries
-- ARGV needed
--   needed: '' only asks; else a settle that leaves this much room publishes the pool's code
-- Returns the room, 0 for a pool that takes none
local settings, entries = unpack(KEYS)
local config = redis.call('HMGET', settings, 'capacity', 'draining', 'waiting')
if not config[1] or config[2] then return 0 end
local room = math.max(0, tonumber(config[1]) - redis.call('HLEN', entries))
-- If several wait, the one that needs least decides: all are told, and ask again.
if ARGV[1] ~= '' and room < tonumber(ARGV[1]) and tonumber(ARGV[1]) < tonumber(config[3] or math.huge) then
  redis.call('HSET', settings, 'waiting', ARGV[1])
end
return room
