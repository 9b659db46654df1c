package client

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestTheEnvironmentOfAWorkerHasTheBroker(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	for title, row := range map[string]struct {
		content     string
		url, wantTo string
		want        BrokerConfig
	}{
		"file":                      {content: "broker: {url: nats://a, tls: {caFile: c}}\nqueues: [{name: b}]\nconcurrency: 5", url: "nats://b", want: BrokerConfig{URL: "nats://a", TLS: TLSConfig{CAFile: "c"}}},
		"file without a broker":     {content: "concurrency: 5", url: "nats://b", want: BrokerConfig{URL: "nats://b"}},
		"URL":                       {url: "nats://b", want: BrokerConfig{URL: "nats://b"}},
		"neither":                   {},
		"unknown field of a broker": {content: "broker: {urls: a}", wantTo: `unknown field "urls"`},
	} {
		t.Run(title, func(t *testing.T) {
			env := map[string]string{envBrokerURL: row.url}
			if row.content != "" {
				env[envConfigFile] = file
				require.NoError(t, os.WriteFile(file, []byte(row.content), 0o600))
			}
			got, err := parseEnvironment(func(name string) string { return env[name] })
			if got.Broker != row.want || (err != nil) != (row.wantTo != "") || err != nil && !strings.Contains(err.Error(), row.wantTo) {
				t.Errorf("%+v, %v", got.Broker, err)
			}
		})
	}
}

func TestAnInvalidBrokerOrLoginIsRejected(t *testing.T) {
	t.Parallel()
	locked := natstest.Start(t, func(o *server.Options) { o.Users = []*server.User{{Username: "a", Password: "p"}} })
	for title, row := range map[string]struct {
		options Options
		field   string
		want    error
	}{
		"none":             {Options{}, "broker", ErrInvalid},
		"two URLs":         {Options{Broker: BrokerConfig{URL: "a", URLFile: "b"}}, "broker", ErrInvalid},
		"a missing file":   {Options{Broker: BrokerConfig{URLFile: "/none"}}, "", ErrInvalid},
		"an invalid URL":   {Options{Broker: BrokerConfig{URL: "http://a"}}, "", ErrInvalid},
		"negative timeout": {Options{Broker: BrokerConfig{URL: "nats://a"}, Timeout: -1}, "timeout", ErrInvalid},
		"rejected login":   {Options{Broker: BrokerConfig{URL: "nats://b:q@" + locked.Address()}}, "", ErrUnauthorized},
	} {
		t.Run(title, func(t *testing.T) {
			_, err := New(t.Context(), row.options)
			requireError(t, err, row.want, row.field)
		})
	}
}

func TestDocumentedPermissionsSufficeToSendJobs(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, dial.NATSEngine)
	env.createDraining("closed")
	env.permitDocumented(1)
	env.enqueue("", Delay(1), ID("1"), DeduplicateFor(1))
	_, err := env.EnqueueMany(t.Context(), "orders", []Job{NewJob(nil)})
	require.NoError(t, err)
	_, err = env.Enqueue(t.Context(), "orders", nil, Priority("high"))
	requireError(t, err, ErrUnknownPriority, "priority")
	short := env.options
	short.Timeout = defaultTimeout / 10
	closed := env.connect(short)
	poll.Until(t, "the server to report the missing permission before the timeout", func() bool {
		_, err = closed.Enqueue(t.Context(), "closed", nil)
		return !errors.Is(err, ErrUnavailable)
	})
	requireError(t, err, ErrUnauthorized, "")
}

func TestDocumentedPermissionsSufficeForEachFeature(t *testing.T) {
	t.Parallel()
	for title, row := range map[string]struct {
		// lists of permissions in docs/client.md.
		lists   []int
		changes []func(*broker.QueueConfig)
		use     func(*testEnv)
	}{
		"canceling delayed jobs": {[]int{1, 2}, nil, func(env *testEnv) {
			env.enqueue("x", ID("a"), Delay(time.Hour))
			require.True(env.t, env.cancel("a"), "the job was not canceled")
		}},
		"following and canceling jobs": {[]int{1, 2, 3}, []func(*broker.QueueConfig){withResults}, func(env *testEnv) {
			id := env.enqueue("1", Track()).ID
			env.enqueue("1", ID("later"), Delay(time.Hour))
			env.requireState(id, StateWaiting)
			env.requireCancel(id, CancelRequested)
			env.requireCancel("later", CancelDone)
			env.requireState("later", StateCanceled)
		}},
		"unique jobs and batches": {[]int{1, 2, 4}, nil, func(env *testEnv) {
			env.enqueue("1", ID("a"), Unique("k"))
			env.enqueue("1", ID("a"), Unique("k"))
			env.requireTaken("a", Unique("k"))
			env.enqueueBatch(batchOf("a"), NewJob(nil, ID("x")))
			env.requireBatch("x", BatchInfo{State: BatchRunning, Total: 1})
		}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			env := newTestEnv(t, dial.NATSEngine, row.changes...)
			env.permitDocumented(row.lists...)
			row.use(env)
		})
	}
}

// documentedSubjects returns one of the lists of permissions in docs/client.md.
func documentedSubjects(t testing.TB, number int) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/client.md")
	require.NoError(t, err)
	_, list, _ := strings.Cut(string(page), "needs to publish to")
	parts := strings.Split(list, "```")
	require.True(t, len(parts) > 2*number, "docs/client.md has no list %d of permissions", number)
	return strings.Fields(parts[2*number-1])
}

// permitDocumented restarts the server with a login that has lists of permissions in docs/client.md, and connects the client with it.
func (env *testEnv) permitDocumented(lists ...int) {
	env.t.Helper()
	permissions := &server.Permissions{Publish: &server.SubjectPermission{}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}}}
	for _, number := range lists {
		permissions.Publish.Allow = append(permissions.Publish.Allow, documentedSubjects(env.t, number)...)
	}
	o := env.Server.Options()
	o.Users = []*server.User{{Username: "admin", Password: "p"}, {Username: "producer", Password: "p", Permissions: permissions}}
	o.NoAuthUser = "admin"
	env.restart()
	poll.Until(env.t, "the queue to be readable", func() bool {
		_, err := env.Engine.Stats(env.t.Context(), "orders")
		return err == nil
	})
	env.options.Broker.URL = strings.Replace(env.options.Broker.URL, "nats://", "nats://producer:p@", 1)
	env.Client = env.connect(env.options)
}
