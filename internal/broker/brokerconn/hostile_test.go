package brokerconn

import (
	"bufio"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
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
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
)

const (
	// maxAllocated is the most that one hostile broker may make the process allocate.
	maxAllocated = 48 << 20
	// maxReportTime is until a hostile broker is reported: a request and a message time out.
	maxReportTime = 10 * time.Second
)

// serveAt serves connections at a loopback address until the test ends. It returns host:port.
func serveAt(t *testing.T, host string, serve hostile.Attack) string {
	t.Helper()
	listener := require.Call((&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(host, "0"))).Succeeds(t)
	t.Cleanup(func() { _ = listener.Close() })
	go hostile.Serve(listener, serve)
	return listener.Addr().String()
}

func TestAReplyBeyondTheBudgetIsNamed(t *testing.T) {
	address := serveAt(t, "127.0.0.1", hostile.AsNATS(hostile.Send("MSG a 1 600000000\r\n")))
	m := startImpatientManager(t, newSecret("hostile", "url", "nats://"+address))
	err := m.waitForReason(natsBroker("hostile"), v1alpha1.ReasonConnectionFailed)
	require.True(t, strings.Contains(err.Error(), "more than 8 MiB"), "%v", err)
}

func allocatedBytes() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// requireBounded fails the test unless an attack fails with a short error, little memory and in time. On a busy machine it can take longer,
// so it is prepared and measured again.
func requireBounded(t *testing.T, atMost time.Duration, prepare func() (attack func() error, end func())) {
	t.Helper()
	require.NoError(t, poll.UntilNil(t.Context(), func() error {
		attack, end := prepare()
		defer end()
		start, before := time.Now(), allocatedBytes()
		err := attack()
		took, allocated := time.Since(start), allocatedBytes()-before
		t.Logf("%d MiB were allocated in %s: %v", allocated>>20, took, err)
		require.True(t, allocated <= maxAllocated, "%d MiB were allocated", allocated>>20)
		require.True(t, err != nil && len(err.Error()) <= 2000, "the error is %v", err)
		if took > atMost {
			return fmt.Errorf("it took %s, want at most %s", took, atMost)
		}
		return nil
	}))
}

func TestAHostileBrokerIsReportedWithBoundedMemoryAndTime(t *testing.T) {
	healthy := natstest.Start(t)
	for name, row := range hostile.Brokers() {
		t.Run(name, func(t *testing.T) {
			address := serveAt(t, "127.0.0.1", row.Attack)
			requireBounded(t, maxReportTime, func() (attack func() error, end func()) {
				m := startImpatientManager(t, newSecret("hostile", "url", row.Scheme+"://"+address), newSecret("healthy", "url", healthy.ClientURL()))
				m.waitForReason(natsBroker("healthy"), "")
				attacker := natsBroker("hostile")
				attacker.Engine = row.Engine
				return func() error { return m.waitForReason(attacker, v1alpha1.ReasonConnectionFailed) }, func() {
					m.assertAnswers(natsBroker("healthy"))
					m.stopNow()
				}
			})
		})
	}
}

// The failover client of the Redis library ends the process if a Sentinel answers with too few values.
func TestAHostileSentinelIsReportedWithBoundedMemoryAndTime(t *testing.T) {
	answers := func(text string) hostile.Attack {
		return hostile.ServeRedis(func(conn net.Conn, _ string) { _, _ = io.WriteString(conn, text) })
	}
	attacks := map[string]hostile.Attack{"no values": answers("*0\r\n"), "one value": answers("*1\r\n$1\r\na\r\n"), "no text": answers("*2\r\n*0\r\n*0\r\n")}
	for name, broker := range hostile.Brokers() {
		if broker.Engine == v1alpha1.EngineAsynq && broker.Scheme == "redis" {
			attacks[name] = broker.Attack
		}
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			requireBounded(t, maxReportTime, func() (func() error, func()) {
				m := startImpatientManager(t, newSecret("hostile", "url", "redis://"+serveAt(t, "127.0.0.1", attack)))
				b := natsBroker("hostile")
				b.Engine, b.Sentinel = v1alpha1.EngineAsynq, &v1alpha1.RedisSentinel{MasterName: "main"}
				return func() error { return m.waitForReason(b, v1alpha1.ReasonConnectionFailed) }, m.stopNow
			})
		})
	}
}

// startImpatientManager starts a Manager whose requests have a second.
func startImpatientManager(t *testing.T, secrets ...client.Object) *testManager {
	t.Helper()
	m := startManager(t, secrets...)
	m.options.RequestTimeout = time.Second
	return m
}

// assertAnswers reads stats from a broker within a second.
func (m *testManager) assertAnswers(b *v1alpha1.Broker) {
	m.t.Helper()
	require.NoError(m.t, poll.UntilNil(m.t.Context(), func() error { // a busy machine can be late
		ctx, cancel := context.WithTimeout(m.t.Context(), time.Second)
		defer cancel()
		if _, err := m.Conn(ns, b).Stats(ctx, "orders", 0); broker.ClassOf(err) != broker.ClassNotFound {
			return fmt.Errorf("another tenant's broker: %w", err)
		}
		return nil
	}))
}

// A source is read within a reconciliation, which must end in time.
func TestAHostileSourceFailsWithBoundedMemoryAndTime(t *testing.T) {
	sources := hostile.Sources()
	for name, row := range hostile.Brokers() {
		if row.Engine == v1alpha1.EngineNATS {
			sources[name] = hostile.NATSSource(row)
		}
	}
	for name, row := range sources {
		t.Run(name, func(t *testing.T) {
			address, o := serveAt(t, "127.0.0.1", row.Attack), shortIntervals
			o.RequestTimeout = time.Second
			requireBounded(t, o.RequestTimeout+3*time.Second, func() (attack func() error, end func()) {
				reader := NewSourceReader(fake.NewClientBuilder().WithObjects(newSecret("url", "url", row.Scheme+address)).Build(), o)
				source := row.Spec("url", address)
				return func() error { _, err := reader.ReadBacklog(t.Context(), ns, &source); return err }, func() {
					for _, conn := range reader.conns { // it would reconnect during the next attack
						conn.close()
					}
				}
			})
		})
	}
}

// The address 127.0.0.2 stands for one that the operator must not reach.
func TestServersThatABrokerAnnouncesAreCheckedToo(t *testing.T) {
	var contacts atomic.Int32
	internal := serveAt(t, "127.0.0.2", func(net.Conn) { contacts.Add(1) })
	nats := serveAt(t, "127.0.0.1", asNATSWithURLs(internal))
	redis := serveAt(t, "127.0.0.1", hostile.ServeRedis(func(conn net.Conn, command string) {
		if command == "cluster" {
			host, port, _ := net.SplitHostPort(internal)
			_, _ = fmt.Fprintf(conn, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
			return
		}
		_, _ = fmt.Fprintf(conn, "-MOVED 1 %s\r\n", internal)
	}))
	for name, row := range map[string]struct {
		engine   v1alpha1.Engine
		url      string
		sentinel *v1alpha1.RedisSentinel
	}{
		"discovered by NATS":           {v1alpha1.EngineNATS, "nats://" + nats, nil},
		"redirection of a Redis node":  {v1alpha1.EngineAsynq, "redis://" + redis + ",redis://" + redis, nil},
		"master that a Sentinel names": {v1alpha1.EngineAsynq, "redis://" + serveSentinel(t, internal), &v1alpha1.RedisSentinel{MasterName: "main"}},
	} {
		for _, isDenied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, denied: %t", name, isDenied), func(t *testing.T) {
				o := bounded.Options{AllowLocal: true}
				if isDenied {
					o.Deny = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
				}
				m := startImpatientManager(t, newSecret("hostile", "url", row.url))
				m.options.Dialer = bounded.NewDialer(o)
				contacts.Store(0)
				b := natsBroker("hostile")
				b.Engine, b.Sentinel = row.engine, row.sentinel
				err := m.waitForReason(b, v1alpha1.ReasonConnectionFailed)
				require.True(t, row.sentinel == nil || errors.Is(err, broker.ErrUnreachable), "the cause is revealed: %v", err)
				require.True(t, (contacts.Load() == 0) == isDenied, "the announced server was contacted %d times", contacts.Load())
			})
		}
	}
}

// asNATSWithURLs announces another server and closes the connection.
func asNATSWithURLs(other string) hostile.Attack {
	return func(conn net.Conn) {
		_, _ = fmt.Fprintf(conn, `INFO {"server_id":"A","version":"2.12.0","connect_urls":[%q]}`+"\r\n", other)
		hostile.AfterRequest(conn)
	}
}

// concealedAccess is an access of each kind, with the Secrets url, tls and login.
var concealedAccess = v1alpha1.BrokerAccess{
	URLSecretRef: v1alpha1.KeyReference{LocalReference: v1alpha1.LocalReference{Name: "url"}}, TLSSecretRef: &v1alpha1.LocalReference{Name: "tls"},
	CredentialsSecretRef: &v1alpha1.LocalReference{Name: "login"},
}

// kinds are all engines and sources, with the scheme of their URLs. A kind with a Sentinel finds its server through one.
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
		var err error
		poll.Until(t, kind+" to be answered in time", func() bool { // on a busy machine, the server may not answer in time
			err = readAs(t.Context(), kind, o, cluster, accessWithURL("url"), "127.0.0.1:1")
			return broker.ClassOf(err) != broker.ClassUnreachable
		})
		require.ErrorContains(t, err, row.want)
		require.True(t, broker.ClassOf(err) == broker.ClassUnauthorized, "%s: %v is %s", kind, err, broker.ClassOf(err))
	}
}

func TestADeniedAddressIsNamedOnlyIfTheUserWroteIt(t *testing.T) {
	t.Parallel()
	o := &Options{Dialer: bounded.NewDialer(bounded.Options{})}
	o.setDefaults()
	for kind, scheme := range kinds {
		cluster := fake.NewClientBuilder().WithObjects(newSecret("url", "url", scheme+"169.254.169.254:80")).Build()
		err := readAs(t.Context(), kind, o, cluster, accessWithURL("url"), "169.254.169.254:80")
		require.ErrorContains(t, err, "does not connect to this address")
		require.True(t, broker.ClassOf(err) == broker.ClassInvalid, "%s: %v is %s", kind, err, broker.ClassOf(err))
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
		problem, is := err.(*brokeraccess.ConnectionError) //nolint:errorlint // it is returned unwrapped
		require.True(t, is && problem.Reason == v1alpha1.ReasonSecretInvalid, "%q: %v", name, err)
	}
}
