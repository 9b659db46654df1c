package brokerconn

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream/natstest"
)

const (
	// hugeSize is more than the operator has.
	hugeSize = 600 << 20
	// maxAllocated is the most that one hostile broker may make the process allocate.
	maxAllocated = 48 << 20
	// maxReportTime is until a hostile broker is reported: a request and a message time out.
	maxReportTime = 10 * time.Second
)

// serveAt serves connections at a loopback address until the test ends. It returns host:port.
func serveAt(t *testing.T, host string, serve func(net.Conn)) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// flood sends the text again and again, up to hugeSize bytes.
func flood(conn net.Conn, text string) {
	block := []byte(strings.Repeat(text, 1+64<<10/len(text)))
	for sent := 0; sent < hugeSize; sent += len(block) {
		if _, err := conn.Write(block); err != nil {
			return
		}
	}
}

// dribble sends one byte after another, for longer than any timeout.
func dribble(conn net.Conn, text string) {
	for i := 0; ; i++ {
		if _, err := conn.Write([]byte{text[i%len(text)]}); err != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// afterRequest waits for bytes from the client.
func afterRequest(conn net.Conn) { _, _ = conn.Read(make([]byte, 4096)) }

const natsInfo = `INFO {"server_id":"A","version":"2.12.0","proto":1,"headers":true,"max_payload":1048576}` + "\r\n"

// asNATS completes the handshake and then waits for the first request.
func asNATS(attack func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = io.WriteString(conn, natsInfo)
		reader := bufio.NewReader(conn)
		for {
			line, err := reader.ReadString('\n')
			switch {
			case err != nil:
				return
			case strings.HasPrefix(line, "PING"):
				_, _ = io.WriteString(conn, "PONG\r\n")
			case strings.HasPrefix(line, "SUB"):
				go func() { _, _ = io.Copy(io.Discard, reader) }()
				attack(conn)
				return
			}
		}
	}
}

// asRedis replies to the first request with an attack.
func asRedis(attack func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		afterRequest(conn)
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		attack(conn)
	}
}

// serveRedis replies to the commands that open a connection, and leaves the others to reply.
func serveRedis(reply func(conn net.Conn, command string)) func(net.Conn) {
	return func(conn net.Conn) {
		reader := bufio.NewReader(conn)
		for {
			line, err := reader.ReadString('\n')
			if err != nil {
				return
			}
			parts, _ := strconv.Atoi(strings.TrimSpace(line[1:])) // "*2" starts a command of two parts
			var command string
			for part := range parts {
				_, _ = reader.ReadString('\n')
				if line, err = reader.ReadString('\n'); err != nil {
					return
				}
				if part == 0 {
					command = strings.ToLower(strings.TrimSpace(line))
				}
			}
			switch command {
			case "hello":
				_, _ = io.WriteString(conn, "-ERR unknown command\r\n")
			case "client", "ping":
				_, _ = io.WriteString(conn, "+OK\r\n")
			default:
				reply(conn, command)
			}
		}
	}
}

func send(text string) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = io.WriteString(conn, text)
		_, _ = io.Copy(io.Discard, conn)
	}
}

func sendThenFlood(start, text string) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = io.WriteString(conn, start)
		flood(conn, text)
	}
}

func dribbled(text string) func(net.Conn) { return func(conn net.Conn) { dribble(conn, text) } }

type hostileBroker struct {
	engine v1alpha1.Engine
	scheme string
	serve  func(net.Conn)
}

func hostileBrokers() map[string]hostileBroker {
	nats := func(serve func(net.Conn)) hostileBroker { return hostileBroker{v1alpha1.EngineNATS, "nats", serve} }
	redis := func(attack func(net.Conn)) hostileBroker {
		return hostileBroker{v1alpha1.EngineAsynq, "redis", asRedis(attack)}
	}
	manyURLs := `INFO {"server_id":"A","version":"2.12.0","connect_urls":["` + strings.Repeat(`10.0.0.1:4222","`, 100_000) + `10.0.0.2:4222"]}` + "\r\n"
	return map[string]hostileBroker{
		"NATS: a message of 600 MB":                    nats(asNATS(sendThenFlood("MSG a 1 600000000\r\n", "x"))),
		"NATS: an announced message of 600 MB":         nats(asNATS(send("MSG a 1 600000000\r\n"))),
		"NATS: an announced message within the budget": nats(asNATS(send("MSG a 1 16000000\r\n"))),
		"NATS: a header of 600 MB":                     nats(asNATS(sendThenFlood("HMSG a 1 600000000 600000000\r\nNATS/1.0\r\n", "a: b\r\n"))),
		"NATS: a JSON document of empty elements":      nats(asNATS(sendThenFlood("MSG a 1 16000000\r\n{\"streams\":[", "{},"))),
		"NATS: endless INFO":                           nats(asNATS(sendThenFlood("", natsInfo))),
		"NATS: endless +OK":                            nats(asNATS(sendThenFlood("", "+OK\r\n"))),
		"NATS: endless PING":                           nats(asNATS(sendThenFlood("", "PING\r\n"))),
		"NATS: endless messages":                       nats(asNATS(sendThenFlood("", "MSG a 1 2\r\nok\r\n"))),
		"NATS: a first line without an end":            nats(sendThenFlood(`INFO {"server_id":"`, "x")),
		"NATS: a first line that dribbles":             nats(dribbled(natsInfo)),
		"NATS: a message that dribbles":                nats(asNATS(dribbled("MSG a 1 1000\r\n" + strings.Repeat("x", 1000)))),
		"NATS: 100,000 servers":                        nats(send(manyURLs)),
		"NATS: closes after the start of TLS":          nats(func(conn net.Conn) { _, _ = io.WriteString(conn, tlsInfo); afterRequest(conn) }),
		"NATS: silence":                                nats(send("")),
		"NATS: closes at once":                         nats(func(net.Conn) {}),

		"Redis: a string of 600 MB":           redis(sendThenFlood("$600000000\r\n", "x")),
		"Redis: an announced string":          redis(send("$600000000\r\n")),
		"Redis: a string within the budget":   redis(send("$16000000\r\n")),
		"Redis: an announced array":           redis(send("*600000000\r\n")),
		"Redis: a million nested arrays":      redis(sendThenFlood("", "*1\r\n")),
		"Redis: an array of empty arrays":     redis(sendThenFlood("*200000\r\n", "*0\r\n")),
		"Redis: endless +OK":                  redis(sendThenFlood("", "+OK\r\n")),
		"Redis: an error of 600 MB":           redis(sendThenFlood("-ERR ", "x")),
		"Redis: endless push messages":        redis(sendThenFlood("", ">1\r\n+x\r\n")),
		"Redis: a reply that dribbles":        redis(dribbled("$1000\r\n" + strings.Repeat("x", 1000))),
		"Redis: a line that dribbles":         redis(dribbled("+" + strings.Repeat("x", 10_000))),
		"Redis: silence":                      redis(send("")),
		"Redis: closes after the TLS hello":   {v1alpha1.EngineAsynq, "rediss", afterRequest},
		"Redis: a TLS handshake that is slow": {v1alpha1.EngineAsynq, "rediss", dribbled("\x16\x03\x03\x40\x00" + strings.Repeat("x", 1000))},
	}
}

const tlsInfo = `INFO {"server_id":"A","version":"2.12.0","tls_required":true}` + "\r\n"

func TestAReplyBeyondTheBudgetIsNamed(t *testing.T) {
	address := serveAt(t, "127.0.0.1", asNATS(send("MSG a 1 600000000\r\n")))
	m := startManager(t, newSecret("hostile", "url", "nats://"+address))
	if err := m.waitForReason(natsBroker("hostile"), v1alpha1.ReasonConnectionFailed); !strings.Contains(err.Error(), "more than 16 MiB") {
		t.Errorf("%v", err)
	}
}

func allocatedBytes() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func TestAHostileBrokerIsReportedWithBoundedMemoryAndTime(t *testing.T) {
	healthy := natstest.Start(t)
	for name, row := range hostileBrokers() {
		t.Run(name, func(t *testing.T) {
			address := serveAt(t, "127.0.0.1", row.serve)
			m := startManager(t, newSecret("hostile", "url", row.scheme+"://"+address), newSecret("healthy", "url", healthy.ClientURL()))
			m.waitForReason(natsBroker("healthy"), "")
			hostile := natsBroker("hostile")
			hostile.Engine = row.engine
			start, before := time.Now(), allocatedBytes()
			err := m.waitForReason(hostile, v1alpha1.ReasonConnectionFailed)
			if took := time.Since(start); took > maxReportTime {
				t.Errorf("it is reported after %s", took)
			}
			allocated := allocatedBytes() - before
			t.Logf("%d MiB were allocated in %s: %v", allocated>>20, time.Since(start), err)
			if allocated > maxAllocated {
				t.Errorf("%d MiB were allocated", allocated>>20)
			}
			if len(err.Error()) > 2000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			m.assertAnswers(natsBroker("healthy"))
		})
	}
}

// assertAnswers reads stats from a broker within a second.
func (m *testManager) assertAnswers(b *v1alpha1.Broker) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Second)
	defer cancel()
	if _, err := m.Conn(ns, b).Stats(ctx, "orders", 0); broker.ClassOf(err) != broker.ClassNotFound {
		m.t.Errorf("another tenant's broker: %v", err)
	}
}

// A source is read within a reconciliation, which must end in time.
func TestAHostileSourceFailsWithBoundedMemoryAndTime(t *testing.T) {
	access := accessWithURL("url")
	list := v1alpha1.Source{RedisList: &v1alpha1.RedisListSource{BrokerAccess: access, Key: "jobs"}}
	rabbit := v1alpha1.Source{RabbitMQ: &v1alpha1.RabbitMQSource{BrokerAccess: access, Queue: "jobs"}}
	query := v1alpha1.Source{Prometheus: &v1alpha1.PrometheusSource{BrokerAccess: access, Query: "q"}}
	scaler := v1alpha1.Source{External: &v1alpha1.ExternalSource{}}
	redisScript := func(attack func(net.Conn)) func(net.Conn) {
		return serveRedis(func(conn net.Conn, command string) {
			if command == "llen" {
				attack(conn)
			}
		})
	}
	web := func(text string) func(net.Conn) {
		return asRedis(sendThenFlood("HTTP/1.1 200 OK\r\nContent-Length: 600000000\r\n\r\n"+text, "{},"))
	}
	for name, row := range map[string]struct {
		source v1alpha1.Source
		scheme string
		serve  func(net.Conn)
	}{
		"LLEN answers with 600 MB":       {list, "redis://", redisScript(sendThenFlood("$600000000\r\n", "x"))},
		"LLEN dribbles":                  {list, "redis://", redisScript(dribbled("$1000\r\n" + strings.Repeat("x", 1000)))},
		"RabbitMQ answers with 600 MB":   {rabbit, "http://", web(`{"vhost":"/","x":[`)},
		"Prometheus answers with 600 MB": {query, "http://", web(`{"status":"success","data":{"resultType":"vector","result":[`)},
		"a header of 600 MB":             {query, "http://", asRedis(sendThenFlood("HTTP/1.1 200 OK\r\n", "A: b\r\n"))},
		"a response that dribbles":       {query, "http://", asRedis(dribbled("HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 1000)))},
		"gRPC: endless settings":         {scaler, "", asRedis(sendThenFlood("", "\x00\x00\x00\x04\x00\x00\x00\x00\x00"))},
		"gRPC: endless pings":            {scaler, "", asRedis(sendThenFlood("\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"))},
		"gRPC: data without a request":   {scaler, "", asRedis(sendThenFlood("\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x40\x00\x00\x00\x00\x00\x00\x01"+strings.Repeat("x", 1<<14)))},
		"gRPC: a frame that dribbles":    {scaler, "", asRedis(dribbled("\x00\x40\x00\x04\x00\x00\x00\x00\x00" + strings.Repeat("x", 1000)))},
	} {
		t.Run(name, func(t *testing.T) {
			address := serveAt(t, "127.0.0.1", row.serve)
			reader := NewSourceReader(fake.NewClientBuilder().WithObjects(newSecret("url", "url", row.scheme+address)).Build(), shortIntervals)
			if row.source.External != nil {
				row.source.External.Address = address
			}
			start, before := time.Now(), allocatedBytes()
			stats, err := reader.ReadBacklog(t.Context(), ns, &row.source)
			if err == nil {
				t.Errorf("it returns %+v", stats)
			}
			if took := time.Since(start); took > 2*reader.options.RequestTimeout {
				t.Errorf("it took %s", took)
			}
			if allocated := allocatedBytes() - before; allocated > maxAllocated {
				t.Errorf("%d MiB were allocated", allocated>>20)
			}
		})
	}
}

// The address 127.0.0.2 stands for one that the operator must not reach.
func TestServersThatABrokerAnnouncesAreCheckedToo(t *testing.T) {
	var contacts atomic.Int32
	internal := serveAt(t, "127.0.0.2", func(net.Conn) { contacts.Add(1) })
	nats := serveAt(t, "127.0.0.1", asNATSWithURLs(internal))
	redis := serveAt(t, "127.0.0.1", serveRedis(func(conn net.Conn, command string) {
		if command == "cluster" {
			host, port, _ := net.SplitHostPort(internal)
			_, _ = fmt.Fprintf(conn, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
			return
		}
		_, _ = fmt.Fprintf(conn, "-MOVED 1 %s\r\n", internal)
	}))
	for name, row := range map[string]struct {
		engine v1alpha1.Engine
		url    string
	}{
		"discovered by NATS":          {v1alpha1.EngineNATS, "nats://" + nats},
		"redirection of a Redis node": {v1alpha1.EngineAsynq, "redis://" + redis + ",redis://" + redis},
	} {
		for _, isDenied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, denied: %t", name, isDenied), func(t *testing.T) {
				o := bounded.Options{AllowLocal: true}
				if isDenied {
					o.Deny = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
				}
				m := startManager(t, newSecret("hostile", "url", row.url))
				m.options.Dialer = bounded.NewDialer(o)
				contacts.Store(0)
				b := natsBroker("hostile")
				b.Engine = row.engine
				m.waitForReason(b, v1alpha1.ReasonConnectionFailed)
				if contacts.Load() > 0 == isDenied {
					t.Errorf("the announced server was contacted %d times", contacts.Load())
				}
			})
		}
	}
}

// asNATSWithURLs announces another server and closes the connection.
func asNATSWithURLs(other string) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = fmt.Fprintf(conn, `INFO {"server_id":"A","version":"2.12.0","connect_urls":[%q]}`+"\r\n", other)
		afterRequest(conn)
	}
}
