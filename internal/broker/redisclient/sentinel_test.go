package redisclient

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/test/certtest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
)

// dialers are how workers and the operator connect.
var dialers = map[string]broker.DialFunc{"worker": nil, "operator": bounded.NewDialer(bounded.Options{AllowLocal: true}).For("team")}

func connect(t *testing.T, c broker.Credentials) redis.UniversalClient {
	t.Helper()
	client := require.Call(NewClient(t.Context(), c, 10)).Succeeds(t)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestTheClientFollowsTheMasterThatSentinelsName(t *testing.T) {
	for name, dial := range dialers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.StartSentinels(t)
			s.Sentinels[0].Stop() // the others suffice
			client := connect(t, broker.Credentials{URL: s.URL(), Sentinel: &broker.Sentinel{MasterName: redistest.MasterName}, Dial: dial})
			require.NoError(t, client.Set(t.Context(), "key", "value", 0).Err())
			poll.Until(t, "the replica to have the key", func() bool { return s.Replica.RunCLI("GET", "key") == "value" })
			s.Sentinels[0].Restart()
			s.Master.Stop()
			s.WaitForFailover()
			poll.Until(t, "the client to use the new master", func() bool { return client.Set(t.Context(), "key", "2", 0).Err() == nil })
			require.Equal(t, "2", s.Replica.RunCLI("GET", "key"))
		})
	}
}

// A client gets no notification that the host of a server is gone. Each of its connections would time out.
func TestTheFirstTimeoutAfterAFailoverClosesAllConnectionsToTheOldMaster(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinels(t)
	client := connect(t, broker.Credentials{URL: s.URL(), Sentinel: &broker.Sentinel{MasterName: redistest.MasterName}})
	held := make(chan error, 5)
	for range cap(held) {
		go func() { held <- client.BLPop(t.Context(), 0, "list").Err() }()
	}
	poll.Until(t, "five connections to be held", func() bool { return strings.Contains(s.Master.RunCLI("INFO", "clients"), "blocked_clients:5") })
	s.Master.RunCLI("RPUSH", "list", "1", "2", "3", "4", "5")
	for range cap(held) {
		require.NoError(t, <-held)
	}
	idle := client.PoolStats().IdleConns
	require.True(t, idle >= 5, "%d idle connections", idle)
	s.Master.Signal(syscall.SIGSTOP)
	defer s.Master.Signal(syscall.SIGCONT)
	s.WaitForFailover()
	require.True(t, client.Ping(t.Context()).Err() != nil, "a suspended server answers")
	for range 10 {
		require.NoError(t, client.Set(t.Context(), "key", "value", 0).Err())
	}
}

func TestTheLoginAtTheSentinelsIsNotThatOfTheMaster(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinels(t)
	s.Master.RunCLI("ACL", "SETUSER", "app", "on", ">hidden", "~*", "+@all")
	for _, sentinel := range s.Sentinels { // these are the permissions that docs/engines.md lists
		sentinel.RunCLI("ACL", "SETUSER", "me", "on", ">hidden2", "-@all", "+hello", "+sentinel|get-master-addr-by-name")
		sentinel.RunCLI("ACL", "SETUSER", "default", "resetpass", ">hidden3")
	}
	for want, sentinel := range map[string]broker.Sentinel{
		"":                             {MasterName: redistest.MasterName, Username: "me", Password: "hidden2"},
		"NOAUTH":                       {MasterName: redistest.MasterName},
		"WRONGPASS":                    {MasterName: redistest.MasterName, Username: "me", Password: "hidden"},
		"monitor no master with":       {MasterName: "other", Username: "me", Password: "hidden2"},
		"sentinel.masterName is empty": {},
	} {
		for name, dial := range dialers {
			c := broker.Credentials{URL: s.URL(), Username: "app", Password: "hidden", Sentinel: &sentinel, Dial: dial, ConcealCauses: dial != nil}
			client, err := NewClient(t.Context(), c, 1)
			if err == nil {
				user := client.Do(t.Context(), "ACL", "WHOAMI").Val()
				require.True(t, user == "app", "%s: the user at the master is %v", name, user)
				_ = client.Close()
			}
			isRight := (err == nil) == (want == "") && strings.Contains(fmt.Sprint(err), want) && !strings.Contains(fmt.Sprint(err), "hidden")
			require.True(t, isRight, "%s: got %v, want %s", name, err, want)
		}
	}
}

func TestTheClientUsesTheCurrentLoginAtTheSentinels(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinels(t, "user me on >first +@all")
	var password atomic.Pointer[string]
	password.Store(new("first"))
	read := func() (broker.Credentials, error) {
		return broker.Credentials{URL: s.URL(), Sentinel: &broker.Sentinel{MasterName: redistest.MasterName, Username: "me", Password: *password.Load()}}, nil
	}
	c, _ := read()
	c.Refresh = read
	client := connect(t, c)
	password.Store(new("second"))
	for _, sentinel := range s.Sentinels {
		sentinel.RunCLI("ACL", "SETUSER", "me", "resetpass", ">second")
	}
	s.Master.Stop()
	s.WaitForFailover()
	poll.Until(t, "the client to use the new master", func() bool { return client.Set(t.Context(), "key", "2", 0).Err() == nil })
}

// writeCertificate writes the certificate of a server, and returns what a client needs.
func writeCertificate(t *testing.T, dir string) *broker.TLS {
	t.Helper()
	certificate, key := certtest.NewCertificate(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "crt"), certificate, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key"), key, 0o600))
	return broker.NewTLS(certificate, certificate, key, "")
}

func TestEachConnectionHasTheCurrentCertificates(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), strconv.Itoa(int(ports.Reserve(t).Port()))
	c := broker.Credentials{URL: "rediss://127.0.0.1:" + port, TLS: writeCertificate(t, dir)}
	server := redistest.Start(t, "--tls-port", port, "--tls-cert-file", dir+"/crt", "--tls-key-file", dir+"/key", "--tls-ca-cert-file", dir+"/crt")
	var current atomic.Pointer[broker.TLS]
	c.Refresh = func() (broker.Credentials, error) {
		if now := current.Load(); now != nil {
			return broker.Credentials{URL: c.URL, TLS: now}, nil
		}
		return broker.Credentials{}, errors.New("the files are being replaced")
	}
	clients := map[string]redis.UniversalClient{}
	for name, dial := range dialers {
		c.Dial = dial
		clients[name] = connect(t, c)
	}
	rotated := writeCertificate(t, dir)
	server.Stop()
	server.Restart()
	current.Store(rotated)
	for name, client := range clients {
		poll.Until(t, name+" to connect with the new certificates", func() bool { return client.Ping(t.Context()).Err() == nil })
	}
}

func TestTheSentinelAndTheMasterAreReachedWithTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificates := writeCertificate(t, dir)
	settings := []string{"tls-cert-file " + dir + "/crt", "tls-key-file " + dir + "/key", "tls-ca-cert-file " + dir + "/crt", "tls-replication yes"}
	masterPort, sentinelPort := strconv.Itoa(int(ports.Reserve(t).Port())), strconv.Itoa(int(ports.Reserve(t).Port()))
	arguments := []string{"--tls-port", masterPort}
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, " ")
		arguments = append(arguments, "--"+name, value)
	}
	redistest.Start(t, arguments...)
	redistest.StartSentinel(t, masterPort, 1, append(settings, "tls-port "+sentinelPort)...)
	for name, dial := range dialers {
		c := broker.Credentials{
			URL: "rediss://127.0.0.1:" + sentinelPort, TLS: certificates, Sentinel: &broker.Sentinel{MasterName: redistest.MasterName}, Dial: dial,
		}
		err := connect(t, c).Set(t.Context(), "key", "value", 0).Err()
		require.True(t, err == nil, "%s: %v", name, err)
		c.TLS = nil
		_, err = NewClient(t.Context(), c, 1)
		require.True(t, err != nil && strings.Contains(err.Error(), "unknown authority"), "%s: an unknown certificate authority: %v", name, err)
	}
}

func TestAnAnswerOfASentinelIsChecked(t *testing.T) {
	t.Parallel()
	for _, answer := range [][]string{
		nil, {""}, {"a"}, {"a", "1", "2"}, {"", "1"}, {"a", ""}, {"a", "0"}, {"a", "65536"}, {"a", "-1"}, {"a", "x"}, {strings.Repeat("a", 254), "1"},
	} {
		got, err := masterAddress(answer)
		require.True(t, err != nil && broker.ClassOf(err) == broker.ClassUnreachable, "%q: %s, %v", answer, got, err)
	}
	for want, answer := range map[string][]string{"10.0.0.1:6379": {"10.0.0.1", "6379"}, "[fd00::1]:1": {"fd00::1", "1"}, "redis-0.redis:6379": {"redis-0.redis", "6379"}} {
		got, err := masterAddress(answer)
		require.True(t, got == want && err == nil, "%q: %s, %v", answer, got, err)
	}
}
