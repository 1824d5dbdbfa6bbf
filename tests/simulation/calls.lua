-- calls: runs commands and scripts as a Redis server does: what it refuses, and its answers as JSON.
-- Gets the store (store.lua) and adds to it what store.py calls.
local S = ...
local C, fail = S.C, S.fail
local fmt, floor, concat = string.format, math.floor, table.concat

local WRITES, GROWS = {}, {}
for name in ('HSET HINCRBY RPUSH LPUSH SADD ZADD SET'):gmatch('%S+') do WRITES[name], GROWS[name] = true, true end
for name in ('DEL UNLINK RENAME PEXPIRE PERSIST HDEL LPOP RPOP LTRIM LREM SREM ZREM ZREMRANGEBYSCORE ZREMRANGEBYRANK ZPOPMIN FLUSHALL')
  :gmatch('%S+') do WRITES[name] = true end

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

function S.all_keys(now_us)
  S.now_us = now_us
  return answer(C.SCAN('0')[2])
end

S.answer = answer
