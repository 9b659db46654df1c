package natstest

import (
	"net/url"
	"slices"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
)

// HubDomain is the JetStream domain of the hub of a leaf node.
const HubDomain = "hub"

// StartLeaf runs a server and a leaf node of it, whose JetStream domain is "leaf", until the test ends. It
// returns when the leaf node can reach the hub's JetStream.
func StartLeaf(t testing.TB, changes ...func(leaf *server.Options)) (hub, leaf *Server) {
	t.Helper()
	address := ports.Reserve(t)
	hub = Start(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = HubDomain, HubDomain
		o.LeafNode = server.LeafNodeOpts{Host: "127.0.0.1", Port: int(address.Port()), AuthTimeout: loginTimeout.Seconds()}
	})
	leaf = Start(t, append(changes, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "leaf", "leaf"
		o.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{{Scheme: "nats-leaf", Host: address.String()}}}}
	})...)
	poll.Until(t, "the leaf node to know the API of the hub", func() bool { return knowsHub(leaf) })
	return hub, leaf
}

// knowsHub reports whether the leaf node has received the subjects of the hub's JetStream API. They follow the connection.
func knowsHub(leaf *Server) bool {
	state, err := leaf.Leafz(&server.LeafzOptions{Subscriptions: true})
	if err != nil || len(state.Leafs) != 1 {
		return false
	}
	for _, requests := range []string{"INFO", "STREAM.>", "CONSUMER.>", "DIRECT.>", "$KV.>"} {
		if !slices.Contains(state.Leafs[0].Subs, "$JS."+HubDomain+".API."+requests) {
			return false
		}
	}
	return true
}
