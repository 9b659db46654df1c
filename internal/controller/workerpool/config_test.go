package workerpool

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/brokerconn"
	"github.com/yardmaster/yardmaster/internal/pool"
	"github.com/yardmaster/yardmaster/worker"
)

func TestWorkersLogInWithWhatTheSecretHas(t *testing.T) {
	const dir = "/etc/yardmaster/credentials/"
	for name, row := range map[string]struct {
		secret map[string]string
		want   worker.BrokerConfig
		keys   []string // that are mounted: another way to log in is another revision
	}{
		"a name and a password":            {map[string]string{"username": "me", "password": "p"}, worker.BrokerConfig{UsernameFile: dir + "username", PasswordFile: dir + "password"}, []string{"username", "password"}},
		"a name alone":                     {map[string]string{"username": "me", "password": ""}, worker.BrokerConfig{UsernameFile: dir + "username"}, []string{"username"}},
		"a token":                          {map[string]string{"token": "t", "username": ""}, worker.BrokerConfig{TokenFile: dir + "token"}, []string{"token"}},
		"a credentials file":               {map[string]string{"creds": "c"}, worker.BrokerConfig{CredentialsFile: dir + "creds"}, []string{"creds"}},
		"one of several, if all are there": {map[string]string{"creds": "c", "username": "me", "token": "t"}, worker.BrokerConfig{CredentialsFile: dir + "creds"}, []string{"creds"}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := configured(t, row.secret)
			if seen.in.Problem != nil {
				t.Fatalf("the problem is %+v", seen.in.Problem)
			}
			c, err := worker.ParseConfig([]byte(seen.in.Config.File))
			if err != nil {
				t.Fatal(err)
			}
			row.want.URLFile = "/etc/yardmaster/url/url"
			if diff := cmp.Diff(row.want, c.Broker); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
			if _, err := worker.New(worker.Options{Config: c}, func(context.Context, *worker.Job) error { return nil }); err != nil {
				t.Errorf("a worker refuses it: %v", err)
			}
			if diff := cmp.Diff(pool.MountedSecret{Secret: "login", Keys: row.keys}, seen.in.Config.Secrets["credentials"]); diff != "" {
				t.Errorf("mounted (-want, +got):\n%s", diff)
			}
		})
	}
}

func TestASecretWithoutALoginIsInvalid(t *testing.T) {
	for name, secret := range map[string]map[string]string{
		"nothing":          {},
		"a password alone": {"password": "p"},
		"empty keys":       {"username": "", "token": "", "creds": ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := configured(t, secret).in.Problem
			if p == nil || p.Reason != v1alpha1.ReasonSecretInvalid || !strings.Contains(p.Message, `"login" has none of the keys username, token, creds`) {
				t.Errorf("the problem is %+v", p)
			}
		})
	}
}

// configured is the sight of a pool whose workers log in with the Secret.
func configured(t *testing.T, secret map[string]string) *sight {
	t.Helper()
	login := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "login"}, Data: map[string][]byte{}}
	for key, value := range secret {
		login.Data[key] = []byte(value)
	}
	r := &Reconciler{live: fake.NewClientBuilder().WithObjects(login).Build(), secrets: cache.NewLRUExpireCache(1)}
	key := brokerconn.BrokerKey{Namespace: "a", Engine: v1alpha1.EngineNATS, URLSecret: "broker", URLKey: "url", CredentialsSecret: "login"}
	seen := &sight{
		in: pool.Observation{Pool: &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "mail"}}},
		queues: &queues{
			line: &brokerconn.Conn{Key: key}, all: []poolQueue{{object: &v1alpha1.Queue{}, wanted: broker.DefaultQueueConfig("orders"), weight: 1}},
		},
	}
	if err := r.observeConfig(t.Context(), seen); err != nil {
		t.Fatal(err)
	}
	return seen
}
