-- owner: whether a queue's owner may go on: it is the newest there is, and Redis still knows what it told this owner.

-- nil, and the last token that was given; or `stale` for an older owner, or `forgot` for one that was given the token
-- `known` by a Redis whose last writes were lost. What was tracked in them is out at the source, and tracked nowhere.
local function refusal(owner, epoch, known)
  local is = redis.call('HMGET', owner, 'epoch', 'token')
  if is[1] ~= epoch then return 'stale' end
  local last = tonumber(is[2] or 0)
  if last < tonumber(known) then return 'forgot' end
  return nil, last
end
