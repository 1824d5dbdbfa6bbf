-- wrk's request: the same POST that every scenario sends. The token comes as the first argument after `--`.
function init(arguments)
  wrk.method = "POST"
  wrk.body = '{"messageId":"m00000000"}'
  wrk.headers["Authorization"] = "Bearer " .. arguments[1]
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["Accept"] = "application/json"
end
