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

-- The prelude stands before every script, so what it defines at its top level is known to all of them.
for line in io.lines("fleet/state/lua/prelude.lua") do
  local name = line:match("^local function ([%w_]+)") or line:match("^local ([%w_]+)")
  if name then std.read_globals[#std.read_globals + 1] = name end
end
files["fleet/state/lua/prelude.lua"] = { ignore = { "211", "431" } }
max_comment_line_length = false -- a script's KEYS stand in one line of its header
