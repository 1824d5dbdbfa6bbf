-- store: Redis in one Lua table: the commands that Fleet's scripts and code use, each as Redis does it, and no others.
-- Here are its keys, hashes and sets; lists.lua and sorted_sets.lua add theirs, calls.lua runs commands and scripts.
if jit then jit.off() end -- if fakeredis came first, its Lua opens the libraries, and has no jit
-- Returns the functions that store.py calls. Time is `S.now_us`, given with each call; nothing here asks a clock.
local S = { db = {}, now_us = 0, full = false, readonly = false, published = {}, dirty = {}, created = {}, scripts = {} }
S.watched = {} -- key → whether anybody asks which keys changed; filled by invariants.lua, if it is loaded
local fmt, floor = string.format, math.floor
local sort, concat = table.sort, table.concat

local function text(v)
  if type(v) == 'number' then return fmt('%.17g', v) end
  return v
end

local function fail(message) error({ err = message }, 0) end

local function now_ms() return floor(S.now_us / 1000) end

local function touch(key)
  if S.watched[key] then S.dirty[key] = true end
end

local function find(key)
  local e = S.db[key]
  if e and e.x and e.x <= now_ms() then
    S.db[key] = nil
    touch(key)
    return nil
  end
  return e
end

-- The value under a key that a command reads; nil if there is none.
local function open(key, kind)
  local e = find(key)
  if e and e.t ~= kind then fail('WRONGTYPE Operation against a key holding the wrong kind of value') end
  return e
end

local seen = {} -- keys that were already named as new
local function note_new(key)
  if not seen[key] then S.created[key] = true end
end

local function make(key, kind)
  local e = open(key, kind)
  if not e then
    e = { t = kind, n = 0, d = {} }
    if kind == 'l' then e.a, e.b = 1, 0 end
    S.db[key] = e
    note_new(key)
  end
  touch(key)
  return e
end

local function shrunk(key, e)
  touch(key)
  if e.n <= 0 then S.db[key] = nil end
end

-- The number of those that were there and are gone. What is sorted has to be sorted anew.
local function remove(key, e, names)
  local gone = 0
  for i = 1, #names do
    if e.d[names[i]] ~= nil then
      e.d[names[i]] = nil
      gone = gone + 1
    end
  end
  if gone > 0 then
    e.n, e.s = e.n - gone, nil
    shrunk(key, e)
  end
  return gone
end

-- The command that removes what it names from a hash, a set or a sorted set.
local function removing(kind)
  return function(key, ...)
    local e, names = open(key, kind), { ... }
    if not e then return 0 end
    for i = 1, #names do names[i] = text(names[i]) end
    return remove(key, e, names)
  end
end

local function size(kind)
  return function(key)
    local e = open(key, kind)
    return e and e.n or 0
  end
end

local function keys_of(e)
  local out = {}
  for k in pairs(e.d) do out[#out + 1] = k end
  sort(out) -- Redis promises no order: any order will do if it is the same each time
  return out
end

local function turned(list)
  local out = {}
  for i = #list, 1, -1 do out[#out + 1] = list[i] end
  return out
end

local function span(n, from, to)
  from, to = tonumber(from), tonumber(to)
  if from < 0 then from = n + from end
  if to < 0 then to = n + to end
  return math.max(from, 0), math.min(to, n - 1)
end

local C = {}

-- Keys -------------------------------------------------------------------------------------------

function C.EXISTS(...)
  local n = 0
  for i = 1, select('#', ...) do if find((select(i, ...))) then n = n + 1 end end
  return n
end

function C.DEL(...)
  local n = 0
  for i = 1, select('#', ...) do
    local key = select(i, ...)
    if find(key) then
      S.db[key] = nil
      touch(key)
      n = n + 1
    end
  end
  return n
end
C.UNLINK = C.DEL

function C.RENAME(key, name)
  local e = find(key)
  if not e then fail('ERR no such key') end
  S.db[key], S.db[name] = nil, e
  note_new(name)
  touch(key)
  touch(name)
  return { ok = 'OK' }
end

function C.TYPE(key)
  local e = find(key)
  local names = { h = 'hash', l = 'list', z = 'zset', s = 'set', v = 'string' }
  return { ok = e and names[e.t] or 'none' }
end

function C.PEXPIRE(key, ms)
  local e = find(key)
  if not e then return 0 end
  ms = tonumber(ms)
  if not ms or ms ~= floor(ms) then fail('ERR value is not an integer or out of range') end
  e.x = now_ms() + ms
  find(key)
  return 1
end

function C.PERSIST(key)
  local e = find(key)
  if not e or not e.x then return 0 end
  e.x = nil
  return 1
end

function C.PTTL(key)
  local e = find(key)
  if not e then return -2 end
  return e.x and e.x - now_ms() or -1
end

function C.SCAN(_, ...)
  local out = {}
  for key in pairs(S.db) do if find(key) then out[#out + 1] = key end end
  sort(out)
  return { '0', out }
end

function C.FLUSHALL()
  S.db, S.dirty, S.created = {}, {}, {}
  return { ok = 'OK' }
end

function C.GET(key)
  local e = open(key, 'v')
  return e and e.d or false
end

function C.SET(key, value, option, ms, only)
  if (option == 'NX' or only == 'NX') and find(key) then return false end
  S.db[key] = { t = 'v', n = 1, d = text(value) }
  touch(key)
  note_new(key)
  if option == 'PX' then C.PEXPIRE(key, ms) end
  return { ok = 'OK' }
end

function C.DUMP(key)
  local e = find(key)
  return e and S.dump(e) or false
end

-- Hashes -----------------------------------------------------------------------------------------

function C.HGET(key, field)
  local e = open(key, 'h')
  return e and e.d[text(field)] or false
end

function C.HMGET(key, ...)
  local e, out = open(key, 'h'), {}
  for i = 1, select('#', ...) do out[i] = e and e.d[text((select(i, ...)))] or false end
  return out
end

function C.HSET(key, ...)
  local count = select('#', ...)
  if count == 0 or count % 2 ~= 0 then fail("ERR wrong number of arguments for 'hset' command") end
  local e, args, added = make(key, 'h'), { ... }, 0
  local d = e.d
  for i = 1, count, 2 do
    local field = text(args[i])
    if d[field] == nil then added = added + 1 end
    d[field] = text(args[i + 1])
  end
  e.n = e.n + added
  return added
end

C.HDEL = removing('h')

function C.HEXISTS(key, field)
  local e = open(key, 'h')
  return e and e.d[text(field)] ~= nil and 1 or 0
end

C.HLEN = size('h')

function C.HSTRLEN(key, field)
  local e = open(key, 'h')
  return e and e.d[text(field)] and #e.d[text(field)] or 0
end

function C.HKEYS(key)
  local e = open(key, 'h')
  return e and keys_of(e) or {}
end

function C.HVALS(key)
  local e, out = open(key, 'h'), {}
  if e then for i, field in ipairs(keys_of(e)) do out[i] = e.d[field] end end
  return out
end

function C.HGETALL(key)
  local e, out = open(key, 'h'), {}
  if e then
    for _, field in ipairs(keys_of(e)) do
      out[#out + 1] = field
      out[#out + 1] = e.d[field]
    end
  end
  return out
end

function C.HSCAN(key) return { '0', C.HGETALL(key) } end

function C.HINCRBY(key, field, by)
  local e = make(key, 'h')
  field = text(field)
  local was = e.d[field]
  if was == nil then e.n = e.n + 1 end
  local value = tonumber(was or 0) + tonumber(by)
  e.d[field] = fmt('%.0f', value)
  return value
end

-- Sets -------------------------------------------------------------------------------------------

C.SCARD = size('s')

function C.SADD(key, ...)
  local e, added = make(key, 's'), 0
  for i = 1, select('#', ...) do
    local member = text((select(i, ...)))
    if not e.d[member] then
      e.d[member] = true
      added = added + 1
    end
  end
  e.n = e.n + added
  return added
end

C.SREM = removing('s')

function C.SISMEMBER(key, member)
  local e = open(key, 's')
  return e and e.d[text(member)] and 1 or 0
end

function C.SMEMBERS(key)
  local e = open(key, 's')
  return e and keys_of(e) or {}
end

function C.SRANDMEMBER(key)
  local e = open(key, 's')
  return e and keys_of(e)[1] or false
end

function C.SSCAN(key) return { '0', C.SMEMBERS(key) } end

-- The rest ---------------------------------------------------------------------------------------

function C.TIME()
  return { fmt('%.0f', floor(S.now_us / 1000000)), fmt('%.0f', S.now_us % 1000000) }
end

function C.PUBLISH(channel, message)
  S.published[#S.published + 1] = { channel, text(message) }
  return 0
end

-- What the harness asks ---------------------------------------------------------------------------

local function copy(e)
  local d = e.d
  if type(d) == 'table' then
    d = {}
    for k, v in pairs(e.d) do d[k] = v end
  end
  return { t = e.t, n = e.n, d = d, a = e.a, b = e.b, x = e.x }
end

function S.snapshot()
  local kept = {}
  for key, e in pairs(S.db) do kept[key] = copy(e) end
  return kept
end

function S.restore(kept)
  S.db = {}
  for key, e in pairs(kept) do S.db[key] = copy(e) end
  for key in pairs(kept) do touch(key) end
end

function S.dump(e)
  local out = { e.t }
  if e.t == 'l' then
    for i = e.a, e.b do out[#out + 1] = e.d[i] end
  elseif e.t == 'v' then
    out[2] = e.d
  else
    for _, k in ipairs(keys_of(e)) do out[#out + 1] = k .. '=' .. tostring(e.d[k]) end
  end
  return concat(out, '\30')
end

function S.take_created()
  local out = {}
  if next(S.created) == nil then return out end
  for key in pairs(S.created) do
    out[#out + 1] = key
    seen[key] = true
  end
  S.created = {}
  sort(out)
  return out
end

function S.count(now_us)
  S.now_us = now_us
  local n = 0
  for key in pairs(S.db) do if find(key) then n = n + 1 end end
  return n
end

-- For the other files of the store, and for invariants.lua.
S.find, S.C, S.text_of = find, C, text
S.fail, S.open, S.make, S.shrunk, S.size = fail, open, make, shrunk, size
S.remove, S.removing, S.turned, S.span = remove, removing, turned, span
return S
