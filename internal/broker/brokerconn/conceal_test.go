package brokerconn

import (
	"bufio"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/hostile"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
)

// concealedAccess is an access of each kind, with the Secrets url, tls and login.
var concealedAccess = v1alpha1.BrokerAccess{
	URLSecretRef: v1alpha1.KeyReference{LocalReference: v1alpha1.LocalReference{Name: "url"}}, TLSSecretRef: &v1alpha1.LocalReference{Name: "tls"},
	CredentialsSecretRef: &v1alpha1.LocalReference{Name: "login"},
}

// kinds are all engines and sources, with the scheme of their URLs. A kind with a Sentinel finds its server
// through one.
var kinds = map[string]string{
	"NATS": "nats://", "Asynq": "redis://", "list": "redis://", "rabbit": "http://", "query": "http://", "consumer": "nats://", "scaler": "",
	"Asynq" + throughSentinel: "redis://", "list" + throughSentinel: "redis://",
}

const throughSentinel = " through a Sentinel"

// serveSentinel serves a Sentinel that names a server. It returns its address.
func serveSentinel(t *testing.T, master string) string {
	return serveAt(t, "127.0.0.1", hostile.ServeRedis(func(conn net.Conn, _ string) {
		host, port, _ := net.SplitHostPort(master)
		_, _ = fmt.Fprintf(conn, "*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
	}))
}

// readAs connects to a server as an engine or a source, and returns the error.
func readAs(ctx context.Context, kind string, o *Options, cluster client.Reader, access v1alpha1.BrokerAccess, address string) error {
	kind, isSentinel := strings.CutSuffix(kind, throughSentinel)
	var sentinel *v1alpha1.RedisSentinel
	if isSentinel {
		sentinel = &v1alpha1.RedisSentinel{MasterName: "main", CredentialsSecretRef: access.CredentialsSecretRef}
	}
	source, isSource := map[string]v1alpha1.Source{
		"list":     {Redis: &v1alpha1.RedisSource{BrokerAccess: access, Sentinel: sentinel, Key: "jobs"}},
		"rabbit":   {RabbitMQ: &v1alpha1.RabbitMQSource{BrokerAccess: access, Queue: "jobs"}},
		"query":    {Prometheus: &v1alpha1.PrometheusSource{BrokerAccess: access, Query: "q"}},
		"consumer": {NATSJetStream: &v1alpha1.NATSJetStreamSource{BrokerAccess: access, Stream: "orders", Consumer: "billing"}},
		"scaler":   {External: &v1alpha1.ExternalSource{Address: address, TLSSecretRef: access.TLSSecretRef}},
	}[kind]
	if isSource {
		conn := &sourceConn{liveReader: cluster, options: o, namespace: ns, spec: &source}
		defer conn.close()
		_, err := conn.readOnce(ctx)
		return err
	}
	credentials, err := brokeraccess.ReadCredentials(ctx, cluster, brokeraccess.KeyOf(ns, &v1alpha1.Broker{Engine: v1alpha1.Engine(kind), BrokerAccess: access, Sentinel: sentinel}))
	if err != nil {
		return err
	}
	engine, err := dial.Connect(ctx, dial.EngineName(kind), o.through(credentials, ns))
	if err != nil {
		return err
	}
	defer engine.Disconnect()
	_, err = engine.Stats(ctx, "orders")
	return err
}

func TestNothingIsRevealedBeforeAServerAnswers(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer web.Close()
	kubernetes := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","status":"Failure","message":"forbidden","code":403}`)
	}))
	defer kubernetes.Close()
	secured := httptest.NewUnstartedServer(http.NotFoundHandler())
	secured.Config.ErrorLog = log.New(io.Discard, "", 0) // failed handshakes
	secured.StartTLS()
	defer secured.Close()
	redirect := httptest.NewServer(http.RedirectHandler(web.URL, http.StatusFound))
	defer redirect.Close()
	hostOf := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	o := &Options{Dialer: localDialer}
	o.setDefaults()
	messages := map[string]map[string]string{} // by engine or source, then by message
	for name, address := range map[string]string{
		"nothing listens":           "127.0.0.1:1",
		"the name does not resolve": "nothing.invalid:80",
		"silence":                   serveAt(t, "127.0.0.1", hostile.Send("")),
		"the connection is closed":  serveAt(t, "127.0.0.1", func(net.Conn) {}),
		"an SSH server":             serveAt(t, "127.0.0.1", hostile.Send("SSH-2.0-OpenSSH_9.6\r\n")),
		"an SMTP server":            serveAt(t, "127.0.0.1", hostile.Send("220 mail.example ESMTP\r\n")),
		"a web server":              hostOf(web),
		"the Kubernetes API":        hostOf(kubernetes),
		"a redirect":                hostOf(redirect),
		"a server with TLS":         hostOf(secured),
	} {
		for kind, scheme := range kinds {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			url := scheme + address
			if strings.HasSuffix(kind, throughSentinel) {
				url = scheme + serveSentinel(t, address)
			}
			cluster := fake.NewClientBuilder().WithObjects(newSecret("url", "url", url)).Build()
			err := readAs(ctx, kind, o, cluster, accessWithURL("url"), address)
			cancel()
			if broker.ClassOf(err) != broker.ClassUnreachable {
				t.Errorf("%s as %s: %v is %s", name, kind, err, broker.ClassOf(err))
				continue
			}
			if messages[kind] == nil {
				messages[kind] = map[string]string{}
			}
			messages[kind][err.Error()] = name
		}
	}
	for kind, all := range messages {
		require.True(t, len(all) == 1, "%s: the causes have different messages: %q", kind, all)
	}
}

func TestTheCauseIsShownOnceTheServerHasAnswered(t *testing.T) {
	t.Parallel()
	nats := natstest.Start(t, func(o *server.Options) { o.Username, o.Password = "u", "p" })
	redis := redistest.Start(t, "--requirepass", "p")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		if strings.HasPrefix(r.URL.Path, "/api/queues") {
			_, _ = io.WriteString(w, `{"error":"not_authorized","reason":"Login failed"}`)
		} else {
			_, _ = io.WriteString(w, `{"status":"error","errorType":"bad_data","error":"no"}`)
		}
	}))
	defer web.Close()
	locked := serveAt(t, "127.0.0.1", hostile.ServeRedis(func(conn net.Conn, _ string) { _, _ = io.WriteString(conn, "-NOAUTH Authentication required.\r\n") }))
	o := &Options{Dialer: localDialer}
	o.setDefaults()
	for kind, row := range map[string]struct{ url, want string }{
		"NATS":                    {nats.ClientURL(), "Authorization Violation"},
		"consumer":                {nats.ClientURL(), "Authorization Violation"},
		"Asynq":                   {redis.URL(), "NOAUTH"},
		"list":                    {redis.URL(), "NOAUTH"},
		"Asynq" + throughSentinel: {"redis://" + locked, "asking a Sentinel for the master: NOAUTH"},
		"list" + throughSentinel:  {"redis://" + serveSentinel(t, redis.Address()), "NOAUTH"},
		"rabbit":                  {web.URL, "401"},
		"query":                   {web.URL, "401"},
	} {
		cluster := fake.NewClientBuilder().WithObjects(newSecret("url", "url", row.url)).Build()
		err := readAs(t.Context(), kind, o, cluster, accessWithURL("url"), "127.0.0.1:1")
		if broker.ClassOf(err) != broker.ClassUnauthorized || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v is %s", kind, err, broker.ClassOf(err))
		}
	}
}

func TestADeniedAddressIsNamedOnlyIfTheUserWroteIt(t *testing.T) {
	t.Parallel()
	o := &Options{Dialer: bounded.NewDialer(bounded.Options{})}
	o.setDefaults()
	for kind, scheme := range kinds {
		cluster := fake.NewClientBuilder().WithObjects(newSecret("url", "url", scheme+"169.254.169.254:80")).Build()
		err := readAs(t.Context(), kind, o, cluster, accessWithURL("url"), "169.254.169.254:80")
		if broker.ClassOf(err) != broker.ClassInvalid || !strings.Contains(err.Error(), "does not connect to this address") {
			t.Errorf("%s: %v is %s", kind, err, broker.ClassOf(err))
		}
	}
}

// secretMarker is a part of each secret value of the next test.
const secretMarker = "H1dd3nMark"

// echoServers quote in their errors what they receive, as some real servers do.
func echoServers(t *testing.T) []string {
	redis := serveAt(t, "127.0.0.1", func(conn net.Conn) {
		buffer := make([]byte, 4096)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(conn, "-ERR unknown command, with args beginning with: %s\r\n", strings.ReplaceAll(string(buffer[:n]), "\r\n", " "))
		}
	})
	nats := serveAt(t, "127.0.0.1", func(conn net.Conn) {
		_, _ = io.WriteString(conn, hostile.NATSInfo)
		line, _ := bufio.NewReader(conn).ReadString('\n')
		_, _ = fmt.Fprintf(conn, "-ERR '%s'\r\n", strings.TrimSpace(line))
	})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"status":"error","errorType":"bad_data","error":%q,"reason":"x"}`, fmt.Sprint(strings.Repeat("x", 260), r.Header, r.URL))
	}))
	t.Cleanup(web.Close)
	return []string{"nats://" + nats, "redis://" + redis, web.URL}
}

// randomSecrets returns the Secrets url, tls and login, whose values contain the marker in the places
// where users put secrets, or in a place where none belongs.
func randomSecrets(r *rand.Rand, servers []string) []client.Object {
	odd := func() string {
		parts := []string{secretMarker, "%", "%zz", ":", "/", "@", "?", "#", " ", ",", "\n", "[", "]", "://", "x", "9", "é", "\x00", secretMarker}
		r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		return strings.Join(parts[:1+r.IntN(5)], "")
	}
	scheme, host, _ := strings.Cut(servers[r.IntN(len(servers))], "://")
	urls := []string{
		odd(), secretMarker, scheme + "://" + odd(), odd() + "://" + host, scheme + "://" + host + "/" + odd(), scheme + "://" + host + odd(),
		scheme + "://" + odd() + "@" + host, scheme + "://u:" + secretMarker + "@" + host, scheme + "://" + secretMarker + "@" + host,
		scheme + "://127.0.0.1:" + secretMarker, scheme + "://" + secretMarker + ":1", scheme + "://" + host, scheme + "://" + host + "," + odd(),
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(odd())})
	tls := newSecret("tls", "ca.crt", odd(), "tls.crt", string(block), "tls.key", odd())
	login := newSecret("login", "username", odd(), "password", secretMarker)
	switch r.IntN(5) {
	case 0:
		login = newSecret("login", "token", secretMarker)
	case 1:
		login = newSecret("login", "creds", "-----BEGIN NATS USER JWT-----\n"+odd()+"\n------END NATS USER JWT------\n"+odd())
	case 2:
		login = newSecret("login", "username", "u", "password", secretMarker)
	case 3:
		login = newSecret("login", "nkey", []string{odd(), "SU" + secretMarker}[r.IntN(2)])
	}
	return []client.Object{newSecret("url", "url", urls[r.IntN(len(urls))]), tls, login}
}

func TestNoErrorContainsAPartOfASecret(t *testing.T) {
	t.Parallel()
	locked := natstest.Start(t, func(o *server.Options) { o.Username, o.Password = "u", "p" })
	password := redistest.Start(t, "--requirepass", "p")
	servers := append(echoServers(t), locked.ClientURL(), password.URL())
	o := &Options{Dialer: localDialer}
	o.setDefaults()
	var group sync.WaitGroup
	for seed := range uint64(400) {
		group.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			secrets := randomSecrets(r, servers)
			access := concealedAccess
			if r.IntN(2) == 0 {
				access.TLSSecretRef = nil
			}
			if r.IntN(2) == 0 {
				access.CredentialsSecretRef = nil
			}
			cluster := fake.NewClientBuilder().WithObjects(secrets...).Build()
			for kind := range kinds {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				err := readAs(ctx, kind, o, cluster, access, "127.0.0.1:1")
				cancel()
				if err != nil && strings.Contains(strings.ToLower(err.Error()), strings.ToLower(secretMarker)) {
					t.Errorf("seed %d as %s: %v (URL %q)", seed, kind, err, secrets[0].(*corev1.Secret).Data["url"])
				}
			}
		})
	}
	group.Wait()
}

func TestASecretNameThatIsInvalidIsReported(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a/b", "../..", "UPPER", "a_b", strings.Repeat("a", 254)} {
		_, err := brokeraccess.ReadCredentials(t.Context(), fake.NewClientBuilder().Build(), brokeraccess.KeyOf(ns, natsBroker(name)))
		if problem, is := err.(*brokeraccess.ConnectionError); !is || problem.Reason != v1alpha1.ReasonSecretInvalid { //nolint:errorlint // it is returned unwrapped
			t.Errorf("%q: %v", name, err)
		}
	}
}
