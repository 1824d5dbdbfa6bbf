-- store: Redis in one Lua table: the commands that Fleet's scripts and code use, each as Redis does it, and no others.
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

local C = {}
local WRITES, GROWS = {}, {}

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

function C.SET(key, value, option, ms)
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

-- Lists ------------------------------------------------------------------------------------------

C.LLEN = size('l')

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

local function span(n, from, to)
  from, to = tonumber(from), tonumber(to)
  if from < 0 then from = n + from end
  if to < 0 then to = n + to end
  return math.max(from, 0), math.min(to, n - 1)
end

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

function C.SSCAN(key) return { '0', C.SMEMBERS(key) } end

-- Sorted sets ------------------------------------------------------------------------------------

C.ZCARD = size('z')

function C.ZADD(key, ...)
  local args, count, at = { ... }, select('#', ...), 1
  local only_new, only_old, greater, less = false, false, false, false
  while type(args[at]) == 'string' and not tonumber(args[at]) do
    local option = args[at]:upper()
    if option == 'NX' then only_new = true
    elseif option == 'XX' then only_old = true
    elseif option == 'GT' then greater = true
    elseif option == 'LT' then less = true
    else fail('ERR syntax error') end
    at = at + 1
  end
  if (count - at + 1) % 2 ~= 0 or count < at then fail('ERR syntax error') end
  local e, added = make(key, 'z'), 0
  for i = at, count, 2 do
    local score, member = tonumber(args[i]), text(args[i + 1])
    if not score then fail('ERR value is not a valid float') end
    local was = e.d[member]
    if was == nil then
      if not only_old then
        e.d[member] = score
        added = added + 1
      end
    elseif not only_new and not (greater and score <= was) and not (less and score >= was) then
      e.d[member] = score
    end
  end
  e.n, e.s = e.n + added, nil
  shrunk(key, e)
  return added
end

C.ZREM = removing('z')

function C.ZSCORE(key, member)
  local e = open(key, 'z')
  local score = e and e.d[text(member)]
  return score and fmt('%.17g', score) or false
end

function C.ZMSCORE(key, ...)
  local out = {}
  for i = 1, select('#', ...) do out[i] = C.ZSCORE(key, (select(i, ...))) end
  return out
end

local function sorted(e)
  if not e.s then
    local d, s = e.d, {}
    for member in pairs(d) do s[#s + 1] = member end
    sort(s, function(one, other)
      if d[one] ~= d[other] then return d[one] < d[other] end
      return one < other
    end)
    e.s = s
  end
  return e.s
end

local function bound(given)
  given = text(given)
  local open_end = given:sub(1, 1) == '('
  if open_end then given = given:sub(2) end
  if given == '-inf' then return -math.huge, open_end end
  if given == '+inf' or given == 'inf' then return math.huge, open_end end
  local value = tonumber(given)
  if not value then fail('ERR min or max is not a float') end
  return value, open_end
end

local function between(e, least, most)
  local low, over_low = bound(least)
  local high, under_high = bound(most)
  local out = {}
  for _, member in ipairs(sorted(e)) do
    local score = e.d[member]
    if (score > low or (score == low and not over_low)) and (score < high or (score == high and not under_high)) then
      out[#out + 1] = member
    end
  end
  return out
end

local function listed(e, members, first, count, with_scores)
  local out = {}
  for i = first + 1, math.min(#members, count < 0 and #members or first + count) do
    out[#out + 1] = members[i]
    if with_scores then out[#out + 1] = fmt('%.17g', e.d[members[i]]) end
  end
  return out
end

function C.ZRANGE(key, from, to, ...)
  local e = open(key, 'z')
  local by_score, reverse, with_scores, first, count = false, false, false, 0, -1
  local args, at = { ... }, 1
  while args[at] do
    local option = args[at]:upper()
    if option == 'BYSCORE' then by_score = true
    elseif option == 'REV' then reverse = true
    elseif option == 'WITHSCORES' then with_scores = true
    elseif option == 'LIMIT' then first, count, at = tonumber(args[at + 1]), tonumber(args[at + 2]), at + 2
    else fail('ERR syntax error') end
    at = at + 1
  end
  if not e then return {} end
  if by_score then
    local members = reverse and turned(between(e, to, from)) or between(e, from, to)
    return listed(e, members, first, count, with_scores)
  end
  from, to = span(e.n, from, to)
  return listed(e, reverse and turned(sorted(e)) or sorted(e), from, math.max(0, to - from + 1), with_scores)
end

function C.ZRANGEBYSCORE(key, least, most, ...)
  return C.ZRANGE(key, least, most, 'BYSCORE', ...)
end

function C.ZCOUNT(key, least, most)
  local e = open(key, 'z')
  return e and #between(e, least, most) or 0
end

function C.ZREMRANGEBYSCORE(key, least, most)
  local e = open(key, 'z')
  return e and remove(key, e, between(e, least, most)) or 0
end

function C.ZREMRANGEBYRANK(key, from, to)
  local e = open(key, 'z')
  if not e then return 0 end
  from, to = span(e.n, from, to)
  return remove(key, e, listed(e, sorted(e), from, math.max(0, to - from + 1), false))
end

function C.ZSCAN(key) return { '0', C.ZRANGE(key, 0, -1, 'WITHSCORES') } end

function C.ZPOPMIN(key, count)
  local e = open(key, 'z')
  if not e then return {} end
  local out = listed(e, sorted(e), 0, tonumber(count or 1), true)
  for i = 1, #out, 2 do remove(key, e, { out[i] }) end
  return out
end

-- The rest ---------------------------------------------------------------------------------------

function C.TIME()
  return { fmt('%.0f', floor(S.now_us / 1000000)), fmt('%.0f', S.now_us % 1000000) }
end

function C.PUBLISH(channel, message)
  S.published[#S.published + 1] = { channel, text(message) }
  return 0
end

for name in ('HSET HINCRBY RPUSH LPUSH SADD ZADD SET'):gmatch('%S+') do WRITES[name], GROWS[name] = true, true end
for name in ('DEL UNLINK PEXPIRE PERSIST HDEL LPOP RPOP LTRIM LREM SREM ZREM ZREMRANGEBYSCORE ZREMRANGEBYRANK ZPOPMIN FLUSHALL')
  :gmatch('%S+') do WRITES[name] = true end

-- Scripts ----------------------------------------------------------------------------------------

local OOM = "OOM command not allowed when used memory > 'maxmemory'."
local READONLY = "READONLY You can't write against a read only replica."
local in_script, has_written, slot, script_was_full = false, false, nil, false

local tags = {}
local function tag_of(key)
  local tag = tags[key]
  if tag == nil then
    tag = key:match('{(.-)}') or key
    tags[key] = tag
  end
  return tag
end

local KEYLESS = { TIME = true, PUBLISH = true, SCAN = true, FLUSHALL = true }

local function check_slot(name, ...)
  if KEYLESS[name] then return end
  local many = name == 'EXISTS' or name == 'DEL' or name == 'UNLINK'
  for i = 1, many and select('#', ...) or 1 do
    local tag = tag_of((select(i, ...)))
    if slot == nil then slot = tag end
    if tag ~= slot then fail('CROSSSLOT ' .. name .. ' touches ' .. tag .. ' in a script of ' .. slot) end
  end
end

local function call(name, ...)
  local f = C[name]
  if not f then fail('ERR unknown command ' .. tostring(name)) end
  if WRITES[name] then
    if S.readonly then fail(READONLY) end
    if S.full and GROWS[name] and not (in_script and (has_written or not script_was_full)) then fail(OOM) end
    if in_script then has_written = true end
  end
  if in_script then check_slot(name, ...) end
  return f(...)
end

local sandbox = {
  string = string, table = table, math = math, tonumber = tonumber, tostring = tostring, ipairs = ipairs,
  pairs = pairs, next = next, select = select, type = type, unpack = unpack, error = error, assert = assert,
  pcall = pcall, redis = { call = call, log = function() end },
}
sandbox._G = sandbox
setmetatable(sandbox, {
  __index = function(_, name) error('Script attempted to access nonexistent global variable ' .. tostring(name), 2) end,
  __newindex = function(_, name) error('Script attempted to create global variable ' .. tostring(name), 2) end,
})

-- Answers, as JSON: Redis cuts off the fraction of a number, ends a table at its first nil, and makes false nil.
local ESCAPES = { ['"'] = '\\"', ['\\'] = '\\\\', ['\n'] = '\\n', ['\r'] = '\\r', ['\t'] = '\\t' }
local function escape(c) return ESCAPES[c] or fmt('\\u%04x', c:byte()) end
local function write(value, out)
  local kind = type(value)
  if kind == 'string' then
    if value:find('[%c"\\\127]') then value = value:gsub('[%c"\\\127]', escape) end
    out[#out + 1] = '"' .. value .. '"'
  elseif kind == 'number' then
    out[#out + 1] = fmt('%.0f', value < 0 and math.ceil(value) or floor(value))
  elseif kind == 'table' then
    if value.ok then return write(value.ok, out) end
    if value.err then fail(value.err) end
    out[#out + 1] = '['
    local i = 1
    while value[i] ~= nil do
      if i > 1 then out[#out + 1] = ',' end
      write(value[i], out)
      i = i + 1
    end
    out[#out + 1] = ']'
  elseif value == true then
    out[#out + 1] = '1'
  else
    out[#out + 1] = 'null'
  end
end

local function answer(value)
  local out = {}
  write(value, out)
  return concat(out)
end

local function guarded(f, ...)
  local ok, result = pcall(f, ...)
  if ok then return true, result end
  if type(result) == 'table' and result.err then return false, result.err end
  return false, 'ERR ' .. tostring(result)
end

function S.load(digest, source, name)
  local chunk, problem = loadstring(source, '@' .. name)
  if not chunk then return problem end
  setfenv(chunk, sandbox)
  S.scripts[digest] = chunk
  return nil
end

local function run(digest, count, all)
  local keys, argv, n = {}, {}, #all
  for i = 1, count do keys[i] = all[i] end
  for i = count + 1, n do argv[i - count] = all[i] end
  rawset(sandbox, 'KEYS', keys)
  rawset(sandbox, 'ARGV', argv)
  in_script, has_written, slot, script_was_full = true, false, nil, S.full
  for i = 1, count do
    local tag = tag_of(keys[i])
    slot = slot or tag
    if tag ~= slot then fail('CROSSSLOT KEYS of a script are in two slots') end
  end
  return answer(S.scripts[digest]())
end

-- What store.py hears of each command: whether it was done; the answer as JSON, or the error; what was published, as
-- JSON, if anything was; and whether there is something for the invariants to look at.
local function told(ok, result)
  local published = nil
  if S.published[1] then
    published = answer(S.published)
    S.published = {}
  end
  return ok, result, published, next(S.dirty) ~= nil or next(S.created) ~= nil
end

local function evalsha(now_us, digest, count, all)
  S.now_us = now_us
  if not S.scripts[digest] then return told(false, 'NOSCRIPT No matching script.') end
  local ok, result = guarded(run, digest, count, all)
  in_script = false
  return told(ok, result)
end

function S.evalsha(now_us, digest, count, ...) return evalsha(now_us, digest, count, { ... }) end

-- For more arguments than a stack holds: in one text, each ended by a zero.
function S.evalsha_of_text(now_us, digest, count, packed)
  local all, from = {}, 1
  while true do
    local at = packed:find('\0', from, true)
    if not at then break end
    all[#all + 1] = packed:sub(from, at - 1)
    from = at + 1
  end
  return evalsha(now_us, digest, count, all)
end

local function answer_to(...) return answer(call(...)) end

function S.command(now_us, ...)
  S.now_us = now_us
  return told(guarded(answer_to, ...))
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

function S.all_keys(now_us)
  S.now_us = now_us
  return answer(C.SCAN('0')[2])
end

function S.count(now_us)
  S.now_us = now_us
  local n = 0
  for key in pairs(S.db) do if find(key) then n = n + 1 end end
  return n
end

S.find, S.C, S.text_of, S.answer = find, C, text, answer
return S
