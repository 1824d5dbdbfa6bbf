-- lists: the commands on lists. Gets the store (store.lua) and adds them to it.
local S = ...
local C, text, fail = S.C, S.text_of, S.fail
local open, make, shrunk, turned, span = S.open, S.make, S.shrunk, S.turned, S.span

C.LLEN = S.size('l')

function C.RPUSH(key, ...)
  local e = make(key, 'l')
  for i = 1, select('#', ...) do
    e.b = e.b + 1
    e.d[e.b] = text((select(i, ...)))
  end
  e.n = e.b - e.a + 1
  return e.n
end

function C.LPUSH(key, ...)
  local e = make(key, 'l')
  for i = 1, select('#', ...) do
    e.a = e.a - 1
    e.d[e.a] = text((select(i, ...)))
  end
  e.n = e.b - e.a + 1
  return e.n
end

local function pop(from_left)
  return function(key, count)
    local e = open(key, 'l')
    if not e then return false end
    local most = count and tonumber(count) or 1
    if most < 0 then fail('ERR value is out of range, must be positive') end
    local out = {}
    while #out < most and e.a <= e.b do
      local at = from_left and e.a or e.b
      out[#out + 1] = e.d[at]
      e.d[at] = nil
      if from_left then e.a = e.a + 1 else e.b = e.b - 1 end
    end
    e.n = e.b - e.a + 1
    shrunk(key, e)
    if count then return out end
    return out[1]
  end
end
C.LPOP, C.RPOP = pop(true), pop(false)

function C.LRANGE(key, from, to)
  local e, out = open(key, 'l'), {}
  if not e then return out end
  from, to = span(e.n, from, to)
  for i = from, to do out[#out + 1] = e.d[e.a + i] end
  return out
end

function C.LINDEX(key, at)
  local e = open(key, 'l')
  if not e then return false end
  at = tonumber(at)
  if at < 0 then at = e.n + at end
  return e.d[e.a + at] or false
end

local function refill(key, e, kept)
  e.d, e.a, e.b, e.n = kept, 1, #kept, #kept
  shrunk(key, e)
end

function C.LTRIM(key, from, to)
  local e = open(key, 'l')
  if e then refill(key, e, C.LRANGE(key, from, to)) end
  return { ok = 'OK' }
end

function C.LREM(key, count, value)
  local e = open(key, 'l')
  if not e then return 0 end
  count, value = tonumber(count), text(value)
  local kept, gone = {}, 0
  local most = count == 0 and e.n or math.abs(count)
  local first, last, step = e.a, e.b, 1
  if count < 0 then first, last, step = e.b, e.a, -1 end
  for i = first, last, step do
    if e.d[i] == value and gone < most then gone = gone + 1 else kept[#kept + 1] = e.d[i] end
  end
  if step < 0 then kept = turned(kept) end
  if gone > 0 then refill(key, e, kept) end
  return gone
end
