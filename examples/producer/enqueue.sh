#!/bin/sh
# Sends a job through the gateway with curl: see docs/gateway.md.
#
#   enqueue.sh GATEWAY QUEUE PAYLOAD [PARAMETER=VALUE…] [-- OPTION OF CURL…]
#   enqueue.sh https://yardmaster-gateway.yardmaster-system.svc orders '{"id": "7"}' id=order-7 kind=charge
#
# QUEUE is NAME, for a Queue in the namespace of the token, or NAMESPACE/NAME. TOKEN_FILE has the token, CA_FILE the
# certificate authority of the gateway. Requests are repeated, so give the job an id.
set -eu

gateway=$1 queue=$2 payload=$3
shift 3
case $queue in
*/*) path=/namespaces/${queue%/*}/queues/${queue#*/}/jobs ;;
*) path=/queues/$queue/jobs ;;
esac
query='' separator='?'
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	# A plus in a query is a space, as in the time 2026-01-31T08:00:00+01:00.
	query=$query$separator$(printf %s "$1" | sed 's/%/%25/g; s/+/%2B/g; s/&/%26/g; s/#/%23/g; s/ /%20/g')
	separator='&'
	shift
done
[ "${1:-}" != -- ] || shift

# The token is read from standard input, so that it is in no list of processes.
printf 'Authorization: Bearer %s\n' "$(cat "${TOKEN_FILE:-/var/run/secrets/yardmaster/token}")" |
	curl --silent --show-error --fail-with-body --max-time 30 --retry 5 --retry-connrefused \
		--cacert "${CA_FILE:-/var/run/secrets/yardmaster/ca.crt}" --header @- \
		--header 'Content-Type: application/json' --data-binary "$payload" "$@" "$gateway$path$query"
