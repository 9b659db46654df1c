// Package egressproxy implements `yardmaster egress-proxy`: the HTTP proxy through which the sessions of a namespace reach hosts by
// name. It runs in the sessions' namespace, without access to the API server.
//
// A session sends CONNECT host:port with a token that the operator signed for it. The proxy compares the host with the rules of the
// session's SessionRunner, resolves its name, and connects to the address that it has checked. It then forwards the TLS ClientHello
// only if it is for the same host, and everything after it.
package egressproxy
