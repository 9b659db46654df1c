package natstest

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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
	addresses := freeAddresses(t, 2*size)
	ports, routePorts := addresses[:size], addresses[size:]
	var routes []*url.URL
	for _, address := range routePorts {
		routes = append(routes, &url.URL{Scheme: "nats", Host: address.String()})
	}
	for i := range size {
		c.Servers = append(c.Servers, &Server{t: t, options: server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: ports[i].Port, JetStream: true, StoreDir: t.TempDir(),
			NoLog: true, NoSigs: true, Routes: routes,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: routePorts[i].Port},
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

// Run starts servers of the cluster, and returns when all of them know each other and a leader, and can
// replicate a stream.
func (c *Cluster) Run(servers ...*Server) {
	c.t.Helper()
	for _, s := range servers {
		s.run()
		c.t.Cleanup(s.Stop)
	}
	wait(c.t, "the servers to form a cluster", func() bool {
		running, known := 0, 0
		for _, s := range c.Servers {
			if s.Server == nil || !s.Running() {
				continue
			}
			running++
			if s.JetStreamIsLeader() {
				known = len(s.JetStreamClusterPeers())
			}
		}
		return known == running
	})
	wait(c.t, "the servers to replicate a stream", func() bool { return c.replicates(len(servers)) })
}

// replicates reports whether the cluster creates a stream with that number of replicas. Servers that know a
// leader may still refuse it for a moment.
func (c *Cluster) replicates(replicas int) bool {
	connection, err := nats.Connect(c.URL())
	if err != nil {
		return false
	}
	defer connection.Close()
	js, err := jetstream.New(connection)
	if err != nil {
		return false
	}
	probe := jetstream.StreamConfig{Name: "probe", Subjects: []string{"probe"}, Replicas: replicas}
	_, err = js.CreateOrUpdateStream(c.t.Context(), probe)
	return err == nil && js.DeleteStream(c.t.Context(), probe.Name) == nil
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

func wait(t testing.TB, description string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", description)
		}
	}
}

// freeAddresses returns different free addresses.
func freeAddresses(t testing.TB, number int) (all []*net.TCPAddr) {
	t.Helper()
	var listeners []net.Listener
	defer func() {
		for _, listener := range listeners {
			_ = listener.Close()
		}
	}()
	for range number {
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, listener)
		all = append(all, listener.Addr().(*net.TCPAddr)) //nolint:forcetypeassert // of a TCP listener
	}
	return all
}
