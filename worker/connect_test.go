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
func fileWriter(t *testing.T) (dir string, write func(name, text string) string) {
	dir = t.TempDir()
	return dir, func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
}

func TestWorkerLogsInWithTheCredentialsInItsFiles(t *testing.T) {
	t.Parallel()
	users := natstest.Start(t, func(o *server.Options) { o.Username, o.Password = "me", "hidden" })
	tokens := natstest.Start(t, func(o *server.Options) { o.Authorization = "hidden" })
	seed, publicKey := natstest.NewNKey(t)
	otherSeed, _ := natstest.NewNKey(t)
	keys := natstest.Start(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: publicKey}} })
	account := natstest.StartWithAccount(t)
	credentials, _ := account.NewUser()
	redis := redistest.Start(t)
	dir, writeFile := fileWriter(t)
	me, password, token := writeFile("me", "me"), writeFile("password", "hidden"), writeFile("token", "hidden")
	wrong, empty := writeFile("wrong", "hidden2"), writeFile("empty", "\n")
	for name, row := range map[string]struct {
		broker BrokerConfig
		class  broker.ErrorClass
		want   string // part of the error; empty if the login succeeds
	}{
		"username and password":        {broker: BrokerConfig{URL: users.ClientURL(), UsernameFile: me, PasswordFile: password}},
		"token":                        {broker: BrokerConfig{URL: tokens.ClientURL(), TokenFile: token}},
		"token file with a line break": {broker: BrokerConfig{URL: tokens.ClientURL(), TokenFile: writeFile("line", "hidden\r\n")}},
		"files take precedence over the URL": {
			broker: BrokerConfig{URL: "nats://you:hidden2@" + users.Address(), UsernameFile: me, PasswordFile: password},
		},
		"nkey with a line break":     {broker: BrokerConfig{URL: keys.ClientURL(), NKeyFile: writeFile("nkey", string(seed)+"\n")}},
		"NATS credentials":           {broker: BrokerConfig{URL: account.ClientURL(), CredentialsFile: writeFile("creds", string(credentials))}},
		"an nkey replaces the URL":   {broker: BrokerConfig{URL: "nats://you:hidden2@" + keys.Address(), NKeyFile: dir + "/nkey"}},
		"unknown nkey":               {BrokerConfig{URL: keys.ClientURL(), NKeyFile: writeFile("other", string(otherSeed))}, broker.ClassUnauthorized, "Authorization Violation"},
		"server without nkeys":       {BrokerConfig{URL: users.ClientURL(), NKeyFile: dir + "/nkey"}, broker.ClassUnauthorized, "nkeys not supported by the server"},
		"invalid nkey":               {BrokerConfig{URL: keys.ClientURL(), NKeyFile: token}, broker.ClassInvalid, "invalid nkey: it must be the seed of a user"},
		"nkey for Redis":             {BrokerConfig{URL: redis.URL(), NKeyFile: token}, broker.ClassInvalid, "an nkey cannot log in to Redis"},
		"domain for Redis":           {BrokerConfig{URL: redis.URL(), JetStreamDomain: "hub"}, broker.ClassInvalid, "jetStreamDomain and inboxPrefix are settings of NATS"},
		"wrong token":                {BrokerConfig{URL: tokens.ClientURL(), TokenFile: wrong}, broker.ClassUnauthorized, "Authorization Violation"},
		"missing file":               {BrokerConfig{URL: users.ClientURL(), UsernameFile: dir + "/none"}, broker.ClassInvalid, "none: no such file"},
		"empty file":                 {BrokerConfig{URL: users.ClientURL(), UsernameFile: empty}, broker.ClassInvalid, "broker.usernameFile: " + empty + " is empty"},
		"token for Redis":            {BrokerConfig{URL: redis.URL(), TokenFile: token}, broker.ClassInvalid, "a token cannot log in to Redis"},
		"NATS credentials for Redis": {BrokerConfig{URL: redis.URL(), CredentialsFile: token}, broker.ClassInvalid, "a NATS credentials file cannot log in to Redis"},
		"invalid NATS credentials":   {BrokerConfig{URL: users.ClientURL(), CredentialsFile: token}, broker.ClassInvalid, "invalid NATS credentials file"},
		"Redis username":             {broker: BrokerConfig{URL: redis.URL(), UsernameFile: writeFile("default", "default"), PasswordFile: password}},
	} {
		t.Run(name, func(t *testing.T) {
			engine, _, err := login.Connect(t.Context(), &row.broker, "test")
			if err == nil {
				engine.Disconnect()
			}
			switch {
			case row.want == "" && err != nil:
				t.Errorf("the login failed: %v", err)
			case row.want != "" && (err == nil || broker.ClassOf(err) != row.class || !strings.Contains(err.Error(), row.want)):
				t.Errorf("error %v of class %s, want class %s: %s", err, broker.ClassOf(err), row.class, row.want)
			}
			require.True(t, err == nil || !strings.Contains(err.Error(), "hidden"), "the error contains a secret: %v", err)
		})
	}
}

// The password is changed in the file first and then at the broker, which closes all
// connections.
func TestReconnectUsesTheCurrentContentOfTheFiles(t *testing.T) {
	_, writeFile := fileWriter(t)
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
		"token":               {BrokerConfig{URL: tokens.ClientURL(), TokenFile: writeFile("token", "first")}, "token", "%", changeToken},
		"password in the URL": {BrokerConfig{URLFile: writeFile("url", "nats://me:first@"+inURL.Address())}, "url", "nats://me:%@" + inURL.Address(), changeURL},
		"nkey": {
			BrokerConfig{URL: keys.ClientURL(), NKeyFile: writeFile("nkey", string(firstSeed))}, "nkey", string(secondSeed), changeKey,
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
