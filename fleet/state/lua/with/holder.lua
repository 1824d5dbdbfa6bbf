-- holder: which worker has the lease on a lane, and of which tier. An epoch alone does not say which: Redis gives the
-- same one again if its clock stepped back and a failover then lost the last writes.

local function holder_of(epoch, tier, worker)
  return text(epoch) .. SEP .. tier .. SEP .. worker
end

-- The epoch and the tier, if this worker is the holder.
local function held_under(holder, worker)
  local epoch, tier, name = string.match(holder, '^([^\31]*)\31([^\31]*)\31(.*)$')
  if name == worker then return epoch, tier end
end
