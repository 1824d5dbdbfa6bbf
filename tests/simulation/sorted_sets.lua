-- sorted_sets: the commands on sorted sets. Gets the store (store.lua) and adds them to it.
local S = ...
local C, text, fail = S.C, S.text_of, S.fail
local open, make, shrunk, remove, turned, span = S.open, S.make, S.shrunk, S.remove, S.turned, S.span
local fmt, sort = string.format, table.sort

C.ZCARD = S.size('z')

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

C.ZREM = S.removing('z')

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
