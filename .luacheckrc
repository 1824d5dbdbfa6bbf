-- What Redis gives to a script. No cjson: fakeredis has none, and our records need none.
std = {
  globals = {},
  read_globals = {
    "KEYS", "ARGV", "redis",
    "assert", "error", "ipairs", "next", "pairs", "pcall", "select", "tonumber", "tostring", "type", "unpack",
    "math", "string", "table",
  },
}
max_line_length = 120

-- The prelude stands before every script, so what it defines at its top level is known to all of them; what stands
-- before some of them is known to luacheck everywhere, and to tests/state/test_headers.py where it is named.
for _, name in ipairs({ "prelude", "with/rest", "with/away", "with/clock", "with/changed", "with/owner", "with/rate", "with/own_queue", "with/own_moving", "with/own_empty", "with/wake", "with/holder" }) do
  local file = "fleet/state/lua/" .. name .. ".lua"
  for line in io.lines(file) do
    local defined = line:match("^local function ([%w_]+)") or line:match("^local ([%w_]+)")
    if defined then std.read_globals[#std.read_globals + 1] = defined end
  end
  files[file] = { ignore = { "211", "431" } }
end
max_comment_line_length = false -- a script's KEYS stand in one line of its header
