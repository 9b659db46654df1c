package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	certutil "k8s.io/client-go/util/cert"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/pod/listener"
	"github.com/yardmaster/yardmaster/test/background"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
)

const (
	// testTimeout bounds what takes milliseconds on an idle machine.
	testTimeout = 5 * time.Minute
	tenant      = "team-a"
	// validToken is that of the ServiceAccount shop of the namespace team-a, userToken that of a person.
	validToken, userToken = "valid-token", "user-token"
)

// testEnv is a gateway with an API server that answers reviews, and a NATS server with the queue "orders".
type testEnv struct {
	*handler
	*queuetest.Queue

	t   *testing.T
	api kubeclient.Client
	// url of the gateway; clients trust the certificate in ca.
	url, ca string
	client  *http.Client
	stop    context.CancelFunc

	mu sync.Mutex
	// denied are the accesses that are not allowed, as "verb namespace/queue".
	denied []string
	// reviewFailure is the error of all reviews.
	reviewFailure error
	// reviewing, if it is set, is called at the start of each review of a token.
	reviewing func(token string)
	asked     atomic.Int64
}

// newTestEnv runs the test in parallel to others.
func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	t.Parallel()
	env := &testEnv{t: t, Queue: queuetest.Start(t, "orders")}
	env.createAPI()
	env.start()
	return env
}

// readyQueue returns a Queue as the operator leaves it.
func readyQueue(namespace, name, onBroker string) *v1alpha1.Queue {
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1}}
	q.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	q.Spec.Broker.URLSecretRef.Name = "nats"
	q.Status.Name = onBroker
	q.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: "True", Reason: v1alpha1.ReasonReady, ObservedGeneration: 1}}
	return q
}

func (env *testEnv) createAPI() {
	newSecret := func(namespace string) *corev1.Secret {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nats", Labels: map[string]string{v1alpha1.LabelBroker: "true"}}}
		secret.Data = map[string][]byte{"url": []byte(env.URL)}
		return secret
	}
	scheme := runtime.NewScheme()
	require.NoError(env.t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	env.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(newSecret(tenant), newSecret("team-b"), readyQueue(tenant, "orders", "orders")).
		WithInterceptorFuncs(interceptor.Funcs{Create: env.review, Get: env.get}).Build()
}

// get forbids reading the Queues of the namespace "unserved".
func (*testEnv) get(ctx context.Context, c kubeclient.WithWatch, key kubeclient.ObjectKey, object kubeclient.Object, options ...kubeclient.GetOption) error {
	if key.Namespace == "unserved" {
		return apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "queues"}, key.Name, errors.New("no role"))
	}
	return c.Get(ctx, key, object, options...)
}

// review answers as an API server does.
func (env *testEnv) review(ctx context.Context, c kubeclient.WithWatch, object kubeclient.Object, options ...kubeclient.CreateOption) error {
	switch review := object.(type) {
	case *authenticationv1.TokenReview:
		var reviewing func(string)
		var failure error
		env.set(func() { reviewing, failure = env.reviewing, env.reviewFailure })
		env.asked.Add(1)
		if reviewing != nil {
			reviewing(review.Spec.Token)
		}
		review.Status = statusOf(review.Spec.Token)
		return failure
	case *authorizationv1.SubjectAccessReview:
		env.mu.Lock()
		defer env.mu.Unlock()
		env.asked.Add(1)
		a := review.Spec.ResourceAttributes
		isKnown := a.Group == "yardmaster.dev" && a.Resource == "queues" && a.Subresource == "jobs"
		review.Status.Allowed = isKnown && !slices.Contains(env.denied, a.Verb+" "+a.Namespace+"/"+a.Name)
		return env.reviewFailure
	}
	return c.Create(ctx, object, options...)
}

func statusOf(token string) authenticationv1.TokenReviewStatus {
	users := map[string]string{validToken: "system:serviceaccount:team-a:shop", userToken: "ada"}
	audiences := []string{DefaultAudience}
	if token == "unaware-token" { // of an authenticator that does not know audiences
		users[token], audiences = "system:serviceaccount:team-a:shop", nil
	}
	user, found := users[token]
	return authenticationv1.TokenReviewStatus{Authenticated: found, User: authenticationv1.UserInfo{Username: user, UID: user}, Audiences: audiences}
}

// set changes how the API server answers.
func (env *testEnv) set(change func()) {
	env.mu.Lock()
	defer env.mu.Unlock()
	change()
}

// start serves the gateway with TLS.
func (env *testEnv) start() {
	registry := prometheus.NewRegistry()
	brokers := brokerconn.NewManager(env.api, brokerconn.Options{Dialer: bounded.NewDialer(bounded.Options{AllowLocal: true})})
	m := newMetrics(registry)
	env.handler = &handler{
		reviewer: newReviewer(env.api, DefaultAudience, m), queues: newQueues(env.api, brokers), shares: newRequestShares(defaultMaxBody),
		metrics: m, log: slog.New(slog.DiscardHandler), maxBody: defaultMaxBody, now: time.Now,
	}
	env.reviewer.tokens.lasts, env.reviewer.accesses.lasts = time.Hour, time.Hour // longer than a test
	server := newServer(env.routes())
	server.ReadHeaderTimeout, server.ReadTimeout, server.WriteTimeout = testTimeout, testTimeout, testTimeout
	directory := env.t.TempDir()
	certificate := require.Call(tls.X509KeyPair(writeCertificate(env.t, directory))).Succeeds(env.t)
	env.ca = filepath.Join(directory, "tls.crt")
	tcp := require.Call((&net.ListenConfig{}).Listen(env.t.Context(), "tcp", "127.0.0.1:0")).Succeeds(env.t)
	env.url = "https://" + tcp.Addr().String()
	ctx, stop := context.WithCancel(context.WithoutCancel(env.t.Context()))
	ended := make(chan error, 1)
	env.stop = stop
	bounded := tls.NewListener(listener.New(tcp, apiConnections, m.refused.Inc), &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}})
	go func() { ended <- serveUntil(ctx, server, bounded, func() {}, testTimeout) }()
	env.client = newHTTPClient(env.t, env.ca)
	background.Run(env.t, brokers.Start)
	env.t.Cleanup(func() {
		stop()
		require.NoError(env.t, <-ended)
	})
}

// writeCertificate writes tls.crt and tls.key for 127.0.0.1.
func writeCertificate(t *testing.T, directory string) (certificate, key []byte) {
	t.Helper()
	certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	require.NoError(t, err)
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		require.NoError(t, os.WriteFile(filepath.Join(directory, name), content, 0o600))
	}
	return certificate, key
}

func newHTTPClient(t *testing.T, ca string) *http.Client {
	t.Helper()
	pem := require.Call(os.ReadFile(ca)).Succeeds(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: testTimeout}
}

// reply is any response of the gateway.
type reply struct {
	status    int
	header    http.Header
	ID        string
	Duplicate bool
	Canceled  bool
	Reason    string
	Field     string
	KeyHolder string
	Message   string
	Failed    int
	Jobs      []struct {
		ID        string
		Duplicate bool
		Error     *struct{ Reason, Field, Message string }
	}
}

// try sends a request, with the valid token unless the headers have another.
func (env *testEnv) try(method, path string, body io.Reader, headers ...string) (reply, error) {
	request, err := http.NewRequestWithContext(env.t.Context(), method, env.url+path, body)
	if err != nil {
		return reply{}, err
	}
	request.Header.Set("Authorization", "Bearer "+validToken)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	response, err := env.client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, err
	}
	r := reply{status: response.StatusCode, header: response.Header}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, errors.New(string(raw))
	}
	return r, nil
}

func (env *testEnv) do(method, path, body string, headers ...string) reply {
	env.t.Helper()
	r, err := env.try(method, path, bytes.NewBufferString(body), headers...)
	require.True(env.t, err == nil, "%s %s: %v", method, path, err)
	return r
}

// want fails the test unless a request is answered with a status, a reason and a field.
func (env *testEnv) want(title string, got reply, status int, reason, field string) {
	env.t.Helper()
	isRight := got.status == status && got.Reason == reason && got.Field == field && (status >= 400) == (got.Message != "")
	require.True(env.t, isRight, "%s: %+v; want %d, %q, %q", title, got, status, reason, field)
	isRetryable, after := status == 429 || status == 503, got.header.Get("Retry-After")
	require.True(env.t, isRetryable == (after != ""), "%s: status %d with Retry-After %q", title, status, after)
}
