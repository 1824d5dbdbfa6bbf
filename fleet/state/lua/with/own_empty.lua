-- own_empty: a queue of our own is emptied at once, whatever it holds; what that leaves behind is cleared in steps.

-- Returns how many messages are gone. Its groups' lists stay under the generation before, and its lanes in `junk`, which
-- lua/own/clear.lua goes through. What waits in an outbox has left the queue already.
local function empty(queue, kind, bodies, hidden, ready, due, shown, seen, delayed, fresh, out, origins, junk)
  local count
  if kind == 't' then
    count = tonumber(redis.call('HGET', queue.state, 'messages') or 0)
    redis.call('HDEL', queue.state, 'messages', 'bytes', 'out_bytes')
  else
    count = redis.call('HLEN', bodies)
    redis.call('UNLINK', bodies)
  end
  redis.call('UNLINK', hidden, shown, delayed, fresh, out, origins)
  -- The router's producers repeat what may have been accepted: that is known for its time, whatever became of it.
  if kind ~= 'f' then redis.call('UNLINK', seen) end
  local before = queue.generation
  for name, lanes in pairs({ ready = ready, due = due }) do
    if redis.call('EXISTS', lanes) == 1 then
      redis.call('RENAME', lanes, junk .. before .. name)
      redis.call('SADD', junk, before .. name)
    end
  end
  local number = tonumber(redis.call('HINCRBY', queue.state, 'purges', 1))
  queue.generation = text(number) .. SEP
  redis.call('HSET', queue.state, 'generation', queue.generation)
  return count
end
