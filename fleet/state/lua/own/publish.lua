-- own/publish: append messages to subscriptions of one topic, in order, all or nothing; a body is kept once.
-- WITH own_queue
-- KEYS state bodies refs subscription
-- ARGV now_ms incarnation version most most_bytes source held message …, four fields a message: place group to body
--   incarnation, version: what the caller knows of the topic and of who subscribes to it
--   most, most_bytes: how many messages, and how many bytes, a subscription holds at most: what comes then is not for it
--   source: '' or whose outbox it comes from, as in lua/own/arrive.lua: then all of it is for everybody, or nothing is taken
--   place: in that outbox, which rises; what has come already gets the number 0
--   held: behind the prefix KEY `subscription`, the names of those that are named below, each ended by 0x1f
--   group: '' for none; to: places in `held`, each ended by a comma, `-` before those that take it without its group
-- Returns {tag, number …, full …}
--   tag: `ok`; or nothing was taken: `stale` or `ahead` (with/own_queue.lua), `full`
--   number: of each message; full: of each in `held`, how many it did not get
local state, bodies, refs, subscription = unpack(KEYS)
local queue = open_queue(state, ARGV[1], ARGV[2], ARGV[3])
local most, most_bytes = tonumber(ARGV[4]), tonumber(ARGV[5])
local source = ARGV[6]
local FIELDS = 4
local total = (#ARGV - 7) / FIELDS
if queue.verdict then return { queue.verdict } end
note_queue_time(queue)

local subs = {}
for name in string.gmatch(ARGV[7], '([^\31]*)\31') do
  local prefix = subscription .. name .. ':'
  local is = redis.call('HMGET', prefix .. 'state', 'messages', 'bytes', 'generation', 'waits')
  subs[#subs + 1] = {
    prefix = prefix,
    messages = tonumber(is[1] or 0),
    bytes = tonumber(is[2] or 0),
    generation = is[3] or '',
    waits = is[4],
    new = 0,
    new_bytes = 0,
    full = 0,
    ready = {},
    lists = {},
    order = {},
  }
end
local last = next_epoch(tonumber(redis.call('HGET', state, 'last') or 0), queue.now) - 1
local highest = source ~= '' and tonumber(redis.call('HGET', state, 'from:' .. source) or 0)
local answer, written, shared = { 'ok' }, {}, {}
local function copy(i)
  local base = 7 + (i - 1) * FIELDS
  local place, group, to, body = tonumber(ARGV[base + 1]), ARGV[base + 2], ARGV[base + 3], ARGV[base + 4]
  if highest and place <= highest then
    answer[i + 1] = '0'
    return true
  end
  highest = highest and place
  last = last + 1
  local seq = text(last)
  answer[i + 1] = seq
  local holders = 0
  for mark, one in string.gmatch(to, '(-?)(%d+),') do
    local sub = subs[tonumber(one)]
    if sub.messages + sub.new >= most or sub.bytes + sub.new_bytes >= most_bytes then
      if source ~= '' then return false end
      sub.full = sub.full + 1
    else
      holders = holders + 1
      sub.new, sub.new_bytes = sub.new + 1, sub.new_bytes + #body
      if group == '' or mark == '-' then
        sub.ready[#sub.ready + 1], sub.ready[#sub.ready + 2] = seq, '\30' .. seq
      else
        if not sub.lists[group] then
          sub.lists[group] = {}
          sub.order[#sub.order + 1] = group
        end
        table.insert(sub.lists[group], seq)
      end
    end
  end
  if holders > 0 then written[#written + 1], written[#written + 2] = seq, body end
  if holders > 1 then shared[#shared + 1], shared[#shared + 2] = seq, holders end
  return true
end
for i = 1, total do
  if not copy(i) then return { 'full' } end
end
redis.call('HSET', state, 'last', text(last))
if highest then redis.call('HSET', state, 'from:' .. source, text(highest)) end
if #written > 0 then call_many('HSET', bodies, written, 2) end
if #shared > 0 then call_many('HSET', refs, shared, 2) end
for i, sub in ipairs(subs) do
  for _, group in ipairs(sub.order) do
    local list = sub.lists[group]
    if call_many('RPUSH', sub.prefix .. 'g:' .. sub.generation .. group, list) == #list then
      sub.ready[#sub.ready + 1], sub.ready[#sub.ready + 2] = list[1], group
    end
  end
  if #sub.ready > 0 then call_many('ZADD', sub.prefix .. 'ready', sub.ready, 2) end
  if sub.new > 0 then
    redis.call('HINCRBY', sub.prefix .. 'state', 'messages', sub.new)
    redis.call('HINCRBY', sub.prefix .. 'state', 'bytes', sub.new_bytes)
    wake_who_waits({ state = sub.prefix .. 'state', waits = sub.waits })
  end
  answer[total + 1 + i] = sub.full
end
return answer
