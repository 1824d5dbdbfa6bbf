-- own/again: what a receive showed is shown to the same asker again, as long as nothing has become of it.
-- WITH own_queue
-- KEYS state bodies hidden due shown origins attempt
-- ARGV now_ms incarnation version visibility_ms keep_ms showing …, three fields a showing: number group note
--   visibility_ms: '' to look only, which hides nothing for longer; keep_ms: for how long it may be asked again; showing: to be remembered, or none to ask for what was
--   remembered; note: the asker's own
-- Returns {tag, message …}, five fields a message: number group showing body note
--   tag: `ok`, `void` (something has become of it, or nothing is remembered), `stale` or `ahead` (with/own_queue.lua)
local state, bodies, hidden, due, shown, origins, attempt = unpack(KEYS)
local queue = open_queue(state, ARGV[1], ARGV[2], ARGV[3])
local visibility_ms, keep_ms = tonumber(ARGV[4]), ARGV[5]
local FIELDS = 3
local total = (#ARGV - 5) / FIELDS
if queue.verdict then return { queue.verdict } end

if total > 0 then
  local seqs, record = {}, {}
  for i = 1, total do seqs[i] = ARGV[5 + (i - 1) * FIELDS + 1] end
  local until_ms, often = read_many('ZMSCORE', hidden, seqs), read_many('HMGET', shown, seqs)
  for i = 1, total do
    local base = 5 + (i - 1) * FIELDS
    record[#record + 1] = seqs[i]
    record[#record + 1] = table.concat({ until_ms[i] or '', often[i] or '', ARGV[base + 2], ARGV[base + 3] }, '\30')
  end
  redis.call('DEL', attempt)
  -- In order: fields of a hash have none.
  redis.call('RPUSH', attempt, unpack(record))
  redis.call('PEXPIRE', attempt, keep_ms)
  return { 'ok' }
end

local record = redis.call('LRANGE', attempt, 0, -1)
local answer, hide, wait, seen = { 'ok' }, {}, {}, {}
local until_next = visibility_ms and text(queue.now + visibility_ms)
local renewed = {}
for i = 1, #record, 2 do
  local seq = record[i]
  local until_was, showing, group, note = string.match(record[i + 1], '^([^\30]*)\30([^\30]*)\30([^\30]*)\30(.*)$')
  local until_is = redis.call('ZSCORE', hidden, seq)
  local lapsed = not until_is or tonumber(until_is) <= queue.now
  if lapsed or until_is ~= until_was or redis.call('HGET', shown, seq) ~= showing then
    redis.call('DEL', attempt)
    return { 'void' }
  end
  local n = #answer
  local origin = redis.call('HGET', origins, seq)
  answer[n + 1], answer[n + 2], answer[n + 3] = seq, group, showing .. (origin and '\31' .. origin or '')
  answer[n + 4], answer[n + 5] = redis.call('HGET', bodies, seq), note
  if until_next then
    hide[#hide + 1], hide[#hide + 2] = until_next, seq
    renewed[#renewed + 1], renewed[#renewed + 2] = seq, table.concat({ until_next, showing, group, note }, '\30')
    if not seen[group] then
      seen[group] = true
      wait[#wait + 1], wait[#wait + 2] = until_next, group
    end
  end
end
if #answer == 1 then return { 'void' } end
if not until_next then return answer end
redis.call('ZADD', hidden, unpack(hide))
redis.call('ZADD', due, unpack(wait))
-- The next repetition compares with what is there now.
local left_ms = redis.call('PTTL', attempt)
redis.call('DEL', attempt)
redis.call('RPUSH', attempt, unpack(renewed))
redis.call('PEXPIRE', attempt, left_ms)
return answer
