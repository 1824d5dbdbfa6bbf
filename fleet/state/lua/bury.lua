-- bury: keep messages that can never be delivered, the newest `keep` of them.
-- KEYS owner dead
-- ARGV owner_epoch keep letter …
-- Returns `stale` for an older owner, else `ok`
local owner, dead = unpack(KEYS)
if redis.call('HGET', owner, 'epoch') ~= ARGV[1] then return 'stale' end
for i = 3, #ARGV do redis.call('LPUSH', dead, ARGV[i]) end
redis.call('LTRIM', dead, 0, tonumber(ARGV[2]) - 1)
return 'ok'
