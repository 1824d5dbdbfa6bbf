-- prelude: what stands before every script: the clock, numbers as text, and calls with many arguments.

-- The separator of our records. No validated field can contain it.
local SEP = '\31'

-- `passed` is the time in ms that a test passes in; empty means Redis TIME.
local function time_ms(passed)
  if passed ~= '' then return tonumber(passed) end
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- The code of the pool that has these settings. Its channels are named by it.
local function code_of(settings)
  return string.match(settings, '^{p:(.*)}:settings$')
end

-- Epochs are microseconds (16 digits): Lua's own formatting would write an exponent.
local function text(number)
  return string.format('%.0f', number)
end

-- An epoch above `previous`, and above every epoch from before a wipe of Redis.
local function next_epoch(previous, now_ms)
  return math.max(previous + 1, now_ms * 1000)
end

-- redis.call(command, key, ...) for any number of arguments: Lua's stack holds some 8,000.
local function call_many(command, key, args, per_item)
  local step = 2000 * (per_item or 1)
  local last
  for from = 1, #args, step do
    last = redis.call(command, key, unpack(args, from, math.min(from + step - 1, #args)))
  end
  return last
end

-- The values of many fields, in order.
local function read_many(command, key, fields)
  if #fields <= 2000 then
    if #fields == 0 then return {} end
    return redis.call(command, key, unpack(fields))
  end
  local values = {}
  for from = 1, #fields, 2000 do
    local part = redis.call(command, key, unpack(fields, from, math.min(from + 1999, #fields)))
    for i = 1, #part do values[from + i - 1] = part[i] end
  end
  return values
end

-- Everything up to the first separator, and the rest behind it.
local function head_of(record)
  local at = string.find(record, SEP, 1, true)
  return string.sub(record, 1, at - 1), string.sub(record, at + 1)
end

-- Give up message ids, each only if the broker id beside it has it: another message may have it by now.
local function free_apps(apps, ids, brokers)
  local gone = {}
  for i, held in ipairs(read_many('HMGET', apps, ids)) do
    if held and head_of(held .. SEP) == brokers[i] then gone[#gone + 1] = ids[i] end
  end
  if #gone > 0 then call_many('HDEL', apps, gone) end
end
