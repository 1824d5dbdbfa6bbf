-- track: note messages taken from a queue, before any pool hears of them.
-- WITH owner
-- KEYS owner tracked apps
-- ARGV now_ms owner_epoch known message …, seven fields a message: broker_id message_id pool lane handle mark order
--   known: the last token that this owner was given, '0' for none
--   mark: of its target; a message with the same id and another mark is not a copy
--   order: kept for an owner that has to have it come again (`expect`)
-- Returns {`stale`} for an older owner, {`forgot`} if that token is not known here, else {`ok`, token, last, verdict …},
-- one verdict for each message; last: the last token that the owner was given, this call's among them
--   n: tracked, submit it; the first has that token, each further one the next; r: here already, its handle was
--   replaced; q: another copy of a message in flight, ack it; a<token>: settled as ack before, ack it
local owner, tracked, apps = unpack(KEYS)
local now, epoch, known = time_ms(ARGV[1]), ARGV[2], ARGV[3]
local refused, last = refusal(owner, epoch, known)
if refused then return { refused } end

local FIELDS = 7
local count = (#ARGV - 3) / FIELDS
local brokers, message_ids = {}, {}
for i = 1, count do
  brokers[i] = ARGV[3 + (i - 1) * FIELDS + 1]
  message_ids[i] = ARGV[3 + (i - 1) * FIELDS + 2]
end
local records, originals = read_many('HMGET', tracked, brokers), read_many('HMGET', apps, message_ids)

local first = next_epoch(last, now)
local token = first - 1
local verdicts, new_records, new_apps = { 'ok', text(first), known }, {}, {}
local now_text = text(now)
local in_batch, id_in_batch = {}, {}
for i = 1, count do
  local base = 3 + (i - 1) * FIELDS
  local broker, message_id, handle = brokers[i], message_ids[i], ARGV[base + 5]
  local record = records[i] or in_batch[broker]
  local original, asked = head_of((id_in_batch[message_id] or originals[i] or '') .. SEP)
  if record then
    local _, kept = head_of(record)
    local its_token, rest = head_of(kept)
    -- Physical redelivery. Only the newest handle acks it, so the record follows.
    new_records[#new_records + 1], new_records[#new_records + 2] = broker, handle .. SEP .. kept
    verdicts[i + 3] = head_of(rest) == 'a' and 'a' .. its_token or 'r'
  elseif original ~= '' and original ~= broker and asked == ARGV[base + 6] .. SEP
    and (in_batch[original] or redis.call('HEXISTS', tracked, original) == 1) then
    verdicts[i + 3] = 'q'
  else
    token = token + 1
    -- handle token state message_id pool lane tracked_ms order: in the order in which scripts read them
    record = handle .. SEP .. text(token) .. SEP .. 't' .. SEP .. message_id .. SEP .. ARGV[base + 3] .. SEP
      .. ARGV[base + 4] .. SEP .. now_text .. SEP .. ARGV[base + 7]
    new_records[#new_records + 1], new_records[#new_records + 2] = broker, record
    local of_id = broker .. SEP .. ARGV[base + 6]
    new_apps[#new_apps + 1], new_apps[#new_apps + 2] = message_id, of_id
    in_batch[broker], id_in_batch[message_id] = record, of_id
    verdicts[i + 3] = 'n'
  end
end
if #new_apps > 0 then call_many('HSET', apps, new_apps, 2) end
if #new_records > 0 then
  call_many('HSET', tracked, new_records, 2)
  -- A new handle alone takes a token as well: a Redis that loses it would have us ack with the old one for ever.
  verdicts[3] = text(math.max(token, first))
  redis.call('HSET', owner, 'token', verdicts[3])
end
return verdicts
