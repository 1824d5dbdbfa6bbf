-- track: note messages taken from a queue, before any pool hears of them.
-- KEYS owner tracked apps
-- ARGV now_ms owner_epoch message …, five fields a message: broker_id app_id pool group handle
-- Returns {`stale`} for an older owner, else {`ok`, verdict …}, one for each message
--   n<token>: tracked under that token, submit it; r: here already, its handle was replaced;
--   q: another copy of a message in flight, ack it; a<token>: settled as ack before, ack it
local owner, tracked, apps = unpack(KEYS)
local now, epoch = time_ms(ARGV[1]), ARGV[2]
local lease = redis.call('HMGET', owner, 'epoch', 'token')
if lease[1] ~= epoch then return { 'stale' } end

local FIELDS = 5
local count = (#ARGV - 2) / FIELDS
local brokers, app_ids = {}, {}
for i = 1, count do
  brokers[i] = ARGV[2 + (i - 1) * FIELDS + 1]
  app_ids[i] = ARGV[2 + (i - 1) * FIELDS + 2]
end
local records, holders = hmget_many(tracked, brokers), hmget_many(apps, app_ids)

local token = next_epoch(tonumber(lease[2] or 0), now) - 1
local verdicts, new_records, new_apps = { 'ok' }, {}, {}
local now_text = text(now)
local in_batch, app_in_batch = {}, {}
for i = 1, count do
  local base = 2 + (i - 1) * FIELDS
  local broker, app, handle = brokers[i], app_ids[i], ARGV[base + 5]
  local record = records[i] or in_batch[broker]
  local holder = holders[i] or app_in_batch[app]
  if record then
    local known, rest = head_of(record)
    -- Physical redelivery. Only the newest handle acks it, so the record follows.
    local kept = string.match(record, '^(.*' .. SEP .. ')[^' .. SEP .. ']*$')
    new_records[#new_records + 1], new_records[#new_records + 2] = broker, kept .. handle
    verdicts[i + 1] = head_of(rest) == 'a' and 'a' .. known or 'r'
  elseif holder and holder ~= broker
    and (in_batch[holder] or redis.call('HEXISTS', tracked, holder) == 1) then
    verdicts[i + 1] = 'q'
  else
    token = token + 1
    local fields = { text(token), 't', ARGV[base + 3], app, ARGV[base + 4], now_text, handle }
    record = table.concat(fields, SEP)
    new_records[#new_records + 1], new_records[#new_records + 2] = broker, record
    new_apps[#new_apps + 1], new_apps[#new_apps + 2] = app, broker
    in_batch[broker], app_in_batch[app] = record, broker
    verdicts[i + 1] = 'n' .. text(token)
  end
end
if #new_records > 0 then call_many('HSET', tracked, new_records, 2) end
if #new_apps > 0 then
  call_many('HSET', apps, new_apps, 2)
  redis.call('HSET', owner, 'token', text(token))
end
return verdicts
