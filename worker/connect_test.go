package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream/natstest"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient/redistest"
)

func TestAWorkerLogsInWithWhatItsFilesSay(t *testing.T) {
	t.Parallel()
	users := natstest.Start(t, func(o *server.Options) { o.Username, o.Password = "me", "hidden" })
	tokens := natstest.Start(t, func(o *server.Options) { o.Authorization = "hidden" })
	redis := redistest.Start(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	me, password, token := file("me", "me"), file("password", "hidden"), file("token", "hidden")
	wrong, empty := file("wrong", "hidden2"), file("empty", "\n")
	for name, row := range map[string]struct {
		broker Broker
		class  broker.ErrorClass
		want   string // nothing: it is let in
	}{
		"a name and a password":          {broker: Broker{URL: users.ClientURL(), UsernameFile: me, PasswordFile: password}},
		"a token":                        {broker: Broker{URL: tokens.ClientURL(), TokenFile: token}},
		"a line's end is not part of it": {broker: Broker{URL: tokens.ClientURL(), TokenFile: file("line", "hidden\r\n")}},
		"they go before the URL's": {
			broker: Broker{URL: "nats://you:hidden2@" + users.Address(), UsernameFile: me, PasswordFile: password},
		},
		"nobody":                {Broker{URL: users.ClientURL()}, broker.ClassUnauthorized, "Authorization Violation"},
		"the wrong password":    {Broker{URL: users.ClientURL(), UsernameFile: me, PasswordFile: wrong}, broker.ClassUnauthorized, "Authorization Violation"},
		"the wrong token":       {Broker{URL: tokens.ClientURL(), TokenFile: wrong}, broker.ClassUnauthorized, "Authorization Violation"},
		"no such file":          {Broker{URL: users.ClientURL(), UsernameFile: dir + "/none"}, broker.ClassInvalid, "none: no such file"},
		"an empty file":         {Broker{URL: users.ClientURL(), UsernameFile: empty}, broker.ClassInvalid, "broker.usernameFile: " + empty + " is empty"},
		"a token for a Redis":   {Broker{URL: redis.URL(), TokenFile: token}, broker.ClassInvalid, "a token cannot log in to Redis"},
		"creds for a Redis":     {Broker{URL: redis.URL(), CredentialsFile: token}, broker.ClassInvalid, "a NATS credentials file cannot log in to Redis"},
		"creds that are none":   {Broker{URL: users.ClientURL(), CredentialsFile: token}, broker.ClassInvalid, "invalid NATS credentials file"},
		"a name that Redis has": {broker: Broker{URL: redis.URL(), UsernameFile: file("default", "default"), PasswordFile: password}},
	} {
		t.Run(name, func(t *testing.T) {
			engine, err := row.broker.connect(t.Context(), "test")
			if err == nil {
				engine.Disconnect()
			}
			switch {
			case row.want == "" && err != nil:
				t.Errorf("it is not let in: %v", err)
			case row.want != "" && (err == nil || broker.ClassOf(err) != row.class || !strings.Contains(err.Error(), row.want)):
				t.Errorf("told %v (%s), want %s: %s", err, broker.ClassOf(err), row.class, row.want)
			}
			if err != nil && strings.Contains(err.Error(), "hidden") {
				t.Errorf("a secret is told: %v", err)
			}
		})
	}
}

// The password is changed in the file first, and then at the broker, which ends all
// connections.
func TestAConnectionThatIsMadeAnewLogsInWithWhatTheFilesSayByThen(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	natsWith := func(login func(o *server.Options, secret string)) (*natstest.Server, func()) {
		s := natstest.Start(t, func(o *server.Options) { login(o, "first") })
		return s, func() {
			login(s.Options(), "second")
			s.Restart()
		}
	}
	named := func(o *server.Options, secret string) { o.Username, o.Password = "me", secret }
	users, changeUser := natsWith(named)
	inURL, changeURL := natsWith(named)
	tokens, changeToken := natsWith(func(o *server.Options, secret string) { o.Authorization = secret })
	redis := redistest.Start(t)
	redis.RunCLI("ACL", "SETUSER", "me", "on", ">first", "~*", "&*", "+@all")
	for name, row := range map[string]struct {
		broker Broker
		path   string
		text   string // with the secret in the place of %
		change func()
	}{
		"a password": {
			Broker{URL: users.ClientURL(), UsernameFile: file("me", "me"), PasswordFile: file("password", "first")}, "password", "%", changeUser,
		},
		"a token":              {Broker{URL: tokens.ClientURL(), TokenFile: file("token", "first")}, "token", "%", changeToken},
		"one that the URL has": {Broker{URLFile: file("url", "nats://me:first@"+inURL.Address())}, "url", "nats://me:%@" + inURL.Address(), changeURL},
		"that of a Redis": {
			Broker{URL: redis.URL(), UsernameFile: file("redis-user", "me"), PasswordFile: file("redis", "first")},
			"redis", "%",
			func() {
				redis.RunCLI("ACL", "SETUSER", "me", "resetpass", ">second")
				redis.RunCLI("CLIENT", "KILL", "USER", "me")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			engine, err := row.broker.connect(t.Context(), "test")
			if err != nil {
				t.Fatal(err)
			}
			defer engine.Disconnect()
			file(row.path, strings.ReplaceAll(row.text, "%", "second"))
			row.change()
			eventually(t, "the connection to be made anew", func() bool {
				_, err := engine.Stats(t.Context(), "nowhere")
				return broker.ClassOf(err) == broker.ClassNotFound
			})
		})
	}
}
