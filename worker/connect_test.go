package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/login"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
)

// fileWriter returns a function that writes a file in a directory, and returns its path.
func fileWriter(t *testing.T) func(name, text string) string {
	dir := t.TempDir()
	return func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
}

// TestLoginFromURLOrCredentials and TestConnectErrorHasCauseAndNoPassword of the engine have the logins themselves.
func TestALoginThatItsFilesOrItsBrokerDoNotAllowIsReported(t *testing.T) {
	t.Parallel()
	users, writeFile := natstest.Start(t, func(o *server.Options) { o.Username, o.Password = "me", "hidden" }), fileWriter(t)
	seed, _ := natstest.NewNKey(t)
	secret, empty := writeFile("secret", "hidden"), writeFile("empty", "\n")
	const redis = "redis://127.0.0.1:1"
	for want, config := range map[string]BrokerConfig{
		"none: ": {URL: redis, UsernameFile: secret + "/none"},
		"broker.usernameFile: " + empty + " is empty":          {URL: redis, UsernameFile: empty},
		"a token cannot log in to Redis":                       {URL: redis, TokenFile: secret},
		"an nkey cannot log in to Redis":                       {URL: redis, NKeyFile: secret},
		"a NATS credentials file cannot log in to Redis":       {URL: redis, CredentialsFile: secret},
		"jetStreamDomain and inboxPrefix are settings of NATS": {URL: redis, JetStreamDomain: "hub"},
	} {
		_, _, err := login.Connect(t.Context(), &config, "test")
		require.ErrorContains(t, err, want)
		require.True(t, broker.ClassOf(err) == broker.ClassInvalid && !strings.Contains(err.Error(), "hidden"), "%v of the class %s", err, broker.ClassOf(err))
	}
	_, _, err := login.Connect(t.Context(), &BrokerConfig{URL: users.ClientURL(), NKeyFile: writeFile("nkey", string(seed))}, "test")
	require.True(t, broker.ClassOf(err) == broker.ClassUnauthorized, "%v of the class %s", err, broker.ClassOf(err))
	require.ErrorContains(t, err, "nkeys not supported by the server")
}

// The password is changed in the file first and then at the broker, which closes all
// connections.
func TestReconnectUsesTheCurrentContentOfTheFiles(t *testing.T) {
	writeFile := fileWriter(t)
	startNATS := func(login func(o *server.Options, secret string)) (*natstest.Server, func()) {
		s := natstest.Start(t, func(o *server.Options) { login(o, "first") })
		return s, func() {
			login(s.Options(), "second")
			s.Restart()
		}
	}
	withUser := func(o *server.Options, secret string) { o.Username, o.Password = "me", secret }
	users, changeUser := startNATS(withUser)
	inURL, changeURL := startNATS(withUser)
	tokens, changeToken := startNATS(func(o *server.Options, secret string) { o.Authorization = secret })
	firstSeed, firstKey := natstest.NewNKey(t)
	secondSeed, secondKey := natstest.NewNKey(t)
	keys, changeKey := startNATS(func(o *server.Options, secret string) {
		o.Nkeys = []*server.NkeyUser{{Nkey: map[string]string{"first": firstKey, "second": secondKey}[secret]}}
	})
	account := natstest.StartWithAccount(t)
	firstCredentials, revokeFirst := account.NewUser()
	secondCredentials, _ := account.NewUser()
	redis := redistest.Start(t)
	redis.RunCLI("ACL", "SETUSER", "me", "on", ">first", "~*", "&*", "+@all")
	for name, row := range map[string]struct {
		broker BrokerConfig
		path   string
		text   string // content of the file, with % instead of the secret
		change func()
	}{
		"password": {
			BrokerConfig{URL: users.ClientURL(), UsernameFile: writeFile("me", "me"), PasswordFile: writeFile("password", "first")}, "password", "%", changeUser,
		},
		"token":               {BrokerConfig{URL: tokens.ClientURL(), TokenFile: writeFile("token", "first\r\n")}, "token", "%", changeToken},
		"password in the URL": {BrokerConfig{URLFile: writeFile("url", "nats://me:first@"+inURL.Address())}, "url", "nats://me:%@" + inURL.Address(), changeURL},
		"nkey": {
			BrokerConfig{URL: "nats://you:x@" + keys.Address(), NKeyFile: writeFile("nkey", string(firstSeed)+"\n")}, "nkey", string(secondSeed), changeKey,
		},
		"NATS credentials": {
			BrokerConfig{URL: account.ClientURL(), CredentialsFile: writeFile("creds", string(firstCredentials))}, "creds", string(secondCredentials), revokeFirst,
		},
		"Redis password": {
			BrokerConfig{URL: redis.URL(), UsernameFile: writeFile("redis-user", "me"), PasswordFile: writeFile("redis", "first")},
			"redis", "%",
			func() {
				redis.RunCLI("ACL", "SETUSER", "me", "resetpass", ">second")
				redis.RunCLI("CLIENT", "KILL", "USER", "me")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			engine, _, err := login.Connect(t.Context(), &row.broker, "test")
			require.NoError(t, err)
			defer engine.Disconnect()
			writeFile(row.path, strings.ReplaceAll(row.text, "%", "second"))
			row.change()
			poll.Until(t, "the engine to reconnect", func() bool {
				_, err := engine.Stats(t.Context(), "nowhere")
				return broker.ClassOf(err) == broker.ClassNotFound
			})
		})
	}
}
