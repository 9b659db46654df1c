package brokerconn

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream/natstest"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient/redistest"
)

const ns = "team"

func secretOf(name string, data ...string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: map[string][]byte{}}
	for i := 0; i < len(data); i += 2 {
		s.Data[data[i]] = []byte(data[i+1])
	}
	return s
}

// nats is a broker whose URL is in the secret of that name.
func nats(url string) *v1alpha1.Broker {
	b := &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	b.URLSecretRef.Name, b.URLSecretRef.Key = url, "url"
	return b
}

// kept is a Keeper in a hurry, and what its listeners are told.
type kept struct {
	*Manager
	t       *testing.T
	cluster client.Client
	events  chan Notification
}

func keep(t *testing.T, secrets ...client.Object) *kept {
	t.Helper()
	k := &kept{t: t, cluster: fake.NewClientBuilder().WithObjects(secrets...).Build(), events: make(chan Notification, 100)}
	k.Manager = NewManager(k.cluster, Options{
		ProbeInterval: 50 * time.Millisecond, RequestTimeout: time.Second, MaxRetryInterval: 100 * time.Millisecond, SecretReadInterval: 100 * time.Millisecond,
	})
	k.AddListener(func(e Notification) { k.events <- e })
	t.Cleanup(func() {
		k.stop()
		k.background.Wait()
	})
	return k
}

// becomes waits until asking for the engine gives that reason; empty: gives the engine.
func (k *kept) becomes(b *v1alpha1.Broker, want string) error {
	k.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		_, err := k.Conn(ns, b).Engine()
		problem := (*ConnectionError)(nil)
		if err == nil && want == "" || errors.As(err, &problem) && problem.Reason == want {
			return err
		}
		select {
		case <-k.events: // each change of state is told
		case <-deadline:
			k.t.Fatalf("it is %v, want the reason %q", err, want)
		}
	}
}

func TestABrokerThatGoesAndComesBackIsToldOf(t *testing.T) {
	s := natstest.Start(t)
	k := keep(t, secretOf("broker", "url", s.ClientURL()))
	if _, err := k.Conn(ns, nats("broker")).Engine(); !errors.Is(err, ErrConnecting) {
		t.Errorf("at first it is %v", err)
	}
	k.becomes(nats("broker"), "")
	s.Stop()
	k.becomes(nats("broker"), v1alpha1.ReasonConnectionFailed)
	s.Restart()
	k.becomes(nats("broker"), "")
}

func TestASecretThatIsNotThereIsNamedAndThenFound(t *testing.T) {
	s := natstest.Start(t)
	k := keep(t)
	if err := k.becomes(nats("broker"), v1alpha1.ReasonSecretNotFound); !strings.Contains(err.Error(), `Secret "broker" not found`) {
		t.Errorf("%v", err)
	}
	if err := k.cluster.Create(t.Context(), secretOf("broker", "url", s.ClientURL())); err != nil {
		t.Fatal(err)
	}
	k.becomes(nats("broker"), "")
}

func TestAConnectionOutlivesItsSecretForWhatIsLeftToDo(t *testing.T) {
	s := natstest.Start(t)
	secret := secretOf("broker", "url", s.ClientURL())
	k := keep(t, secret)
	k.becomes(nats("broker"), "")
	if err := k.cluster.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	k.becomes(nats("broker"), v1alpha1.ReasonSecretNotFound)
	engine := k.Conn(ns, nats("broker")).EngineForCleanup()
	if engine == nil {
		t.Fatal("there is no connection")
	}
	if _, err := engine.Stats(t.Context(), "orders"); broker.ClassOf(err) != broker.ClassNotFound {
		t.Errorf("the broker says %v", err)
	}
}

func TestNewCredentialsMakeANewConnection(t *testing.T) {
	old := &server.User{Username: "me", Password: "old"}
	s := natstest.Start(t, func(o *server.Options) { o.Users = []*server.User{old} })
	b := nats("broker")
	b.CredentialsSecretRef = &v1alpha1.SecretRef{Name: "login"}
	k := keep(t, secretOf("broker", "url", "nats://"+s.Address()), secretOf("login", "username", "me", "password", "old"))
	k.becomes(b, "")
	if err := k.cluster.Update(t.Context(), secretOf("login", "username", "me", "password", "new")); err != nil {
		t.Fatal(err)
	}
	err := k.becomes(b, v1alpha1.ReasonUnauthorized)
	if strings.Contains(err.Error(), "new") {
		t.Errorf("the password is in the error: %v", err)
	}
	if err := k.cluster.Update(t.Context(), secretOf("login", "username", "me", "password", "old")); err != nil {
		t.Fatal(err)
	}
	k.becomes(b, "")
}

func TestWhatCannotBeIsNamed(t *testing.T) {
	tls := nats("broker")
	tls.TLSSecretRef = &v1alpha1.SecretRef{Name: "empty"}
	login := nats("broker")
	login.CredentialsSecretRef = &v1alpha1.SecretRef{Name: "empty"}
	unheardOf := nats("broker")
	unheardOf.Engine = "Pigeon"
	key := nats("broker")
	key.URLSecretRef.Key = "address"
	for name, row := range map[string]struct {
		broker       *v1alpha1.Broker
		reason, says string
	}{
		"no broker at all":            {nil, v1alpha1.ReasonNoBroker, "the operator has none of its own"},
		"an engine that is not there": {unheardOf, v1alpha1.ReasonNoBroker, "broker.engine is Pigeon"},
		"a key that is not there":     {key, v1alpha1.ReasonSecretInvalid, `"broker" has nothing under the key "address"`},
		"a TLS secret of nothing":     {tls, v1alpha1.ReasonSecretInvalid, "none of the keys ca.crt"},
		"credentials of nothing":      {login, v1alpha1.ReasonSecretInvalid, "none of the keys username"},
		"a URL of another kind":       {nats("web"), v1alpha1.ReasonRefusedByBroker, `the scheme "http"`},
		"a URL with a password":       {nats("odd"), v1alpha1.ReasonRefusedByBroker, "url is not a valid URL"},
	} {
		t.Run(name, func(t *testing.T) {
			k := keep(t, secretOf("broker", "url", "nats://127.0.0.1:1"), secretOf("empty"),
				secretOf("web", "url", "http://broker"), secretOf("odd", "url", "nats://me:hidden@%zz"))
			err := k.becomes(row.broker, row.reason)
			if !strings.Contains(err.Error(), row.says) || strings.Contains(err.Error(), "hidden") {
				t.Errorf("it says %q, want %q", err, row.says)
			}
		})
	}
}

func TestFiguresAreReadOnceForAll(t *testing.T) {
	s := natstest.Start(t)
	k := keep(t, secretOf("broker", "url", s.ClientURL()))
	k.becomes(nats("broker"), "")
	line := k.Conn(ns, nats("broker"))
	engine, err := line.Engine()
	if err != nil {
		t.Fatal(err)
	}
	q := broker.DefaultQueueConfig("orders")
	q.Owner.UID = "1"
	if _, err := engine.EnsureQueue(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	first, err := line.Stats(t.Context(), "orders", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	again, err := line.Stats(t.Context(), "orders", time.Minute)
	if err != nil || again != first {
		t.Errorf("%+v, then %+v: %v", first, again, err)
	}
	if now, err := line.Stats(t.Context(), "orders", 0); err != nil || !now.MeasuredTime.After(first.MeasuredTime) {
		t.Errorf("nothing is read anew: %+v, then %+v: %v", first, now, err)
	}

	line.NotifyWhenReady("orders")
	line.NotifyWhenReady("orders")
	if err := producer(t, s).Publish("yardmaster.orders.ready.default", nil); err != nil {
		t.Fatal(err)
	}
	k.told(Notification{Key: line.Key, Queue: "orders"})
	if len(k.events) > 0 {
		t.Errorf("it is told again: %+v", <-k.events)
	}
	if now, err := line.Stats(t.Context(), "orders", time.Minute); err != nil || now.Ready != 1 {
		t.Errorf("after a message: %+v: %v", now, err)
	}
}

// told waits for the event, past others.
func (k *kept) told(want Notification) {
	k.t.Helper()
	for deadline := time.After(10 * time.Second); ; {
		select {
		case got := <-k.events:
			if got == want {
				return
			}
		case <-deadline:
			k.t.Fatalf("not told: %+v", want)
		}
	}
}

func producer(t *testing.T, s *natstest.Server) *natsclient.Conn {
	t.Helper()
	nc, err := natsclient.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestALineThatNobodyAsksForIsClosed(t *testing.T) {
	s := natstest.Start(t)
	k := keep(t, secretOf("broker", "url", s.ClientURL()))
	k.becomes(nats("broker"), "")
	k.mu.Lock()
	k.options.IdleTimeout = time.Millisecond
	k.mu.Unlock()
	k.background.Wait()
	if len(k.conns) != 0 {
		t.Errorf("%d lines", len(k.conns))
	}
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		return s.NumClients() == 0, nil
	})
	if err != nil {
		t.Errorf("the server has %d connections", s.NumClients())
	}
}

func TestTheOperatorsOwnBrokerIsForWhoNamesNone(t *testing.T) {
	s := natstest.Start(t)
	k := keep(t, secretOf("house", "url", s.ClientURL()))
	k.options.DefaultBroker, k.options.DefaultNamespace = nats("house"), ns
	line := k.Conn("elsewhere", nil)
	k.told(Notification{Key: line.Key})
	if _, err := line.Engine(); err != nil {
		t.Error(err)
	}
	if k.Conn("another", nil) != line {
		t.Error("two namespaces have two connections to it")
	}
}

func TestQueuesOfAsynqAreConnectedTo(t *testing.T) {
	s := redistest.Start(t)
	b := nats("redis")
	b.Engine = v1alpha1.EngineAsynq
	k := keep(t, secretOf("redis", "url", s.URL()))
	k.becomes(b, "")
	s.Stop()
	k.becomes(b, v1alpha1.ReasonConnectionFailed)
}
