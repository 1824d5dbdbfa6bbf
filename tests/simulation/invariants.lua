-- invariants: what must hold in a pool after every script, and which keys there may be. Looks at what changed only.
-- Gets the store (store.lua). Returns a function that answers as JSON: problems; `code leases concurrency rate` of each
-- pool that changed; the revision in place if that changed; ids of messages that stand in an outbox as put aside; queue,
-- broker id, token then and token now of what stands in a pool although it was settled. Asked with true, it forgets those.
local S = ...
local LISTS = { ['g:'] = true, ['h:'] = true }
local settled = {} -- queue SEP broker id → the token under which it was acked or put aside
local excused = {} -- what stood in a pool or an outbox as Redis forgot: whoever remembers more may have it come again
local has_forgotten = false

-- A call that was on its way as Redis forgot may bring what nobody knows of any more: its source shows that again.
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

local function note_settled(outbox)
  for _, record in pairs(outbox.d) do
    for item in record:gmatch('[^\30]+') do
      local key, token, verdict = item:match('^([^\31]*\31[^\31]*)\31([^\31]*)\31([ap])')
      if verdict and not excused[key] and settled[key] ~= token then
        if has_forgotten and not is_known(key, token) then excused[key] = true else settled[key] = token end
      end
    end
  end
end

local function check(code, problems, facts, parked, twice_there)
  local prefix = '{p:' .. code .. '}:'
  local function get(name) return S.find(prefix .. name) end
  local function wrong(text) problems[#problems + 1] = 'pool ' .. code .. ': ' .. text end
  local ready, leases, later = get('ready'), get('leases'), get('later')
  local owners, entries, high, settings = get('owners'), get('entries'), get('high'), get('settings')
  local is_ready, twice = set_of(ready)
  local is_leased, is_later = leases and leases.d or {}, later and later.d or {}
  if twice then wrong('lane ' .. twice .. ' stands twice in ready') end

  local lists, listed = {}, 0
  for key in pairs(S.db) do
    if key:sub(1, #prefix) == prefix then
      local part = key:sub(#prefix + 1, #prefix + 2)
      if LISTS[part] then
        local list, lane = S.find(key), key:sub(#prefix + 3)
        if list then
          lists[lane] = true
          listed = listed + list.n
          for i = list.a, list.b do
            if not (entries and entries.d[list.d[i]]) then wrong('lane ' .. lane .. ' lists what is no entry') end
          end
          if part == 'h:' and not (high and high.d[lane]) then wrong('lane ' .. lane .. ' is not marked as high') end
        end
      end
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
      if outbox then note_settled(outbox) end
      for _, record in pairs(outbox and outbox.d or {}) do
        for id in record:gmatch('\31p{[^\30]-"messageId":"(.-)"') do parked[#parked + 1] = id end
      end
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
  facts[#facts + 1] = { code, leases and leases.n or 0, settings and settings.d.concurrency or '', settings and settings.d.rate or '' }
end

return function(forgot)
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
    local code = key:match('^{p:(.-)}:')
    if code and not pools[code] then
      pools[code] = true
      order[#order + 1] = code
    elseif key == '{fleet}:config' then
      config = true
    end
  end
  S.dirty = {}
  if #order == 0 and not config then return nil end
  table.sort(order)
  local problems, facts, parked, twice_there = {}, {}, {}, {}
  for _, code in ipairs(order) do check(code, problems, facts, parked, twice_there) end
  local found = config and S.find('{fleet}:config')
  table.sort(problems)
  table.sort(parked)
  table.sort(twice_there, function(one, other) return one[3] < other[3] end)
  return S.answer({ problems, facts, found and found.d.revision or '', parked, twice_there })
end
