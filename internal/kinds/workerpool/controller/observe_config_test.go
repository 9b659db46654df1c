package controller

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

func TestWorkersUseTheLoginMethodOfTheSecret(t *testing.T) {
	const dir = "/etc/yardmaster/credentials/"
	for name, row := range map[string]struct {
		secret map[string]string
		want   worker.BrokerConfig
		keys   []string // mounted keys: another login method creates a revision
	}{
		"user name and password":               {map[string]string{"username": "me", "password": "p"}, worker.BrokerConfig{UsernameFile: dir + "username", PasswordFile: dir + "password"}, []string{"username", "password"}},
		"user name only":                       {map[string]string{"username": "me", "password": ""}, worker.BrokerConfig{UsernameFile: dir + "username"}, []string{"username"}},
		"token":                                {map[string]string{"token": "t", "username": ""}, worker.BrokerConfig{TokenFile: dir + "token"}, []string{"token"}},
		"credentials file":                     {map[string]string{"creds": "c"}, worker.BrokerConfig{CredentialsFile: dir + "creds"}, []string{"creds"}},
		"nkey":                                 {map[string]string{"nkey": "SU"}, worker.BrokerConfig{NKeyFile: dir + "nkey"}, []string{"nkey"}},
		"one method if the Secret has several": {map[string]string{"creds": "c", "username": "me", "token": "t"}, worker.BrokerConfig{CredentialsFile: dir + "creds"}, []string{"creds"}},
	} {
		t.Run(name, func(t *testing.T) {
			observed := observeWithSecret(t, row.secret)
			require.True(t, observed.Problem == nil, "problem %+v", observed.Problem)
			c, err := worker.ParseConfig([]byte(observed.Config.File))
			require.NoError(t, err)
			row.want.URLFile = "/etc/yardmaster/url/url"
			require.Equal(t, row.want, c.Broker)
			_, err = worker.New(worker.Options{Config: c}, func(context.Context, *worker.Job) error { return nil })
			require.NoError(t, err)
			require.Equal(t, workerpool.MountedSecret{Secret: "login", Keys: row.keys}, observed.Config.Secrets["credentials"])
		})
	}
}

func TestSecretWithoutALoginIsInvalid(t *testing.T) {
	for _, secret := range []map[string]string{{}, {"password": "p"}, {"username": "", "token": "", "creds": "", "nkey": ""}} {
		p := observeWithSecret(t, secret).Problem
		require.True(t, p != nil && p.Reason == v1alpha1.ReasonSecretInvalid, "%v: problem %+v", secret, p)
		require.Contains(t, p.Message, `"login" has none of the keys username, token, creds, nkey`)
	}
}

// Runtimes of earlier versions refuse unknown fields.
func TestConnectionSettingsAreInTheConfigurationOnlyIfTheyAreSet(t *testing.T) {
	secret := map[string]string{"nkey": "SU"}
	without := observeWithSecret(t, secret).Config
	for _, setting := range []string{"inboxPrefix", "jetStreamDomain", "sentinel"} {
		require.True(t, !strings.Contains(without.File, setting) && without.Connection == "", "without settings: %+v", without)
	}
	o := observeWithSecret(t, secret, func(key *brokeraccess.Key) { key.JetStreamDomain, key.InboxPrefix = "hub", "_INBOX_a" })
	c, err := worker.ParseConfig([]byte(o.Config.File))
	require.True(t, err == nil && c.Broker.JetStreamDomain == "hub" && c.Broker.InboxPrefix == "_INBOX_a", "%+v: %v", c.Broker, err)
	require.True(t, o.Config.Connection == "jetStreamDomain=hub,inboxPrefix=_INBOX_a", "the connection is %q", o.Config.Connection)
}

func TestWorkersLogInToTheSentinels(t *testing.T) {
	withSentinels := func(key *brokeraccess.Key) {
		key.CredentialsSecret, key.SentinelMaster, key.SentinelSecret = "", "main", "login"
	}
	o := observeWithSecret(t, map[string]string{"username": "me", "password": "p"}, withSentinels)
	c, err := worker.ParseConfig([]byte(o.Config.File))
	require.NoError(t, err)
	const dir = "/etc/yardmaster/sentinel/"
	require.Equal(t, worker.SentinelConfig{MasterName: "main", UsernameFile: dir + "username", PasswordFile: dir + "password"}, c.Broker.Sentinel)
	require.Equal(t, "sentinelMaster=main", o.Config.Connection)
	require.Equal(t, workerpool.MountedSecret{Secret: "login", Keys: []string{"username", "password"}}, o.Config.Secrets["sentinel"])
	require.Equal(t, v1alpha1.ReasonSecretInvalid, observeWithSecret(t, map[string]string{"password": "p"}, withSentinels).Problem.Reason)
}

// observeWithSecret observes a pool whose workers log in with the Secret.
func observeWithSecret(t *testing.T, secret map[string]string, changes ...func(*brokeraccess.Key)) *Observed {
	t.Helper()
	login := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "login", Labels: map[string]string{v1alpha1.LabelBroker: "true"}}, Data: map[string][]byte{}}
	for key, value := range secret {
		login.Data[key] = []byte(value)
	}
	r := &Reconciler{Clients: kube.Clients{Live: fake.NewClientBuilder().WithObjects(login).Build()}, secretKeys: cache.NewLRUExpireCache(1)}
	key := brokeraccess.Key{Namespace: "a", Engine: v1alpha1.EngineNATS, URLSecret: "broker", URLKey: "url", CredentialsSecret: "login"}
	for _, change := range changes {
		change(&key)
	}
	observed := &Observed{
		Observation: workerpool.Observation{Pool: &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "mail"}}},
		queues: &observedQueues{
			conn: &brokerconn.Conn{Key: key}, all: []observedQueue{{object: &v1alpha1.Queue{}, config: broker.DefaultQueueConfig("orders"), weight: 1}},
		},
	}
	require.NoError(t, r.observeConfig(t.Context(), observed))
	return observed
}
