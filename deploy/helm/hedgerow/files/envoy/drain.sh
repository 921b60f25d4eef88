# Before Envoy is stopped: SIGTERM would cut off what is under way. Connections are still taken while load balancers
# learn that the pod stops; then up to a minute for answers in flight. Envoy's admin page is on loopback alone.
ask() {
  exec 3<>/dev/tcp/127.0.0.1/9901
  printf '%s HTTP/1.1\r\nHost: envoy\r\nConnection: close\r\nContent-Length: 0\r\n\r\n' "$1" >&3
  cat <&3
}
ask 'POST /healthcheck/fail' >/dev/null
ask 'POST /drain_listeners?graceful' >/dev/null
sleep "${LAME_DUCK_S:-5}"
for second in {1..55}; do
  ask 'GET /stats?filter=%5Ehttp.edge.downstream_rq_active%24' | grep -q 'rq_active: [1-9]' || exit 0
  sleep 1
done
