-- invariants: what must hold in a pool after every script, and which keys there may be. Looks only at what changed.
-- Gets the store (store.lua). Returns a function that takes the time and answers as JSON, or nil if there is nothing to
-- say: keys that are new; problems; `code leases concurrency rate` of each pool where one of them changed; the revision
-- in place if that was written; ids of messages that are in an outbox as put aside, each once; queue, broker id, token
-- then and token now of what is in a pool although it was settled. Called with true, it forgets those. Its second
-- answer: whether something changed while it looked.
local S = ...

-- A function of a text, computed once per text.
local function once(work)
  return setmetatable({}, { __index = function(known, of)
    local value = work(of)
    known[of] = value
    return value
  end })
end

-- What a key is here: its pool, and its lane if it is a list of messages; false if nothing depends on it.
local place = once(function(key)
  if key == '{fleet}:config' then return { is_config = true } end
  local code, part = key:match('^{p:(.-)}:(.*)$')
  if not code then return false end
  local tier, lane = part:match('^([gh]):(.*)$')
  return { code = code, tier = tier, lane = lane }
end)
S.watched = place
local names_in = once(function(code) return once(function(name) return '{p:' .. code .. '}:' .. name end) end)
local lists_in = once(function() return {} end) -- by pool, each key of a list that may exist → its place
local told_of = {} -- by pool, what was last told about it
local told_parked = {}
local settled = {} -- queue SEP broker id → the token under which it was acked or put aside
local excused = {} -- what was in a pool or an outbox when Redis forgot: a process that remembers it may bring it again
local has_forgotten = false

-- A call that was on its way when Redis forgot may bring what nobody knows of any more: its source shows that again.
local function is_known(key, token)
  local queue, broker_id = key:match('^([^\31]*)\31(.*)$')
  local tracked = S.find('{q:' .. queue .. '}:tracked')
  local record = tracked and tracked.d[broker_id]
  return record and record:match('^[^\31]*\31([^\31]*)') == token
end

local function set_of(list)
  local set, twice = {}, nil
  if list then
    for i = list.a, list.b do
      if set[list.d[i]] then twice = list.d[i] end
      set[list.d[i]] = true
    end
  end
  return set, twice
end

-- What a record of an outbox says was settled: key, token, key, token …
local settled_by = once(function(record)
  local said = {}
  for item in record:gmatch('[^\30]+') do
    local key, token, verdict = item:match('^([^\31]*\31[^\31]*)\31([^\31]*)\31([ap])')
    if verdict then said[#said + 1], said[#said + 2] = key, token end
  end
  return said
end)
local parked_by = once(function(record)
  local ids = {}
  for id in record:gmatch('\31p{[^\30]-"messageId":"(.-)"') do ids[#ids + 1] = id end
  return ids
end)

local function note_settled(outbox, parked)
  for _, record in pairs(outbox.d) do
    local said = settled_by[record]
    for i = 1, #said, 2 do
      local key, token = said[i], said[i + 1]
      if not excused[key] and settled[key] ~= token then
        if has_forgotten and not is_known(key, token) then excused[key] = true else settled[key] = token end
      end
    end
    for _, id in ipairs(parked_by[record]) do
      if not told_parked[id] then told_parked[id], parked[#parked + 1] = true, id end
    end
  end
end

local function check(code, problems, facts, parked, twice_there)
  local names = names_in[code]
  local function get(name) return S.find(names[name]) end
  local function wrong(text) problems[#problems + 1] = 'pool ' .. code .. ': ' .. text end
  local ready, leases, later = get('ready'), get('leases'), get('later')
  local owners, entries, high, settings = get('owners'), get('entries'), get('high'), get('settings')
  local is_ready, twice = set_of(ready)
  local is_leased, is_later = leases and leases.d or {}, later and later.d or {}
  if twice then wrong('lane ' .. twice .. ' stands twice in ready') end

  local lists, listed, keys = {}, 0, lists_in[code]
  for key, at in pairs(keys) do
    local list, lane = S.find(key), at.lane
    if list then
      lists[lane] = true
      listed = listed + list.n
      for i = list.a, list.b do
        if not (entries and entries.d[list.d[i]]) then wrong('lane ' .. lane .. ' lists what is not an entry') end
      end
      if at.tier == 'h' and not (high and high.d[lane]) then wrong('lane ' .. lane .. ' is not marked as high') end
    else
      keys[key] = nil
    end
  end
  for lane in pairs(lists) do
    local states = (is_ready[lane] and 1 or 0) + (is_leased[lane] and 1 or 0) + (is_later[lane] and 1 or 0)
    if states ~= 1 then wrong('lane ' .. lane .. ' has messages and is in ' .. states .. ' of ready, leases and later') end
  end
  for lane in pairs(is_ready) do if not lists[lane] then wrong('lane ' .. lane .. ' is ready and has no messages') end end
  for lane in pairs(is_later) do if not lists[lane] then wrong('lane ' .. lane .. ' waits and has no messages') end end
  if listed ~= (entries and entries.n or 0) then
    wrong((entries and entries.n or 0) .. ' entries, and ' .. listed .. ' of them in lanes')
  end
  for lane in pairs(is_leased) do
    if not (owners and owners.d[lane]) then wrong('lane ' .. lane .. ' is leased by nobody') end
  end
  if owners then
    for lane in pairs(owners.d) do if not is_leased[lane] then wrong('lane ' .. lane .. ' is owned and not leased') end end
  end
  if entries and not (settings and settings.d.concurrency) then wrong('it holds messages and has no settings') end
  local outboxes = get('outboxes')
  if outboxes then
    for worker in pairs(outboxes.d) do
      local outbox = get('o:' .. worker)
      if outbox then note_settled(outbox, parked) end
    end
  end
  if entries and next(settled) then
    for key, value in pairs(entries.d) do
      local token = settled[key]
      -- Under the same token it is still there: a settle that was taken removes it in the same script.
      if token then
        local queue, broker_id = key:match('^([^\31]*)\31(.*)$')
        twice_there[#twice_there + 1] = { queue, broker_id, token, (value:match('^[^\31]*')) }
      end
    end
  end
  local fact = { code, leases and leases.n or 0, settings and settings.d.concurrency or '', settings and settings.d.rate or '' }
  local told = told_of[code]
  if not (told and told[2] == fact[2] and told[3] == fact[3] and told[4] == fact[4]) then
    told_of[code], facts[#facts + 1] = fact, fact
  end
end

return function(now_us, forgot)
  S.now_us = now_us
  if forgot then
    settled, has_forgotten = {}, true
    for key, e in pairs(S.db) do
      if key:find('}:entries', 1, true) then for id in pairs(e.d) do excused[id] = true end end
      if key:find('}:o:', 1, true) then
        for _, record in pairs(e.d) do
          for item in record:gmatch('[^\30]+') do excused[item:match('^[^\31]*\31[^\31]*')] = true end
        end
      end
    end
  end
  local pools, order, config = {}, {}, false
  for key in pairs(S.dirty) do
    local at = place[key]
    local code = at.code
    if at.is_config then
      config = true
    elseif not pools[code] then
      pools[code] = true
      order[#order + 1] = code
    end
    if at.lane then lists_in[code][key] = at end
  end
  S.dirty = {}
  table.sort(order)
  local created, problems, facts, parked, twice_there = S.take_created(), {}, {}, {}, {}
  for _, code in ipairs(order) do check(code, problems, facts, parked, twice_there) end
  local found = config and S.find('{fleet}:config')
  local changed = next(S.dirty) ~= nil
  local news = #created + #problems + #facts + #parked + #twice_there
  if news == 0 and not found then return nil, changed end
  table.sort(problems)
  table.sort(parked)
  table.sort(twice_there, function(one, other) return one[3] < other[3] end)
  return S.answer({ created, problems, facts, found and found.d.revision or '', parked, twice_there }), changed
end
