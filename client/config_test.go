package client

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
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
				if err := os.WriteFile(file, []byte(row.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := parseEnvironment(func(name string) string { return env[name] })
			if got.Broker != row.want || (err != nil) != (row.wantTo != "") || err != nil && !strings.Contains(err.Error(), row.wantTo) {
				t.Errorf("%+v, %v", got.Broker, err)
			}
		})
	}
}

func TestAnInvalidBrokerIsRejected(t *testing.T) {
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
	} {
		t.Run(title, func(t *testing.T) {
			_, err := New(t.Context(), row.options)
			requireError(t, err, row.want, row.field)
		})
	}
}

func TestALoginThatTheBrokerRejectsIsUnauthorized(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, func(o *server.Options) { o.Users = []*server.User{{Username: "a", Password: "p"}} })
	_, err := New(t.Context(), Options{Broker: BrokerConfig{URL: "nats://b:q@" + s.Address()}})
	requireError(t, err, ErrUnauthorized, "")
}

func TestDocumentedPermissionsSufficeToSendJobs(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, dial.NATSEngine)
	env.ensureQueue("closed")
	if err := env.admin.RejectNewMessages(t.Context(), "closed", owner); err != nil {
		t.Fatal(err)
	}
	env.permit(&server.Permissions{
		Publish:   &server.SubjectPermission{Allow: documentedSubjects(t, 1)},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
	})
	if _, err := env.Enqueue(t.Context(), "orders", nil, Delay(1), ID("1"), DeduplicateFor(1)); err != nil {
		t.Error(err)
	}
	if _, err := env.EnqueueMany(t.Context(), "orders", []Job{NewJob(nil)}); err != nil {
		t.Error(err)
	}
	_, err := env.Enqueue(t.Context(), "orders", nil, Priority("high"))
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

// documentedSubjects returns one of the lists of permissions in docs/client.md.
func documentedSubjects(t *testing.T, number int) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/client.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "needs to publish to")
	parts := strings.Split(list, "```")
	if len(parts) < 2*number+1 {
		t.Fatalf("docs/client.md has no list %d of permissions", number)
	}
	return strings.Fields(parts[2*number-1])
}

// permit restarts the server with a login that has these permissions, and connects the client with it.
func (env *testEnv) permit(permissions *server.Permissions) {
	env.t.Helper()
	o := env.server.Options()
	o.Users = []*server.User{{Username: "admin", Password: "p"}, {Username: "producer", Password: "p", Permissions: permissions}}
	o.NoAuthUser = "admin"
	env.restart()
	poll.Until(env.t, "the queue to be readable", func() bool {
		_, err := env.admin.Stats(env.t.Context(), "orders")
		return err == nil
	})
	env.options.Broker.URL = strings.Replace(env.options.Broker.URL, "nats://", "nats://producer:p@", 1)
	env.Client = env.connect(env.options)
}
