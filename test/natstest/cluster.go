package natstest

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/require"
)

// Cluster is a cluster of servers in the test process.
type Cluster struct {
	Servers []*Server
	t       testing.TB
}

// NewCluster configures a cluster. Run starts its servers, which stop when the test ends.
func NewCluster(t testing.TB, size int) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	var routes []*url.URL
	var routePorts []int
	for range size {
		address := ports.Reserve(t)
		routePorts = append(routePorts, int(address.Port()))
		routes = append(routes, &url.URL{Scheme: "nats", Host: address.String()})
	}
	for i := range size {
		c.Servers = append(c.Servers, &Server{t: t, options: server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: int(ports.Reserve(t).Port()), JetStream: true, StoreDir: t.TempDir(),
			NoLog: true, NoSigs: true, AuthTimeout: loginTimeout.Seconds(), Routes: routes,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: routePorts[i], AuthTimeout: loginTimeout.Seconds()},
		}})
	}
	return c
}

// StartCluster runs a cluster until the test ends, and returns when it can store streams with as many
// replicas as it has servers.
func StartCluster(t testing.TB, size int) *Cluster {
	t.Helper()
	c := NewCluster(t, size)
	c.Run(c.Servers...)
	return c
}

// Run starts servers of the cluster, and returns when all that run know each other and a leader, and replicate
// a stream. That stream remains: a server that deletes its last stream removes the directory of all streams,
// even while it creates another one there.
func (c *Cluster) Run(servers ...*Server) {
	c.t.Helper()
	for _, s := range servers {
		s.run()
		c.t.Cleanup(s.Stop)
	}
	running := 0
	for _, s := range c.Servers {
		if s.Server != nil && s.Running() {
			running++
		}
	}
	poll.Until(c.t, "the servers to form a cluster", func() bool {
		for _, s := range c.Servers {
			if s.Server != nil && s.Running() && s.JetStreamIsLeader() {
				return len(s.JetStreamClusterPeers()) == running
			}
		}
		return false
	})
	connection, err := nats.Connect(c.URL(), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true))
	require.NoError(c.t, err)
	defer connection.Close()
	js, err := jetstream.New(connection)
	require.NoError(c.t, err)
	poll.Until(c.t, "the servers to replicate a stream", func() bool {
		probe, err := probeStream(c.t.Context(), js, running) // servers that know a leader may still refuse it for a moment
		return err == nil && probe.Cluster != nil && probe.Cluster.Leader != "" && currentReplicas(probe) == running
	})
}

func currentReplicas(stream *jetstream.StreamInfo) int {
	current := 1 // the leader
	for _, replica := range stream.Cluster.Replicas {
		if replica.Current && !replica.Offline {
			current++
		}
	}
	return current
}

// probeStream changes the stream only if it has another number of replicas, because each change delays them.
func probeStream(ctx context.Context, js jetstream.JetStream, replicas int) (*jetstream.StreamInfo, error) {
	config := jetstream.StreamConfig{Name: "probe", Subjects: []string{"probe"}, Replicas: replicas}
	probe, err := js.Stream(ctx, config.Name)
	if err != nil || probe.CachedInfo().Config.Replicas != replicas {
		probe, err = js.CreateOrUpdateStream(ctx, config)
	}
	if err != nil {
		return nil, err
	}
	return probe.CachedInfo(), nil
}

// URL names all servers.
func (c *Cluster) URL() string {
	var all []string
	for _, s := range c.Servers {
		all = append(all, "nats://"+s.Address())
	}
	return strings.Join(all, ",")
}

// Named returns the server with that name.
func (c *Cluster) Named(name string) *Server {
	c.t.Helper()
	for _, s := range c.Servers {
		if s.options.ServerName == name {
			return s
		}
	}
	c.t.Fatalf("the cluster has no server %q", name)
	return nil
}
