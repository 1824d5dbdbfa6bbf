-- untrack: forget messages, each known by its token.
-- KEYS owner tracked apps delayed
-- ARGV now_ms owner_epoch only most broker_id token …
--   only: '' or the state they must be in, `t` for those that no pool has settled; token: followed by SEP delay_ms if
--   its source hides what is given back and cannot be looked into; most: so many of these are remembered
-- Returns {`stale`} for an older owner, else {`ok`, broker_id handle …}, those that were forgotten
--   handle: the newest; what was redelivered since the caller last looked cannot be given back under an older one
local owner, tracked, apps, delayed = unpack(KEYS)
if redis.call('HGET', owner, 'epoch') ~= ARGV[2] then return { 'stale' } end
local only, most = ARGV[3], tonumber(ARGV[4])
local brokers = {}
for i = 5, #ARGV, 2 do brokers[#brokers + 1] = ARGV[i] end
local records = read_many('HMGET', tracked, brokers)
local answer, over, free, whose, hidden = { 'ok' }, {}, {}, {}, {}
local now, longest
for i, broker in ipairs(brokers) do
  if records[i] then
    local handle, kept = head_of(records[i])
    local token, rest = head_of(kept)
    local state, tail = head_of(rest)
    local wanted = ARGV[4 + 2 * i]
    local mark = string.find(wanted, SEP, 1, true)
    if token == (mark and string.sub(wanted, 1, mark - 1) or wanted) and (only == '' or only == state) then
      over[#over + 1] = broker
      answer[#answer + 1], answer[#answer + 2] = broker, handle
      local message_id, place = head_of(tail)
      -- Settled as ack, its message id is free already, and may be another message's by now.
      if state ~= 'a' then free[#free + 1], whose[#whose + 1] = message_id, broker end
      if mark then
        local delay = tonumber(string.sub(wanted, mark + 1))
        now = now or time_ms(ARGV[1])
        local pool, behind = head_of(place)
        hidden[#hidden + 1] = text(now + delay)
        hidden[#hidden + 1] = message_id .. SEP .. broker .. SEP .. pool .. SEP .. head_of(behind)
        longest = math.max(longest or 0, delay)
      end
    end
  end
end
if #over > 0 then call_many('HDEL', tracked, over) end
free_apps(apps, free, whose)
if #hidden > 0 then
  call_many('ZADD', delayed, hidden, 2)
  redis.call('ZREMRANGEBYSCORE', delayed, '-inf', text(now))
  -- Those that come back first make room: the next polls of the queue find them.
  redis.call('ZREMRANGEBYRANK', delayed, 0, -most - 1)
  if redis.call('PTTL', delayed) < longest then redis.call('PEXPIRE', delayed, text(longest)) end
end
return answer
