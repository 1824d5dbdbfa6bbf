-- lease: acquire, renew or release the right to one thing.
-- KEYS lease
-- ARGV now_ms verb owner ttl_ms epoch
--   verb: `acquire`, `renew` or `release`; epoch: of the grant to renew or release, or one that a new grant has to be above
-- Returns {`granted`, epoch, 1 if its last holder gave it back, else 0} | {`held`, epoch, owner, remaining_ms} | {`kept`} | {`lost`} | {`released`}
local lease, verb, name, ttl_ms = KEYS[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local now = time_ms(ARGV[1])
-- Redis may be full, and then only a queue's owner frees memory: a script that has written may go on.
redis.call('HDEL', lease, '')
local is = redis.call('HMGET', lease, 'owner', 'epoch', 'deadline', 'ttl')
local owner, epoch, deadline = is[1] or '', tonumber(is[2] or 0), tonumber(is[3] or 0)

if verb == 'acquire' then
  -- Further away than it was ever granted for: the clock stepped back. Its holder may live, but gets no more than that.
  local longest = tonumber(is[4] or ttl_ms)
  if deadline > now + longest then
    deadline = now + longest
    redis.call('HSET', lease, 'deadline', text(deadline))
  end
  -- If its holder asks again, the reply to the earlier grant was lost: that grant is void.
  if owner ~= '' and owner ~= name and deadline > now then
    return { 'held', text(epoch), owner, text(deadline - now) }
  end
  local granted = text(next_epoch(math.max(epoch, tonumber(ARGV[5]) or 0), now))
  redis.call('HSET', lease, 'owner', name, 'epoch', granted, 'deadline', text(now + ttl_ms), 'ttl', text(ttl_ms))
  return { 'granted', granted, is[2] and owner == '' and 1 or 0 }
end

if owner ~= name or is[2] ~= ARGV[5] then return { 'lost' } end
if verb == 'release' then
  redis.call('HSET', lease, 'owner', '', 'deadline', '0')
  redis.call('PUBLISH', 'fleet:changed', 'lease')
  return { 'released' }
end
if deadline <= now then return { 'lost' } end
redis.call('HSET', lease, 'deadline', text(now + ttl_ms), 'ttl', text(ttl_ms))
return { 'kept' }
