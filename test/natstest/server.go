// Package natstest runs a real NATS server for tests, in the test process.
package natstest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/require"
)

// startTimeout bounds the start of a server, and loginTimeout that of a connection: a busy machine needs many times as long as an idle one.
const startTimeout, loginTimeout = 5 * time.Minute, time.Minute

// Server is a running server.
type Server struct {
	*server.Server
	t       testing.TB
	options server.Options
}

// Start runs a server with JetStream until the test ends.
func Start(t testing.TB, changes ...func(*server.Options)) *Server {
	t.Helper()
	s := &Server{t: t, options: server.Options{
		Host: "127.0.0.1", Port: int(ports.Reserve(t).Port()), JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		AuthTimeout: loginTimeout.Seconds(), TLSTimeout: loginTimeout.Seconds(),
	}}
	for _, change := range changes {
		change(&s.options)
	}
	s.run()
	t.Cleanup(s.Stop)
	return s
}

func (s *Server) run() {
	s.t.Helper()
	options := s.options
	running, err := server.NewServer(&options)
	require.NoError(s.t, err)
	running.Start()
	require.True(s.t, running.ReadyForConnections(startTimeout), "the server does not start")
	s.Server = running
}

// Options returns options that apply after the next Restart.
func (s *Server) Options() *server.Options { return &s.options }

// Address returns host:port, also after the server was stopped.
func (s *Server) Address() string {
	return net.JoinHostPort(s.options.Host, strconv.Itoa(s.options.Port))
}

// JetStream returns a client of the server, which is disconnected when the test ends.
func (s *Server) JetStream(options ...jetstream.JetStreamOpt) jetstream.JetStream {
	s.t.Helper()
	connection, err := nats.Connect(s.ClientURL(), nats.Timeout(startTimeout), nats.MaxReconnects(-1))
	require.NoError(s.t, err)
	s.t.Cleanup(connection.Close)
	js, err := jetstream.New(connection, append(options, jetstream.WithDefaultTimeout(startTimeout))...)
	require.NoError(s.t, err)
	return js
}

// Stop stops the server and keeps its files.
func (s *Server) Stop() {
	s.Shutdown()
	s.WaitForShutdown()
}

// Restart stops the server if it runs, and starts it at the same address.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.run()
}

// Account is the account of a server whose users log in with credentials files.
type Account struct {
	*Server
	t        testing.TB
	operator nkeys.KeyPair
	key      nkeys.KeyPair
	claims   *jwt.AccountClaims
	resolver *server.MemAccResolver
}

// StartWithAccount runs a server with an operator and an account, until the test ends.
func StartWithAccount(t testing.TB) *Account {
	t.Helper()
	a := &Account{t: t, operator: newKey(t, nkeys.CreateOperator), key: newKey(t, nkeys.CreateAccount), resolver: &server.MemAccResolver{}}
	a.claims = jwt.NewAccountClaims(a.publicKey(a.key))
	a.claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
	a.store(a.claims)
	system := jwt.NewAccountClaims(a.publicKey(newKey(t, nkeys.CreateAccount))) // JetStream needs one
	a.store(system)
	a.Server = Start(t, func(o *server.Options) {
		o.TrustedOperators = []*jwt.OperatorClaims{jwt.NewOperatorClaims(a.publicKey(a.operator))}
		o.AccountResolver, o.SystemAccount = a.resolver, system.Subject
	})
	return a
}

// NewUser returns a credentials file, and a function that makes it invalid and restarts the server.
func (a *Account) NewUser() (credentials []byte, revoke func()) {
	a.t.Helper()
	key := newKey(a.t, nkeys.CreateUser)
	token, err := jwt.NewUserClaims(a.publicKey(key)).Encode(a.key)
	require.NoError(a.t, err)
	seed, err := key.Seed()
	require.NoError(a.t, err)
	credentials, err = jwt.FormatUserConfig(token, seed)
	require.NoError(a.t, err)
	return credentials, func() {
		a.claims.Revoke(a.publicKey(key))
		a.store(a.claims)
		a.Restart()
	}
}

func (a *Account) store(claims *jwt.AccountClaims) {
	a.t.Helper()
	token, err := claims.Encode(a.operator)
	require.NoError(a.t, err)
	require.NoError(a.t, a.resolver.Store(claims.Subject, token))
}

func (a *Account) publicKey(pair nkeys.KeyPair) string {
	a.t.Helper()
	public, err := pair.PublicKey()
	require.NoError(a.t, err)
	return public
}

func newKey(t testing.TB, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	pair, err := create()
	require.NoError(t, err)
	return pair
}

// NewNKey returns the seed of a new user, and its public key.
func NewNKey(t testing.TB) (seed []byte, public string) {
	t.Helper()
	user := newKey(t, nkeys.CreateUser)
	seed, err := user.Seed()
	require.NoError(t, err)
	public, err = user.PublicKey()
	require.NoError(t, err)
	return seed, public
}

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

// StartCluster runs a cluster until the test ends, and returns when it can store streams with as many replicas as it has servers.
func StartCluster(t testing.TB, size int) *Cluster {
	t.Helper()
	c := NewCluster(t, size)
	c.Run(c.Servers...)
	return c
}

// Run starts servers of the cluster, and returns when all that run know each other and a leader, and replicate a stream. That stream
// remains: a server that deletes its last stream removes the directory of all streams, even while it creates another one there.
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
